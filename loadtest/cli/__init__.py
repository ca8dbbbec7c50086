"""`subjectbus loadtest`: the commands that this package contributes."""

from importlib import import_module

import click

_COMMANDS = ("capacity", "compare", "hosts", "report", "run", "scenarios")


class _Commands(click.Group):
    """Each command is imported when it is asked for: with drawing and SSH, all of them take a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"loadtest.cli.{cmd_name}"), cmd_name)
        return command if isinstance(command, click.Command) else None


@click.group(cls=_Commands)
def loadtest() -> None:
    """Run load tests and render their results."""
