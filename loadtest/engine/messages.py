"""What travels between the run and its workers, and between a worker and the engine: JSON, typed here.

A worker reads one `Command` a line on standard input and writes one `Event` a line on standard output.
Its first command is `Configure`; standard input that ends tells it to end too.
"""

from typing import Literal

from msgspec import Struct

Phase = Literal[
    "failed", "idle", "connecting", "connected", "sweep", "swept", "warmup", "measuring", "draining", "done"
]
"""In the order in which a worker goes through them, failure first."""


class EngineConfig(Struct, frozen=True, kw_only=True):
    """What every process is told: the server, and how to connect to it."""

    transport: Literal["ws", "tcp", "rest", "rest-new"]
    address: str
    host: str
    path: str
    driver: str
    sources: tuple[str, ...] = ()
    clock_offset_ns: int = 0
    """This host's CLOCK_MONOTONIC less the run's clock. All times that engines are told and tell are of the
    run's clock, so that those of several hosts can be compared."""


class UsersConfig(EngineConfig, frozen=True, kw_only=True):
    """What every process with users is told besides: which they are, and the plan's times in seconds."""

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
    """How the rate changes over the measured phase: lengths in seconds, each with the multiples of the rate
    that it begins and ends with; empty where it does not."""


class RequestorConfig(UsersConfig, frozen=True, kw_only=True):
    """One requestor process: its share of the users and of the load. Sizes in bytes."""

    providers: int
    rate: float
    outstanding: int
    calls: int = 0
    fetch: bool = False
    """GET `path` rather than ask providers."""
    sweep: bool
    request_bytes: int
    reply_bytes: int
    seed: int
    churn_rate: float
    phase: float = 0.0
    """By how much the plan is shifted, in mean distances between two of this process's requests: so processes
    that begin together take turns."""


class ProviderConfig(EngineConfig, frozen=True, kw_only=True):
    """The provider process: provider K answers the requests on /s/K."""

    transport: Literal["ws", "tcp"]
    providers: int
    first_provider: int
    reply_bytes: int
    threads: int
    rate: float = 0.0
    """Requests per second that all of this process answer at most; 0 = no limit."""
    delay_s: float = 0.0
    """How much later replies leave to requests that arrive in the first `delay_for_s` of every
    `delay_every_s`, counted from the start; 0 = no such delay."""
    delay_for_s: float = 0.0
    delay_every_s: float = 0.0


class BroadcasterConfig(UsersConfig, frozen=True, kw_only=True):
    """One broadcaster process: its share of the users, the plan of all, and the publishers or none."""

    transport: Literal["ws", "tcp"]
    subjects: int
    publishers: int
    rate: float
    outstanding: int
    message_bytes: int
    seed: int
    list_messages: bool


class Progress(Struct, frozen=True, kw_only=True):
    """A snapshot of one worker; counts since the phase it started to send in, times of the last second."""

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
    """Connections established, from the beginning on like all that follows."""
    disconnected: int = 0
    """Of these, lost after all had been established."""
    churned: int = 0
    """Of these, closed on purpose."""
    answered: int = 0
    """Of these, ended by the server with the answer to a request over HTTP."""
    published: int = 0
    """Messages sent for the server to publish, replies included."""
    published_bytes: int = 0
    """Of their payloads."""
    delivered: int = 0
    """Messages received; a status, as of a request that nobody answers, is none."""
    delivered_bytes: int = 0
    """Of their headers and payloads."""


class Moments(Struct, frozen=True, kw_only=True):
    """Exact integer sums over every value, and their histogram (base64, V2); nanoseconds."""

    count: int
    sum_ns: int
    sum_sq_ns2: int
    min_ns: int
    max_ns: int
    hdr: str


class EngineInterval(Struct, frozen=True, kw_only=True):
    """One interval; times relative to the start of the measured phase."""

    start_s: float
    end_s: float
    sent: int
    received: int
    hdr: str
    max_send_lag_ns: int = 0
    """How long after its planned time a request was sent at worst."""


class WarmupCounts(Struct, frozen=True, kw_only=True):
    """What the warm-up sent and what became of it."""

    sent: int = 0
    received: int = 0
    timed_out: int = 0
    errors: int = 0


class SweepCounts(Struct, frozen=True, kw_only=True):
    """What became of one request of each user; seconds until the last of them had ended."""

    sent: int
    received: int
    timed_out: int
    errors: int
    duration_s: float


