"""Messages between a run and its workers, and between a worker and its engine, in JSON.

A worker reads `Command` values from standard input and writes `Event` values to standard output, one per
line. The first command is `Configure`. The end of standard input also ends the worker.
"""

from typing import Literal

from msgspec import Struct

Phase = Literal[
    "failed", "idle", "connecting", "connected", "sweep", "swept", "warmup", "measuring", "draining", "done"
]
"""Phases in the order in which a worker passes through them, with the failure first."""


class EngineConfig(Struct, frozen=True, kw_only=True):
    """Configuration that all engines have: the server and how to connect to it."""

    transport: Literal["ws", "tcp", "rest", "rest-new"]
    address: str
    host: str
    path: str
    driver: str
    sources: tuple[str, ...] = ()
    clock_offset_ns: int = 0
    """Nanoseconds by which this machine's CLOCK_MONOTONIC is ahead of the run's clock. All times in messages
    to and from engines are on the run's clock, so that times of several machines can be compared."""


class UsersConfig(EngineConfig, frozen=True, kw_only=True):
    """Configuration that engines with users add: their share of the users, and the phases in seconds."""

    users: int
    first_user: int
    threads: int
    connect_rate: float
    connect_in_flight: int
    warmup_s: float
    duration_s: float
    timeout_s: float
    arrivals: Literal["uniform", "poisson"]
    profile: tuple[tuple[float, float, float], ...] = ()
    """Segments of a rate that changes over the measured phase; empty for a constant rate. Each segment has
    its length in seconds, and the multiples of the rate at its start and its end."""


class RequestorConfig(UsersConfig, frozen=True, kw_only=True):
    """Configuration of one requestor: its share of the users and of the load; sizes in bytes."""

    providers: int
    rate: float
    outstanding: int
    calls: int = 0
    fetch: bool = False
    """Whether users fetch `path` by HTTP GET instead of sending requests to providers."""
    sweep: bool
    request_bytes: int
    reply_bytes: int
    seed: int
    churn_rate: float
    phase: float = 0.0
    """Shift of the planned send times, as a share of the mean time between two requests of this process.
    Different shifts spread the requests of processes that start together."""


class ProviderConfig(EngineConfig, frozen=True, kw_only=True):
    """Configuration of one provider process; provider K answers the requests on /s/K."""

    transport: Literal["ws", "tcp"]
    providers: int
    first_provider: int
    reply_bytes: int
    threads: int
    rate: float = 0.0
    """Largest number of requests per second that this process's providers answer together; 0 = no limit."""
    delay_s: float = 0.0
    """Delay of the replies to requests that arrive in the first `delay_for_s` of every `delay_every_s`, in
    seconds from the start; 0 = no delay."""
    delay_for_s: float = 0.0
    delay_every_s: float = 0.0


class BroadcasterConfig(UsersConfig, frozen=True, kw_only=True):
    """Configuration of one broadcaster: its share of the users, and the plan of all messages.

    Only one broadcaster of a run has publishers; the others have 0.
    """

    transport: Literal["ws", "tcp"]
    subjects: int
    publishers: int
    rate: float
    outstanding: int
    message_bytes: int
    seed: int
    list_messages: bool


class Progress(Struct, frozen=True, kw_only=True):
    """Snapshot of one worker.

    Counts start with the worker's first sending phase, unless stated otherwise. `mean_us` and `max_us` cover
    the last second.
    """

    phase: Phase
    error: str | None = None
    elapsed_s: float = 0.0
    connections: int = 0
    connect_failures: int = 0
    sent: int = 0
    received: int = 0
    outstanding: int = 0
    timed_out: int = 0
    errors: int = 0
    mean_us: float = 0.0
    max_us: float = 0.0
    opened: int = 0
    """Connections established. This count and all below start with the worker."""
    disconnected: int = 0
    """Established connections that were lost after all had been established."""
    churned: int = 0
    """Established connections that were closed on purpose."""
    answered: int = 0
    """Established connections that the server closed with the response to an HTTP request."""
    published: int = 0
    """Messages sent to the server to be published, replies included."""
    published_bytes: int = 0
    """Payload bytes of the published messages."""
    delivered: int = 0
    """Messages received. A status, such as no responders, is not a message."""
    delivered_bytes: int = 0
    """Header and payload bytes of the delivered messages."""


class LatencySummary(Struct, frozen=True, kw_only=True):
    """Latencies in nanoseconds: exact integer sums over all values, and their histogram (base64, V2)."""

    count: int
    sum_ns: int
    sum_sq_ns2: int
    min_ns: int
    max_ns: int
    hdr: str


class EngineInterval(Struct, frozen=True, kw_only=True):
    """One interval of the measured phase; times are in seconds since the phase began."""

    start_s: float
    end_s: float
    sent: int
    received: int
    hdr: str
    max_send_lag_ns: int = 0
    """Largest time from the planned send time to the actual sending, in nanoseconds."""


class WarmupCounts(Struct, frozen=True, kw_only=True):
    """Requests of the warm-up, by outcome."""

    sent: int = 0
    received: int = 0
    timed_out: int = 0
    errors: int = 0


class SweepCounts(Struct, frozen=True, kw_only=True):
    """Requests of the sweep, one for each user, by outcome; `duration_s` ends with the last outcome."""

    sent: int
    received: int
    timed_out: int
    errors: int
    duration_s: float


