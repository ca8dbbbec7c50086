"""The result of a search for the capacity: `capacity.json`, schema 1. Times named `_us` are microseconds."""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from loadtest.result.documents import read_document
from loadtest.result.schema import Latency, ThresholdOutcome

SCHEMA = 1
FILE = "capacity.json"

Purpose = Literal["growth", "bisection", "confirmation"]
"""Why a rate was tried: twice the last one that held, between one that held and one that did not, or once
more because its failure would end the search."""
Verdict = Literal["holds", "fails", "unfinished"]
Ending = Literal["found", "at_most", "none", "running", "interrupted", "failed"]


class Probe(Struct, frozen=True, kw_only=True):
    """One run of the search. Rates are per second: requests, or of a broadcast deliveries."""

    number: int
    """From 1 on, in the order of the runs."""
    folder: str
    """Its result folder, beside capacity.json."""
    purpose: Purpose
    rate: float
    """The scenario's `rate` in this run."""
    verdict: Verdict
    reasons: list[str]
    """Why it fails, a sentence each; of a run that did not finish, why that is. Empty where it holds."""
    requested_rate: float | None
    """What was planned to be answered."""
    achieved_rate: float
    """What was answered within the measured phase."""
    achieved_share: float
    """Of the requests that were planned, those answered in time; 1.0 is all."""
    sent: int
    received: int
    timed_out: int
    errors: int
    objectives: list[ThresholdOutcome]
    latency_us: Latency | None
    """From the planned send time; None where no reply was measured."""
    max_send_lag_us: float
    server_cpu_percent: float | None
    """Of the whole machine; None where it is not visible."""
    load_cpu_percent: float | None


class Capacity(Struct, frozen=True, kw_only=True):
    """A search, as far as it has come: written anew after each probe."""

    schema: int = SCHEMA
    scenario: dict[str, Any]
    """As given; of each probe only `rate` and `duration_s` differ."""
    target: str | None
    started: str
    """UTC, ISO 8601: when the search began."""
    objectives: list[str]
    least_share: float
    """Of the planned requests, what must be answered within the measured phase."""
    from_rate: float
    to_rate: float | None
    """None without a bound."""
    precision: float
    """How close the highest rate that holds and the lowest that fails are brought, as a share."""
    probe_s: float
    """Length of each probe's measured phase."""
    ending: Ending
    """`found`; `at_most`: the highest rate allowed holds; `none`: the lowest one does not; `running`: not yet
    over, or ended without a word; `interrupted`; `failed`: a run broke before anything was measured."""
    explanation: str
    """What that means here, as a sentence."""
    capacity: float | None
    """The highest `rate` that held; None where none did."""
    capacity_achieved: float | None
    """What was answered per second there."""
    fails_at: float | None
    """The lowest `rate` above it that failed; None where none did."""
    probes: list[Probe]
    environment: dict[str, Any]
    command: list[str] = []
    """The command that the search was started with, program included, to do it again."""


def read_capacity(folder: Path) -> Capacity:
    """The search in a folder; ScenarioError when there is none or it is not of this schema."""
    return read_document(folder / FILE, Capacity, SCHEMA)
