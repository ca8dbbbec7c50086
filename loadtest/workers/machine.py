"""The interface of a machine that takes part in a run: starting processes, and measuring their usage."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loadtest.result.schema import HostSample
from loadtest.sampling.monitor import Counters
from loadtest.sampling.usage import Usage

LineHandler = Callable[[bytes], None]
"""Function that receives a line of output, without its line end."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A Python module to run, and the receivers of its output, which are called from another thread."""

    module: Sequence[str]
    """Name and arguments of the module."""
    cpus: frozenset[int] | None
    output: LineHandler
    errors: LineHandler


class Process(Protocol):
    """A process of a run; it never outlives the run."""

    @property
    def pid(self) -> int:
        """Process id on its machine."""

    def poll(self) -> int | None:
        """Return the exit status once all output has been handled; None before."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait at most `timeout_s` seconds for the exit status; return None if there is none by then."""

    def send(self, line: bytes) -> None:
        """Write a line to standard input.

        Raises:
            OSError: Standard input is closed.
        """

    def end_input(self) -> None:
        """Close standard input."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def request_usage(self) -> Callable[[], Usage | None]:
        """Request the usage; return a function that waits for it (None if the process has ended)."""

    def count_descriptors(self) -> int | None:
        """Return the number of open descriptors, in all tables; None if they cannot be inspected."""


class Machine(Protocol):
    """A machine that takes part in a run."""

    name: str
    address: str | None
    """Address of another machine; None for this one."""
    environment: Mapping[str, Any]
    samples: list[HostSample]
    """One sample a second; times are on this machine's monotonic clock."""

    @property
    def clock_offset_s(self) -> float | None:
        """Seconds by which the machine's monotonic clock is ahead of this one's; None for the same clock."""

    @property
    def clock_error_s(self) -> float | None:
        """Largest possible error of `clock_offset_s`, in seconds; None if it is the same clock."""

    @property
    def lost(self) -> str | None:
        """Reason why the machine cannot be reached any more; None while it can."""

    def require_reachable(self) -> None:
        """Raise an error if the machine is lost.

        Raises:
            HostError: The machine is lost.
        """

    def start(self, program: Program) -> Process:
        """Start a process.

        Raises:
            RunError: The process cannot be started.
        """

    def close(self) -> None:
        """End the run's processes on the machine, and stop using it."""

    def sample(self) -> None:
        """Take a sample of the machine if one is due; call it several times a second."""

    def open_counters(self, url: str) -> Counters:
        """Return a reader of a broker's counters on the machine, so that `url` may be a loopback address."""

    def listening_address(self, wanted: str) -> str:
        """Return the address on which a server must listen to be reached at the address `wanted`."""
