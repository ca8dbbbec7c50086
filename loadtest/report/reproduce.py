"""How to do a run again: its command, and its scenario as a file."""

import shlex
from collections.abc import Mapping
from typing import Any

import tomli_w

from loadtest.result.schema import Result

_PROGRAM = "subjectbus"
SCENARIO_FILE = "scenario.toml"


def command_line(result: Result) -> str | None:
    """As it was typed, quoted for a shell; None where the result does not have it."""
    if not result.command:
        return None
    command = result.command if result.command[0].endswith(_PROGRAM) else [_PROGRAM, *result.command]
    return shlex.join(command)


def from_file(result: Result) -> str:
    """The command that runs the scenario of `to_toml`, saved as `SCENARIO_FILE`."""
    target = [] if result.target is None else ["--target", result.target]
    return shlex.join([_PROGRAM, "loadtest", "run", SCENARIO_FILE, *target])


def to_toml(result: Result) -> str:
    """The scenario as it was run, all overrides included; what is unset is left out."""
    return tomli_w.dumps(_without_none(result.scenario), multiline_strings=True)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
