"""`subjectbus loadtest capacity`: the highest rate that holds the objectives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from loadtest.cli.options import Asked, planned_run, running_options
from loadtest.cli.series import open_screen
from loadtest.errors import RunError
from loadtest.experiments.capacity import find_capacity, plan_search
from loadtest.experiments.single import run_into
from loadtest.plan.scenario import Plan
from loadtest.processes.interrupts import Interrupts
from loadtest.report.capacity import show_capacity, write_capacity
from loadtest.report.console import Console
from loadtest.result.schema import Result
from loadtest.result.thresholds import parse_thresholds


@click.command()
@running_options
@click.option(
    "--slo",
    "slos",
    multiple=True,
    metavar="EXPR",
    help='An objective, "latency_us.p99 < 100000"; repeatable. Else the scenario\'s own thresholds.',
)
@click.option(
    "--from", "from_rate", type=float, metavar="R", help="The lowest rate. Else an eighth of the scenario's."
)
@click.option("--to", "to_rate", type=float, metavar="R", help="The highest rate. Else as high as it goes.")
@click.option(
    "--precision",
    type=click.FloatRange(0.0005, 0.5),
    default=0.02,
    show_default=True,
    metavar="SHARE",
    help="How close the rate that holds and the one that fails are brought.",
)
@click.option(
    "--probe-s",
    type=click.FloatRange(min=1),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Length of each run's measured phase, in seconds.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the search. Else results/capacity-SCENARIO-TIME.",
)
def capacity(
    *,
    slos: tuple[str, ...],
    from_rate: float | None,
    to_rate: float | None,
    precision: float,
    probe_s: float,
    out: Path | None,
    quiet: bool,
    **asked: Any,  # noqa: ANN401 - click's
) -> int:
    """Find the highest rate of SCENARIO that holds the objectives.

    A rate holds when every objective, the conservation check and the agreement with the own broker's counters
    do, and when at least 99 % of what was planned was answered within the measured phase.

    Exit status: 0 found, 1 not even the lowest rate holds, 2 unusable arguments, 3 a run failed or the search
    was interrupted, with what was found still written.
    """
    parse_thresholds(slos)  # before any machine is connected to
    with planned_run(Asked(quiet=quiet, **asked), out, "capacity-") as (plan, options, folder):
        search = plan_search(
            plan, slos, from_rate=from_rate, to_rate=to_rate, precision=precision, probe_s=probe_s
        )
        target = options.target.url if options.target else None
        search = replace(search, target=target, command=options.command)
        screen, tell = open_screen(quiet=quiet)
        with Interrupts() as interrupts:

            def run_probe(scenario: Plan, into: Path) -> Result:
                return run_into(scenario, into, options, Console(scenario, quiet=quiet), interrupts)

            found = find_capacity(search, folder, run_probe, interrupts, tell)
            interrupts.hold()
            if found.probes:
                write_capacity(found, folder)
    show_capacity(found, folder, screen)
    if found.ending in ("interrupted", "failed"):
        raise RunError(found.explanation)
    return 1 if found.ending == "none" else 0
