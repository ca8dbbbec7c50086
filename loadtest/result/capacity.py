"""Result of a search for the capacity: `capacity.json`, schema 1. Times named `_us` are in microseconds."""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from loadtest.result.documents import read_document
from loadtest.result.schema import Latency, ThresholdOutcome

SCHEMA = 1
FILE = "capacity.json"

Purpose = Literal["growth", "bisection", "confirmation"]
"""Reason why a rate was tried.

`growth`: twice the last rate that held; `bisection`: between a rate that held and one that failed;
`confirmation`: a second time, because a failure would end the search.
"""
Verdict = Literal["holds", "fails", "unfinished"]
Ending = Literal["found", "at_most", "none", "running", "interrupted", "failed"]


class Probe(Struct, frozen=True, kw_only=True):
    """One run of the search. Rates are requests per second, or deliveries per second in a broadcast."""

    number: int
    """Position among the runs, from 1."""
    folder: str
    """Name of the result folder, which is beside capacity.json."""
    purpose: Purpose
    rate: float
    """Value of the scenario's `rate` in this run."""
    verdict: Verdict
    reasons: list[str]
    """Reasons why the rate failed or the run did not finish, one sentence each; empty if the rate held."""
    requested_rate: float | None
    """Planned rate of replies. None in a closed loop."""
    achieved_rate: float
    """Rate of replies within the measured phase."""
    achieved_share: float
    """Share of the planned requests that were answered within the measured phase; 1.0 = all."""
    sent: int
    received: int
    timed_out: int
    errors: int
    objectives: list[ThresholdOutcome]
    latency_us: Latency | None
    """Latency from the planned send time. None if no reply was measured."""
    max_send_lag_us: float
    """Longest time from the planned send time of a request to its sending."""
    server_cpu_percent: float | None
    """Processor use of the server, in percent of its whole machine. None if the process is not visible."""
    load_cpu_percent: float | None
    """Processor use of the load test, in percent of the whole machine. None if not measured."""


class Baseline(Struct, frozen=True, kw_only=True):
    """An earlier search that this one is compared with."""

    folder: str
    """Folder of the earlier search; empty if it was given as a value."""
    capacity: float
    """Highest rate that held then."""
    tolerance: float
    """Share by which the capacity may have fallen."""
    change: float
    """Change of the capacity since, as a share of the earlier one: -1 if no rate holds now."""
    holds: bool
    """Whether the capacity has fallen by no more than the tolerance."""

    @property
    def text(self) -> str:
        """Sentence about the change."""
        was = f"{100 * self.change:+.1f} % against the {self.capacity:,.10g}/s of the baseline"
        return f"{was}, of which {100 * self.tolerance:g} % may be lost"


class Capacity(Struct, frozen=True, kw_only=True):
    """State of a search for the capacity; the file is replaced after each probe."""

    schema: int = SCHEMA
    scenario: dict[str, Any]
    """Scenario as given; probes change only its `rate` and `duration_s`."""
    target: str | None
    """Address of the target. None for the run's own broker."""
    started: str
    """Start of the search: UTC, ISO 8601."""
    objectives: list[str]
    """Thresholds that a rate has to hold."""
    least_share: float
    """Share of the planned requests that must be answered within the measured phase, from 0 to 1."""
    from_rate: float
    """Lowest rate to try."""
    to_rate: float | None
    """Highest rate to try. None without a limit."""
    precision: float
    """Share of the rate by which the highest rate that holds and the lowest that fails may differ."""
    probe_s: float
    """Length of each probe's measured phase, in seconds."""
    ending: Ending
    """State of the search.

    `found`; `at_most`: the highest rate allowed holds; `none`: the lowest rate fails; `running`: still
    running, or killed; `interrupted`; `failed`: a run failed before anything was measured.
    """
    explanation: str
    """Sentence that explains the ending."""
    capacity: float | None
    """Highest `rate` that held. None if no rate held."""
    capacity_achieved: float | None
    """Replies per second at that rate. None if no rate held."""
    fails_at: float | None
    """Lowest `rate` above the capacity that failed. None if no rate failed."""
    probes: list[Probe]
    environment: dict[str, Any]
    command: list[str] = []
    """Command that repeats the search: the one that was given, without --out and --junit."""
    baseline: Baseline | None = None
    """Comparison with an earlier search. None if there is none, or if this one came to no end."""

    @property
    def holds(self) -> bool:
        """Whether a rate held, and the capacity is not below the baseline by more than the tolerance."""
        return self.ending in ("found", "at_most") and (self.baseline is None or self.baseline.holds)


def read_capacity(folder: Path) -> Capacity:
    """Read the search in a folder.

    Raises:
        ResultError: `capacity.json` is missing, broken or of another schema.
    """
    return read_document(folder / FILE, Capacity, SCHEMA)
