"""Comparison of runs: changes of the metrics, and which of the changes are regressions."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from loadtest.errors import ArgumentError, ResultError
from loadtest.experiments.repeat import spread_metrics, summarise_runs
from loadtest.result import capacity, repeated
from loadtest.result.checks import describe_value, failed_checks
from loadtest.result.comparison import Cell, Comparison, Curve, Row, Verdict, describe_change
from loadtest.result.documents import as_document_error, has_file, without_links
from loadtest.result.histogram import Histogram
from loadtest.result.metrics import Metric
from loadtest.result.paths import flatten
from loadtest.result.repeated import MetricSpread, Repeated, read_repeated
from loadtest.result.schema import Result, read_result
from subjectbus import UsageError, settings

_NOT_COMPARED = ("name", "description")
"""Keys of a scenario that do not affect a run."""


@dataclass(frozen=True)
class Side:
    """One run or a series of repeated runs, with their summary."""

    name: str
    results: Sequence[Result]
    summary: Repeated
    latencies: Histogram
    """Latencies of all runs that completed."""

    @property
    def spreads(self) -> dict[Metric, MetricSpread]:
        """Values of the side's runs, by metric."""
        return {spread.metric: spread for spread in self.summary.metrics}


Source = str | os.PathLike[str] | Result | Sequence[Result]
"""Folder of a run or of repeated runs, a result, or the results of several runs of one scenario."""


def read_sides(runs: Sequence[Source] | Mapping[str, Source]) -> list[Side]:
    """Return the runs as sides, with the given names or else names from their folders or positions.

    Raises:
        ResultError: A folder does not have a run or a series of repeated runs, or cannot be read.
    """
    named = runs.items() if isinstance(runs, Mapping) else zip(_names(runs), runs, strict=True)
    return [_side(name, source) for name, source in named]


def compare_runs(sides: Sequence[Side], tolerance: float, judged: Sequence[str] = ()) -> Comparison:
    """Compare every side with the first one, the baseline.

    Args:
        sides: Sides to compare, at least two.
        tolerance: Share by which a judged metric may be worse.
        judged: Names of the metrics to judge. Empty for the metrics that are judged by default.

    Raises:
        UsageError: The baseline has no metrics, or `judged` names an unknown metric or one that has no
            better direction.
    """
    baseline, *others = sides
    if not baseline.summary.metrics:
        why = baseline.summary.error or "it has no run"
        raise UsageError(f"compare: {baseline.name} has no metrics to compare with: {why}")
    spreads = [side.spreads for side in sides]
    metrics = list(dict.fromkeys(metric for of_side in spreads for metric in of_side))
    metrics.sort(key=lambda metric: _position(metric, spreads))
    chosen = _choose(metrics, judged)
    rows = [_row(metric, spreads, tolerance, is_judged=metric in chosen) for metric in metrics]
    names = [side.name for side in sides]
    regressions: list[str] = []
    for number, side in enumerate(others, 1):
        worse = (describe_change(row, number, names, tolerance) for row in rows)
        regressions += [*_broken(baseline, side), *(text for text in worse if text is not None)]
    return Comparison(
        names=names,
        runs=[len(side.results) for side in sides],
        rows=rows,
        tolerance=tolerance,
        regressions=regressions,
        differences=[text for side in others for text in _differences(baseline, side)],
        curves=[Curve(side.name, side.latencies) for side in sides],
    )


def judge_change(
    metric: Metric, before: MetricSpread, after: MetricSpread, tolerance: float
) -> tuple[float | None, Verdict]:
    """Return the change of the median as a share, and whether the metric is better or worse.

    A change within the tolerance does not count. Neither does a change that is at most as large as the spread
    of the runs of one side.
    """
    change = _change(before.median, after.median)
    if metric.better is None:
        return change, "not judged"
    gain = change if metric.better == "higher" else -change
    if abs(gain) <= tolerance:
        return change, "same"
    if abs(after.median - before.median) <= max(before.spread, after.spread):
        return change, "within spread"
    return change, "better" if gain > 0 else "worse"


def _change(before: float, after: float) -> float:
    if before == after:
        return 0.0
    return (after - before) / abs(before) if before else math.copysign(math.inf, after)


def _row(
    metric: Metric, spreads: Sequence[Mapping[Metric, MetricSpread]], tolerance: float, *, is_judged: bool
) -> Row:
    first, *others = (of_side.get(metric) for of_side in spreads)
    cells = [Cell(first, None, "absent" if first is None else "baseline")]
    for of_side, other in zip(spreads[1:], others, strict=True):
        if first is None or other is None:
            # A failed run has no metrics at all. It is reported once, not once for each metric.
            is_missing = is_judged and first is not None and of_side
            cells.append(Cell(other, None, "missing" if is_missing else "absent"))
            continue
        change, verdict = judge_change(metric, first, other, tolerance)
        cells.append(Cell(other, change, verdict if is_judged else "not judged"))
    return Row(metric, cells)


