"""What a host is like, as far as a load test depends on it."""

import time
from collections.abc import Callable
from importlib.resources import files

import msgspec
from msgspec import Struct

from loadtest.hosts.connection import Connection

_TIMEOUT_S = 30.0
_EXCHANGES = 12
_FAILED = "cannot tell what it is like"


class Clock(Struct, frozen=True):
    """The host's wall clock against the one here."""

    offset_s: float
    """Host's time less the time here."""
    error_s: float
    """The offset is at most so far off: half of what the quickest exchange took."""


class _Told(Struct, frozen=True, kw_only=True):
    python: str
    kernel: str
    machine: str
    cores: int
    cpus: list[int]
    """Processors that a process of this user may run on."""
    memory_bytes: int
    memory_available_bytes: int
    descriptors: int
    """Hard limit on open files of one process; -1 = none."""
    ports: tuple[int, int]
    """First and last of the ports that connections leave from."""
    io_uring: bool | None
    """None where nothing is installed that could say."""
    io_uring_reason: str
    foreign_sources: list[str]
    """Those of the plan's sources that are no address of the host."""


class Facts(_Told, frozen=True, kw_only=True):
    """What a host is like."""

    clock: Clock

    @property
    def port_count(self) -> int:
        """Connections that can leave from one address to one listener."""
        first, last = self.ports
        return last - first + 1


def gather_facts(connection: Connection, python: str) -> Facts:
    """Asks the host, with the interpreter `python` there.

    Raises:
        HostError: The connection was lost, or the answer is none.
    """
    text = (files("loadtest.hosts") / "remote_facts.py").read_text(encoding="utf-8")
    channel = connection.start([python, "-P", "-c", text, *connection.host.sources])
    channel.settimeout(_TIMEOUT_S)
    try:
        lines = channel.makefile("r")
        first = lines.readline()
        # What a login prints comes first.
        while first and not first.startswith("{"):
            first = lines.readline()
        if not first:
            said = channel.makefile_stderr("r").read().decode(errors="replace").split("\n")
            raise connection.error(f"{_FAILED}: {next(filter(None, reversed(said)), 'no answer')}")
        told = msgspec.json.decode(first, type=_Told)

        def ask() -> int:
            channel.sendall(b"\n")
            return int(lines.readline())

        clock = compare_clocks(ask, time.time_ns)
    except (OSError, EOFError, ValueError) as error:
        raise connection.error(f"{_FAILED}: {str(error) or 'connection lost'}") from error
    finally:
        channel.close()
    return Facts(**msgspec.structs.asdict(told), clock=clock)


def compare_clocks(ask: Callable[[], int], here: Callable[[], int]) -> Clock:
    """How far the clock that `ask` reads is from the one that `here` reads, both in nanoseconds.

    As in NTP (RFC 5905, section 8): the reading was taken between the two moments of asking and of knowing,
    and the quickest of some exchanges says most.
    """
    quickest: tuple[int, float] | None = None
    for _ in range(_EXCHANGES):
        asked = here()
        read = ask()
        took = here() - asked
        if quickest is None or took < quickest[0]:
            quickest = took, read - (asked + took / 2)
    if quickest is None:
        raise ValueError("no exchange")
    took, offset = quickest
    return Clock(offset_s=offset / 1e9, error_s=took / 2e9)
