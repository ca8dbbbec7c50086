"""One run into its result folder: what a single run, a repeated one and a search for the capacity share."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from loadtest.collect.build import build_result
from loadtest.errors import RunError
from loadtest.experiments.transports import build_comparison, run_transports
from loadtest.plan.scenario import Plan, TransportsScenario
from loadtest.processes.interrupts import Interrupts
from loadtest.report import artifacts
from loadtest.report.console import Console
from loadtest.result.documents import replace_file
from loadtest.result.folder import claimed
from loadtest.result.histogram import LoggedInterval
from loadtest.result.schema import Result
from loadtest.run.execution import Options, run_scenario

RunInto = Callable[[Plan, Path], Result]
"""Runs a plan, writes its result folder and returns the result, whatever became of the run."""


def run_into(plan: Plan, folder: Path, options: Options, console: Console, interrupts: Interrupts) -> Result:
    """Run the plan; `interrupts`, entered, are held on return.

    Raises:
        UsageError: It cannot be run like this; the folder, if new, is not left behind.
        RunError: The result cannot be written, and the console has shown it; or none can be made of what was
            collected, which is in the folder.
    """
    interrupts.release()
    with claimed(folder):
        result, logged = _execute(plan, folder, options, console, interrupts)
        try:
            artifacts.write_folder(result, logged, folder)
        except RunError:
            console.conclude(result, folder)
            raise
    return result


def _execute(
    plan: Plan, folder: Path, options: Options, console: Console, interrupts: Interrupts
) -> tuple[Result, list[LoggedInterval]]:
    """The result, with `interrupts` held, and what its histogram log is made of."""
    if isinstance(plan, TransportsScenario):
        finished = run_transports(plan, options, console.of_part, interrupts)
        console.announce("writing results")
        return build_comparison(plan, finished), []
    with console:
        collected = run_scenario(plan, options, console, interrupts)
    console.announce("writing results")
    try:
        return build_result(collected)
    except Exception as error:
        path = folder / "collected.json"
        replace_file(path, msgspec.json.encode(collected, enc_hook=str))
        raise RunError(f"no result can be made of {path}: {type(error).__name__}: {error}") from error
