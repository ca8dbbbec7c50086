"""Load tests as functions, which do the work of the commands for Python programs, notebooks and tests.

`run`, `repeat` and `capacity` start a broker of their own, or load the server at `target`, and return after
the last run. `compare` compares results. Unless `progress` is set, no function prints anything.

When a call ends, for whatever reason, all processes of its run have ended.

In the main thread, SIGINT (Ctrl-C), SIGTERM and SIGHUP first end the run, and the collected data is written.
Then the program receives the signal as usual, Ctrl-C as KeyboardInterrupt. The functions may also be called
from other threads. There, signals do not end a run: Python delivers signals to the main thread only.
"""

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadtest.errors import ArgumentError, RunError
from loadtest.experiments.capacity import find_capacity, plan_baseline, plan_search
from loadtest.experiments.compare import Source, compare_runs, read_sides
from loadtest.experiments.repeat import repeat as repeat_runs
from loadtest.report import artifacts
from loadtest.report import capacity as capacity_report
from loadtest.report import repeated as repeated_report
from loadtest.report.live import Console
from loadtest.report.terminal import Screen
from loadtest.result.capacity import Capacity
from loadtest.result.comparison import Comparison
from loadtest.result.folder import claimed
from loadtest.result.paths import flatten
from loadtest.result.repeated import Repeated
from loadtest.result.schema import Result, Sample
from loadtest.result.thresholds import parse_thresholds, thresholds_of
from loadtest.runner.execution import Options, require_limits
from loadtest.runner.placement import HostBinding, fit_to_hosts
from loadtest.runner.single import run_plan
from loadtest.runner.view import Display, WorkerRow
from loadtest.scenario.cpus import parse_cpus
from loadtest.scenario.inventory import load_inventory
from loadtest.scenario.kinds import Plan, Scenario, TransportsScenario, with_transport
from loadtest.scenario.load import load_scenario, to_plain
from loadtest.scenario.target import parse_target
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.messages import Progress
from subjectbus import Monitor

FilePath = str | os.PathLike[str]
Cpus = str | Collection[int]
"""Processors of this machine: a list such as "0,2-3", or their numbers."""
ProgressOption = bool | Callable[[Sample], None]
"""Whether to show progress on standard error, or a function that gets each sample, once a second."""

_LEAST_RUNS = 2
_LEAST_SIDES = 2
_PLAIN_WIDTH = 100


def run(
    scenario: FilePath | Plan,
    *,
    target: str | None = None,
    monitor: str | None = None,
    hosts: FilePath | None = None,
    server_pid: int | None = None,
    broker_cpus: Cpus | None = None,
    load_cpus: Cpus | None = None,
    out: FilePath | None = None,
    progress: ProgressOption = False,
    command: Sequence[str] | None = None,
    **overrides: Any,  # noqa: ANN401 - of the scenario's keys
) -> Result:
    """Run a scenario once and return its result.

    A threshold or check that fails does not raise an error: `result.holds` says whether all hold.

    Args:
        scenario: Name of a shipped scenario, path of a TOML file, or a scenario.
        target: URL of a running server, `nats://H:P`, `ws://H:P/` or `http://H:P/`; None starts a broker.
        monitor: URL of the target's monitor, whose counters are compared with the load's; None for the
            scenario's key `monitor`.
        hosts: Path of a hosts file; None runs everything on this machine.
        server_pid: Process id of the target on this machine, whose processor time and memory are sampled.
        broker_cpus: Processors of the run's own broker; None leaves the choice to the kernel.
        load_cpus: Processors of requestors and providers; None leaves the choice to the kernel.
        out: Folder for result and reports, made if it is missing; None writes nothing.
        progress: Whether to show progress, or a function that is called with each sample.
        command: Command that repeats the run, kept in the result; None makes it from these arguments.
        overrides: New values of the scenario's keys, such as `users=1000`; `**{"broker.shards": 2}` for a
            key of a table.

    Raises:
        UsageError: An argument cannot be used. ScenarioError, TargetError, ThresholdError and HostsFileError
            are such errors. Nothing was started, and no folder is left.
        RunError: The run failed, or its result could not be written. `error.result` has the collected data.
        KeyboardInterrupt: Ctrl-C was pressed; in the main thread only.
    """
    where = _Where(target, monitor, hosts, server_pid, broker_cpus, load_cpus)
    command = _command("run", scenario, where, overrides) if command is None else command
    with _prepared(load_scenario(scenario, overrides), where, out, progress, command) as job:
        result = job.run(job.plan, job.folder)
    if result.error is not None:
        raise RunError(result.error, result)
    return result


