"""`subjectbus` and `pip` as the blocks of the pages find them: with less load, and on free ports."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

from loadtest.scenario.kinds import Plan, TransportsScenario
from loadtest.scenario.load import load_scenario
from loadtest.scenario.profile import Constant
from subjectbus import cli

ROOT = Path(__file__).resolve().parents[2]

MONITOR = "SUBJECTBUS_TEST_MONITOR"
"""Variable with the URL of the page's broker, which commands without a URL look for at the default port."""
_TIME = re.compile(r"((?:latency_us|service_us|server)[\w.]* < )\d+")
_LISTENERS = ("--tcp", "--http", "--monitor")
_MOST = {"users": 40, "rate": 300, "outstanding": 16, "calls": 100, "sequential_calls": 20, "warmup_s": 0.1}


def subjectbus() -> int:
    """Run a command with less load than it asks for, on ports that are free."""
    arguments = sys.argv[1:]
    match arguments:
        case ["serve", *flags]:
            free = [word for flag in _LISTENERS if flag not in flags for word in (flag, "127.0.0.1:0")]
            return cli.main([*arguments, *free, "--lame-duck-grace-s", "0", "--lame-duck-duration-s", "0"])
        case ["top", *flags] if not any(flag.startswith("http") for flag in flags):
            return cli.main([*arguments, os.environ[MONITOR]])
        case ["loadtest", "run" | "capacity" as command, name, *flags] if "--help" not in arguments:
            arguments = ["loadtest", command, *_smaller(command, name, flags)]
        case ["loadtest", "compare", *_]:
            # Whether such short runs differ is chance, and both is an answer.
            return {1: 0}.get(status := cli.main(arguments), status)
    return cli.main(arguments)


def _smaller(command: str, name: str, flags: list[str]) -> list[str]:
    """Return scenario and options, with less load and thresholds that no busy machine breaks."""
    overrides = [value for flag, value in pairwise(flags) if flag == "--set"]
    scenario = load_scenario(name, overrides)
    changes = [
        f"{key}={min(getattr(scenario, key), most)}"
        for key, most in _MOST.items()
        if getattr(scenario, key, 0) > most
    ]
    if command == "run" and not _is_shaped(scenario):
        changes.append("duration_s=0.5")
    changes.append(f"thresholds={[_patient(one) for one in scenario.thresholds]}")
    changes.append("max_send_lag_ms=0")
    smaller = [_patient(flag) for flag in flags]
    words = [word for change in changes for word in ("--set", change)]
    if "--repeat" in flags:
        words += ["--repeat", "2"]
    if command == "capacity":
        words += ["--from", "100", "--to", "200", "--probe-s", "1"]
    return [name, *smaller, *words]


def _patient(text: str) -> str:
    """Return a text whose bounds of times are so high that a busy machine does not reach them."""
    return _TIME.sub(r"\g<1>1000000000", text)


def _is_shaped(scenario: Plan) -> bool:
    """Whether the measured phase has to have the length that it has."""
    if isinstance(scenario, TransportsScenario):
        return True
    return not isinstance(scenario.profile, Constant) or getattr(scenario, "calls", 0) > 0


def pip() -> int:
    """Check that what is to be installed exists; the tests have it all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    match sys.argv[1:]:
        case ["install", what]:
            extra = re.fullmatch(r"\.(?:\[(\w+)\])?", what)
            assert extra, what
            assert extra[1] is None or extra[1] in project["optional-dependencies"], what
            return 0
    print(f"pip {sys.argv[1:]}: mark the block as one that is not run", file=sys.stderr)
    return 2
