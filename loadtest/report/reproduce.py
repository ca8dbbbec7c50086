"""How to do a run again: its command, and its scenario as a file."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from loadtest.result.schema import Result

_PROGRAM = "subjectbus"
SCENARIO_FILE = "scenario.toml"


def command_line(command: Sequence[str]) -> str:
    """A run's or an experiment's command, quoted for a shell; empty where it is not known."""
    if command and not command[0].endswith(_PROGRAM):  # results of earlier versions begin behind it
        command = [_PROGRAM, *command]
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