class Traffic(Struct, frozen=True, kw_only=True):
    """Bytes of a requestor's connections from the start to the end of the drain, TCP and IP not included."""

    wire_bytes_in: int = 0
    wire_bytes_out: int = 0
    head_bytes_in: int = 0
    """Of these, heads of HTTP."""
    head_bytes_out: int = 0


class RequestorResult(Struct, frozen=True, kw_only=True):
    """Everything that one requestor measured; counts are of the measured phase unless they say otherwise."""

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
    """Connections closed on purpose."""
    reconnected: int = 0
    """Of these, established again."""
    reconnect_failures: int = 0
    """Attempts at that which failed, each followed by another one."""
    server_errors: int = 0
    """`-ERR` received, or answers of HTTP that are errors, whenever that was."""
    first_server_error: str | None = None
    statuses: dict[str, int] = {}
    """Answers of HTTP to measured requests that are errors, by status."""
    connections_opened: int = 0
    """Connections established, whenever that was."""
    traffic: Traffic = Traffic()
    max_send_lag_ns: int = 0
    """How long after its planned time a request was sent at worst."""
    sweep: SweepCounts | None = None
    """None where the scenario has none."""
    warmup: WarmupCounts
    latency: Moments
    service: Moments
    intervals: list[EngineInterval]


class ProviderResult(Struct, frozen=True, kw_only=True):
    """What the providers answered, warm-up included."""

    connections: int
    received: int
    sent: int
    dropped: int = 0
    """Requests received and not answered: too many waited, or their provider's connection was lost."""
    unanswerable: int = 0
    """Messages without an id or a reply subject."""
    misrouted: int = 0
    """Messages on another provider's subject."""
    corrupt: int = 0
    """Messages that are not the bytes that their id gives."""
    disconnected: int = 0
    server_errors: int = 0
    first_server_error: str | None = None


class BroadcastWarmup(Struct, frozen=True, kw_only=True):
    """What was published in the warm-up, and what became of it."""

    sent: int = 0
    errors: int = 0
    expected: int = 0
    received: int = 0


class BroadcasterResult(Struct, frozen=True, kw_only=True):
    """Everything that one broadcaster measured.

    `sent` and `errors` are of messages, and 0 where another process publishes; deliveries are those to this
    process's users. `sent` to `incomplete` are of the measured phase, the other counts of everything.
    """

    connect_s: float
    connections: int
    connect_failures: int
    duration_s: float
    sent: int
    errors: int
    """Messages that were due and could not be published."""
    expected: int
    """Deliveries due: for each message the users of its subject."""
    received: int
    incomplete: int
    """Messages that not all of the users received."""
    missing: int
    """Deliveries that never came, as each user's gaps and end tell."""
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
    latency: Moments
    spread: Moments
    """From the first to the last receipt of each message that all of the users received."""
    intervals: list[EngineInterval]
    messages: list[tuple[int, int, int, int]] | None = None
    """For each measured message its number, its receipts, and when the first and the last were, in
    nanoseconds of the run's clock; where it was asked for."""


class Configure(Struct, frozen=True, tag="configure", tag_field="command"):
    """The worker's configuration: that of its role."""

    requestor: RequestorConfig | None = None
    provider: ProviderConfig | None = None
    broadcaster: BroadcasterConfig | None = None


class Connect(Struct, frozen=True, tag="connect", tag_field="command"):
    """Open the connections."""


class Start(Struct, frozen=True, tag="start", tag_field="command"):
    """Begin the sweep where there is one, the warm-up after it or without one.

    Providers, who answer from the moment they are connected, count their stalls from the warm-up's start on.
    """

    at_ns: int | None = None
    """When, by the run's clock, so that all of one run begin together; None is at once."""


class Stop(Struct, frozen=True, tag="stop", tag_field="command"):
    """End early or, for providers, end; whoever still drains and is told again ends at once."""


Command = Configure | Connect | Start | Stop


class Reported(Struct, frozen=True, tag="progress", tag_field="event"):
    """A snapshot: at each change of phase and every half second."""

    progress: Progress
    at_s: float = 0.0
    """When it was taken, by the run's clock."""


class Finished(Struct, frozen=True, tag="result", tag_field="event"):
    """The result: that of the worker's role."""

    requestor: RequestorResult | None = None
    provider: ProviderResult | None = None
    broadcaster: BroadcasterResult | None = None


class Failed(Struct, frozen=True, tag="failed", tag_field="event"):
    """The worker cannot go on; `usage` when the configuration is at fault."""

    error: str
    usage: bool = False


Event = Reported | Finished | Failed
