"""Part of `result.json` that comes from the server's own counters."""

from msgspec import Struct

UNITS = {
    "t_s": "seconds since the run began",
    "connections": "connections",
    "in_msgs": "messages",
    "out_msgs": "messages",
    "in_bytes": "bytes",
    "out_bytes": "bytes",
    "cpu": "percent of one processor",
    "mem": "bytes",
    "pending_bytes": "bytes",
    "slow_consumers": "connections",
    "dropped": "messages",
}
"""Unit of each field of a `BrokerSample`."""


class BrokerSample(Struct, frozen=True, kw_only=True):
    """One reading of the server's counters at its /varz; a field is None if the server does not report it.

    Totals count from a reading before the run's first connection. `in` counts what clients published, `out`
    what the server sent to clients. Bytes are bytes of payloads and headers.
    """

    t_s: float
    """Time of the reading, in seconds since the run began."""
    connections: int | None = None
    """Open client connections."""
    in_msgs: int | None = None
    out_msgs: int | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    cpu: float | None = None
    """Processor use, in percent of one processor."""
    mem: int | None = None
    """Resident memory, in bytes."""
    pending_bytes: int | None = None
    """Backlog of all clients, in bytes."""
    slow_consumers: int | None = None
    """Connections that the server closed because their backlog exceeded a limit."""
    dropped: int | None = None
    """Deliveries that the server dropped."""


class Agreement(Struct, frozen=True, kw_only=True):
    """Comparison of one count of the engine with the server's count."""

    name: str
    unit: str
    engine: int
    broker: int
    difference: int
    """Broker's count minus the engine's."""
    matches: bool
    expected: str | None = None
    """Reason why the counts may differ without a fault. None if they must match."""

    @property
    def holds(self) -> bool:
        """Whether the counts match or are allowed to differ."""
        return self.matches or self.expected is not None


class BrokerView(Struct, frozen=True, kw_only=True):
    """Summary of the readings of the server's counters during a run."""

    monitor: str
    """Address at which the counters were read."""
    readings: int
    """Number of readings that succeeded."""
    failures: int
    """Number of readings that failed."""
    first_failure: str | None
    """Reason of the first failed reading. None if all succeeded."""
    slowest_s: float
    """Duration of the slowest reading, in seconds."""
    closed: dict[str, int]
    """Connections that ended during the run, by the server's reason; empty if it does not report reasons."""
    units: dict[str, str]
    """Unit of each field of `timeline[].broker`."""
    note: str | None = None
    """Reason why the counts could not be compared. None if they were."""
