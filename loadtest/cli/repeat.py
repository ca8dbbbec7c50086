"""`subjectbus loadtest run --repeat N`: the same run several times."""

from functools import partial
from pathlib import Path

from loadtest.errors import RunError, ScenarioError
from loadtest.experiments.repeat import repeat
from loadtest.experiments.single import run_into
from loadtest.plan.scenario import Plan
from loadtest.processes.interrupts import Interrupts
from loadtest.report import artifacts
from loadtest.report.console import Console, Screen
from loadtest.report.repeated import show_repeated, write_repeated
from loadtest.result.repeated import FILE
from loadtest.result.schema import Result
from loadtest.run.execution import Options
from subjectbus import UsageError

_PLAIN_WIDTH = 100


def run_repeatedly(times: int, plan: Plan, folder: Path, options: Options, *, quiet: bool) -> int:
    """Runs into `folder`/run-1 and so on, and tells what the runs say together; the exit status."""
    artifacts.create_folder(folder)
    if (folder / FILE).exists():
        raise ScenarioError(f"result folder {folder}: holds repeated runs already")
    screen = Screen(stderr=True, quiet=quiet)
    if not screen.is_terminal:
        screen.width = max(screen.width, _PLAIN_WIDTH)
    tell = partial(screen.print, highlight=False, markup=False, soft_wrap=True)
    with Interrupts() as interrupts:

        def run_once(scenario: Plan, into: Path) -> Result:
            return run_into(scenario, into, options, Console(scenario, quiet=quiet), interrupts)

        try:
            summary = repeat(times, plan, folder, run_once, interrupts, tell, command=options.command)
        except (UsageError, KeyboardInterrupt):
            artifacts.discard_empty(folder)
            raise
        interrupts.hold()
        write_repeated(summary, folder)
    show_repeated(summary, folder, screen)
    if summary.error:
        raise RunError(summary.error)
    return 0 if summary.holds else 1
