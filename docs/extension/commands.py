"""Description of each command in Markdown, with its usage, help and options.

The commands are taken from their group, so the commands that other packages contribute are included.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import click

from subjectbus.cli import cli

if TYPE_CHECKING:
    from collections.abc import Iterator


def to_markdown() -> str:
    """Return a section for each command, except groups of commands."""
    context = click.Context(cli, info_name="subjectbus", **cli.context_settings)
    return "\n\n".join(_section(command) for command in _leaves(context)) + "\n"


def _leaves(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of each command below a group, in the order of its help."""
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is None:
            raise LookupError(f"{context.command_path} {name}: listed, and not there")
        yield from _leaves(click.Context(found, parent=context, info_name=name, **found.context_settings))


def _section(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [parameter.get_help_record(context) for parameter in command.params]
    rows = [
        f"| `{record[0]}` | {_text(record[1])} |" for record in options if record is not None and record[1]
    ]
    table = ["\n".join(["| Option | Meaning |", "|---|---|", *rows])] if rows else []
    paragraphs = [_text(part) for part in inspect.cleandoc(command.help or "").split("\n\n")]
    return "\n\n".join([f"## {context.command_path}", *paragraphs, f"```text\n{usage}\n```", *table])


def _text(help_text: str) -> str:
    """Return a help text as one line, in which only the marks for code have a meaning in Markdown."""
    line = " ".join(help_text.split())
    for character in "|*<>[]":
        line = line.replace(character, f"\\{character}")
    return line
