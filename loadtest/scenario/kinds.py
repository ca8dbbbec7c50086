"""Scenarios as types: the keys of a scenario file, one type for each workload."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from loadtest.errors import ScenarioError
from loadtest.scenario.profile import Constant, Profile, area
from subjectbus import BrokerConfig

Count = Annotated[int, Meta(ge=1)]
Users = Annotated[int, Meta(ge=1, le=16_000_000)]  # the engine's most
Bytes = Annotated[int, Meta(ge=16)]  # the engine's id and what makes damage visible
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]

Transport = Literal["ws", "tcp", "rest", "rest-new"]
HttpTransport = Literal["rest", "rest-new"]
Calls = Annotated[int, Meta(ge=0, lt=2**32)]

Percent = Annotated[float, Meta(ge=0, le=1e6)]


class GrowthLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast each series of a soak may grow: percent per hour of its value when judging began."""

    broker_rss_bytes: Annotated[Percent, Meta(description="Resident memory of the broker.")] = 5.0
    broker_descriptors: Annotated[Percent, Meta(description="Open descriptors of the broker.")] = 2.0
    broker_connections: Annotated[Percent, Meta(description="Connections, by the broker's own count.")] = 2.0
    broker_cpu_percent: Annotated[Percent, Meta(description="Processor time of the broker.")] = 50.0
    load_rss_bytes: Annotated[
        Percent,
        Meta(
            description="Resident memory of the load, which keeps a histogram for each second: some MB an "
            "hour."
        ),
    ] = 50.0
    p50_us: Annotated[Percent, Meta(description="Median latency.")] = 100.0
    p99_us: Annotated[Percent, Meta(description="99th percentile of the latency.")] = 100.0


class SoakPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a long run is judged: whether anything grows from period to period."""

    period_s: Annotated[float, Meta(ge=1, le=3600, description="Seconds between two samples.")] = 60.0
    growth_percent_per_hour: Annotated[
        GrowthLimits, Meta(description="Growth that is allowed to each series.")
    ] = GrowthLimits()


class ProviderDelay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Providers that stall from time to time."""

    delay_ms: Annotated[
        float,
        Meta(
            gt=0,
            le=3_600_000,
            description="Milliseconds by which replies to requests that arrive in a stall leave later.",
        ),
    ]
    for_s: Annotated[float, Meta(ge=0.001, description="Length of a stall, seconds.")]
    every_s: Annotated[
        float,
        Meta(
            ge=0.001,
            description="Seconds from the beginning of one stall to that of the next; the first one begins "
            "with the warm-up.",
        ),
    ]


class _Base(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of every scenario."""

    name: Annotated[
        str, Meta(description="Name in reports and of the result folder; the file's name if it is left out.")
    ] = ""
    description: Annotated[str, Meta(description="A sentence about the scenario.")] = ""
    warmup_s: Annotated[Seconds, Meta(description="Seconds of load before the measured phase.")] = 5.0
    duration_s: Annotated[Positive, Meta(description="Length of the measured phase, seconds.")] = 20.0
    timeout_s: Annotated[
        Positive, Meta(description="Seconds that a reply is waited for, or after the end a delivery.")
    ] = 10.0
    seed: Annotated[int, Meta(ge=0, description="Makes every random choice repeatable; below 2^64.")] = 1
    load_driver: Annotated[
        Literal["auto", "epoll", "uring"],
        Meta(description="How the load asks the kernel for events; `broker.driver` is the broker's."),
    ] = "auto"
    thresholds: Annotated[
        tuple[str, ...],
        Meta(
            description='Objectives such as "latency_us.p99 < 100000"; each that does not hold makes the '
            "command exit with 1."
        ),
    ] = ()
    max_send_lag_ms: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds by which a request of an open loop may leave late: a threshold on the "
            "load generator itself. 0 sets none. Over HTTP there is none, because requests also wait for a "
            "caller that is free.",
        ),
    ] = 100.0
    broker: Annotated[
        BrokerConfig, Meta(description="Configuration of the run's own broker; without effect on a target.")
    ] = BrokerConfig()


class _Common(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of every scenario of one load."""

    users: Annotated[Users, Meta(description="Connections of users.")]
    rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Requests, or messages published, per second, all users together: an open loop. 0 "
            "with `outstanding`.",
        ),
    ] = 0.0
    outstanding: Annotated[
        int,
        Meta(
            ge=0,
            description="Requests, or messages, that are always outstanding, all users together: a closed "
            "loop. 0 with `rate`.",
        ),
    ] = 0
    arrivals: Annotated[
        Literal["uniform", "poisson"],
        Meta(description="Planned times of an open loop: evenly spaced, or with exponential gaps."),
    ] = "uniform"
    profile: Annotated[
        Profile,
        Meta(
            description="How the rate of an open loop changes over the measured phase, in multiples of "
            "`rate`."
        ),
    ] = Constant()
    threads: Annotated[Count, Meta(description="Threads of each process that has users.")] = 1
    sources: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses of this host to connect from, in turn, if one has too few ports. On "
            "loopback there are always enough."
        ),
    ] = ()
    connect_rate: Annotated[
        float, Meta(ge=0, description="Connections per second; 0 = as fast as `connect_in_flight` permits.")
    ] = 0.0
    connect_in_flight: Annotated[
        Count, Meta(description="Connections that are being established at once.")
    ] = 512
    connect_timeout_s: Annotated[
        Positive, Meta(description="Seconds after which the connect phase fails.")
    ] = 300.0
    monitor: Annotated[
        str,
        Meta(
            description="Monitor of a target, `http://HOST:PORT`, whose counters are set beside the load's. "
            "Without effect on the run's own broker, which is always read."
        ),
    ] = ""
    soak: Annotated[
        SoakPlan | None,
        Meta(description="Also judge whether memory, descriptors, latency or processor time grow."),
    ] = None

    def planned(self, start_s: float, end_s: float) -> float:
        """Return the number of requests, or published messages, due in a part of the measured phase.

        Args:
            start_s: Seconds from the start of the measured phase; what is before it is cut off.
            end_s: Likewise; what is after its end is cut off.

        0 for a closed loop, which has no plan.
        """
        return self.rate * area(self.profile, self.duration_s, start_s, end_s)


class Scenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The benchmark workload: users that ask, providers that answer, in an open or a closed loop.

    Every user is a connection subscribed to its own subject; provider K is subscribed to /s/K.
    """

    workload: Annotated[Literal["request"], Meta(description="Users ask, providers answer.")] = "request"
    transport: Annotated[
        Transport,
        Meta(
            description="How users ask: the NATS protocol over WebSocket (ws) or TCP, or HTTP on connections"
            " that are kept (rest) or made for each request (rest-new). Over HTTP each user has "
            "at most one request under way."
        ),
    ] = "ws"
    provider_transport: Annotated[
        Literal["ws", "tcp"] | None,
        Meta(
            description="How providers answer. Left out: as users ask, and over WebSocket if users speak "
            "HTTP."
        ),
    ] = None
    calls: Annotated[
        Calls,
        Meta(
            description="Measured requests after which a closed loop ends, 0 = no limit; `duration_s` is "
            "then the longest that the run may take."
        ),
    ] = 0
    providers: Annotated[Count, Meta(description="Connections that answer.")] = 16
    sweep: Annotated[
        bool,
        Meta(description="Before the warm-up every user makes one request, in order; all must be answered."),
    ] = False
    request_bytes: Annotated[Bytes, Meta(description="Payload of a request, bytes.")] = 32
    reply_bytes: Annotated[Bytes, Meta(description="Payload of a reply, bytes.")] = 256
    requestors: Annotated[Count, Meta(description="Processes that share the users and the load.")] = 1
    provider_threads: Annotated[Count, Meta(description="Threads of the process of the providers.")] = 1
    provider_rate: Annotated[
        float,
        Meta(
            ge=0,
            le=1e8,
            description="Requests per second that all providers together answer at most, one after the "
            "other: a queue with one server. 0 = no limit.",
        ),
    ] = 0.0
    provider_delay: Annotated[
        ProviderDelay | None, Meta(description="Stalls of the providers: a latency of known size.")
    ] = None
    churn_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Connections per second, all users together, that are closed and established again "
            "while requests go on, from the warm-up to the end of the measured phase; never one "
            "with a request outstanding.",
        ),
    ] = 0.0

    @property
    def connections(self) -> int:
        """Users and providers."""
        return self.users + self.providers


class BroadcastScenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broadcast workload: each message goes to all users of its subject.

    User N is subscribed to /b/{N mod subjects}; messages are published on the subjects in turn.
    """

    workload: Annotated[
        Literal["broadcast"], Meta(description="Each message goes to all users of its subject.")
    ] = "broadcast"
    transport: Annotated[
        Literal["ws", "tcp"], Meta(description="How users and publishers connect: WebSocket (ws) or TCP.")
    ] = "ws"
    subjects: Annotated[Count, Meta(description="Subjects, which share the users evenly.")] = 1
    publishers: Annotated[
        Count,
        Meta(
            description="Connections that publish. A subject always has the same one, which keeps its "
            "messages in order."
        ),
    ] = 1
    message_bytes: Annotated[
        int,
        Meta(
            ge=24, description="Payload of a message, bytes."
        ),  # a number, a time and what makes damage visible
    ] = 100
    processes: Annotated[Count, Meta(description="Processes that share the users.")] = 1

    @property
    def connections(self) -> int:
        """Users and publishers."""
        return self.users + self.publishers


class FetchScenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The baseline of HTTP: users fetch a page over and over, with no providers and no subjects."""

    workload: Annotated[Literal["http-byte"], Meta(description="Users fetch one page over HTTP.")] = (
        "http-byte"
    )
    transport: Annotated[
        HttpTransport,
        Meta(description="HTTP on connections that are kept (rest) or made for each request (rest-new)."),
    ] = "rest"
    path: Annotated[
        str, Meta(description="Page of the own broker, or of a target whose URL names no path.")
    ] = "/byte"
    reply_bytes: Annotated[int, Meta(ge=0, description="Size that the page must have, bytes.")] = 1
    calls: Annotated[
        Calls,
        Meta(
            description="Measured requests after which a closed loop ends, 0 = no limit; `duration_s` is "
            "then the longest that the run may take."
        ),
    ] = 0
    requestors: Annotated[Count, Meta(description="Processes that share the users and the load.")] = 1

    @property
    def connections(self) -> int:
        """Users."""
        return self.users


class TransportsScenario(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same requests over each transport, one after the other: by one caller, then by many at once.

    Each of these runs is one of the workload "request", in a closed loop, on a broker of its own, with one
    provider over TCP.
    """

    workload: Annotated[
        Literal["transports"], Meta(description="The same requests over each transport, one after the other.")
    ] = "transports"
    transports: Annotated[
        tuple[Transport, ...], Meta(min_length=1, description="Transports, in the order of their runs.")
    ] = ("rest-new", "rest", "ws", "tcp")
    calls: Annotated[Count, Meta(description="Measured requests of each run with `outstanding` callers.")] = (
        2_000_000
    )
    sequential_calls: Annotated[
        int, Meta(ge=0, description="Measured requests of each run with one caller; 0 leaves these runs out.")
    ] = 200_000
    outstanding: Annotated[
        int, Meta(ge=2, description="Callers, each with a connection and one request under way.")
    ] = 64
    request_bytes: Annotated[Bytes, Meta(description="Payload of a request, bytes.")] = 32
    reply_bytes: Annotated[Bytes, Meta(description="Payload of a reply, bytes.")] = 256

    @property
    def connections(self) -> int:
        """Callers and the provider."""
        return self.outstanding + 1

    def runs(self) -> list[Scenario]:
        """The runs in their order."""
        plans = [(1, self.sequential_calls), (self.outstanding, self.calls)]
        return [
            Scenario(
                name=f"{transport}, {callers} at once" if callers > 1 else f"{transport}, one caller",
                transport=transport,
                provider_transport="tcp",
                users=callers,
                outstanding=callers,
                calls=calls,
                providers=1,
                warmup_s=self.warmup_s,
                duration_s=self.duration_s,
                timeout_s=self.timeout_s,
                seed=self.seed,
                request_bytes=self.request_bytes,
                reply_bytes=self.reply_bytes,
                load_driver=self.load_driver,
                broker=self.broker,
            )
            for callers, calls in plans
            if calls
            for transport in self.transports
        ]


AnyScenario = Scenario | BroadcastScenario | FetchScenario
"""What one run is made of."""
Plan = AnyScenario | TransportsScenario
"""What a scenario file describes."""
WORKLOADS: dict[str, type[Plan]] = {
    "request": Scenario,
    "broadcast": BroadcastScenario,
    "http-byte": FetchScenario,
    "transports": TransportsScenario,
}


def is_http(scenario: AnyScenario) -> bool:
    """Whether users speak HTTP."""
    return scenario.transport in ("rest", "rest-new")


def with_transport(scenario: Plan, transport: Literal["ws", "tcp", "rest"]) -> AnyScenario:
    """The scenario as a target's scheme makes it run.

    Raises:
        ScenarioError: The workload cannot be run so.
    """
    where = f"scenario {scenario.name}"
    match scenario:
        case TransportsScenario():
            raise ScenarioError(f"{where}: compares the transports of its own broker, and takes no target")
        case FetchScenario() if transport != "rest":
            raise ScenarioError(f"{where}: fetches over HTTP, and needs a target http://HOST:PORT")
        case BroadcastScenario() if transport == "rest":
            raise ScenarioError(f"{where}: broadcasts need a target nats:// or ws://")
        case Scenario() if transport == "rest" and scenario.provider_transport == "tcp":
            raise ScenarioError(f"{where}: provider_transport: a target http:// is reached over WebSocket")
        case Scenario(transport="rest" | "rest-new" as http) if transport != "rest":
            raise ScenarioError(f"{where}: transport: {http} needs a target http://HOST:PORT")
    if transport == "rest" and is_http(scenario):
        return scenario
    return structs.replace(scenario, transport=transport)
