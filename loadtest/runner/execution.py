"""One run of a scenario: servers, connections, warm-up, measured phase, drain, collection of results."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NoReturn, get_args

from msgspec import structs

from loadtest.errors import RunError, TargetError
from loadtest.result.schema import Host, Sample
from loadtest.runner.building.collected import Collected, WorkerReport
from loadtest.runner.building.conservation import check_broker
from loadtest.runner.building.result import measured_rate
from loadtest.runner.building.soak import PeriodSampler
from loadtest.runner.meter import UsageMeter
from loadtest.runner.observer import Observer, RateEstimator, add_progress
from loadtest.runner.placement import HostBinding, place_here, place_on_hosts
from loadtest.runner.servers import Servers
from loadtest.runner.shares import share_broadcast, share_providers, share_requests
from loadtest.runner.view import View, WorkerRow
from loadtest.sampling.monitor import open_monitor
from loadtest.sampling.usage import count_descriptors
from loadtest.scenario.kinds import AnyScenario, BroadcastScenario, FetchScenario, Scenario
from loadtest.scenario.target import Target
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.messages import (
    Configure,
    Connect,
    Phase,
    Progress,
    Reported,
    Start,
    Stop,
)
from loadtest.workers.processes import RunProcesses, WorkerProcess
from subjectbus import LimitError, UsageError, limits, resolve_driver

_POLL_S = 0.02
_SAMPLE_EVERY_S = 1.0
_START_DELAY_NS = 200_000_000
_SPREAD_START_DELAY_NS = 1_000_000_000  # longer than an exchange with a host takes
_SLACK_S = 30.0
_DRAIN_PATIENCE_S = 1.5
_REPORT_PATIENCE_S = 1.0
_PHASES = get_args(Phase)
_SUMMED_COUNTS = ("connect_failures", "sent", "received", "outstanding", "timed_out", "errors")
_SAMPLED_FIELDS = (
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


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a run that are not part of its scenario."""

    target: Target | None = None
    """A running server; None starts a broker for the run."""
    monitor: str | None = None
    """URL of the target's monitor; None for a target without a monitor."""
    server_pid: int | None = None
    """Process id of the target, if it runs on this machine and may be inspected; None otherwise."""
    broker_cpus: frozenset[int] | None = None
    load_cpus: frozenset[int] | None = None
    hosts: Sequence[HostBinding] = ()
    """Machines to run on; empty for this machine."""
    command: Sequence[str] = ()
    """Command line of the run, which its result keeps."""


def run_scenario(scenario: AnyScenario, options: Options, view: View, interrupts: Interrupts) -> Collected:
    """Run a scenario to its end or its failure, and return all data that it has collected.

    After a failure, the field `error` has the reason. `interrupts` must be entered, and are held back on
    return, so that the caller can save the data.

    Raises:
        UsageError: The run is impossible: the broker's configuration, the scenario or the process id cannot
            be used, or the target's monitor does not return counters.
    """
    return _Run(scenario, options, view, interrupts).execute()


