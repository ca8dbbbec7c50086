"""Parts that the commands for runs share: options, and the call of a function of `loadtest`."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from loadtest.api import open_screen
from loadtest.cli.outputs import Outputs, junit_option
from loadtest.errors import ArgumentError, RunError
from loadtest.report import capacity, repeated, terminal
from loadtest.report.document import Document
from loadtest.report.live import Console
from loadtest.result.capacity import Capacity
from loadtest.result.checks import describe_lateness
from loadtest.result.folder import default_folder
from loadtest.result.repeated import Repeated
from loadtest.result.schema import Result
from loadtest.scenario.kinds import Plan
from loadtest.scenario.load import load_scenario
from subjectbus import UsageError
from subjectbus.printable import echo

_CPUS = "LIST"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Command = TypeVar("_Command", bound=Callable[..., Any])
_Outcome = TypeVar("_Outcome", Result, Repeated, Capacity)

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
        metavar="URL",
        help="A running server: nats://H:P, ws://H:P/ or http://H:P/. Else an own broker.",
    ),
    click.option(
        "--monitor-url",
        "monitor",
        metavar="URL",
        help="Where the target tells its counters, [http://]H:P: they are set beside the load's.",
    ),
    click.option(
        "--hosts",
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
    junit_option,
)
_SPELLED = {"monitor": "--monitor-url", "from_rate": "--from", "to_rate": "--to", "times": "--repeat"}
"""Options whose names differ from the names of their arguments."""
_OUTPUTS = ("--out", "--junit")


def running_options(command: _Command) -> _Command:
    """Add the options of runs to a command, which passes them to `carry_out`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def carry_out(
    call: Callable[..., _Outcome],
    scenario: str,
    overrides: tuple[str, ...],
    out: Path | None,
    *,
    prefix: str = "",
    junit: Path | None,
    quiet: bool,
    **arguments: object,
) -> _Outcome:
    """Call a function of `loadtest` for a command, show the outcome and return it.

    If a run failed, its partial result is shown before the RunError is raised again.

    Args:
        call: The function.
        scenario: Name or path of the scenario.
        overrides: Texts of `--set`.
        out: Result folder; None for a folder named after the scenario.
        prefix: Beginning of the name of that folder.
        junit: File for the verdicts; None writes no file.
        quiet: Whether to show errors only.
        arguments: Further arguments of the function.
    """
    outputs = Outputs(junit)
    command = ["subjectbus", *_without_outputs(sys.argv[1:])]
    with _as_command(), outputs.on_failure(scenario), named_as_options():
        plan = load_scenario(scenario, overrides)
        folder = out or default_folder(prefix + plan.name)
        try:
            outcome = call(plan, out=folder, progress=not quiet, command=command, **arguments)
        except RunError as error:
            _show(error.result, plan, folder, quiet=quiet)
            raise
        _show(outcome, plan, folder, quiet=quiet)
    outputs.write(outcome, folder, prints_failures=quiet)
    return outcome


def _without_outputs(words: Sequence[str]) -> list[str]:
    """Return the words of a command without the options for its output, which a second run may not share."""
    kept, rest = [], iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name not in _OUTPUTS:
            kept.append(word)
        elif not equals:
            next(rest, None)
    return kept


def _show(outcome: object, plan: Plan, folder: Path, *, quiet: bool) -> None:
    match outcome:
        case Result():
            Console(plan, quiet=quiet).conclude(outcome, folder)
        case Repeated():
            _show_document(repeated.to_document(outcome), folder, quiet=quiet)
        case Capacity():
            _show_document(capacity.to_document(outcome), folder, quiet=quiet)
    if not quiet and isinstance(outcome, Result | Repeated) and (text := describe_lateness(outcome)):
        echo(text, err=True)


def _show_document(document: Document, folder: Path, *, quiet: bool) -> None:
    screen = open_screen(quiet=quiet)
    terminal.show(document, screen)
    screen.print(f"result folder: {folder}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def named_as_options(spelled: Mapping[str, str] = _SPELLED) -> Iterator[None]:
    """Replace the argument that an error names by the command's option."""
    try:
        yield
    except ArgumentError as error:
        option = spelled.get(error.name, f"--{error.name.replace('_', '-')}")
        raise UsageError(f"{option}: {error.why}") from error


@contextmanager
def _as_command() -> Iterator[None]:
    """Ignore signals outside a run, so that a signal ends the run but not the command."""
    previous = {
        number: signal.signal(number, lambda *_: None)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
