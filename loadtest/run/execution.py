"""One run of a scenario: server, connections, warm-up, measured phase, drain, accounts."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Protocol, get_args

from msgspec import structs

from loadtest.collect.build import measured_rate
from loadtest.collect.collected import Collected, WorkerReport
from loadtest.collect.conservation import check_broker
from loadtest.collect.soak import Watch
from loadtest.engine.messages import (
    Configure,
    Connect,
    Phase,
    Progress,
    Reported,
    Start,
    Stop,
)
from loadtest.errors import RunError, TargetError
from loadtest.plan.scenario import AnyScenario, BroadcastScenario, FetchScenario, Scenario
from loadtest.plan.target import MonitorAddress, Target
from loadtest.processes.interrupts import Interrupts
from loadtest.processes.launch import Fleet, Worker
from loadtest.report.live import WorkerRow
from loadtest.result.schema import Host, Sample
from loadtest.run.meter import Meter
from loadtest.run.observer import Observer, Pace, add_progress
from loadtest.run.placement import Manned, place_here, place_on_hosts
from loadtest.run.servers import Servers
from loadtest.run.shares import share_broadcast, share_providers, share_requests
from loadtest.sampling.monitor import HttpCounters
from loadtest.sampling.usage import count_descriptors
from subjectbus import LimitError, UsageError, limits, resolve_driver

_POLL_S = 0.02
_SAMPLE_EVERY_S = 1.0
_START_DELAY_NS = 200_000_000
_SPREAD_START_DELAY_NS = 1_000_000_000  # more than any exchange with a host takes
_SLACK_S = 30.0
_DRAIN_PATIENCE_S = 1.5
_REPORT_PATIENCE_S = 1.0
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

    def show(self, sample: Sample, progress: Progress, rows: Sequence[WorkerRow]) -> None:
        """Called at each change of phase and once a second; a row for each process of the load."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a scenario is run here."""

    target: Target | None = None
    """A running server; None starts a broker for the run."""
    monitor: MonitorAddress | None = None
    """Where the target tells its counters."""
    server_pid: int | None = None
    """The target's process, when it is on this machine and may be looked at."""
    broker_cpus: frozenset[int] | None = None
    load_cpus: frozenset[int] | None = None
    hosts: Sequence[Manned] = ()
    """The machines to run on; without any, this one."""
    command: Sequence[str] = ()
    """The arguments that the run was started with, to be kept with its result."""


def run_scenario(scenario: AnyScenario, options: Options, view: View, interrupts: Interrupts) -> Collected:
    """Runs it to its end, or to its failure, which is in `error` then, with all that was collected.

    `interrupts`, entered, are held on return: what was collected is the caller's to save.

    Raises:
        UsageError: Nothing can be run like this: an unusable broker configuration, workload or process, or a
            target's monitor that does not answer as one.
    """
    return _Run(scenario, options, view, interrupts).execute()


