"""The options that every command that runs a scenario takes, and what they make of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from loadtest.plan.scenario import Plan, TransportsScenario, load_scenario, with_transport
from loadtest.plan.target import parse_monitor, parse_target
from loadtest.processes.child import parse_cpus
from loadtest.result.thresholds import parse_thresholds
from loadtest.run.execution import Options, require_limits
from subjectbus import UsageError

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
    overrides: tuple[str, ...]
    target_url: str | None
    monitor_url: str | None
    broker_cpus: str | None
    load_cpus: str | None
    server_pid: int | None


def running_options(command: _Command) -> _Command:
    """Adds the options; the command takes them by keyword, all but `quiet` for `Asked`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def plan_run(asked: Asked) -> tuple[Plan, Options]:
    """The scenario and how it is run here.

    Raises:
        UsageError: Options that contradict each other, or that nothing can be run with.
    """
    target_url, monitor_url = asked.target_url, asked.monitor_url
    if target_url is None and asked.server_pid is not None:
        raise UsageError("--server-pid: the own broker is sampled anyway; it goes with --target")
    if target_url is None and monitor_url is not None:
        raise UsageError("--monitor-url: the own broker's is read anyway; it goes with --target")
    if target_url is not None and asked.broker_cpus is not None:
        raise UsageError("--broker-cpus: there is no own broker with --target")
    plan = load_scenario(asked.scenario, asked.overrides)
    parse_thresholds(plan.thresholds)
    target = parse_target(target_url) if target_url is not None else None
    if target is not None:
        plan = with_transport(plan, target.transport)
        monitor_url = monitor_url or plan.monitor
    options = Options(
        target=target,
        monitor=parse_monitor(monitor_url) if monitor_url else None,
        server_pid=asked.server_pid,
        broker_cpus=parse_cpus(asked.broker_cpus) if asked.broker_cpus is not None else None,
        load_cpus=parse_cpus(asked.load_cpus) if asked.load_cpus is not None else None,
    )
    for part in plan.runs() if isinstance(plan, TransportsScenario) else [plan]:
        require_limits(part)
    return plan, options
