"""`subjectbus loadtest`: the commands that this package contributes."""

from pathlib import Path

import click

from loadtest.collect.build import build_result
from loadtest.errors import RunError
from loadtest.experiments.transports import build_comparison, run_transports
from loadtest.plan.scenario import Plan, TransportsScenario, load_scenario, shipped_scenarios, with_transport
from loadtest.plan.target import parse_monitor, parse_target
from loadtest.processes.child import parse_cpus
from loadtest.processes.interrupts import Interrupts
from loadtest.report import artifacts
from loadtest.report.console import Console
from loadtest.result.histogram import LoggedInterval
from loadtest.result.schema import Result
from loadtest.result.thresholds import parse_thresholds
from loadtest.run.execution import Options, require_limits, run_scenario
from subjectbus import UsageError

_CPUS = "LIST"


@click.group()
def loadtest() -> None:
    """Run load tests and render their results."""


@loadtest.command()
@click.argument("scenario")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario; repeatable."
)
@click.option(
    "--target",
    "target_url",
    metavar="URL",
    help="A running server: nats://H:P, ws://H:P/ or http://H:P/. Else an own broker.",
)
@click.option(
    "--monitor-url",
    metavar="URL",
    help="Where the target tells its counters, [http://]H:P: they are set beside the load's.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Result folder. Else results/SCENARIO-TIME."
)
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--broker-cpus", metavar=_CPUS, help="Processors of the own broker, such as 0 or 0,2-3.")
@click.option("--load-cpus", metavar=_CPUS, help="Processors of requestors and providers.")
@click.option(
    "--server-pid", type=int, metavar="PID", help="The target's process on this machine, to be sampled."
)
def run(
    scenario: str,
    *,
    overrides: tuple[str, ...],
    target_url: str | None,
    monitor_url: str | None,
    out: Path | None,
    quiet: bool,
    broker_cpus: str | None,
    load_cpus: str | None,
    server_pid: int | None,
) -> int:
    """Run SCENARIO, a shipped one by name or a TOML file.

    Exit status: 0 every threshold, the conservation check, the agreement with the own broker's counters and a
    soak's trends hold, 1 one of them does not, 2 unusable arguments, 3 the run itself failed, with what was
    collected still written.
    """
    if target_url is None and server_pid is not None:
        raise UsageError("--server-pid: the own broker is sampled anyway; it goes with --target")
    if target_url is None and monitor_url is not None:
        raise UsageError("--monitor-url: the own broker's is read anyway; it goes with --target")
    if target_url is not None and broker_cpus is not None:
        raise UsageError("--broker-cpus: there is no own broker with --target")
    plan = load_scenario(scenario, overrides)
    parse_thresholds(plan.thresholds)
    target = parse_target(target_url) if target_url is not None else None
    if target is not None:
        plan = with_transport(plan, target.transport)
        monitor_url = monitor_url or plan.monitor
    options = Options(
        target=target,
        monitor=parse_monitor(monitor_url) if monitor_url else None,
        server_pid=server_pid,
        broker_cpus=parse_cpus(broker_cpus) if broker_cpus is not None else None,
        load_cpus=parse_cpus(load_cpus) if load_cpus is not None else None,
    )
    for part in plan.runs() if isinstance(plan, TransportsScenario) else [plan]:
        require_limits(part)
    folder = out or artifacts.default_folder(plan.name)
    artifacts.create_folder(folder)
    console = Console(plan, quiet=quiet)
    with Interrupts() as interrupts:
        try:
            result, logged = _execute(plan, options, console, interrupts)
        except UsageError:
            artifacts.discard_empty(folder)
            raise
        artifacts.write_folder(result, logged, folder)
    console.conclude(result, folder)
    if result.error:
        raise RunError(result.error)
    return 0 if result.holds else 1


def _execute(
    plan: Plan, options: Options, console: Console, interrupts: Interrupts
) -> tuple[Result, list[LoggedInterval]]:
    """The result, with `interrupts` held, and what its histogram log is made of."""
    if isinstance(plan, TransportsScenario):
        finished = run_transports(plan, options, console.of_part, interrupts)
        console.announce("writing results")
        return build_comparison(plan, finished), []
    with console:
        collected = run_scenario(plan, options, console, interrupts)
    console.announce("writing results")
    return build_result(collected)


@loadtest.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def report(folder: Path) -> None:
    """Write report.html and latency.hgrm of the result folder DIR anew."""
    artifacts.render_again(folder)
    click.echo(folder / "report.html")


@loadtest.command()
def scenarios() -> None:
    """List the shipped scenarios."""
    for name, description in shipped_scenarios().items():
        click.echo(f"{name}  {description}")
