"""Metrics as benchmark feeds: Bencher Metric Format, and the custom formats of github-action-benchmark."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loadtest.errors import ResultError
from loadtest.experiments.repeat import spread_metrics
from loadtest.result.capacity import Capacity
from loadtest.result.metrics import Better
from loadtest.result.repeated import Repeated
from loadtest.result.schema import Result

_LONGEST_NAME = 64  # limit of Bencher for the name of a measure


@dataclass(frozen=True)
class _Point:
    """Value of one metric, with its range if there were several runs."""

    name: str
    label: str
    unit: str
    better: Better
    value: float
    low: float | None = None
    high: float | None = None


def to_bencher(outcome: Result | Repeated | Capacity) -> dict[str, Any]:
    """Return the metrics of one benchmark, the scenario, in Bencher Metric Format.

    Raises:
        ResultError: The run failed, so that its metrics say nothing.
    """
    measures = {}
    for point in _points(outcome):
        metric = {"value": point.value}
        if point.low is not None and point.high is not None:
            metric |= {"lower_value": point.low, "upper_value": point.high}
        measures[re.sub(r"[^a-z0-9]+", "-", point.name.lower()).strip("-")[:_LONGEST_NAME]] = metric
    return {outcome.scenario["name"]: measures}


def to_github_benchmark(outcome: Result | Repeated | Capacity, better: Better) -> list[dict[str, Any]]:
    """Return the metrics of which `better` values are better, as github-action-benchmark reads them.

    Raises:
        ResultError: The run failed, so that its metrics say nothing.
    """
    name = outcome.scenario["name"]
    return [
        {
            "name": f"{name}: {point.label}",
            "unit": point.unit,
            "value": point.value,
            **({} if point.low is None else {"range": f"{point.low:.6g} to {point.high:.6g}"}),
        }
        for point in _points(outcome)
        if point.better == better
    ]


def _points(outcome: Result | Repeated | Capacity) -> Iterator[_Point]:
    name = outcome.scenario["name"]
    if isinstance(outcome, Capacity):
        if outcome.capacity is None:
            raise ResultError(f"{name}: no capacity was found: {outcome.explanation}")
        yield _Point("capacity", "capacity", "1/s", "higher", outcome.capacity)
        return
    if outcome.error is not None:
        raise ResultError(f"{name}: the run failed, its metrics say nothing: {outcome.error}")
    spreads = outcome.metrics if isinstance(outcome, Repeated) else spread_metrics([outcome])
    for spread in spreads:
        metric = spread.metric
        if metric.better is None or metric.minor:
            continue
        low, high = (spread.min, spread.max) if len(spread.values) > 1 else (None, None)
        unit = metric.unit or ("1/s" if metric.path.endswith(("rate", "per_s")) else "count")
        yield _Point(metric.path, metric.label, unit, metric.better, spread.median, low, high)
