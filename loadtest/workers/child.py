"""Launcher that runs a command on chosen processors and ends it together with its parent process.

`python -m loadtest.workers.child --parent PID [--cpus 0,2-3] -- COMMAND...` changes its own process and then
replaces itself with the command. So the command has the process id that the parent started.
"""

import argparse
import ctypes
import os
import signal
import sys

from loadtest.scenario.cpus import parse_cpus
from subjectbus.errors import UsageError

PYTHON = (sys.executable, "-P", "-m")
"""Command prefix that runs an installed module; `-P` ignores a folder of the module's name in the working
directory."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def command_line(command: list[str], cpus: frozenset[int] | None) -> list[str]:
    """Return the argument list that runs `command` through this module as a child of the calling process."""
    prefix = [*PYTHON, "loadtest.workers.child", "--parent", str(os.getpid())]
    if cpus is not None:
        prefix += ["--cpus", ",".join(str(cpu) for cpu in sorted(cpus))]
    return [*prefix, "--", *command]


def main() -> None:
    """Replace this process with the command; never return."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--cpus")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != arguments.parent:
        sys.exit("the parent has ended already")
    if arguments.cpus:
        try:
            os.sched_setaffinity(0, parse_cpus(arguments.cpus))
        except UsageError as error:
            sys.exit(str(error))
    os.execvp(arguments.command[0], arguments.command)  # noqa: S606 - replacing the process is the purpose of this module


if __name__ == "__main__":
    main()
