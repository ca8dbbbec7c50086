"""The result of a run: `result.json`, schema 1. Times named `_us` are microseconds, `_s` seconds."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from loadtest.result.broker_view import Agreement, BrokerSample, BrokerView
from loadtest.result.documents import read_document, write_document
from loadtest.result.reference import Reference

SCHEMA = 1


class Requested(Struct, frozen=True, kw_only=True):
    """What the scenario asked for; users and providers are all connections and all subjects.

    Of a broadcast the rate is that of deliveries, 0 where it is as high as the server makes it.
    """

    connections: int
    subjects: int
    rate: float | None
    """None in a closed loop, where replies let requests out."""
    duration_s: float


class Achieved(Struct, frozen=True, kw_only=True):
    """What happened; requests of the measured phase.

    Of a broadcast `sent` and `errors` are messages, `received`, `rate` and `timed_out` deliveries, the last
    those that never came, and `unmatched` messages that went to the wrong user.

    A requestor that ended without a result counts with its connections alone: what it last reported does
    not tell the warm-up from the measured phase. The timeline has it.
    """

    connections: int
    subjects: int
    sent: int
    received: int
    """In all, those that came after the measured phase included."""
    timed_out: int
    errors: int
    duplicates: int
    corrupt: int
    late: int
    no_responders: int
    unmatched: int
    disconnected: int
    connect_failures: int
    rate: float
    """Replies per second within the measured phase: what a server that fell behind answers later is none."""
    messages_per_s: float
    """Four for each reply: request in and out, reply in and out. Of a broadcast, published and delivered."""
    connect_s: float
    max_send_lag_us: float = 0.0
    """How long after its planned time a request was sent at worst."""
    server_errors: int = 0
    """`-ERR` that requestors and providers received, and answers of HTTP that are errors."""
    first_server_error: str | None = None
    statuses: dict[str, int] = {}
    """Answers of HTTP that are errors, by status."""
    connections_opened: int = 0
    """Connections that requestors established, whenever that was."""
    churned: int = 0
    """Connections closed on purpose, warm-up included."""
    reconnected: int = 0
    """Of these, established again."""
    reconnect_failures: int = 0
    """Attempts at that which failed, each followed by another one."""


class Wire(Struct, frozen=True, kw_only=True):
    """Bytes per call on the requestors' connections, from the first phase to the end of the drain.

    What the sockets were given and gave, so TCP and IP are not included; "in" and "out" are the caller's.
    """

    calls: int
    """Requests that were answered as they should be, sweep and warm-up included."""
    payload_out: float
    payload_in: float
    out: float
    in_: float = msgspec.field(name="in")
    head_out: float
    """Of these, the head of an HTTP request."""
    head_in: float

    @property
    def payload(self) -> float:
        """Both ways."""
        return self.payload_out + self.payload_in

    @property
    def total(self) -> float:
        """Both ways."""
        return self.out + self.in_

    @property
    def heads(self) -> float:
        """Both ways."""
        return self.head_out + self.head_in


class Sweep(Struct, frozen=True, kw_only=True):
    """One request of every user, before the warm-up."""

    sent: int
    received: int
    timed_out: int
    errors: int
    duration_s: float


class Latency(Struct, frozen=True, kw_only=True):
    """Microseconds. Mean, deviation and extremes over every value; percentiles of the merged histogram."""

    count: int
    mean: float
    stddev: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    p99_99: float
    max: float


class Server(Struct, frozen=True, kw_only=True):
    """The server's process in the measured phase; None where it is not visible.

    Of a broadcast, "per request" means for each delivery.
    """

    cpu_percent: float | None = None
    """Of the whole machine."""
    cpu_us_per_request: float | None = None
    rss_bytes: int | None = None
    """The most it had."""
    rss_bytes_per_connection: float | None = None
    rss_growth_bytes_per_connection: float | None = None
    """What it grew by since before the first connection, divided by the connections."""
    net_in_bps: float | None = None
    """Bits per second that the own broker received, protocol and frames included; TCP and IP are not."""
    net_out_bps: float | None = None


class Load(Struct, frozen=True, kw_only=True):
    """Requestors and providers in the measured phase."""

    cpu_percent: float | None = None
    cpu_us_per_request: float | None = None
    requestor_cpu_us_per_request: float | None = None
    """Without the providers."""


class Check(Struct, frozen=True, kw_only=True):
    """One equation of the conservation check, with its numbers."""

    name: str
    detail: str
    holds: bool


class Conservation(Struct, frozen=True, kw_only=True):
    """Whether every message is accounted for.

    On the run's own broker the counts are the broker's; on a target they are what the load saw go in and
    come out, and the dropped are the requests that ended without a reply.
    """

    published: int
    delivered: int
    dropped: dict[str, int]
    pending: int
    checks: list[Check]
    holds: bool


class ThresholdOutcome(Struct, frozen=True, kw_only=True):
    """One objective; the value is None when the run has none."""

    expr: str
    value: float | bool | None
    holds: bool


class Interval(Struct, frozen=True, kw_only=True):
    """One second of the measured phase, latency in microseconds."""

    start_s: float
    end_s: float
    sent: int
    received: int
    p50_us: float
    p99_us: float
    max_us: float
    max_send_lag_us: float = 0.0
    """How long after its planned time a request of this second was sent at worst."""


class Heatmap(Struct, frozen=True, kw_only=True):
    """How many replies of which time took how long: the latency histograms on a coarser grid.

    Row R of the grid counts latencies of at least `edges_us[R]` and less than `edges_us[R + 1]`; the last one
    has no upper end. Column C is of the time from `starts_s[C]`, since the measured phase began, to the next.
    """

    starts_s: list[float]
    end_s: float
    edges_us: list[float]
    counts: list[list[int]]
    """By column, then by row."""


class HostSample(Struct, frozen=True, kw_only=True):
    """What one machine did in about a second, all of its processes together; None where it does not tell."""

    t_s: float
    """Since the run began, by the run's clock."""
    cpu_percent: float
    """Of the whole machine."""
    memory_used_bytes: int
    """All but what is available to new processes."""
    net_in_bps: float
    """Bits per second that its network interfaces received; loopback is none."""
    net_out_bps: float
    context_switches_per_s: float | None = None
    retransmits_per_s: float | None = None
    """TCP segments."""


