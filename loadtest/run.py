"""One run of a scenario: server, connections, warm-up, measured phase, drain, accounts."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, get_args

from msgspec import structs

from loadtest.collect import Collected, check_broker, measured_rate
from loadtest.environment import describe_environment
from loadtest.errors import RunError
from loadtest.interrupts import Interrupts
from loadtest.launch import Broker, Fleet, Worker
from loadtest.messages import (
    Configure,
    Connect,
    Phase,
    Progress,
    ProviderConfig,
    RequestorConfig,
    Start,
    Stop,
)
from loadtest.meter import Meter
from loadtest.results import Sample
from loadtest.sampling import fetch_counters
from loadtest.scenario import Scenario
from loadtest.target import Target
from subjectbus import BrokerConfig, LimitError, UsageError, limits, settings

_POLL_S = 0.02
_SAMPLE_EVERY_S = 1.0
_SPARE_CONNECTIONS = 100
_SLACK_S = 30.0
_ACCOUNT_TIMEOUT_S = 5.0
_PHASES = get_args(Phase)
_ADDED = ("connect_failures", "sent", "received", "outstanding", "timed_out", "errors")
_SAMPLED = (
    "phase",
    "connections",
    "sent",
    "received",
    "outstanding",
    "timed_out",
    "errors",
    "mean_us",
    "max_us",
)


class View(Protocol):
    """Who is told how the run goes."""

    def show(self, sample: Sample, progress: Progress) -> None:
        """Called at each change of phase and once a second."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a scenario is run here."""

    target: Target | None = None
    """A running server; None starts a broker for the run."""
    server_pid: int | None = None
    """The target's process, when it is on this machine and may be looked at."""
    broker_cpus: frozenset[int] | None = None
    load_cpus: frozenset[int] | None = None


def run_scenario(scenario: Scenario, options: Options, view: View, interrupts: Interrupts) -> Collected:
    """Runs it to its end, or to its failure, which is in `error` then, with all that was collected.

    `interrupts`, entered, are held on return: what was collected is the caller's to save.

    Raises:
        UsageError: Nothing can be run like this: an unusable broker configuration, workload or process.
    """
    return _Run(scenario, options, view, interrupts).execute()


def require_limits(scenario: Scenario) -> None:
    """LimitError when a worker could not hold its connections; the own broker checks its limits itself."""
    users = math.ceil(scenario.users / scenario.requestors)
    _require_descriptors("a requestor thread", users, scenario.threads, "threads= or requestors=")
    _require_descriptors(
        "a provider thread", scenario.providers, scenario.provider_threads, "provider_threads="
    )


def _require_descriptors(who: str, connections: int, threads: int, remedy: str) -> None:
    """Each thread of the engine has a descriptor table, and so the whole limit, of its own."""
    try:
        limits.require_descriptors(who, math.ceil(connections / threads))
    except LimitError as error:
        raise LimitError(f"{error}; a higher {remedy} spreads them") from error