def require_limits(scenario: AnyScenario) -> None:
    """Check that every worker can open its connections; a broker of the run checks its own limits itself.

    With io_uring the limit applies to each ring, and a thread has as many rings as it needs.

    Raises:
        LimitError: A thread would need more descriptors than this process may open.
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


def _require_descriptors(owner: str, connections: int, threads: int, keys: str) -> None:
    """Check one engine's threads, which have descriptor tables of their own, and so the full limit each.

    Raises:
        LimitError: A thread would need more descriptors than the limit; the text names the keys to change.
    """
    try:
        limits.require_descriptors(owner, math.ceil(connections / threads))
    except LimitError as error:
        raise LimitError(f"{error}; a higher {keys} spreads the connections") from error


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
        self._processes = RunProcesses(interrupts)
        self._collected = Collected(
            scenario=scenario,
            target=options.target.url if options.target else None,
            environment=placement.environment(),
            command=list(options.command),
        )
        self._meter = UsageMeter(options.server_pid)
        self._began_s = time.monotonic()
        self._observer = Observer(self._collected, self._began_s, options.load_cpus)
        self._rates = RateEstimator()
        self._next_sample_s = 0.0
        self._phase: Phase | None = None
        self._measuring_since_s: float | None = None
        soak = scenario.soak
        self._periods = (
            PeriodSampler(soak, scenario.duration_s, self._collected.snapshots) if soak is not None else None
        )

    def execute(self) -> Collected:
        with self._processes:
            try:
                self._run_to_end()
                self._interrupts.hold()
            except KeyboardInterrupt:
                self._end_early("interrupted")
            finally:
                self._observer.close()
                self._collected.hosts = self._describe_hosts()
        if self._interrupts.count or any(machine.lost for machine in self._placement.machines):
            # No further run will use the machines, and writing the data may take a while.
            self._close_machines()
        return self._collected

    def _close_machines(self) -> None:
        machines = self._placement.machines
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(lambda machine: machine.close(), machines))

    def _run_to_end(self) -> None:
        try:
            self._start_servers()
            self._connect()
            self._sweep()
            self._send_load()
            self._drain_and_collect()
            self._processes.end_workers()
            self._observer.record_closed()
            self._observer.close()
            self._processes.end()
        except RunError as error:
            self._end_early(str(error))

    def _start_servers(self) -> None:
        if self._options.target is not None:
            self._check_target(self._options.target)
            return
        self._servers.launch(self._placement, self._processes)
        self._meter.watch_server(self._processes.brokers)
        self._collected.servers = self._servers.count
        self._meter.watch_traffic(self._observer.read_traffic)
        self._meter.sample_idle()
        if not self._observer.begin(*self._servers.open_counters()):
            self._fail_without_counters()

    def _check_target(self, target: Target) -> None:
        monitor = self._options.monitor
        if monitor is not None:
            # An attempt to connect would be one more connection in the target's counters.
            if not self._observer.begin(open_monitor(monitor), monitor):
                raise TargetError(f"the target's monitor does not return counters: {self._observer.failure}")
            self._meter.watch_traffic(self._observer.read_traffic)
        elif not self._placement.is_spread:
            target.require_reachable()
        self._meter.sample_idle()

    def _fail_without_counters(self) -> NoReturn:
        for broker in self._processes.brokers:
            broker.require_alive()
        raise RunError(f"the broker's counters cannot be read: {self._observer.failure}")

    def _connect(self) -> None:
        """Connect providers before users: a user's first request must find its provider subscribed."""
        scenario = self._scenario
        if isinstance(scenario, Scenario):
            self._connect_providers(scenario)
        for index, slot in enumerate(self._placement.requestors):
            engine = self._servers.user_engine(index)
            if isinstance(scenario, BroadcastScenario):
                config = slot.apply_overrides(share_broadcast(scenario, engine, index))
                connections, configure = config.users + config.publishers, Configure(broadcaster=config)
            else:
                share = slot.apply_overrides(share_requests(scenario, engine, index))
                connections, configure = share.users, Configure(requestor=share)
            role = "broadcaster" if isinstance(scenario, BroadcastScenario) else "requestor"
            start = partial(WorkerProcess, f"{role} {index + 1}", configure, slot, connections)
            self._processes.add_worker(self._processes.requestors, start)
        self._meter.watch_load(self._processes.workers, self._processes.requestors)
        expected = scenario.connections - (scenario.providers if isinstance(scenario, Scenario) else 0)
        self._open_connections(self._processes.requestors, expected)

    def _connect_providers(self, scenario: Scenario) -> None:
        """Connect all providers to each server."""
        slots = self._placement.providers
        places = [(server, index) for server in range(self._servers.count) for index in range(len(slots))]
        for number, (server, index) in enumerate(places, 1):
            engine = self._servers.provider_engine(server)
            share = slots[index].apply_overrides(share_providers(scenario, engine, index, len(slots)))
            name = f"provider {number}" if len(places) > 1 else "provider"
            start = partial(WorkerProcess, name, Configure(provider=share), slots[index], share.providers)
            self._processes.add_worker(self._processes.providers, start)
        self._open_connections(self._processes.providers, scenario.providers * self._servers.count)

    def _open_connections(self, workers: list[WorkerProcess], connections: int) -> None:
        for worker in workers:
            worker.send(Connect())
        timeout_s = self._scenario.connect_timeout_s
        self._wait_until(
            lambda: all(w.progress.phase == "connected" for w in workers), timeout_s, "the connect phase"
        )
        opened = sum(worker.progress.connections for worker in workers)
        if opened < connections:
            raise RunError(f"only {opened} of {connections} connections were established")

    def _sweep(self) -> None:
        """Let each user send one request; return when every requestor has finished its sweep."""
        scenario = self._scenario
        if not isinstance(scenario, Scenario) or not scenario.sweep:
            return
        self._start_together()
        self._wait_until(
            lambda: all(worker.progress.phase == "swept" for worker in self._processes.requestors),
            _longest_sweep_s(scenario),
            "the sweep",
        )

    def _send_load(self) -> None:
        scenario = self._scenario
        self._start_together(also=self._processes.providers)
        longest_s = scenario.warmup_s + scenario.duration_s + scenario.timeout_s + _SLACK_S
        self._wait_until(
            lambda: all(worker.finished for worker in self._processes.requestors), longest_s, "the run"
        )
        self._sample_period(scenario.duration_s)

    def _start_together(self, also: Sequence[WorkerProcess] = ()) -> None:
        """Start all requestors at the same time, and `also` the given workers.

        Broadcasters must know the start time before the first one publishes, so it gets the command last.
        """
        first, *others = self._processes.requestors
        delay_ns = _SPREAD_START_DELAY_NS if self._placement.is_spread else _START_DELAY_NS
        start = Start(time.monotonic_ns() + delay_ns)
        phase = first.progress.phase
        for worker in [*also, *others]:
            worker.send(start)
        if isinstance(self._scenario, BroadcastScenario):
            self._wait_until(lambda: all(w.progress.phase != phase for w in others), _SLACK_S, "the start")
        first.send(start)

    def _drain_and_collect(self) -> None:
        """Compare both sides' counts when nothing is in flight any more, then collect the results."""
        self._observer.record_drained(self._processes.workers)
        providers = self._processes.providers
        for provider in providers:
            provider.send(Stop())
        self._wait_until(
            lambda: all(provider.finished for provider in providers), _SLACK_S, "the providers' work"
        )
        self._collect_results()
        if self._processes.brokers and self._observer.settled_counters(self._is_conserved) is None:
            self._fail_without_counters()

    def _is_conserved(self, counters: Mapping[str, Any]) -> bool:
        """Keep the counters of the run's broker; return whether its conservation checks hold.

        The last messages may show in the counters a short time later.
        """
        self._collected.counters = counters
        return all(check.holds for check in check_broker(self._collected))

    def _collect_results(self) -> None:
        collected, requestors = self._collected, self._processes.requestors
        collected.requestors = [worker.requestor for worker in requestors if worker.requestor is not None]
        collected.broadcasters = [w.broadcaster for w in requestors if w.broadcaster is not None]
        collected.providers = [w.provider for w in self._processes.providers if w.provider is not None]
        collected.last_progress = [worker.progress for worker in requestors if not worker.finished]
        collected.workers = [
            WorkerReport(worker.name, worker.machine.name, result)
            for worker in self._processes.workers
            if (result := worker.requestor or worker.provider or worker.broadcaster) is not None
        ]
        collected.missing = [
            f"{worker.name} on host {worker.machine.name}: no result"
            for worker in self._processes.workers
            if not worker.finished
        ]
        connections = max((sample.connections for sample in collected.timeline), default=0)
        rate = measured_rate(collected.results)
        collected.server, collected.load = self._meter.summary(rate, connections)

    def _describe_hosts(self) -> list[Host]:
        """Return the machines of the run, with their samples."""
        return [
            Host(
                name=machine.name,
                address=machine.address,
                roles=self._placement.roles(machine),
                processes=[child.name for child in self._processes.all_processes if child.machine is machine],
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

    def _end_early(self, reason: str) -> None:
        """End a failed run early, and collect the results of the remaining workers.

        Requestors stop sending and drain for a short time. A second `Stop` ends the drain. Providers stop
        last.
        """
        self._interrupts.hold()
        self._collected.error = reason
        for workers, patience_s in (
            (self._processes.requestors, _DRAIN_PATIENCE_S),
            # The second `Stop` skips the drain.
            (self._processes.requestors, _REPORT_PATIENCE_S),
            (self._processes.providers, _REPORT_PATIENCE_S),
        ):
            self._stop([worker for worker in workers if worker.may_report], patience_s)
        self._collect_results()

    def _stop(self, workers: list[WorkerProcess], patience_s: float) -> None:
        """Stop workers and wait for their results, or until the next signal."""
        interrupts_before = self._interrupts.count
        for worker in workers:
            with suppress(RunError, UsageError):
                worker.send(Stop())
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and any(worker.may_report for worker in workers):
            if self._interrupts.count > interrupts_before:
                return
            time.sleep(_POLL_S)

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float, phase: str) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            self._sample_all()
            if condition():
                return
            self._processes.require_alive()
            if time.monotonic() > deadline:
                raise RunError(f"{phase} did not end within {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def _sample_all(self) -> None:
        """Take a sample of counts and usage, once a second and at each change of phase."""
        for machine in self._placement.machines:
            machine.sample()
        total, now = self._total_progress(), time.monotonic()
        if total.phase == self._phase and now < self._next_sample_s:
            return
        if total.phase != self._phase and total.phase == "measuring":
            self._measuring_since_s = self._phase_start_s()
            self._collected.started = datetime.now(UTC) - timedelta(seconds=now - self._measuring_since_s)
            self._collected.measured_from_s = round(self._measuring_since_s - self._began_s, 3)
        self._phase = total.phase
        self._next_sample_s = now + _SAMPLE_EVERY_S
        server_cpu, server_rss, load_cpu = self._meter.sample(measuring=total.phase == "measuring")
        workers = self._processes.workers
        counts = add_progress([worker.progress for worker in workers])
        published_per_s, delivered_per_s = self._rates.update(workers)
        sample = Sample(
            t_s=round(now - self._began_s, 3),
            published=counts.published,
            published_per_s=published_per_s,
            delivered=counts.delivered,
            delivered_per_s=delivered_per_s,
            server_cpu_percent=server_cpu,
            server_rss_bytes=server_rss,
            load_cpu_percent=load_cpu,
            **{name: getattr(total, name) for name in _SAMPLED_FIELDS},
        )
        self._collected.timeline.append(sample)
        self._view.show(sample, total, [_worker_row(worker) for worker in workers])
        if self._measuring_since_s is not None:
            self._sample_period(now - self._measuring_since_s)

    def _sample_period(self, elapsed_s: float) -> None:
        """Take a snapshot for a soak if another period of the measured phase has ended."""
        if self._periods is None:
            return
        self._periods.sample(
            elapsed_s, self._meter.last, self._count_descriptors, self._observer.read_counters
        )

    def _count_descriptors(self) -> int | None:
        """Return the open descriptors of the brokers, or of the target's process; None if not known."""
        if self._processes.brokers:
            counts = [broker.process.count_descriptors() for broker in self._processes.brokers]
            return sum(count for count in counts if count is not None) if None not in counts else None
        pid = self._options.server_pid
        return count_descriptors(pid) if pid is not None else None

    def _phase_start_s(self) -> float:
        """Return the time, on the run's clock, at which the least advanced requestor entered its phase."""
        report = min((worker.report for worker in self._processes.requestors), key=_phase_number)
        return report.at_s - report.progress.elapsed_s

    def _total_progress(self) -> Progress:
        """Return the sum of all workers' counts, in the phase of the least advanced requestor."""
        reports = [worker.report for worker in self._processes.requestors]
        parts = [report.progress for report in reports]
        opened = sum(worker.progress.connections for worker in self._processes.providers)
        if not parts:
            return Progress(phase="connecting", connections=opened)
        received = sum(part.received for part in parts)
        weighted = sum(part.mean_us * part.received for part in parts)
        slowest = min(reports, key=_phase_number).progress
        return structs.replace(
            slowest,
            phase="connecting" if slowest.phase == "idle" else slowest.phase,
            **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED_COUNTS},
            connections=sum(part.connections for part in parts) + opened,
            mean_us=weighted / received if received else 0.0,
            max_us=max(part.max_us for part in parts),
        )


def _phase_number(report: Reported) -> int:
    return _PHASES.index(report.progress.phase)


def _longest_sweep_s(scenario: Scenario) -> float:
    """Return the longest duration of a sweep: in a closed loop each request may take its whole timeout."""
    if scenario.outstanding:
        return math.ceil(scenario.users / scenario.outstanding + 1) * scenario.timeout_s + _SLACK_S
    return scenario.users / scenario.rate + scenario.timeout_s + _SLACK_S


def _worker_row(worker: WorkerProcess) -> WorkerRow:
    """Return the row of a worker; a worker that has ended keeps its last snapshot."""
    has_ended = worker.machine.lost is not None or worker.process.poll() is not None
    return WorkerRow(worker.name, worker.machine.name, worker.progress, is_lost=has_ended)