class WorkerCounts(Struct, frozen=True, kw_only=True):
    """What one process of the load did, to be seen beside the others; counts of the measured phase.

    Of a provider they are of all phases. The sums over all processes are the result's other counts.
    """

    name: str
    host: str
    connections: int
    sent: int
    received: int
    errors: int = 0
    timed_out: int = 0
    """Of a broadcast, deliveries that never came."""
    latency_us: Latency | None = None
    """None of a provider, or where nothing was measured."""
    max_send_lag_us: float | None = None


class Host(Struct, frozen=True, kw_only=True):
    """One machine of a run."""

    name: str
    address: str | None = None
    """None for the one that the command ran on."""
    roles: list[str] = []
    """broker, requestor, provider."""
    processes: list[str] = []
    """Names of the run's processes there."""
    clock_offset_s: float | None = None
    """Its monotonic clock less the run's; None where it is the same clock."""
    clock_error_s: float | None = None
    """How far off that can be: half of the quickest exchange."""
    lost: str | None = None
    """Why it was lost during the run; what its processes had to tell is missing then."""
    environment: dict[str, Any] = {}
    samples: list[HostSample] = []


class Sample(Struct, frozen=True, kw_only=True):
    """One look at everything, once a second from the start on; counts as the engine reports them."""

    t_s: float
    phase: str
    connections: int
    sent: int
    received: int
    outstanding: int
    timed_out: int
    errors: int
    mean_us: float
    max_us: float
    server_cpu_percent: float | None
    server_rss_bytes: int | None
    load_cpu_percent: float | None
    published: int = 0
    """Messages sent for the server to publish, replies included, from the beginning on."""
    published_per_s: float | None = None
    """Of the time between two reports of the engine; None without a new one."""
    delivered: int = 0
    """Messages received from the server."""
    delivered_per_s: float | None = None
    broker: BrokerSample | None = None
    """The server's own view, read nearest to this look; None without one."""


class SoakSample(Struct, frozen=True, kw_only=True):
    """One period of a soak: what was in use at its end, what was used and how long replies took within it.

    Times since the measured phase began; None for what is not visible.
    """

    start_s: float
    end_s: float
    broker_rss_bytes: int | None
    broker_descriptors: int | None
    """Open ones in all of its descriptor tables; connections that io_uring holds have none."""
    broker_connections: int | None
    broker_cpu_percent: float | None
    """Of the whole machine."""
    load_rss_bytes: int | None
    load_cpu_percent: float | None
    received: int
    p50_us: float
    p99_us: float
    max_us: float


class Trend(Struct, frozen=True, kw_only=True):
    """Whether a series of a soak grows, in the series' own unit."""

    name: str
    """The field of the samples."""
    slope_per_hour: float | None
    """None when there are too few samples to judge."""
    limit: float
    """The slope that is allowed, per hour."""
    p_value: float | None
    """The chance that a series without a trend rises as this one does."""
    holds: bool