class _Run:
    def __init__(self, scenario: Scenario, options: Options, view: View, interrupts: Interrupts) -> None:
        self._scenario = scenario
        self._options = options
        self._view = view
        self._interrupts = interrupts
        self._fleet = Fleet()
        self._collected = Collected(
            scenario=scenario,
            target=options.target.url if options.target else None,
            environment=describe_environment(),
        )
        self._meter = Meter(options.server_pid)
        self._began_s = time.monotonic()
        self._next_sample_s = 0.0
        self._phase: Phase | None = None

    def execute(self) -> Collected:
        with self._fleet:
            try:
                self._run_to_end()
                self._interrupts.hold()
            except KeyboardInterrupt:
                self._salvage("interrupted")
        return self._collected

    def _run_to_end(self) -> None:
        try:
            address, host, path = self._start_server()
            self._connect(address, host, path)
            self._drive()
            self._account()
            self._fleet.end()
        except RunError as error:
            self._salvage(str(error))

    def _start_server(self) -> tuple[str, str, str]:
        """Address, Host header and path to connect to."""
        target = self._options.target
        if target is not None:
            target.require_reachable()
            self._meter.look_idle()
            return target.address, target.host, target.path
        connections = self._scenario.users + self._scenario.providers
        room = BrokerConfig(max_connections=connections + _SPARE_CONNECTIONS)
        config = settings.merge(room, self._scenario.broker)
        broker = self._fleet.broker = Broker(config, self._options.broker_cpus)
        broker.wait_ready()
        self._meter.watch_server(broker.pid)
        self._meter.look_idle()
        listener = "http" if self._scenario.transport == "ws" else "tcp"
        for needed in (listener, "monitor"):
            if needed not in broker.addresses:
                raise UsageError(
                    f"scenario {self._scenario.name}: broker.{needed}: the run needs this listener"
                )
        return broker.addresses[listener], broker.addresses[listener], "/"

    def _connect(self, address: str, host: str, path: str) -> None:
        """Providers first: a user's first request must find them subscribed."""
        scenario, cpus = self._scenario, self._options.load_cpus
        provider = ProviderConfig(
            transport=scenario.transport,
            address=address,
            host=host,
            path=path,
            providers=scenario.providers,
            first_provider=0,
            reply_bytes=scenario.reply_bytes,
            threads=scenario.provider_threads,
        )
        self._fleet.provider = Worker("provider", Configure(provider=provider), cpus)
        self._open([self._fleet.provider], scenario.providers)
        for index in range(scenario.requestors):
            configure = Configure(requestor=_share(scenario, index, address, host, path))
            self._fleet.requestors.append(Worker(f"requestor {index + 1}", configure, cpus))
        self._meter.watch_load([worker.pid for worker in self._fleet.workers])
        self._open(self._fleet.requestors, scenario.users)

    def _open(self, workers: list[Worker], connections: int) -> None:
        for worker in workers:
            worker.send(Connect())
        timeout_s = self._scenario.connect_timeout_s
        self._until(
            lambda: all(w.progress.phase == "connected" for w in workers), timeout_s, "the connect phase"
        )
        opened = sum(worker.progress.connections for worker in workers)
        if opened < connections:
            raise RunError(f"only {opened} of {connections} connections were made")

    def _drive(self) -> None:
        scenario = self._scenario
        for worker in self._fleet.requestors:
            worker.send(Start())
        longest_s = scenario.warmup_s + scenario.duration_s + scenario.timeout_s + _SLACK_S
        self._until(lambda: all(worker.finished for worker in self._fleet.requestors), longest_s, "the run")

    def _account(self) -> None:
        """Results, and the broker's own counters once nothing is under way any more."""
        provider = self._fleet.provider
        if provider is not None:
            provider.send(Stop())
            self._until(lambda: provider.finished, _SLACK_S, "the provider")
        self._gather()
        broker = self._fleet.broker
        if broker is None:
            return
        deadline = time.monotonic() + _ACCOUNT_TIMEOUT_S
        while True:
            try:
                self._collected.counters = fetch_counters(broker.addresses["monitor"])
            except (OSError, ValueError) as error:
                broker.require_alive()
                raise RunError(f"broker's counters at /varz: {error}") from error
            # What has just arrived shows in the counters a moment later.
            if all(check.holds for check in check_broker(self._collected)) or time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def _gather(self) -> None:
        collected, requestors = self._collected, self._fleet.requestors
        collected.requestors = [worker.requestor for worker in requestors if worker.requestor is not None]
        collected.provider = self._fleet.provider.provider if self._fleet.provider else None
        collected.last_progress = [worker.progress for worker in requestors if worker.requestor is None]
        connections = max((sample.connections for sample in collected.timeline), default=0)
        rate = measured_rate(collected.requestors)
        collected.server, collected.load = self._meter.summary(rate, connections)

    def _salvage(self, reason: str) -> None:
        """The run has failed: whoever still lives sends no more, drains and reports; providers last."""
        self._interrupts.hold()
        self._collected.error = reason
        self._stop(self._fleet.requestors)
        self._stop([self._fleet.provider] if self._fleet.provider else [])
        self._gather()

    def _stop(self, workers: list[Worker]) -> None:
        """Waits for their results, unless told again to end."""
        told = self._interrupts.count
        for worker in workers:
            with suppress(RunError, UsageError):
                worker.send(Stop())
        deadline = time.monotonic() + self._scenario.timeout_s + _ACCOUNT_TIMEOUT_S
        while time.monotonic() < deadline and any(worker.reporting for worker in workers):
            if self._interrupts.count > told:
                return
            time.sleep(_POLL_S)

    def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            self._look()
            if condition():
                return
            self._fleet.require_alive()
            if time.monotonic() > deadline:
                raise RunError(f"{what} did not end within {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def _look(self) -> None:
        """Once a second, and at each change of phase: what everybody has done and used so far."""
        total, now = self._total(), time.monotonic()
        if total.phase == self._phase and now < self._next_sample_s:
            return
        if total.phase != self._phase and total.phase == "measuring":
            self._collected.started = datetime.now(UTC) - timedelta(seconds=total.elapsed_s)
        self._phase = total.phase
        self._next_sample_s = now + _SAMPLE_EVERY_S
        server_cpu, server_rss, load_cpu = self._meter.look(measuring=total.phase == "measuring")
        sample = Sample(
            t_s=round(now - self._began_s, 3),
            server_cpu_percent=server_cpu,
            server_rss_bytes=server_rss,
            load_cpu_percent=load_cpu,
            **{name: getattr(total, name) for name in _SAMPLED},
        )
        self._collected.timeline.append(sample)
        self._view.show(sample, total)

    def _total(self) -> Progress:
        """All workers as one: counts added, in the phase of the requestor that is furthest behind."""
        provider = self._fleet.provider
        parts = [worker.progress for worker in self._fleet.requestors]
        opened = provider.progress.connections if provider else 0
        if not parts:
            return Progress(phase="connecting", connections=opened)
        received = sum(part.received for part in parts)
        weighted = sum(part.mean_us * part.received for part in parts)
        hindmost = min(parts, key=lambda part: _PHASES.index(part.phase))
        return structs.replace(
            hindmost,
            phase="connecting" if hindmost.phase == "idle" else hindmost.phase,
            **{name: sum(getattr(part, name) for part in parts) for name in _ADDED},
            connections=sum(part.connections for part in parts) + opened,
            mean_us=weighted / received if received else 0.0,
            max_us=max(part.max_us for part in parts),
        )


def _share(scenario: Scenario, index: int, address: str, host: str, path: str) -> RequestorConfig:
    """Requestor `index`'s users and its part of the rate."""
    first = scenario.users * index // scenario.requestors
    users = scenario.users * (index + 1) // scenario.requestors - first
    return RequestorConfig(
        transport=scenario.transport,
        address=address,
        host=host,
        path=path,
        users=users,
        first_user=first,
        providers=scenario.providers,
        rate=scenario.rate * users / scenario.users,
        warmup_s=scenario.warmup_s,
        duration_s=scenario.duration_s,
        request_bytes=scenario.request_bytes,
        reply_bytes=scenario.reply_bytes,
        timeout_s=scenario.timeout_s,
        threads=scenario.threads,
        seed=(scenario.seed + index) % 2**64,
        connect_rate=scenario.connect_rate / scenario.requestors,
        connect_in_flight=scenario.connect_in_flight,
        arrivals=scenario.arrivals,
    )
