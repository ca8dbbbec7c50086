"""Runs side by side: which figures differ, and which of the differences are regressions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from loadtest.errors import ScenarioError
from loadtest.experiments.repeat import spread_figures, summarise_runs
from loadtest.report.artifacts import blaming
from loadtest.report.compare import Cell, Comparison, Row, Verdict
from loadtest.report.compare_charts import Curve
from loadtest.report.verdicts import complaints, describe_value
from loadtest.result import capacity, repeated
from loadtest.result.figures import Figure
from loadtest.result.histogram import Histogram
from loadtest.result.paths import flatten
from loadtest.result.repeated import FigureSpread, Repeated, read_repeated
from loadtest.result.schema import Result, read_result
from subjectbus import UsageError, settings

_UNTOLD = ("name", "description")
"""Of a scenario, what changes nothing."""


@dataclass(frozen=True)
class Side:
    """One run, or the runs of a repeated one, and what they say together."""

    name: str
    results: Sequence[Result]
    summary: Repeated
    latencies: Histogram
    """Of all runs that came to their end."""

    @property
    def spreads(self) -> dict[Figure, FigureSpread]:
        """By figure."""
        return {spread.figure: spread for spread in self.summary.figures}


def read_sides(folders: Sequence[Path]) -> list[Side]:
    """The runs in the folders, named after these.

    Raises:
        ScenarioError: One is no folder of a run or of a repeated one, or cannot be read.
    """
    names = _names(folders)
    return [_read_side(folder, name) for folder, name in zip(folders, names, strict=True)]


def compare_runs(sides: Sequence[Side], tolerance: float, judged: Sequence[str] = ()) -> Comparison:
    """Every side against the first.

    Args:
        sides: At least two.
        tolerance: The share by which a judged figure may be worse.
        judged: Names of the figures to judge; without any, those that are judged by default.

    Raises:
        UsageError: The first has no figures, no side has a judged one, or nothing says what would be better.
    """
    baseline, *others = sides
    if not baseline.summary.figures:
        why = baseline.summary.error or "it has no run"
        raise UsageError(f"compare: {baseline.name} has no figures to compare with: {why}")
    spreads = [side.spreads for side in sides]
    figures = list(dict.fromkeys(figure for of_side in spreads for figure in of_side))
    figures.sort(key=lambda figure: _position(figure, spreads))
    chosen = _choose(figures, judged)
    rows = [_row(figure, spreads, tolerance, is_judged=figure in chosen) for figure in figures]
    regressions = [
        text
        for number, side in enumerate(others, 1)
        for text in [*_broken(baseline, side), *_worse(rows, baseline, side, number, tolerance)]
    ]
    return Comparison(
        names=[side.name for side in sides],
        runs=[len(side.results) for side in sides],
        rows=rows,
        tolerance=tolerance,
        regressions=regressions,
        differences=[text for side in others for text in _differences(baseline, side)],
        curves=[Curve(side.name, side.latencies) for side in sides],
    )


def judge_change(
    figure: Figure, before: FigureSpread, after: FigureSpread, tolerance: float
) -> tuple[float | None, Verdict]:
    """By which share the median has changed, and whether that is for the better or the worse.

    A change within the tolerance is none. Neither is one that is no larger than what the runs of either side
    differ by among themselves.
    """
    change = _change(before.median, after.median)
    if figure.better is None:
        return change, "not judged"
    gain = change if figure.better == "higher" else -change
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
    figure: Figure, spreads: Sequence[Mapping[Figure, FigureSpread]], tolerance: float, *, is_judged: bool
) -> Row:
    first, *others = (of_side.get(figure) for of_side in spreads)
    cells = [Cell(first, None, "absent" if first is None else "baseline")]
    for of_side, other in zip(spreads[1:], others, strict=True):
        if first is None or other is None:
            # A failed run has no figures at all, which is said once.
            is_missing = is_judged and first is not None and of_side
            cells.append(Cell(other, None, "missing" if is_missing else "absent"))
            continue
        change, verdict = judge_change(figure, first, other, tolerance)
        cells.append(Cell(other, change, verdict if is_judged else "not judged"))
    return Row(figure, cells)


def _choose(figures: Sequence[Figure], judged: Sequence[str]) -> list[Figure]:
    if not judged:
        return [figure for figure in figures if figure.judged]
    by_name = {figure.name: figure for figure in figures if figure.better is not None}
    for name in judged:
        if name not in by_name:
            hint = settings.suggestion(name, by_name) or f" (choose from {', '.join(by_name)})"
            raise UsageError(f'--judge: no figure "{name}" in these runs{hint}')
    return [by_name[name] for name in judged]


def _worse(rows: Sequence[Row], baseline: Side, side: Side, number: int, tolerance: float) -> Iterator[str]:
    for row in rows:
        before, after = row.cells[0].spread, row.cells[number].spread
        change, verdict, figure = row.cells[number].change, row.cells[number].verdict, row.figure
        if verdict == "missing" and before is not None:
            yield f"{figure.title}: {figure.text(before.median)} in {baseline.name}, none in {side.name}"
        if verdict != "worse" or before is None or after is None or change is None:
            continue
        by = "from none" if math.isinf(change) else f"{100 * change:+.1f} %"
        values = (
            f"{figure.text(before.median)} in {baseline.name}, {figure.text(after.median)} in {side.name}"
        )
        yield f"{figure.title}: {values}: {by}, {100 * tolerance:g} % are tolerated"


def _broken(baseline: Side, side: Side) -> Iterator[str]:
    """What did not hold in a side, but for what did not hold in the baseline either."""
    summary = side.summary
    # Both name the run that they are about, which is the side itself where there is one.
    where = f"{side.name}/" if len(side.results) > 1 else ""
    if summary.error is not None and (baseline.summary.error is None or not summary.figures):
        yield f"failed: {where}{summary.error}"
    known = {kind for result in baseline.results for kind, _ in complaints(result)}
    for run, result in zip(summary.runs, side.results, strict=True):
        yield from (f"{where}{run}: {text}" for kind, text in complaints(result) if kind not in known)
    held = {outcome.expr for outcome in baseline.summary.thresholds if outcome.holds}
    for outcome in summary.thresholds:
        if outcome.expr in held and not outcome.holds:
            value = describe_value(outcome)
            yield f"{side.name}: threshold {outcome.expr} (is {value}), which {baseline.name} holds"


def _differences(baseline: Side, side: Side) -> Iterator[str]:
    """Of scenario, target and environment."""
    for what, ours, theirs in (
        ("scenario", baseline.summary.scenario, side.summary.scenario),
        ("environment", baseline.summary.environment, side.summary.environment),
        ("target", {"": baseline.summary.target}, {"": side.summary.target}),
    ):
        before, after = dict(flatten(ours)), dict(flatten(theirs))
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key) and key not in _UNTOLD:
                label = f"{what} {key}".strip()
                values = (
                    f"{_text(before.get(key))} in {baseline.name}, {_text(after.get(key))} in {side.name}"
                )
                yield f"{label}: {values}"


def _text(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _position(figure: Figure, spreads: Sequence[Mapping[Figure, FigureSpread]]) -> int:
    """Where the figure stands in the first side that has it."""
    return next(list(of_side).index(figure) for of_side in spreads if figure in of_side)


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' names, as far up as tells them apart."""
    paths = [folder.resolve().parts for folder in folders]
    longest = max(map(len, paths))
    for depth in range(1, longest + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _read_side(folder: Path, name: str) -> Side:
    if (folder / repeated.FILE).exists():
        summary = read_repeated(folder)
        return _make_side(name, summary, {run: folder / run for run in summary.runs})
    if (folder / capacity.FILE).exists():
        raise ScenarioError(f"{folder}: a search for the capacity; its probes can be compared")
    return _make_side(name, None, {name: folder})


def _make_side(name: str, summary: Repeated | None, folders: Mapping[str, Path]) -> Side:
    """The runs in the folders, by name. Figures are always this version's, those of a summary may not be."""
    results: dict[str, Result] = {}
    latencies = Histogram()
    for run, folder in folders.items():
        result = results[run] = read_result(folder)
        with blaming(folder / "result.json"):
            part = summarise_runs({run: result})
            if result.histograms is not None and not result.error:
                latencies.add(result.histograms.latency)
        summary = summary or part
    if summary is None:
        raise ScenarioError(f"{name}: has no runs")
    figures = spread_figures(list(results.values()))
    return Side(name, list(results.values()), structs.replace(summary, figures=figures), latencies)