class Traffic(Struct, frozen=True, kw_only=True):
    """Bytes on a requestor's connections from `start()` to the end of the drain, without TCP and IP."""

    wire_bytes_in: int = 0
    wire_bytes_out: int = 0
    head_bytes_in: int = 0
    """Bytes of HTTP heads, which `wire_bytes_in` includes."""
    head_bytes_out: int = 0


class RequestorResult(Struct, frozen=True, kw_only=True):
    """Result of one requestor; counts are of the measured phase, unless stated otherwise."""

    connect_s: float
    connections: int
    connect_failures: int
    duration_s: float
    sent: int
    received: int
    timed_out: int
    errors: int
    duplicates: int
    late: int
    corrupt: int
    no_responders: int
    unmatched: int
    disconnected: int
    churned: int = 0
    """Connections closed on purpose, in the whole run."""
    reconnected: int = 0
    """Connections closed on purpose and established again."""
    reconnect_failures: int = 0
    """Failed attempts to connect again; each is followed by another attempt."""
    server_errors: int = 0
    """Received `-ERR` and HTTP error responses, in the whole run."""
    first_server_error: str | None = None
    statuses: dict[str, int] = {}
    """HTTP error responses to measured requests, by status."""
    connections_opened: int = 0
    """Connections established in the whole run."""
    traffic: Traffic = Traffic()
    max_send_lag_ns: int = 0
    """Largest time from the planned send time to the actual sending, in nanoseconds."""
    sweep: SweepCounts | None = None
    """Counts of the sweep; None if the scenario has no sweep."""
    warmup: WarmupCounts
    latency: LatencySummary
    service: LatencySummary
    intervals: list[EngineInterval]


class ProviderResult(Struct, frozen=True, kw_only=True):
    """Result of one provider process, warm-up included."""

    connections: int
    received: int
    sent: int
    dropped: int = 0
    """Requests received but not answered: too many waited, or their provider lost its connection."""
    unanswerable: int = 0
    """Messages without an id or a reply subject."""
    misrouted: int = 0
    """Messages on another provider's subject."""
    corrupt: int = 0
    """Messages whose bytes differ from the bytes that their id determines."""
    disconnected: int = 0
    server_errors: int = 0
    first_server_error: str | None = None


class BroadcastWarmup(Struct, frozen=True, kw_only=True):
    """Messages and deliveries of the warm-up, by outcome."""

    sent: int = 0
    errors: int = 0
    expected: int = 0
    received: int = 0


class BroadcasterResult(Struct, frozen=True, kw_only=True):
    """Result of one broadcaster.

    `sent` and `errors` count messages, and are 0 if another process publishes. Deliveries are counted for
    this process's users. The counts from `sent` to `incomplete` are of the measured phase, the others of the
    whole run.
    """

    connect_s: float
    connections: int
    connect_failures: int
    duration_s: float
    sent: int
    errors: int
    """Messages that were due and could not be published."""
    expected: int
    """Deliveries due: for each message the number of users of its subject."""
    received: int
    incomplete: int
    """Messages that not all of the users received."""
    missing: int
    """Deliveries that never came, from the gaps and the end of each user's sequence of message numbers."""
    duplicates: int
    """Messages received again, or after a later one."""
    corrupt: int
    misrouted: int
    """Messages on another subject than their user's, or of another run."""
    disconnected: int
    server_errors: int = 0
    first_server_error: str | None = None
    max_send_lag_ns: int = 0
    warmup: BroadcastWarmup
    latency: LatencySummary
    spread: LatencySummary
    """Time from the first to the last receipt of each message that all of the users received."""
    intervals: list[EngineInterval]
    messages: list[tuple[int, int, int, int]] | None = None
    """Number, count of receipts, and time of the first and the last receipt of each measured message. Times
    are in nanoseconds on the run's clock. None unless `list_messages` is set."""


class Configure(Struct, frozen=True, tag="configure", tag_field="command"):
    """Command that configures the worker; exactly one role is set."""

    requestor: RequestorConfig | None = None
    provider: ProviderConfig | None = None
    broadcaster: BroadcasterConfig | None = None


class Connect(Struct, frozen=True, tag="connect", tag_field="command"):
    """Command to open the connections."""


class Start(Struct, frozen=True, tag="start", tag_field="command"):
    """Command to begin the sweep or, after it or without one, the warm-up.

    Providers answer from the time they are connected; their periods of delayed replies are counted from the
    start of the warm-up.
    """

    at_ns: int | None = None
    """Start time on the run's clock, in nanoseconds, so that all workers begin together; None = at once."""


class Stop(Struct, frozen=True, tag="stop", tag_field="command"):
    """Command to stop sending, drain and report; a second `Stop` skips the drain."""


Command = Configure | Connect | Start | Stop


class Reported(Struct, frozen=True, tag="progress", tag_field="event"):
    """Snapshot of the worker, sent at each change of phase and every half second."""

    progress: Progress
    at_s: float = 0.0
    """Time of the snapshot on the run's clock, in seconds."""


class Finished(Struct, frozen=True, tag="result", tag_field="event"):
    """Result of the worker; exactly the field of its role is set."""

    requestor: RequestorResult | None = None
    provider: ProviderResult | None = None
    broadcaster: BroadcasterResult | None = None


class Failed(Struct, frozen=True, tag="failed", tag_field="event"):
    """Failure that the worker cannot recover from; `usage` means that the configuration is invalid."""

    error: str
    usage: bool = False


Event = Reported | Finished | Failed
