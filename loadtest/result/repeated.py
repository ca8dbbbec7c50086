"""What several runs of one scenario say together: `repeated.json`, schema 1."""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from loadtest.result.documents import read_document
from loadtest.result.figures import Figure

SCHEMA = 1
FILE = "repeated.json"


class FigureSpread(Struct, frozen=True, kw_only=True):
    """One figure over all runs, in its own unit."""

    figure: Figure
    values: list[float | None]
    """By run; None where the run failed or does not have it. At least one is a number."""
    median: float
    min: float
    max: float

    @property
    def spread(self) -> float:
        """From the lowest to the highest."""
        return self.max - self.min

    @property
    def spread_share(self) -> float | None:
        """The spread as a share of the median; None where that is 0."""
        return self.spread / abs(self.median) if self.median else None


class RepeatedThreshold(Struct, frozen=True, kw_only=True):
    """An objective over all runs."""

    expr: str
    rule: Literal["median", "each"]
    """Whether the median of the runs' values has to hold it, or every run."""
    held: list[bool]
    """By run."""
    value: float | bool | None
    """The median; with the rule "each" the first value that does not hold, else the first run's."""
    holds: bool


class Repeated(Struct, frozen=True, kw_only=True):
    """The runs of one scenario, one after the other."""

    schema: int = SCHEMA
    scenario: dict[str, Any]
    target: str | None
    started: str
    """UTC, ISO 8601: of the first run."""
    asked: int
    """How many runs were to be made."""
    runs: list[str]
    """Result folders, beside repeated.json; the last one may have failed."""
    error: str | None
    """Why a run failed, after which none followed."""
    figures: list[FigureSpread]
    thresholds: list[RepeatedThreshold]
    complaints: list[str]
    """Conservation, agreement and trends that did not hold, by run."""
    environment: dict[str, Any]
    command: list[str] = []
    """The command that the runs were started with, program included, to do them again."""

    @property
    def holds(self) -> bool:
        """Every run went to its end with its accounts in order, and every threshold holds by its rule."""
        return (
            self.error is None and not self.complaints and all(outcome.holds for outcome in self.thresholds)
        )


def read_repeated(folder: Path) -> Repeated:
    """The summary in a folder; ScenarioError when there is none or it is not of this schema."""
    return read_document(folder / FILE, Repeated, SCHEMA)
