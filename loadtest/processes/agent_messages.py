"""What travels between a run and its agent on another machine: a JSON line each, typed here.

Times are of the machine's own monotonic clock. Processes are known by numbers that the run gives them.
"""

from typing import Any

from msgspec import Struct

from loadtest.result.schema import HostSample

SILENCE_S = 4.0
"""Who has heard nothing for so long takes the other side for lost. Both say something each second."""


class Launch(Struct, frozen=True, tag="launch", tag_field="order"):
    """Start a Python module."""

    process: int
    module: list[str]
    cpus: list[int] | None = None


class Input(Struct, frozen=True, tag="input", tag_field="order"):
    """Give a process a line."""

    process: int
    text: str


class EndInput(Struct, frozen=True, tag="end-input", tag_field="order"):
    """Close a process's standard input."""

    process: int


class Terminate(Struct, frozen=True, tag="terminate", tag_field="order"):
    """SIGTERM to a process."""

    process: int


class Kill(Struct, frozen=True, tag="kill", tag_field="order"):
    """SIGKILL to a process."""

    process: int


class Beat(Struct, frozen=True, tag="beat", tag_field="order"):
    """The run is alive; answered at once, which measures the clocks."""

    sent_s: float
    """By the run's clock."""


class Measure(Struct, frozen=True, tag="measure", tag_field="order"):
    """Say what a process uses, or how many descriptors it has open."""

    question: int
    process: int
    descriptors: bool = False


class Read(Struct, frozen=True, tag="read", tag_field="order"):
    """Read a broker's counters."""

    question: int
    url: str
    timeout_s: float


class Forget(Struct, frozen=True, tag="forget", tag_field="order"):
    """Counters that are read no more."""

    url: str


Order = Launch | Input | EndInput | Terminate | Kill | Beat | Measure | Read | Forget


class Hello(Struct, frozen=True, tag="hello", tag_field="said"):
    """The agent is there."""

    environment: dict[str, Any]
    addresses: list[str]


class Started(Struct, frozen=True, tag="started", tag_field="said"):
    """A process is there; `error` when it is not."""

    process: int
    pid: int = 0
    error: str | None = None


class Wrote(Struct, frozen=True, tag="wrote", tag_field="said"):
    """A line of a process's standard output, or of its standard error."""

    process: int
    text: str
    error: bool = False


class Ended(Struct, frozen=True, tag="ended", tag_field="said"):
    """A process has ended, and everything that it wrote has been told."""

    process: int
    status: int


class Answered(Struct, frozen=True, tag="answered", tag_field="said"):
    """The answer to a beat."""

    sent_s: float
    """As the beat had it."""
    at_s: float


class Sampled(Struct, frozen=True, tag="sampled", tag_field="said"):
    """What the machine has done in the last second."""

    sample: HostSample


class Measured(Struct, frozen=True, tag="measured", tag_field="said"):
    """What a process uses; nothing when it has gone."""

    question: int
    at_s: float | None = None
    cpu_s: float = 0.0
    rss_bytes: int = 0
    descriptors: int | None = None


class Counted(Struct, frozen=True, tag="counted", tag_field="said"):
    """A broker's counters, or why they could not be had."""

    question: int
    counters: dict[str, Any] | None = None
    error: str = ""


Said = Hello | Started | Wrote | Ended | Answered | Sampled | Measured | Counted
