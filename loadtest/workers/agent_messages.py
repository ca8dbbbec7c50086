"""Messages between a run and its agent on another machine, one JSON line each.

Times are in seconds on the monotonic clock of the agent's machine, unless stated otherwise. The run numbers
its processes and its requests.
"""

from typing import Any

from msgspec import Struct

from loadtest.result.schema import HostSample

SILENCE_S = 4.0
"""Silence after which either side treats the other as lost; both send at least one message a second."""


class Launch(Struct, frozen=True, tag="launch", tag_field="order"):
    """Order to start a Python module as a process."""

    process: int
    module: list[str]
    cpus: list[int] | None = None


class Input(Struct, frozen=True, tag="input", tag_field="order"):
    """Order to write a line to the standard input of a process."""

    process: int
    text: str


class EndInput(Struct, frozen=True, tag="end-input", tag_field="order"):
    """Order to close the standard input of a process."""

    process: int


class Terminate(Struct, frozen=True, tag="terminate", tag_field="order"):
    """Order to send SIGTERM to a process."""

    process: int


class Kill(Struct, frozen=True, tag="kill", tag_field="order"):
    """Order to send SIGKILL to a process."""

    process: int


class Heartbeat(Struct, frozen=True, tag="heartbeat", tag_field="order"):
    """Sign of life of the run; the agent answers at once, which also measures the offset of its clock."""

    sent_s: float
    """Time of sending, on the clock of the run's machine."""


class MeasureProcess(Struct, frozen=True, tag="measure-process", tag_field="order"):
    """Order to measure the usage of a process, or the number of its open descriptors."""

    request_id: int
    process: int
    descriptors: bool = False


class ReadCounters(Struct, frozen=True, tag="read-counters", tag_field="order"):
    """Order to read a broker's counters."""

    request_id: int
    url: str
    timeout_s: float


class CloseCounters(Struct, frozen=True, tag="close-counters", tag_field="order"):
    """Order to close the connection to a broker's counters."""

    url: str


Order = (
    Launch | Input | EndInput | Terminate | Kill | Heartbeat | MeasureProcess | ReadCounters | CloseCounters
)


class Ready(Struct, frozen=True, tag="ready", tag_field="event"):
    """First event of an agent, with facts about its machine."""

    environment: dict[str, Any]
    addresses: list[str]


class Started(Struct, frozen=True, tag="started", tag_field="event"):
    """Result of `Launch`: the process id, or the `error` if the process could not be started."""

    process: int
    pid: int = 0
    error: str | None = None


class OutputLine(Struct, frozen=True, tag="output-line", tag_field="event"):
    """A line that a process wrote to standard output, or to standard error if `error` is set."""

    process: int
    text: str
    error: bool = False


class Ended(Struct, frozen=True, tag="ended", tag_field="event"):
    """End of a process; all of its output has been sent before."""

    process: int
    status: int


class HeartbeatAnswered(Struct, frozen=True, tag="heartbeat-answered", tag_field="event"):
    """Answer to a heartbeat."""

    sent_s: float
    """Value of `sent_s` in the heartbeat."""
    at_s: float


class HostSampled(Struct, frozen=True, tag="host-sampled", tag_field="event"):
    """Sample of the machine over the last second."""

    sample: HostSample


class ProcessMeasured(Struct, frozen=True, tag="process-measured", tag_field="event"):
    """Result of `MeasureProcess`; `at_s` and `descriptors` are None if the process has exited."""

    request_id: int
    at_s: float | None = None
    cpu_s: float = 0.0
    rss_bytes: int = 0
    descriptors: int | None = None


class CountersRead(Struct, frozen=True, tag="counters-read", tag_field="event"):
    """Result of `ReadCounters`: the counters, or the `error` if they could not be read."""

    request_id: int
    counters: dict[str, Any] | None = None
    error: str = ""


AgentEvent = (
    Ready | Started | OutputLine | Ended | HeartbeatAnswered | HostSampled | ProcessMeasured | CountersRead
)
