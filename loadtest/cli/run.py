"""`subjectbus loadtest run`: one run of a scenario, or several of the same."""

from pathlib import Path
from typing import Any

import click

from loadtest.cli.options import Asked, planned_run, running_options
from loadtest.cli.repeat import run_repeatedly
from loadtest.errors import RunError
from loadtest.experiments.single import run_into
from loadtest.processes.interrupts import Interrupts
from loadtest.report.console import Console


@click.command()
@running_options
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Result folder. Else results/SCENARIO-TIME."
)
@click.option(
    "--repeat",
    "times",
    type=click.IntRange(min=2),
    metavar="N",
    help="Run it N times, into DIR/run-1 and so on, and tell median and spread of each figure.",
)
def run(*, out: Path | None, times: int | None, quiet: bool, **asked: Any) -> int:  # noqa: ANN401 - click's
    """Run SCENARIO, a shipped one by name or a TOML file.

    Exit status: 0 every threshold, the conservation check, the agreement with the own broker's counters and a
    soak's trends hold, 1 one of them does not, 2 unusable arguments, 3 the run itself failed, with what was
    collected still written.
    """
    with planned_run(Asked(quiet=quiet, **asked), out) as (plan, options, folder):
        if times is not None:
            return run_repeatedly(times, plan, folder, options, quiet=quiet)
        console = Console(plan, quiet=quiet)
        with Interrupts() as interrupts:
            result = run_into(plan, folder, options, console, interrupts)
    console.conclude(result, folder)
    if result.error:
        raise RunError(result.error)
    return 0 if result.holds else 1
