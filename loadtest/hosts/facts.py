"""Properties of a host that a load test depends on: processors, memory, limits, ports, clock."""

import time
from collections.abc import Callable, Iterator
from importlib.resources import files

import msgspec
from msgspec import Struct

from loadtest.hosts.connection import Connection

_TIMEOUT_S = 30.0
_EXCHANGES = 12
_FAILED = "cannot read the properties of the host"


class Clock(Struct, frozen=True):
    """Difference between the host's wall clock and the wall clock of this machine."""

    offset_s: float
    """Time on the host minus time on this machine, in seconds."""
    error_s: float
    """Largest error of the offset, in seconds: half of the duration of the quickest exchange."""


class _RawFacts(Struct, frozen=True, kw_only=True):
    python: str
    kernel: str
    machine: str
    cores: int
    cpus: list[int]
    """Numbers of the processors that a process of this user may run on."""
    memory_bytes: int
    memory_available_bytes: int
    descriptors: int
    """Hard limit on open files of one process; -1 = no limit."""
    ports: tuple[int, int]
    """First and last port of the range from which outgoing connections take their local ports."""
    io_uring: bool | None
    """Whether the io_uring driver works on the host. None if no build is installed that could tell."""
    io_uring_reason: str
    """Reason why the io_uring driver does not work, or an empty text."""
    foreign_sources: list[str]
    """Addresses in the `sources` of the hosts file that are not addresses of the host."""


class Facts(_RawFacts, frozen=True, kw_only=True):
    """Properties of a host, with the difference of its clock."""

    clock: Clock

    @property
    def port_count(self) -> int:
        """Number of connections that one local address can have to one listener."""
        first, last = self.ports
        return last - first + 1


def gather_facts(connection: Connection, python: str) -> Facts:
    """Read the properties of a host and compare its clock, by running a script with its interpreter `python`.

    Raises:
        HostError: The connection was lost, or the script failed.
    """
    text = (files("loadtest.hosts") / "remote_facts.py").read_text(encoding="utf-8")
    channel = connection.start([python, "-P", "-c", text, *connection.host.sources])
    channel.settimeout(_TIMEOUT_S)
    try:
        lines = channel.makefile("r")
        facts = _find_facts(iter(lines.readline, ""))
        if facts is None:
            errors = channel.makefile_stderr("r").read().decode(errors="replace").split("\n")
            raise connection.error(f"{_FAILED}: {next(filter(None, reversed(errors)), 'no answer')}")

        def read_remote_ns() -> int:
            channel.sendall(b"\n")
            return int(lines.readline())

        clock = compare_clocks(read_remote_ns, time.time_ns)
    except (OSError, EOFError, ValueError) as error:
        raise connection.error(f"{_FAILED}: {str(error) or 'connection lost'}") from error
    finally:
        channel.close()
    return Facts(**msgspec.structs.asdict(facts), clock=clock)


def _find_facts(lines: Iterator[str]) -> _RawFacts | None:
    """Return the facts in the first line that has them; None if no line does."""
    for line in lines:
        try:
            return msgspec.json.decode(line, type=_RawFacts)
        except (msgspec.DecodeError, RecursionError):
            continue  # a login shell may print lines before the script does
    return None


def compare_clocks(read_remote_ns: Callable[[], int], read_local_ns: Callable[[], int]) -> Clock:
    """Return the difference between two clocks, each read by a function in nanoseconds.

    The method is that of NTP (RFC 5905, section 8): the remote clock was read at some time between two
    readings of the local one. The quickest of several exchanges has the smallest error.
    """
    quickest: tuple[int, float] | None = None
    for _ in range(_EXCHANGES):
        start_ns = read_local_ns()
        remote_ns = read_remote_ns()
        duration_ns = read_local_ns() - start_ns
        if quickest is None or duration_ns < quickest[0]:
            quickest = duration_ns, remote_ns - (start_ns + duration_ns / 2)
    if quickest is None:
        raise ValueError("no exchange")
    duration_ns, offset_ns = quickest
    return Clock(offset_s=offset_ns / 1e9, error_s=duration_ns / 2e9)