def repeat(
    scenario: FilePath | Plan,
    times: int,
    *,
    target: str | None = None,
    monitor: str | None = None,
    hosts: FilePath | None = None,
    server_pid: int | None = None,
    broker_cpus: Cpus | None = None,
    load_cpus: Cpus | None = None,
    out: FilePath | None = None,
    progress: ProgressOption = False,
    command: Sequence[str] | None = None,
    **overrides: Any,  # noqa: ANN401 - of the scenario's keys
) -> Repeated:
    """Run a scenario several times and return the median and the spread of each metric.

    Args:
        scenario: As for `run`, like all arguments that are not named here.
        times: Number of runs, at least 2.
        target: As for `run`.
        monitor: As for `run`.
        hosts: As for `run`.
        server_pid: As for `run`.
        broker_cpus: As for `run`.
        load_cpus: As for `run`.
        out: Folder for the summary, and for each run in `run-1` and so on; None writes nothing.
        progress: As for `run`.
        command: As for `run`.
        overrides: As for `run`.

    Raises:
        UsageError: As for `run`.
        RunError: A run failed and was the last one; `error.result` has the summary.
        KeyboardInterrupt: Ctrl-C was pressed; in the main thread only. The folder `out` has the runs so far.
    """
    if times < _LEAST_RUNS:
        raise ArgumentError("times", f"expected {_LEAST_RUNS} runs or more, got {times}")
    where = _Where(target, monitor, hosts, server_pid, broker_cpus, load_cpus)
    if command is None:
        command = _command("run", scenario, where, overrides, repeat=times)
    with _prepared(load_scenario(scenario, overrides), where, out, progress, command) as job:
        summary = repeat_runs(
            times, job.plan, job.folder, job.run, job.interrupts, job.announce, command=job.options.command
        )
        job.interrupts.hold()
        if job.folder is not None:
            artifacts.write_pages(repeated_report.to_document(summary), job.folder)
    if summary.error is not None:
        raise RunError(summary.error, summary)
    return summary


def capacity(
    scenario: FilePath | Plan,
    *,
    slo: str | Iterable[str] = (),
    from_rate: float | None = None,
    to_rate: float | None = None,
    precision: float = 0.02,
    probe_s: float = 10.0,
    baseline: FilePath | Capacity | None = None,
    tolerance: float = 5.0,
    target: str | None = None,
    monitor: str | None = None,
    hosts: FilePath | None = None,
    server_pid: int | None = None,
    broker_cpus: Cpus | None = None,
    load_cpus: Cpus | None = None,
    out: FilePath | None = None,
    progress: ProgressOption = False,
    command: Sequence[str] | None = None,
    **overrides: Any,  # noqa: ANN401 - of the scenario's keys
) -> Capacity:
    """Search for the highest rate of a scenario that holds the objectives, and return the search.

    If not even the lowest rate holds, its `capacity` is None and its `ending` is "none".

    Args:
        scenario: As for `run`, like all arguments that are not named here.
        slo: Objectives such as "latency_us.p99 < 100000"; empty takes the scenario's thresholds.
        from_rate: Lowest rate to try; None takes an eighth of the scenario's rate.
        to_rate: Highest rate to try; None sets no limit.
        precision: Share by which the highest rate that holds and the lowest rate that fails may differ, from
            0.0005 to 0.5.
        probe_s: Length of each run's measured phase in seconds, at least 1.
        baseline: Earlier search with the same objectives, or its folder. `holds` of the result is False if
            the capacity has fallen by more than `tolerance` since then. None compares with nothing.
        tolerance: Percent by which the capacity may be below the baseline's.
        target: As for `run`.
        monitor: As for `run`.
        hosts: As for `run`.
        server_pid: As for `run`.
        broker_cpus: As for `run`.
        load_cpus: As for `run`.
        out: Folder for the search, and each of its runs in `probe-01-2500` and so on; None writes nothing.
        progress: As for `run`.
        command: As for `run`.
        overrides: As for `run`.

    Raises:
        UsageError: As for `run`.
        RunError: A run failed before anything was measured; `error.result` has the search so far.
        KeyboardInterrupt: Ctrl-C was pressed; in the main thread only. The folder `out` has the search so
            far.
    """
    slos = (slo,) if isinstance(slo, str) else tuple(slo)
    parse_thresholds(slos)
    where = _Where(target, monitor, hosts, server_pid, broker_cpus, load_cpus)
    if command is None:
        bounds: dict[str, object] = {
            "from": from_rate,
            "to": to_rate,
            "precision": precision,
            "probe-s": probe_s,
        }
        if baseline is not None and not isinstance(baseline, Capacity):
            bounds |= {"baseline": os.fspath(baseline), "tolerance": tolerance}
        command = _command("capacity", scenario, where, overrides, slo=slos, **bounds)
    plan = load_scenario(scenario, overrides)
    as_search = partial(
        plan_search,
        slos=slos,
        from_rate=from_rate,
        to_rate=to_rate,
        precision=precision,
        probe_s=probe_s,
        baseline=None if baseline is None else plan_baseline(baseline, tolerance),
    )
    as_search(plan)  # an impossible search is refused before anything is started
    with _prepared(plan, where, out, progress, command) as job:
        search = replace(as_search(job.plan), target=target, command=job.options.command)
        found = find_capacity(search, job.folder, job.run, job.interrupts, job.announce)
        job.interrupts.hold()
        if job.folder is not None and found.probes:
            artifacts.write_pages(capacity_report.to_document(found), job.folder)
    if found.ending in ("interrupted", "failed"):
        raise RunError(found.explanation, found)
    return found


