"""Data of a comparison of runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loadtest.result.histogram import Histogram
from loadtest.result.metrics import Metric
from loadtest.result.repeated import MetricSpread

Verdict = Literal["baseline", "same", "better", "worse", "within spread", "not judged", "missing", "absent"]


@dataclass(frozen=True)
class Curve:
    """Latencies of all runs of one side, merged."""

    label: str
    latency: Histogram


@dataclass(frozen=True)
class Cell:
    """One metric of one side, compared with the baseline."""

    spread: MetricSpread | None
    """Values of the side's runs. None if no run has the metric."""
    change: float | None
    """Change of the median from the baseline's, as a share of the baseline's median.

    Infinite if the baseline's median is 0. None if the side or the baseline lacks the metric.
    """
    verdict: Verdict


@dataclass(frozen=True)
class Row:
    """One metric of all sides."""

    metric: Metric
    cells: Sequence[Cell]
    """One cell for each side, the baseline first."""


def describe_change(row: Row, number: int, names: Sequence[str], tolerance: float) -> str | None:
    """Return a sentence about the regression of a metric of a side; None if it is not a regression.

    Args:
        row: The metric.
        number: Position of the side; the baseline is 0.
        names: Names of all sides.
        tolerance: Share by which the metric may be worse.
    """
    metric, cell = row.metric, row.cells[number]
    before, after = row.cells[0].spread, cell.spread
    if before is None or cell.verdict not in ("worse", "missing"):
        return None
    had = f"{metric.title}: {metric.text(before.median)} in {names[0]}"
    if after is None or cell.change is None:
        return f"{had}, none in {names[number]}"
    by = "from none" if math.isinf(cell.change) else f"{100 * cell.change:+.1f} %"
    has = f"{metric.text(after.median)} in {names[number]}"
    return f"{had}, {has}: {by}, {100 * tolerance:g} % are tolerated"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of two or more sides, each a run or a series of repeated runs."""

    names: Sequence[str]
    """Names of the sides, the baseline first."""
    runs: Sequence[int]
    """Number of runs of each side."""
    rows: Sequence[Row]
    tolerance: float
    """Share by which a judged metric may be worse than the baseline's without being a regression."""
    regressions: Sequence[str]
    """One sentence for each regression; empty if no side is worse than the baseline."""
    differences: Sequence[str]
    """Differences in scenario and environment, which may explain differences in the metrics."""
    curves: Sequence[Curve] = ()
    """Latencies of the sides that have a histogram."""

    @property
    def holds(self) -> bool:
        """Whether no side is worse than the baseline."""
        return not self.regressions
