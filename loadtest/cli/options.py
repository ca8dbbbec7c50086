"""The options that every command that runs a scenario takes, and what they make of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from loadtest.plan.inventory import load_inventory
from loadtest.plan.scenario import Plan, Scenario, TransportsScenario, load_scenario, with_transport
from loadtest.plan.target import parse_monitor, parse_target
from loadtest.processes.child import parse_cpus
from loadtest.result.folder import claimed, default_folder
from loadtest.result.thresholds import parse_thresholds
from loadtest.run.execution import Options, require_limits
from loadtest.run.placement import Manned, fit_to_hosts
from subjectbus import UsageError
from subjectbus.printable import echo

_CPUS = "LIST"
_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.argument("scenario"),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a key of the scenario; repeatable.",
    ),
    click.option(
        "--target",
        "target_url",
        metavar="URL",
        help="A running server: nats://H:P, ws://H:P/ or http://H:P/. Else an own broker.",
    ),
    click.option(
        "--monitor-url",
        metavar="URL",
        help="Where the target tells its counters, [http://]H:P: they are set beside the load's.",
    ),
    click.option(
        "--hosts",
        "hosts_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Run on the machines of a hosts file, over SSH. Else on this one.",
    ),
    click.option("--quiet", is_flag=True, help="Say nothing but errors."),
    click.option("--broker-cpus", metavar=_CPUS, help="Processors of the own broker, such as 0 or 0,2-3."),
    click.option("--load-cpus", metavar=_CPUS, help="Processors of requestors and providers."),
    click.option(
        "--server-pid", type=int, metavar="PID", help="The target's process on this machine, to be sampled."
    ),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options, as given."""

    scenario: str
    quiet: bool
    overrides: tuple[str, ...]
    target_url: str | None
    monitor_url: str | None
    broker_cpus: str | None
    load_cpus: str | None
    server_pid: int | None
    hosts_file: Path | None


def running_options(command: _Command) -> _Command:
    """Adds the options; the command takes them by keyword, for `Asked`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextmanager
def planned_run(asked: Asked, out: Path | None, prefix: str = "") -> Iterator[tuple[Plan, Options, Path]]:
    """The scenario, how it is run, and its result folder, with the machines of a hosts file at hand.

    The folder is claimed before any machine is connected to.

    Args:
        asked: The options of the command line.
        out: The result folder; None for one of the scenario's name.
        prefix: Beginning of that name.

    Raises:
        UsageError: Options that contradict each other, or that nothing can be run with.
        HostError: A host cannot be reached or used.
    """
    plan, options = _plan_run(asked)
    folder = out or default_folder(prefix + plan.name)
    with claimed(folder):
        if asked.hosts_file is None:
            for part in plan.runs() if isinstance(plan, TransportsScenario) else [plan]:
                require_limits(part)
            yield plan, options, folder
            return
        with _on_hosts(plan, options, asked.hosts_file, quiet=asked.quiet) as (plan, options):
            yield plan, options, folder


@contextmanager
def _on_hosts(
    plan: Plan, options: Options, hosts_file: Path, *, quiet: bool
) -> Iterator[tuple[Plan, Options]]:
    if isinstance(plan, TransportsScenario):
        raise UsageError(f"--hosts: scenario {plan.name} compares transports on one machine")
    inventory = load_inventory(hosts_file)
    has_target = options.target is not None
    inventory.require_roles(has_target=has_target, needs_providers=isinstance(plan, Scenario))
    plan = fit_to_hosts(plan, inventory.hosts, has_target=has_target)
    # Imported here: SSH takes a while to load, and most runs are on one machine.
    from loadtest.hosts.machines import open_machines  # noqa: PLC0415

    with open_machines(inventory.hosts, _say(quiet=quiet)) as machines:
        hosts = [Manned(host, machine) for host, machine in zip(inventory.hosts, machines, strict=True)]
        yield plan, replace(options, hosts=hosts)


def _say(*, quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else partial(echo, err=True)


def _plan_run(asked: Asked) -> tuple[Plan, Options]:
    target_url, monitor_url = asked.target_url, asked.monitor_url
    if target_url is None and asked.server_pid is not None:
        raise UsageError("--server-pid: the own broker is sampled anyway; it goes with --target")
    if target_url is None and monitor_url is not None:
        raise UsageError("--monitor-url: the own broker's is read anyway; it goes with --target")
    if target_url is not None and asked.broker_cpus is not None:
        raise UsageError("--broker-cpus: there is no own broker with --target")
    for option, value in (
        ("--broker-cpus", asked.broker_cpus),
        ("--load-cpus", asked.load_cpus),
        ("--server-pid", asked.server_pid),
    ):
        if asked.hosts_file is not None and value is not None:
            raise UsageError(
                f"{option}: is of this machine; with --hosts, the hosts file has cpus for each host"
            )
    plan = load_scenario(asked.scenario, asked.overrides)
    parse_thresholds(plan.thresholds)
    target = parse_target(target_url) if target_url is not None else None
    if target is not None:
        plan = with_transport(plan, target.transport)
        monitor_url = monitor_url or plan.monitor
    return plan, Options(
        target=target,
        monitor=parse_monitor(monitor_url) if monitor_url else None,
        server_pid=asked.server_pid,
        broker_cpus=parse_cpus(asked.broker_cpus) if asked.broker_cpus is not None else None,
        load_cpus=parse_cpus(asked.load_cpus) if asked.load_cpus is not None else None,
        command=["subjectbus", *sys.argv[1:]],
    )