def require_limits(scenario: AnyScenario) -> None:
    """LimitError when a worker could not hold its connections; the own broker checks its limits itself.

    With io_uring the limit holds for each ring, of which a thread has as many as it needs.
    """
    if resolve_driver(scenario.load_driver) == "uring":
        return
    if isinstance(scenario, BroadcastScenario):
        users = math.ceil(scenario.users / scenario.processes)
        _require_descriptors("a thread of users", users, scenario.threads, "threads= or processes=")
        _require_descriptors("the publishing thread", scenario.publishers, 1, "users=")
        return
    users = math.ceil(scenario.users / scenario.requestors)
    _require_descriptors("a requestor thread", users, scenario.threads, "threads= or requestors=")
    if isinstance(scenario, FetchScenario):
        return
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
    def __init__(self, scenario: AnyScenario, options: Options, view: View, interrupts: Interrupts) -> None:
        has_target = options.target is not None
        if options.hosts:
            placement = place_on_hosts(scenario, options.hosts, has_target=has_target)
        else:
            placement = place_here(scenario, options.broker_cpus, options.load_cpus, has_target=has_target)
        self._placement = placement
        self._scenario = scenario
        self._options = options
        self._view = view
        self._interrupts = interrupts
        self._servers = Servers(scenario, options.target)
        self._fleet = Fleet()
        self._collected = Collected(
            scenario=scenario,
            target=options.target.url if options.target else None,
            environment=placement.environment(),
            command=list(options.command),
        )
        self._meter = Meter(options.server_pid)
        self._began_s = time.monotonic()
        self._observer = Observer(self._collected, self._began_s, options.load_cpus)
        self._pace = Pace()
        self._next_sample_s = 0.0
        self._phase: Phase | None = None
        self._measuring_since_s: float | None = None
        soak = scenario.soak
        self._watch = Watch(soak, scenario.duration_s, self._collected.looks) if soak is not None else None

    def execute(self) -> Collected:
        with self._fleet:
            try:
                self._run_to_end()
                self._interrupts.hold()
            except KeyboardInterrupt:
                self._salvage("interrupted")
            finally:
                self._observer.close()
                self._collected.hosts = self._describe_hosts()
        if self._interrupts.count or any(machine.lost for machine in self._placement.machines):
            # Nothing more will be run, and what was collected may take a while to be written.
            self._leave()
        return self._collected

    def _leave(self) -> None:
        machines = self._placement.machines
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(lambda machine: machine.close(), machines))

    def _run_to_end(self) -> None:
        try:
            self._start_servers()
            self._connect()
            self._sweep()
            self._drive()
            self._account()
            self._fleet.end_workers()
            self._observer.note_closed()
            self._observer.close()
            self._fleet.end()
        except RunError as error:
            self._salvage(str(error))

    def _start_servers(self) -> None:
        if self._options.target is not None:
            self._look_at_target(self._options.target)
            return
        self._servers.launch(self._placement, self._fleet)
        self._meter.watch_server(self._fleet.brokers)
        self._collected.servers = self._servers.count
        self._meter.watch_traffic(self._observer.read_traffic)
        self._meter.look_idle()
        if not self._observer.begin(*self._servers.open_counters()):
            self._fail_without_counters()

    def _look_at_target(self, target: Target) -> None:
        monitor = self._options.monitor
        if monitor is not None:
            # The attempt to connect would be one more connection that it counts.
            if not self._observer.begin(HttpCounters(monitor), monitor.url):
                raise TargetError(f"monitor {monitor.asked} tells no counters: {self._observer.failure}")
            self._meter.watch_traffic(self._observer.read_traffic)
        elif not self._placement.is_spread:
            target.require_reachable()
        self._meter.look_idle()

    def _fail_without_counters(self) -> NoReturn:
        for broker in self._fleet.brokers:
            broker.require_alive()
        raise RunError(f"broker's counters at /varz: {self._observer.failure}")

    def _connect(self) -> None:
        """Providers first: a user's first request must find them subscribed."""
        scenario = self._scenario
        if isinstance(scenario, Scenario):
            self._connect_providers(scenario)
        for index, seat in enumerate(self._placement.requestors):
            engine = self._servers.user_engine(index)
            if isinstance(scenario, BroadcastScenario):
                cast = seat.settle(share_broadcast(scenario, engine, index))
                connections, configure = cast.users + cast.publishers, Configure(broadcaster=cast)
            else:
                share = seat.settle(share_requests(scenario, engine, index))
                connections, configure = share.users, Configure(requestor=share)
            role = "broadcaster" if isinstance(scenario, BroadcastScenario) else "requestor"
            worker = Worker(f"{role} {index + 1}", configure, seat, connections)
            self._fleet.requestors.append(worker)
        self._meter.watch_load(self._fleet.workers, self._fleet.requestors)
        expected = scenario.connections - (scenario.providers if isinstance(scenario, Scenario) else 0)
        self._open(self._fleet.requestors, expected)

    def _connect_providers(self, scenario: Scenario) -> None:
        """To each server all of them."""
        seats = self._placement.providers
        places = [(server, index) for server in range(self._servers.count) for index in range(len(seats))]
        for number, (server, index) in enumerate(places, 1):
            engine = self._servers.provider_engine(server)
            share = seats[index].settle(share_providers(scenario, engine, index, len(seats)))
            name = f"provider {number}" if len(places) > 1 else "provider"
            worker = Worker(name, Configure(provider=share), seats[index], share.providers)
            self._fleet.providers.append(worker)
        self._open(self._fleet.providers, scenario.providers * self._servers.count)

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

    def _sweep(self) -> None:
        """One request of each user; the warm-up begins when every requestor is done with its own."""
        scenario = self._scenario
        if not isinstance(scenario, Scenario) or not scenario.sweep:
            return
        self._start_together()
        self._until(
            lambda: all(worker.progress.phase == "swept" for worker in self._fleet.requestors),
            _longest_sweep_s(scenario),
            "the sweep",
        )

    def _drive(self) -> None:
        scenario = self._scenario
        self._start_together(also=self._fleet.providers)
        longest_s = scenario.warmup_s + scenario.duration_s + scenario.timeout_s + _SLACK_S
        self._until(lambda: all(worker.finished for worker in self._fleet.requestors), longest_s, "the run")
        self._look_at_period(scenario.duration_s)

    def _start_together(self, also: Sequence[Worker] = ()) -> None:
        """At one time, of which `also` hears, and which all others know before the first one publishes."""
        first, *others = self._fleet.requestors
        delay_ns = _SPREAD_START_DELAY_NS if self._placement.is_spread else _START_DELAY_NS
        start = Start(time.monotonic_ns() + delay_ns)
        phase = first.progress.phase
        for worker in [*also, *others]:
            worker.send(start)
        if isinstance(self._scenario, BroadcastScenario):
            self._until(lambda: all(w.progress.phase != phase for w in others), _SLACK_S, "the start")
        first.send(start)

    def _account(self) -> None:
        """Both views once nothing is under way any more, then the results."""
        self._observer.note_drained(self._fleet.workers)
        providers = self._fleet.providers
        for provider in providers:
            provider.send(Stop())
        self._until(lambda: all(provider.finished for provider in providers), _SLACK_S, "the provider")
        self._gather()
        if self._fleet.brokers and self._observer.settled_counters(self._is_conserved) is None:
            self._fail_without_counters()

    def _is_conserved(self, counters: Mapping[str, Any]) -> bool:
        """Keeps the own broker's counters; whether they hold: what has just arrived shows a moment later."""
        self._collected.counters = counters
        return all(check.holds for check in check_broker(self._collected))

    def _gather(self) -> None:
        collected, requestors = self._collected, self._fleet.requestors
        collected.requestors = [worker.requestor for worker in requestors if worker.requestor is not None]
        collected.broadcasters = [w.broadcaster for w in requestors if w.broadcaster is not None]
        collected.providers = [w.provider for w in self._fleet.providers if w.provider is not None]
        collected.last_progress = [worker.progress for worker in requestors if not worker.finished]
        collected.workers = [
            WorkerReport(worker.name, worker.machine.name, result)
            for worker in self._fleet.workers
            if (result := worker.requestor or worker.provider or worker.broadcaster) is not None
        ]
        collected.missing = [
            f"{worker.name} on host {worker.machine.name}: no result"
            for worker in self._fleet.workers
            if not worker.finished
        ]
        connections = max((sample.connections for sample in collected.timeline), default=0)
        rate = measured_rate(collected.results)
        collected.server, collected.load = self._meter.summary(rate, connections)

    def _describe_hosts(self) -> list[Host]:
        """What the machines were seen to do."""
        return [
            Host(
                name=machine.name,
                address=machine.address,
                roles=self._placement.roles(machine),
                processes=[child.name for child in self._fleet.children if child.machine is machine],
                clock_offset_s=machine.clock_offset_s,
                clock_error_s=machine.clock_error_s,
                lost=machine.lost,
                environment=dict(machine.environment),
                samples=[
                    structs.replace(sample, t_s=round(sample.t_s - self._began_s, 3))
                    for sample in machine.samples
                    if sample.t_s >= self._began_s
                ],
            )
            for machine in self._placement.machines
        ]

    def _salvage(self, reason: str) -> None:
        """The run has failed: whoever still lives sends no more, drains and reports, soon; providers last."""
        self._interrupts.hold()
        self._collected.error = reason
        for workers, patience_s in (
            (self._fleet.requestors, _DRAIN_PATIENCE_S),
            # Told again, they wait for nobody.
            (self._fleet.requestors, _REPORT_PATIENCE_S),
            (self._fleet.providers, _REPORT_PATIENCE_S),
        ):
            self._stop([worker for worker in workers if worker.reporting], patience_s)
        self._gather()

    def _stop(self, workers: list[Worker], patience_s: float) -> None:
        """Waits for their results, unless told again to end."""
        told = self._interrupts.count
        for worker in workers:
            with suppress(RunError, UsageError):
                worker.send(Stop())
        deadline = time.monotonic() + patience_s
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
        for machine in self._placement.machines:
            machine.sample()
        total, now = self._total(), time.monotonic()
        if total.phase == self._phase and now < self._next_sample_s:
            return
        if total.phase != self._phase and total.phase == "measuring":
            self._measuring_since_s = self._phase_since_s()
            self._collected.started = datetime.now(UTC) - timedelta(seconds=now - self._measuring_since_s)
            self._collected.measured_from_s = round(self._measuring_since_s - self._began_s, 3)
        self._phase = total.phase
        self._next_sample_s = now + _SAMPLE_EVERY_S
        server_cpu, server_rss, load_cpu = self._meter.look(measuring=total.phase == "measuring")
        workers = self._fleet.workers
        everybody = add_progress([worker.progress for worker in workers])
        published_per_s, delivered_per_s = self._pace.look(workers)
        sample = Sample(
            t_s=round(now - self._began_s, 3),
            published=everybody.published,
            published_per_s=published_per_s,
            delivered=everybody.delivered,
            delivered_per_s=delivered_per_s,
            server_cpu_percent=server_cpu,
            server_rss_bytes=server_rss,
            load_cpu_percent=load_cpu,
            **{name: getattr(total, name) for name in _SAMPLED},
        )
        self._collected.timeline.append(sample)
        self._view.show(sample, total, [_row(worker) for worker in workers])
        if self._measuring_since_s is not None:
            self._look_at_period(now - self._measuring_since_s)

    def _look_at_period(self, elapsed_s: float) -> None:
        """In a soak: whether another period of the measured phase is over, and what it leaves."""
        if self._watch is None:
            return
        self._watch.look(elapsed_s, self._meter.last, self._count_descriptors, self._observer.read_counters)

    def _count_descriptors(self) -> int | None:
        """Of the brokers, or of the target's process."""
        if self._fleet.brokers:
            counts = [broker.process.count_descriptors() for broker in self._fleet.brokers]
            return sum(count for count in counts if count is not None) if None not in counts else None
        pid = self._options.server_pid
        return count_descriptors(pid) if pid is not None else None

    def _phase_since_s(self) -> float:
        """When the phase began that the hindmost requestor is in, by the run's clock."""
        report = min((worker.report for worker in self._fleet.requestors), key=_phase_number)
        return report.at_s - report.progress.elapsed_s

    def _total(self) -> Progress:
        """All workers as one: counts added, in the phase of the requestor that is furthest behind."""
        reports = [worker.report for worker in self._fleet.requestors]
        parts = [report.progress for report in reports]
        opened = sum(worker.progress.connections for worker in self._fleet.providers)
        if not parts:
            return Progress(phase="connecting", connections=opened)
        received = sum(part.received for part in parts)
        weighted = sum(part.mean_us * part.received for part in parts)
        hindmost = min(reports, key=_phase_number).progress
        return structs.replace(
            hindmost,
            phase="connecting" if hindmost.phase == "idle" else hindmost.phase,
            **{name: sum(getattr(part, name) for part in parts) for name in _ADDED},
            connections=sum(part.connections for part in parts) + opened,
            mean_us=weighted / received if received else 0.0,
            max_us=max(part.max_us for part in parts),
        )


def _phase_number(report: Reported) -> int:
    return _PHASES.index(report.progress.phase)


def _longest_sweep_s(scenario: Scenario) -> float:
    """In a closed loop each request may hold its place until its timeout."""
    if scenario.outstanding:
        return math.ceil(scenario.users / scenario.outstanding + 1) * scenario.timeout_s + _SLACK_S
    return scenario.users / scenario.rate + scenario.timeout_s + _SLACK_S


def _row(worker: Worker) -> WorkerRow:
    """Whoever has gone keeps what it last said."""
    has_gone = worker.machine.lost is not None or worker.process.poll() is not None
    return WorkerRow(worker.name, worker.machine.name, worker.progress, is_lost=has_gone)
