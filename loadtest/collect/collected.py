"""What a run gathers while it goes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from loadtest.collect.soak import Look
from loadtest.engine.messages import BroadcasterResult, Progress, ProviderResult, RequestorResult
from loadtest.plan.scenario import AnyScenario
from loadtest.result.schema import Host, Load, Sample, Server
from loadtest.sampling.monitor import Reading


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What both sides had counted at one time."""

    engine: Progress
    """All processes as one."""
    counters: Mapping[str, Any]


@dataclass(kw_only=True)
class Observed:
    """What the server's monitor told, and what the engine had counted at the same time."""

    monitor: str
    began_s: float
    """The run's, by the clock of the readings."""
    readings: Sequence[Reading] = ()
    failures: int = 0
    first_failure: str | None = None
    slowest_s: float = 0.0
    before: Mapping[str, Any] | None = None
    """The counters before the first connection."""
    drained: Moment | None = None
    """At the end of the drain, with all connections that are left."""
    closed: Moment | None = None
    """After the last of them was closed."""


@dataclass(frozen=True)
class WorkerReport:
    """What one process of the load told in the end."""

    name: str
    host: str
    result: RequestorResult | ProviderResult | BroadcasterResult


@dataclass(kw_only=True)
class Collected:
    """Everything that a run has gathered so far; a run that failed has less."""

    scenario: AnyScenario
    target: str | None
    environment: dict[str, Any]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    error: str | None = None
    servers: int = 1
    """Brokers side by side, each with providers of its own."""
    requestors: list[RequestorResult] = field(default_factory=list)
    providers: list[ProviderResult] = field(default_factory=list)
    broadcasters: list[BroadcasterResult] = field(default_factory=list)
    last_progress: list[Progress] = field(default_factory=list)
    """Of the requestors or broadcasters whose results never came."""
    workers: list[WorkerReport] = field(default_factory=list)
    """The same results, by process."""
    missing: list[str] = field(default_factory=list)
    """Workers of any role whose results never came, such as "requestor 2 on host b: no result"."""
    hosts: list[Host] = field(default_factory=list)
    """The machines, with what they were seen to do."""
    command: list[str] = field(default_factory=list)
    """The command that the run was started with."""
    server: Server = field(default_factory=Server)
    load: Load = field(default_factory=Load)
    counters: Mapping[str, Any] | None = None
    """The own broker's /varz after the drain."""
    measured_from_s: float | None = None
    """When the measured phase began, in seconds since the run did."""
    timeline: list[Sample] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    """Of a soak."""
    observed: Observed | None = None
    """None without a monitor."""

    @property
    def results(self) -> Sequence[RequestorResult] | Sequence[BroadcasterResult]:
        """Of whoever measured."""
        return self.requestors or self.broadcasters
