"""Repeated runs: median and spread of each metric, and objectives judged over all runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from msgspec import structs

from loadtest.errors import ArgumentError
from loadtest.result.checks import failed_checks
from loadtest.result.documents import write_document
from loadtest.result.metrics import measure
from loadtest.result.repeated import FILE, MetricSpread, Repeated, RepeatedThreshold
from loadtest.result.schema import Result, ThresholdOutcome
from loadtest.result.thresholds import parse_threshold
from loadtest.runner.single import RunFunction
from loadtest.scenario.kinds import Plan
from loadtest.workers.interrupts import Interrupts

_EXACT = "=="


def repeat(
    times: int,
    plan: Plan,
    folder: Path | None,
    run_into: RunFunction,
    interrupts: Interrupts,
    on_progress: Callable[[str], None],
    *,
    command: Sequence[str] = (),
) -> Repeated:
    """Run a plan several times, and return the summary of the runs.

    The first run that fails or is interrupted is the last one. With a folder, repeated.json is written after
    each run.

    Raises:
        UsageError: The plan cannot be run with these options.
        RunError: The results cannot be written.
    """
    results: dict[str, Result] = {}
    summary: Repeated | None = None
    while len(results) < times:
        name = f"run-{len(results) + 1}"
        on_progress(f"{name} of {times}")
        try:
            results[name] = run_into(plan, None if folder is None else folder / name)
        except KeyboardInterrupt:  # before or between runs; a run handles its own interrupt
            if not results:
                raise
        summary = structs.replace(summarise_runs(results), asked=times, command=list(command))
        if summary.error is None and interrupts.count and len(results) < times:
            summary = structs.replace(summary, error=f"interrupted after {summary.runs[-1]}")
        if folder is not None:
            write_document(summary, folder / FILE)
        if summary.error is not None:
            break
    if summary is None:
        raise ValueError(f"the number of runs must be at least 1, got {times}")
    return summary


def summarise_runs(results: dict[str, Result]) -> Repeated:
    """Return the summary of one or more runs, given by name.

    Raises:
        ArgumentError: The runs have different thresholds.
    """
    name, first = next(iter(results.items()))
    exprs = [outcome.expr for outcome in first.thresholds]
    for other, result in results.items():
        if (found := [outcome.expr for outcome in result.thresholds]) != exprs:
            raise ArgumentError(
                "runs",
                f"runs of one scenario have the same thresholds, but {name} has {', '.join(exprs) or 'none'} "
                f"and {other} has {', '.join(found) or 'none'}",
            )
    errors = [f"{name}: {result.error}" for name, result in results.items() if result.error]
    broken = [f"{name}: {text}" for name, result in results.items() for _, text in failed_checks(result)]
    return Repeated(
        scenario=first.scenario,
        target=first.target,
        started=first.started,
        asked=len(results),
        runs=list(results),
        error=errors[0] if errors else None,
        metrics=spread_metrics(list(results.values())),
        thresholds=[
            _judge_all(expr, [result.thresholds[index] for result in results.values()])
            for index, expr in enumerate(exprs)
        ],
        complaints=broken,
        environment=first.environment,
    )


def spread_metrics(results: Sequence[Result]) -> list[MetricSpread]:
    """Return the values of every metric over the runs; a failed run has no values."""
    measured = [{} if result.error else measure(result) for result in results]
    metrics = list(dict.fromkeys(metric for values in measured for metric in values))
    spreads = []
    for metric in metrics:
        values = [of_run.get(metric) for of_run in measured]
        there = [value for value in values if value is not None]
        spreads.append(
            MetricSpread(metric=metric, values=values, median=median(there), min=min(there), max=max(there))
        )
    return spreads


def _judge_all(expr: str, outcomes: Sequence[ThresholdOutcome]) -> RepeatedThreshold:
    """Judge a threshold over all runs, by the median of the values.

    A threshold with the operator `==` must hold in every run: the median would hide a few lost requests.
    """
    threshold = parse_threshold(expr)
    held = [outcome.holds for outcome in outcomes]
    values = [outcome.value for outcome in outcomes]
    numbers = [value for value in values if value is not None and not isinstance(value, bool)]
    if threshold.op == _EXACT or len(numbers) < len(values):
        failing = next((outcome for outcome in outcomes if not outcome.holds), outcomes[0])
        return RepeatedThreshold(expr=expr, rule="each", held=held, value=failing.value, holds=all(held))
    middle = median(numbers)
    return RepeatedThreshold(
        expr=expr, rule="median", held=held, value=middle, holds=threshold.allows(middle)
    )
