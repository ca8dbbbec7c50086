"""What a run asks of a machine: to start processes, and to say what they use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loadtest.result.schema import HostSample
from loadtest.sampling.monitor import Counters
from loadtest.sampling.usage import Usage

Handle = Callable[[bytes], None]
"""Is given a line, without its end."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A Python module to be run, and who is told what it writes, line by line, from another thread."""

    module: Sequence[str]
    """Its name and arguments."""
    cpus: frozenset[int] | None
    output: Handle
    errors: Handle


class Process(Protocol):
    """One process of a run. It never outlives the run, whatever happens to that."""

    @property
    def pid(self) -> int:
        """Its id, on its machine."""

    def poll(self) -> int | None:
        """Its status once it has ended and everything that it wrote has been handled."""

    def wait(self, timeout_s: float) -> int | None:
        """The same, after waiting for it."""

    def send(self, line: bytes) -> None:
        """Writes a line to its standard input; OSError when that is closed."""

    def end_input(self) -> None:
        """Closes its standard input."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""

    def ask_usage(self) -> Callable[[], Usage | None]:
        """Asks what it uses; the answer's call waits for it, and has None when the process has gone."""

    def count_descriptors(self) -> int | None:
        """Open descriptors in all of its tables; None where they cannot be seen."""


class Machine(Protocol):
    """One machine of a run."""

    name: str
    address: str | None
    """None for this one."""
    environment: Mapping[str, Any]
    samples: list[HostSample]
    """One a second, times by this machine's monotonic clock."""

    @property
    def clock_offset_s(self) -> float | None:
        """Its monotonic clock less this machine's; None where it is the same clock."""

    @property
    def clock_error_s(self) -> float | None:
        """How far off that can be."""

    @property
    def lost(self) -> str | None:
        """Why it cannot be reached any more."""

    def require_present(self) -> None:
        """HostError when it is lost."""

    def start(self, program: Program) -> Process:
        """Starts a process; RunError when that fails."""

    def close(self) -> None:
        """Ends whatever still runs there for the run, where that needs somebody; it is of no use any more."""

    def sample(self) -> None:
        """To be called often: adds to the samples, where nobody else does."""

    def open_counters(self, url: str) -> Counters:
        """A broker's counters as they are read on the machine, whose loopback addresses may be meant."""

    def listening_address(self, wanted: str) -> str:
        """What a server has to listen on to be reached at the address `wanted`."""
