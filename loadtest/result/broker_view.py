"""The server's own view of a run, as `result.json` has it."""

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
"""Of the fields of a `BrokerSample`."""


class BrokerSample(Struct, frozen=True, kw_only=True):
    """The server's own counters, as its /varz tells them; None for what it does not tell.

    Totals are what was added since the reading before the run's first connection. `in` is what clients
    published, `out` what was sent to them; bytes are those of payloads and headers.
    """

    t_s: float
    connections: int | None = None
    in_msgs: int | None = None
    out_msgs: int | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    cpu: float | None = None
    """Percent of one processor."""
    mem: int | None = None
    """Resident bytes."""
    pending_bytes: int | None = None
    """Output that waits for clients to take it."""
    slow_consumers: int | None = None
    """Connections that were closed for not taking theirs."""
    dropped: int | None = None
    """Messages that were to be delivered and never will be."""


class Agreement(Struct, frozen=True, kw_only=True):
    """One count of the engine beside the server's own."""

    name: str
    unit: str
    engine: int
    broker: int
    difference: int
    """The broker's less the engine's."""
    matches: bool
    expected: str | None = None
    """Why the two may differ without a fault; None where they must match."""

    @property
    def holds(self) -> bool:
        """They match, or need not."""
        return self.matches or self.expected is not None


class BrokerView(Struct, frozen=True, kw_only=True):
    """How the server's own counters were read, and what they say that no second has."""

    monitor: str
    """Where they were read."""
    readings: int
    failures: int
    """Readings that did not come."""
    first_failure: str | None
    slowest_s: float
    """How long the slowest reading took."""
    closed: dict[str, int]
    """Connections that ended in the run, by the broker's reason; empty where it does not tell."""
    units: dict[str, str]
    """Of the fields of `timeline[].broker`."""
    note: str | None = None
    """Why there is no agreement to show."""
