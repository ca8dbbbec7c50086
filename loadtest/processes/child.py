"""Becomes another command that lives no longer than its parent, on chosen processors.

`python -m loadtest.processes.child --parent PID [--cpus 0,2-3] -- COMMAND...`. It changes its own process and
then replaces itself, so the parent sees the command under the process id that it started.
"""

import argparse
import ctypes
import os
import signal
import sys

from subjectbus.errors import UsageError

PYTHON = (sys.executable, "-P", "-m")
"""Runs a module as installed: -P, because a folder of its name may stand where the user happens to be."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def parse_cpus(text: str, *, anywhere: bool = False) -> frozenset[int]:
    """Processor numbers of a list such as "0,2-3".

    UsageError when it is none, or when one of them is not usable on this machine, unless any one will do.
    """
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isascii() or not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f'processor list "{text}": expected numbers and ranges such as 0,2-3')
        cpus.update(range(int(first), int(last if dash else first) + 1))
    allowed = cpus if anywhere else os.sched_getaffinity(0)
    if not cpus or not cpus <= allowed:
        missing = ",".join(str(cpu) for cpu in sorted(cpus - allowed)) or text
        raise UsageError(f'processor list "{text}": no processor {missing} here')
    return frozenset(cpus)


def command_line(command: list[str], cpus: frozenset[int] | None) -> list[str]:
    """The argument list that runs `command` through this module as a child of the calling process."""
    prefix = [*PYTHON, "loadtest.processes.child", "--parent", str(os.getpid())]
    if cpus is not None:
        prefix += ["--cpus", ",".join(str(cpu) for cpu in sorted(cpus))]
    return [*prefix, "--", *command]


def main() -> None:
    """Never returns: the process becomes the command."""
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
    os.execvp(arguments.command[0], arguments.command)  # noqa: S606 - the whole point


if __name__ == "__main__":
    main()