def _choose(metrics: Sequence[Metric], judged: Sequence[str]) -> list[Metric]:
    if not judged:
        return [metric for metric in metrics if metric.judged]
    by_name = {metric.path: metric for metric in metrics if metric.better is not None}
    for name in judged:
        if name not in by_name:
            hint = settings.suggestion(name, by_name) or f" (choose from {', '.join(by_name)})"
            raise ArgumentError("judge", f'no metric "{name}" in these runs{hint}')
    return [by_name[name] for name in judged]


def _broken(baseline: Side, side: Side) -> Iterator[str]:
    """Yield a line for each check that fails in a side and did not fail in the baseline."""
    summary = side.summary
    # Each line names its run. A side of a single run has the name of that run.
    where = f"{side.name}/" if len(side.results) > 1 else ""
    if summary.error is not None and (baseline.summary.error is None or not summary.metrics):
        yield f"failed: {where}{summary.error}"
    known = {kind for result in baseline.results for kind, _ in failed_checks(result)}
    for run, result in zip(summary.runs, side.results, strict=True):
        yield from (f"{where}{run}: {text}" for kind, text in failed_checks(result) if kind not in known)
    held = {outcome.expr for outcome in baseline.summary.thresholds if outcome.holds}
    for outcome in summary.thresholds:
        if outcome.expr in held and not outcome.holds:
            value = describe_value(outcome)
            yield f"{side.name}: threshold {outcome.expr} (is {value}), which {baseline.name} holds"


def _differences(baseline: Side, side: Side) -> Iterator[str]:
    """Yield a line for each difference in scenario, environment and target."""
    for what, ours, theirs in (
        ("scenario", baseline.summary.scenario, side.summary.scenario),
        ("environment", baseline.summary.environment, side.summary.environment),
        ("target", {"": baseline.summary.target}, {"": side.summary.target}),
    ):
        before, after = dict(flatten(ours)), dict(flatten(theirs))
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key) and key not in _NOT_COMPARED:
                label = f"{what} {key}".strip()
                values = (
                    f"{_text(before.get(key))} in {baseline.name}, {_text(after.get(key))} in {side.name}"
                )
                yield f"{label}: {values}"


def _text(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _position(metric: Metric, spreads: Sequence[Mapping[Metric, MetricSpread]]) -> int:
    """Return the position of the metric in the first side that has it."""
    return next(list(of_side).index(metric) for of_side in spreads if metric in of_side)


def _names(runs: Sequence[Source]) -> list[str]:
    """Return the folders' names, with parents as needed to be distinct; results are numbered."""
    folders = [Path(run) for run in runs if isinstance(run, str | os.PathLike)]
    folder_names = iter(_folder_names(folders))
    return [
        next(folder_names) if isinstance(run, str | os.PathLike) else f"result {number}"
        for number, run in enumerate(runs, 1)
    ]


def _folder_names(folders: Sequence[Path]) -> list[str]:
    paths = [without_links(folder).parts for folder in folders]
    longest = max(map(len, paths), default=0)
    for depth in range(1, longest + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _side(name: str, source: Source) -> Side:
    if isinstance(source, str | os.PathLike):
        return _read_side(Path(source), name)
    if isinstance(source, Result):
        return _make_side(name, None, {name: source})
    return _make_side(name, None, {f"run-{number}": result for number, result in enumerate(source, 1)})


def _read_side(folder: Path, name: str) -> Side:
    if has_file(folder / repeated.FILE):
        summary = read_repeated(folder)
        folders = {run: folder / run for run in summary.runs}
    elif has_file(folder / capacity.FILE):
        raise ResultError(f"{folder}: a search for the capacity; its probes can be compared")
    else:
        summary, folders = None, {name: folder}
    results = {run: read_result(path) for run, path in folders.items()}
    return _make_side(name, summary, results, {run: path / "result.json" for run, path in folders.items()})


def _make_side(
    name: str,
    summary: Repeated | None,
    results: dict[str, Result],
    files: Mapping[str, Path] = MappingProxyType({}),
) -> Side:
    """Return the runs, by name, as one side.

    The metrics are computed from the results, so that they agree with them.

    Raises:
        ResultError: A result has a value that runs do not write; the text names its file, if there is one.
    """
    latencies = Histogram()
    for run, result in results.items():
        with as_document_error(files[run]) if run in files else nullcontext():
            summarise_runs({run: result})
            if result.histograms is not None and not result.error:
                latencies.add(result.histograms.latency)
    if not results:
        raise ResultError(f"{name}: has no runs")
    summary = summary or summarise_runs(results)
    metrics = spread_metrics(list(results.values()))
    return Side(name, list(results.values()), structs.replace(summary, metrics=metrics), latencies)
