"""Console script `subjectbus`: its own commands, and commands that other packages contribute.

A package contributes a command through the entry-point group `subjectbus.commands`. The command is imported
only when it is used or when the help lists it. `top` is such a command, so a broker does not load terminal
libraries. An error is printed as one line and ends the process with an exit status.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from subjectbus import __version__
from subjectbus.errors import SubjectbusError
from subjectbus.printable import echo
from subjectbus.schema import config
from subjectbus.serve import serve

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUP = "subjectbus.commands"
_USAGE_STATUS = 2
_INTERRUPTED_STATUS = 130
_INTERNAL_STATUS = 70


class _Commands(click.Group):
    """A group that finds more commands among the installed packages."""

    def _contributed(self) -> "dict[str, EntryPoint]":
        # Imported here: a running broker does not need it, and it takes 4 MB of memory.
        from importlib.metadata import entry_points  # noqa: PLC0415

        return {point.name: point for point in entry_points(group=_GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._contributed()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        point = self._contributed().get(cmd_name)
        return None if point is None else point.load()


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="subjectbus")
def cli() -> None:
    """Publish/subscribe broker for huge numbers of WebSocket connections, and its load test."""


cli.add_command(serve)
cli.add_command(config)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; print an error as one line on standard error."""
    try:
        status = cli.main(args, prog_name="subjectbus", standalone_mode=False)
    except BrokenPipeError:
        # The reader has closed the pipe, so Python's flush at exit would fail: send it to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return _USAGE_STATUS
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("SUBJECTBUS_DEBUG"):
            raise
        text, status = _explain(error)
        echo(f"subjectbus: error: {' '.join(text.split())}", err=True)
    return status if isinstance(status, int) else 0


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the text of an error for the user, and the exit status."""
    match error:
        case SubjectbusError():
            return str(error), error.exit_status
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "subjectbus"
            return f"{error.format_message()} (see {command} --help)", _USAGE_STATUS
        case click.ClickException():
            return error.format_message(), _USAGE_STATUS
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", _INTERRUPTED_STATUS
    text = f"internal: {type(error).__name__}: {error} (set SUBJECTBUS_DEBUG=1 to see the traceback)"
    return text, _INTERNAL_STATUS