def compare(
    runs: Sequence[Source] | Mapping[str, Source], *, tolerance: float = 5.0, judge: Sequence[str] = ()
) -> Comparison:
    """Compare runs and return the comparison; the first run is the baseline.

    `comparison.regressions` has a sentence for each metric or check that is worse than in the baseline.

    Args:
        runs: Two or more runs; the keys of a mapping are their names. Each is the folder of one run or of
            repeated runs, a result, or the results of several runs of one scenario.
        tolerance: Percent by which a judged metric may be worse than the baseline's.
        judge: Names of the metrics to judge, such as "latency_us.max"; empty judges the metrics that
            are judged by default.

    Raises:
        UsageError: There are fewer than two runs, the tolerance is negative, or a metric is unknown.
        ResultError: A folder has no result, or its result cannot be read.
    """
    if isinstance(runs, str | os.PathLike):
        raise ArgumentError("runs", f"expected a list of folders or results, got the one path {runs}")
    if len(runs) < _LEAST_SIDES:
        raise ArgumentError("runs", f"{_LEAST_SIDES} results or more are needed, got {len(runs)}")
    if not tolerance >= 0:
        raise ArgumentError("tolerance", f"expected a percentage of at least 0, got {tolerance:g}")
    return compare_runs(read_sides(runs), tolerance / 100, judge)


def open_screen(*, quiet: bool = False) -> Screen:
    """Return standard error as a screen that is wide enough for a table."""
    screen = Screen(stderr=True, quiet=quiet)
    if not screen.is_terminal:
        screen.width = max(screen.width, _PLAIN_WIDTH)
    return screen


@dataclass(frozen=True)
class _Where:
    """Server, machines and processors of a run, as the caller gave them."""

    target: str | None
    monitor: str | None
    hosts: FilePath | None
    server_pid: int | None
    broker_cpus: Cpus | None
    load_cpus: Cpus | None

    def options(self, plan: Plan, command: Sequence[str]) -> tuple[Plan, Options]:
        """Return the scenario with the target's transport, and the options of the run.

        Raises:
            UsageError: The scenario cannot be run with these arguments.
        """
        self._refuse_contradictions()
        thresholds_of(plan)
        target, monitor = None, None
        if self.target is not None:
            target = parse_target(self.target)
            plan = with_transport(plan, target.transport)
            monitor = self.monitor or plan.monitor
        return plan, Options(
            target=target,
            monitor=str(Monitor(monitor).endpoint) if monitor else None,
            server_pid=self.server_pid,
            broker_cpus=_parse_cpus(self.broker_cpus),
            load_cpus=_parse_cpus(self.load_cpus),
            command=list(command),
        )

    def _refuse_contradictions(self) -> None:
        if self.target is None and self.server_pid is not None:
            raise ArgumentError("server_pid", "needs a target; the own broker is always sampled")
        if self.target is None and self.monitor is not None:
            raise ArgumentError("monitor", "needs a target; the monitor of the own broker is always read")
        if self.target is not None and self.broker_cpus is not None:
            raise ArgumentError("broker_cpus", "cannot be used with a target, since the run starts no broker")
        if self.hosts is not None:
            for name in ("broker_cpus", "load_cpus", "server_pid"):
                if getattr(self, name) is not None:
                    raise ArgumentError(
                        name, "applies to this machine only; a hosts file has the key cpus for each host"
                    )


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Plan that is ready to run, with its options, folder and display."""

    plan: Plan
    options: Options
    folder: Path | None
    progress: ProgressOption
    interrupts: Interrupts

    def run(self, plan: Plan, folder: Path | None) -> Result:
        """Run a plan, write its folder if there is one, and return the result, also of a failed run."""
        if folder is None:
            with _scratch_folder() as scratch:
                result, _ = run_plan(plan, scratch, self.options, self._display(plan), self.interrupts)
                return result
        with claimed(folder):
            result, logged = run_plan(plan, folder, self.options, self._display(plan), self.interrupts)
            try:
                artifacts.write_folder(result, logged, folder)
            except RunError as error:
                error.result = result
                raise
        return result

    def announce(self, text: str) -> None:
        """Print a line between runs if progress is shown."""
        if self.progress is True:
            open_screen().print(text, highlight=False, markup=False, soft_wrap=True)

    def _display(self, plan: Plan) -> Display:
        if callable(self.progress):
            return _Listener(self.progress)
        return Console(plan, quiet=not self.progress)


@dataclass(frozen=True)
class _Listener:
    """Display that passes each sample to a function."""

    listen: Callable[[Sample], None]

    def show(self, sample: Sample, progress: Progress, rows: Sequence[WorkerRow]) -> None:  # noqa: ARG002
        """Pass the sample to the function."""
        self.listen(sample)

    def announce(self, text: str) -> None:
        """Do nothing: the function gets samples only."""

    def of_part(self, scenario: Scenario) -> Self:  # noqa: ARG002 - as displays have it
        """Return this display, which shows all parts of a run."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to close."""