class Soak(Struct, frozen=True, kw_only=True):
    """A long run, period by period, and whether anything grew after its first third."""

    period_s: float
    samples: list[SoakSample]
    trends: list[Trend]
    note: str | None = None
    """Why it could not be judged."""

    @property
    def holds(self) -> bool:
        """It could be judged, and nothing grows."""
        return self.note is None and all(trend.holds for trend in self.trends)


class Histograms(Struct, frozen=True, kw_only=True):
    """The whole run's histograms: nanoseconds, base64, HdrHistogram V2."""

    latency: str
    service: str | None


class Spread(Struct, frozen=True, kw_only=True):
    """Microseconds from the first receipt of a message to its last, over all that everybody received."""

    count: int
    p50: float
    p99: float
    max: float


class BroadcastFigures(Struct, frozen=True, kw_only=True):
    """The figures of a broadcast; messages and deliveries of the measured phase."""

    subjects: int
    published: int
    deliveries: int
    """In all, those that came after the measured phase included."""
    missing: int
    """Deliveries that were due and never came."""
    incomplete: int
    """Messages that not everybody received."""
    published_per_s: float
    deliveries_per_s: float
    """Within the measured phase."""
    deliveries_per_s_per_core: float | None
    """By the hardware threads of the server's machine."""
    deliveries_per_broker_cpu_s: float | None
    """By the processor time that the server used."""
    spread_us: Spread | None


class TransportRun(Struct, frozen=True, kw_only=True):
    """The same requests over one transport."""

    transport: str
    outstanding: int
    """Callers, each with one request under way."""
    calls: int
    """Measured requests that were answered as they should be."""
    errors: int
    timed_out: int
    statuses: dict[str, int]
    total_s: float
    """From the beginning of the measured phase to its last answer."""
    calls_per_s: float
    latency_us: Latency | None
    """Service time: connecting is part of it where a connection is made for each request."""
    wire: Wire | None
    server_cpu_us_per_call: float | None
    client_cpu_us_per_call: float | None
    connections_opened: int


class Result(Struct, frozen=True, kw_only=True):
    """One run."""

    schema: int = SCHEMA
    scenario: dict[str, Any]
    target: str | None
    """The target's address, None for the run's own broker."""
    started: str
    """UTC, ISO 8601: the beginning of the measured phase, or of the run if it never came to that."""
    duration_s: float
    error: str | None
    """Why the run failed; None when it went to its end."""
    requested: Requested
    achieved: Achieved
    latency_us: Latency | None
    service_us: Latency | None
    server: Server
    load: Load
    conservation: Conservation
    thresholds: list[ThresholdOutcome]
    reference: Reference
    environment: dict[str, Any]
    intervals: list[Interval]
    timeline: list[Sample]
    histograms: Histograms | None
    sweep: Sweep | None = None
    """None where the scenario has none."""
    soak: Soak | None = None
    """None where the scenario is none."""
    broadcast: BroadcastFigures | None = None
    """Of a broadcast only."""
    wire: Wire | None = None
    """Of requests only, where any was answered."""
    transports: list[TransportRun] | None = None
    """Of a comparison of transports only, whose other counts are sums over these runs."""
    agreement: list[Agreement] = []
    """From the first connection on; empty where the server's counters are not known."""
    broker_view: BrokerView | None = None
    """None without a monitor."""
    hosts: list[Host] = []
    """The machines of the run."""
    heatmap: Heatmap | None = None
    """Of the latencies by time; None where none was measured."""
    command: list[str] = []
    """The command that the run was started with, program included, to do it again."""
    workers: list[WorkerCounts] = []
    """The processes of the load that told their results."""
    missing: list[str] = []
    """Workers whose results never came, such as "requestor 2 on host b: no result"; counts lack theirs."""
    measured_from_s: float | None = None
    """When the measured phase began, in seconds since the run did; None if it never came to that."""

    @property
    def began_measuring_s(self) -> float | None:
        """The same; of an earlier version's run the first look at that phase, up to a second later."""
        if self.measured_from_s is not None:
            return self.measured_from_s
        return next((sample.t_s for sample in self.timeline if sample.phase == "measuring"), None)

    @property
    def holds(self) -> bool:
        """Every threshold, the conservation check, the agreement and, in a soak, every trend hold."""
        steady = self.soak is None or self.soak.holds
        agreed = all(row.holds for row in self.agreement)
        return (
            steady
            and agreed
            and self.conservation.holds
            and all(outcome.holds for outcome in self.thresholds)
        )


def read_result(folder: Path) -> Result:
    """The result in a result folder; ScenarioError when there is none or it is not of this schema."""
    return read_document(folder / "result.json", Result, SCHEMA)


def write_result(result: Result, folder: Path) -> None:
    """Writes `result.json`, whole or not at all; RunError when the disk does not take it."""
    write_document(result, folder / "result.json")
