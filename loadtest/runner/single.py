"""One run of any plan, from its start to its result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from loadtest.errors import RunError
from loadtest.result.documents import replace_file
from loadtest.result.histogram import LoggedInterval
from loadtest.result.schema import Result
from loadtest.runner.building.result import build_result
from loadtest.runner.execution import Options, run_scenario
from loadtest.runner.transports import build_comparison, run_transports
from loadtest.runner.view import Display
from loadtest.scenario.kinds import Plan, TransportsScenario
from loadtest.workers.interrupts import Interrupts

RunFunction = Callable[[Plan, Path | None], Result]
"""Function that runs a plan, writes its result folder if there is one, and returns the result, also of a
failed run."""


def run_plan(
    plan: Plan, folder: Path, options: Options, display: Display, interrupts: Interrupts
) -> tuple[Result, list[LoggedInterval]]:
    """Run the plan; return its result and the intervals of its histogram log.

    `interrupts` must be entered, and are held back on return.

    Raises:
        UsageError: The plan cannot be run with these options.
        RunError: No result can be built from the collected data, which is written to `folder`/collected.json.
    """
    interrupts.release()
    if isinstance(plan, TransportsScenario):
        finished = run_transports(plan, options, display.of_part, interrupts)
        display.announce("writing results")
        with _kept(finished, folder):
            return build_comparison(plan, finished), []
    with display:
        collected = run_scenario(plan, options, display, interrupts)
    display.announce("writing results")
    with _kept(collected, folder):
        return build_result(collected)


@contextmanager
def _kept(collected: object, folder: Path) -> Iterator[None]:
    """Write the collected data to `folder`/collected.json if the block cannot build a result from it.

    Raises:
        RunError: The block has failed.
    """
    try:
        yield
    except Exception as error:
        path = folder / "collected.json"
        reason = f"{type(error).__name__}: {error}"
        try:
            replace_file(path, msgspec.json.encode(collected, enc_hook=str))
        except OSError as lost:
            text = f"no result can be built from the collected data ({reason}), which cannot be kept: {lost}"
            raise RunError(text) from error
        raise RunError(f"no result can be built from {path}: {reason}") from error
