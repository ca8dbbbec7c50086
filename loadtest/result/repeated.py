"""Summary of several runs of one scenario: `repeated.json`, schema 1."""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from loadtest.result.documents import read_document
from loadtest.result.metrics import LOSS_UNIT, Metric

SCHEMA = 1
FILE = "repeated.json"


class MetricSpread(Struct, frozen=True, kw_only=True):
    """Values of one metric over all runs, in the metric's unit."""

    metric: Metric
    values: list[float | None]
    """Value of each run. None if the run failed or lacks the metric; at least one is a number."""
    median: float
    min: float
    max: float

    @property
    def is_shown(self) -> bool:
        """Whether tables show the metric: not a minor one, and not a loss that never occurred."""
        return not self.metric.minor and (self.metric.unit != LOSS_UNIT or self.max > 0)

    @property
    def spread(self) -> float:
        """Difference between the highest and the lowest value."""
        return self.max - self.min

    @property
    def spread_share(self) -> float | None:
        """Spread as a share of the median. None if the median is 0."""
        return self.spread / abs(self.median) if self.median else None


class RepeatedThreshold(Struct, frozen=True, kw_only=True):
    """Outcome of one threshold over all runs."""

    expr: str
    """Text of the threshold."""
    rule: Literal["median", "each"]
    """Whether the median of the runs' values has to hold the threshold, or each run's value."""
    held: list[bool]
    """Outcome of each run."""
    value: float | bool | None
    """Value that was judged.

    With the rule "median", the median. With "each", the first value that fails, or else the first run's.
    """
    holds: bool


class Repeated(Struct, frozen=True, kw_only=True):
    """Summary of the runs of one scenario, made one after the other."""

    schema: int = SCHEMA
    scenario: dict[str, Any]
    target: str | None
    """Address of the target. None for the runs' own brokers."""
    started: str
    """Start of the first run: UTC, ISO 8601."""
    asked: int
    """Number of runs that were requested."""
    runs: list[str]
    """Names of the result folders, which are beside repeated.json; the last run may have failed."""
    error: str | None
    """Reason why a run failed, which ended the series. None if all succeeded."""
    metrics: list[MetricSpread]
    thresholds: list[RepeatedThreshold]
    complaints: list[str]
    """Failed checks of conservation, agreement and trends, each with the name of its run."""
    environment: dict[str, Any]
    command: list[str] = []
    """Command that repeats the runs: the one that was given, without --out and --junit."""

    @property
    def holds(self) -> bool:
        """Whether every run completed and passed its checks, and every threshold holds by its rule."""
        return (
            self.error is None and not self.complaints and all(outcome.holds for outcome in self.thresholds)
        )


def read_repeated(folder: Path) -> Repeated:
    """Read the summary in a folder.

    Raises:
        ResultError: `repeated.json` is missing, broken or of another schema.
    """
    return read_document(folder / FILE, Repeated, SCHEMA)
