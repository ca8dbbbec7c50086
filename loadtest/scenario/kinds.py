"""Types of scenarios: the keys of a scenario file, one type for each workload."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from loadtest.errors import ScenarioError
from loadtest.scenario.profile import Constant, Profile, area
from subjectbus import BrokerConfig

Count = Annotated[int, Meta(ge=1)]
Users = Annotated[int, Meta(ge=1, le=16_000_000)]  # largest number that the engine accepts
Bytes = Annotated[int, Meta(ge=16)]  # room for the id and for the bytes that show damage
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]

Transport = Literal["ws", "tcp", "rest", "rest-new"]
HttpTransport = Literal["rest", "rest-new"]
Calls = Annotated[int, Meta(ge=0, lt=2**32)]

Percent = Annotated[float, Meta(ge=0, le=1e6)]


class GrowthLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Largest growth of each series of a soak, in percent per hour of its value when judging began."""

    broker_rss_bytes: Annotated[Percent, Meta(description="Resident memory of the broker.")] = 5.0
    broker_descriptors: Annotated[Percent, Meta(description="Open descriptors of the broker.")] = 2.0
    broker_connections: Annotated[Percent, Meta(description="Connections that the broker counts.")] = 2.0
    broker_cpu_percent: Annotated[Percent, Meta(description="Processor time of the broker.")] = 50.0
    load_rss_bytes: Annotated[
        Percent,
        Meta(
            description="Resident memory of the load, which keeps a histogram for each second: a few MB per "
            "hour."
        ),
    ] = 50.0
    p50_us: Annotated[Percent, Meta(description="Median latency.")] = 100.0
    p99_us: Annotated[Percent, Meta(description="99th percentile of the latency.")] = 100.0


class SoakPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Judgement of a long run: whether resources or latency grow from period to period."""

    period_s: Annotated[float, Meta(ge=1, le=3600, description="Seconds between two samples.")] = 60.0
    growth_percent_per_hour: Annotated[GrowthLimits, Meta(description="Largest growth of each series.")] = (
        GrowthLimits()
    )


class ProviderDelay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Providers that stall from time to time."""

    delay_ms: Annotated[
        float,
        Meta(
            gt=0,
            le=3_600_000,
            description="Milliseconds by which replies to requests that arrive during a stall are delayed.",
        ),
    ]
    for_s: Annotated[float, Meta(ge=0.001, description="Length of a stall, seconds.")]
    every_s: Annotated[
        float,
        Meta(
            ge=0.001,
            description="Seconds from the start of one stall to the start of the next. The first stall "
            "starts with the warm-up.",
        ),
    ]


class _Base(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of every scenario."""

    name: Annotated[
        str, Meta(description="Name in reports and of the result folder. Left out: the file's name.")
    ] = ""
    description: Annotated[str, Meta(description="A sentence about the scenario.")] = ""
    warmup_s: Annotated[Seconds, Meta(description="Seconds of load before the measured phase.")] = 5.0
    duration_s: Annotated[Positive, Meta(description="Length of the measured phase, seconds.")] = 20.0
    timeout_s: Annotated[
        Positive,
        Meta(description="Seconds to wait for a reply, or, in a broadcast, for deliveries after the end."),
    ] = 10.0
    seed: Annotated[
        int, Meta(ge=0, description="Seed of every random choice, which makes runs repeatable; below 2^64.")
    ] = 1
    load_driver: Annotated[
        Literal["auto", "epoll", "uring"],
        Meta(description="Driver of the load: how it gets events. The broker has `broker.driver`."),
    ] = "auto"
    thresholds: Annotated[
        tuple[str, ...],
        Meta(
            description='Objectives such as "latency_us.p99 < 100000". If one does not hold, the command '
            "exits with 1."
        ),
    ] = ()
    max_send_lag_ms: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds by which a request of an open loop may be sent late: a threshold on "
            "the load generator itself. 0 sets no threshold. It does not apply to HTTP, because requests "
            "also wait for a free caller.",
        ),
    ] = 100.0
    broker: Annotated[
        BrokerConfig, Meta(description="Configuration of the run's own broker; no effect on a target.")
    ] = BrokerConfig()


class _Common(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of every scenario with one load."""

    users: Annotated[Users, Meta(description="Connections of users.")]
    rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Requests, or published messages, per second of all users together, in an open loop. "
            "0 in a closed loop.",
        ),
    ] = 0.0
    outstanding: Annotated[
        int,
        Meta(
            ge=0,
            description="Requests, or messages, of all users together that are outstanding at any time, in a "
            "closed loop. 0 in an open loop.",
        ),
    ] = 0
    arrivals: Annotated[
        Literal["uniform", "poisson"],
        Meta(description="Planned times of an open loop: evenly spaced, or with exponential gaps."),
    ] = "uniform"
    profile: Annotated[
        Profile,
        Meta(
            description="Changes of the rate of an open loop over the measured phase, in multiples of `rate`."
        ),
    ] = Constant()
    threads: Annotated[Count, Meta(description="Threads of each process that has users.")] = 1
    sources: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses of this host to connect from, in turn, if one address has too few ports. "
            "Loopback always has enough."
        ),
    ] = ()
    connect_rate: Annotated[
        float, Meta(ge=0, description="Connections per second; 0 = as fast as `connect_in_flight` permits.")
    ] = 0.0
    connect_in_flight: Annotated[
        Count, Meta(description="Number of connections that are established at the same time.")
    ] = 512
    connect_timeout_s: Annotated[
        Positive, Meta(description="Seconds after which the connect phase fails.")
    ] = 300.0
    monitor: Annotated[
        str,
        Meta(
            description="Monitor of a target, `http://HOST:PORT`, whose counters are compared with the "
            "load's. No effect on the run's own broker, whose monitor is always read."
        ),
    ] = ""
    soak: Annotated[
        SoakPlan | None,
        Meta(description="Also judge whether memory, descriptors, latency or processor time grow."),
    ] = None

    def planned(self, start_s: float, end_s: float) -> float:
        """Return the number of requests, or published messages, due in a part of the measured phase.

        The number is 0 in a closed loop, which has no plan. Time outside the measured phase does not count.

        Args:
            start_s: Start of the part, in seconds since the measured phase began.
            end_s: End of the part, in seconds since the measured phase began.
        """
        return self.rate * area(self.profile, self.duration_s, start_s, end_s)


class Scenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request workload: users send requests and providers answer them, in an open or a closed loop.

    Every user is a connection subscribed to its own subject; provider K is subscribed to /s/K.
    """

    workload: Annotated[Literal["request"], Meta(description="Users send requests, providers answer.")] = (
        "request"
    )
    transport: Annotated[
        Transport,
        Meta(
            description="Transport of the users: the NATS protocol over WebSocket (ws) or TCP, or HTTP on "
            "connections that are kept (rest) or made for each request (rest-new). Over HTTP each user has "
            "at most one outstanding request."
        ),
    ] = "ws"
    provider_transport: Annotated[
        Literal["ws", "tcp"] | None,
        Meta(
            description="Transport of the providers. Left out: the transport of the users, or WebSocket if "
            "users speak HTTP."
        ),
    ] = None
    calls: Annotated[
        Calls,
        Meta(
            description="Measured requests after which a closed loop ends, 0 = no limit; `duration_s` is "
            "then the longest that the run may take."
        ),
    ] = 0
    providers: Annotated[Count, Meta(description="Connections that answer requests.")] = 16
    sweep: Annotated[
        bool,
        Meta(
            description="Let every user send one request, in order, before the warm-up; all must be answered."
        ),
    ] = False
    request_bytes: Annotated[Bytes, Meta(description="Payload of a request, bytes.")] = 32
    reply_bytes: Annotated[Bytes, Meta(description="Payload of a reply, bytes.")] = 256
    requestors: Annotated[Count, Meta(description="Processes that share the users and the load.")] = 1
    provider_threads: Annotated[Count, Meta(description="Threads of the provider process.")] = 1
    provider_rate: Annotated[
        float,
        Meta(
            ge=0,
            le=1e8,
            description="Largest number of requests per second that all providers together answer, one after "
            "the other, like a queue with one server. 0 = no limit.",
        ),
    ] = 0.0
    provider_delay: Annotated[
        ProviderDelay | None,
        Meta(description="Stalls of the providers, which cause a latency of known size."),
    ] = None
    churn_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Connections per second of all users together that are closed and established again, "
            "from the warm-up to the end of the measured phase. A connection with an outstanding request "
            "is not closed.",
        ),
    ] = 0.0

    @property
    def connections(self) -> int:
        """Number of connections: users and providers."""
        return self.users + self.providers


class BroadcastScenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Broadcast workload: each message goes to all users of its subject.

    User N is subscribed to /b/{N mod subjects}; messages are published on the subjects in turn.
    """

    workload: Annotated[
        Literal["broadcast"], Meta(description="Each message goes to all users of its subject.")
    ] = "broadcast"
    transport: Annotated[
        Literal["ws", "tcp"], Meta(description="Transport of users and publishers: WebSocket (ws) or TCP.")
    ] = "ws"
    subjects: Annotated[Count, Meta(description="Subjects, which share the users evenly.")] = 1
    publishers: Annotated[
        Count,
        Meta(
            description="Connections that publish. Each subject has one publisher, which keeps its messages "
            "in order."
        ),
    ] = 1
    message_bytes: Annotated[
        int,
        Meta(
            ge=24, description="Payload of a message, bytes."
        ),  # room for a number, a time and the bytes that show damage
    ] = 100
    processes: Annotated[Count, Meta(description="Processes that share the users.")] = 1

    @property
    def connections(self) -> int:
        """Number of connections: users and publishers."""
        return self.users + self.publishers


class FetchScenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HTTP baseline: users fetch a page repeatedly, without providers and subjects."""

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
        """Number of connections: users."""
        return self.users


class TransportsScenario(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Comparison of transports: the same requests over each of them, by one caller, then by many at once.

    Each run has the workload "request", in a closed loop, with a broker of its own and one provider over TCP.
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
        int, Meta(ge=2, description="Callers, each with a connection and one outstanding request.")
    ] = 64
    request_bytes: Annotated[Bytes, Meta(description="Payload of a request, bytes.")] = 32
    reply_bytes: Annotated[Bytes, Meta(description="Payload of a reply, bytes.")] = 256

    @property
    def connections(self) -> int:
        """Number of connections: callers and the provider."""
        return self.outstanding + 1

    def runs(self) -> list[Scenario]:
        """Return the scenarios of the runs, in their order."""
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
"""Scenario of one run."""
Plan = AnyScenario | TransportsScenario
"""Content of a scenario file: one run, or a comparison of transports."""
WORKLOADS: dict[str, type[Plan]] = {
    "request": Scenario,
    "broadcast": BroadcastScenario,
    "http-byte": FetchScenario,
    "transports": TransportsScenario,
}


def is_http(scenario: AnyScenario) -> bool:
    """Return whether users speak HTTP."""
    return scenario.transport in ("rest", "rest-new")


def with_transport(scenario: Plan, transport: Literal["ws", "tcp", "rest"]) -> AnyScenario:
    """Return the scenario with the transport that a target's URL selects.

    Raises:
        ScenarioError: The workload cannot use the transport.
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
