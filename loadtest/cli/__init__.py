"""`subjectbus loadtest`: the commands that this package contributes."""

from importlib import import_module

import click

from subjectbus.errors import UsageError

#: Each command with its line in the help.
_COMMANDS = {
    "capacity": "Find the highest rate of SCENARIO that holds the objectives.",
    "compare": "Set runs side by side; the first DIR is the baseline.",
    "hosts": "Look at the machines of a hosts file.",
    "report": "Make the reports of the result folder DIR anew, or print them.",
    "run": "Run SCENARIO, a shipped one by name or a TOML file.",
    "scenarios": "List the shipped scenarios.",
    "schema": "Print the JSON Schema of a scenario file or a hosts file.",
}


class _Commands(click.Group):
    """Group that imports a command when it is used, because charts and SSH take a second to load."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        try:
            module = import_module(f"{__name__}.{cmd_name}")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in ("loadtest", "subjectbus"):
                raise
            install = "pip install '.[loadtest]' in a checkout of subjectbus"
            text = f"{ctx.command_path} {cmd_name} needs {error.name}: {install}"
            raise UsageError(text) from error
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands)
def loadtest() -> None:
    """Run load tests and render their results."""
