"""`subjectbus loadtest run --repeat N`: the same run several times."""

from pathlib import Path

from loadtest.cli.series import open_screen
from loadtest.errors import RunError
from loadtest.experiments.repeat import repeat
from loadtest.experiments.single import run_into
from loadtest.plan.scenario import Plan
from loadtest.processes.interrupts import Interrupts
from loadtest.report.console import Console
from loadtest.report.repeated import show_repeated, write_repeated
from loadtest.result.schema import Result
from loadtest.run.execution import Options


def run_repeatedly(times: int, plan: Plan, folder: Path, options: Options, *, quiet: bool) -> int:
    """Runs into `folder`/run-1 and so on, and tells what the runs say together; the exit status."""
    screen, tell = open_screen(quiet=quiet)
    with Interrupts() as interrupts:

        def run_once(scenario: Plan, into: Path) -> Result:
            return run_into(scenario, into, options, Console(scenario, quiet=quiet), interrupts)

        summary = repeat(times, plan, folder, run_once, interrupts, tell, command=options.command)
        interrupts.hold()
        write_repeated(summary, folder)
    show_repeated(summary, folder, screen)
    if summary.error:
        raise RunError(summary.error)
    return 0 if summary.holds else 1
