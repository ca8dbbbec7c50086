"""The data that a run collects while it goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from loadtest.result.schema import Host, Load, Sample, Server
from loadtest.runner.building.soak import Snapshot
from loadtest.sampling.monitor import Reading
from loadtest.scenario.kinds import AnyScenario
from loadtest.workers.messages import BroadcasterResult, Progress, ProviderResult, RequestorResult


@dataclass(frozen=True, kw_only=True)
class CountsAt:
    """Counts of the engine and of the broker at one time."""

    engine: Progress
    """Counts of all workers together."""
    counters: Mapping[str, Any]


@dataclass(kw_only=True)
class Observed:
    """Snapshots of the server's monitor, and the engine's counts at the same times."""

    monitor: str
    began_s: float
    """Start of the run, on the clock of the snapshots, in seconds."""
    readings: Sequence[Reading] = ()
    failures: int = 0
    first_failure: str | None = None
    slowest_s: float = 0.0
    before: Mapping[str, Any] | None = None
    """Counters before the first connection; None if the monitor did not answer."""
    drained: CountsAt | None = None
    """Counts at the end of the drain, with the remaining connections open; None if they are not known."""
    closed: CountsAt | None = None
    """Counts after the load has closed its last connection; None if they are not known."""


@dataclass(frozen=True)
class WorkerReport:
    """Result of one worker, with its name and host."""

    name: str
    host: str
    result: RequestorResult | ProviderResult | BroadcasterResult


@dataclass(kw_only=True)
class Collected:
    """All data that a run has collected so far; a run that failed has less."""

    scenario: AnyScenario
    target: str | None
    environment: dict[str, Any]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    error: str | None = None
    servers: int = 1
    """Number of brokers side by side; each has providers of its own."""
    requestors: list[RequestorResult] = field(default_factory=list)
    providers: list[ProviderResult] = field(default_factory=list)
    broadcasters: list[BroadcasterResult] = field(default_factory=list)
    last_progress: list[Progress] = field(default_factory=list)
    """Last snapshots of requestors or broadcasters without a result."""
    workers: list[WorkerReport] = field(default_factory=list)
    """Results of all workers, by worker."""
    missing: list[str] = field(default_factory=list)
    """Workers of any role without a result, such as "requestor 2 on host b: no result"."""
    hosts: list[Host] = field(default_factory=list)
    """Machines of the run, with their samples."""
    command: list[str] = field(default_factory=list)
    """Command line that started the run."""
    server: Server = field(default_factory=Server)
    load: Load = field(default_factory=Load)
    counters: Mapping[str, Any] | None = None
    """Counters of the run's broker after the drain, from /varz; None for a target."""
    measured_from_s: float | None = None
    """Start of the measured phase, in seconds since the start of the run; None if it was not reached."""
    timeline: list[Sample] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    """Snapshots at the ends of the periods of a soak; empty for other runs."""
    observed: Observed | None = None
    """Data of the server's monitor; None without a monitor."""

    @property
    def results(self) -> Sequence[RequestorResult] | Sequence[BroadcasterResult]:
        """Results of the workers that measure latency."""
        return self.requestors or self.broadcasters