@contextmanager
def _prepared(
    plan: Plan, where: _Where, out: FilePath | None, progress: ProgressOption, command: Sequence[str]
) -> Iterator[_Job]:
    """Prepare a run, including the machines of a hosts file; in the block, signals interrupt the run.

    The folder is claimed before the first connection to a machine.
    """
    plan, options = where.options(plan, command)
    folder = None if out is None else Path(out)
    with _interruptible() as interrupts, claimed(folder) if folder is not None else nullcontext():
        job = _Job(plan=plan, options=options, folder=folder, progress=progress, interrupts=interrupts)
        if where.hosts is not None:
            with _on_hosts(job, Path(where.hosts)) as job:
                yield job
            return
        for part in plan.runs() if isinstance(plan, TransportsScenario) else [plan]:
            require_limits(part)
        yield job


@contextmanager
def _on_hosts(job: _Job, hosts_file: Path) -> Iterator[_Job]:
    plan, has_target = job.plan, job.options.target is not None
    if isinstance(plan, TransportsScenario):
        raise ArgumentError("hosts", f"scenario {plan.name} compares transports on one machine")
    inventory = load_inventory(hosts_file)
    inventory.require_roles(has_target=has_target, needs_providers=isinstance(plan, Scenario))
    plan = fit_to_hosts(plan, inventory.hosts, has_target=has_target)
    # Imported here, because SSH takes a while to load and most runs use one machine only.
    from loadtest.hosts.machines import open_machines  # noqa: PLC0415

    with open_machines(inventory.hosts, job.announce) as machines:
        hosts = [HostBinding(host, machine) for host, machine in zip(inventory.hosts, machines, strict=True)]
        yield replace(job, plan=plan, options=replace(job.options, hosts=hosts))


@contextmanager
def _interruptible() -> Iterator[Interrupts]:
    """Handle signals in the block, and pass the first one on at its end."""
    interrupts = Interrupts()
    try:
        with interrupts:
            yield interrupts
    except BaseException:
        with suppress(KeyboardInterrupt):  # another exception is raised already
            interrupts.pass_on()
        raise
    interrupts.pass_on()


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Yield a new temporary folder; on exit remove it if it is empty."""
    folder = Path(tempfile.mkdtemp(prefix="loadtest-"))
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _parse_cpus(cpus: Cpus | None) -> frozenset[int] | None:
    text = _cpu_list(cpus)
    return None if text is None else parse_cpus(text)


def _cpu_list(cpus: Cpus | None) -> str | None:
    return cpus if cpus is None or isinstance(cpus, str) else ",".join(map(str, cpus))


def _command(
    name: str,
    scenario: FilePath | Plan,
    where: _Where,
    overrides: Mapping[str, Any],
    **options: object,
) -> list[str]:
    """Return the command with the same effect; an empty list if the scenario is an object, not a file."""
    if not isinstance(scenario, str | os.PathLike):
        return []
    words = ["subjectbus", "loadtest", name, os.fspath(scenario)]
    for key, value in flatten(to_plain(overrides)):
        # A JSON value is also a TOML value, except for null.
        words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"] if value is not None else []
    given = {
        **options,
        "target": where.target,
        "monitor-url": where.monitor,
        "hosts": None if where.hosts is None else os.fspath(where.hosts),
        "server-pid": where.server_pid,
        "broker-cpus": _cpu_list(where.broker_cpus),
        "load-cpus": _cpu_list(where.load_cpus),
    }
    for option, value in given.items():
        if value is None:
            continue
        each = value if isinstance(value, tuple) else [value]
        words += [word for one in each for word in (f"--{option}", str(one))]
    return words
