"""Result of a run: `result.json`, schema 1. Times named `_us` are in microseconds, `_s` in seconds."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from loadtest.result.broker_view import Agreement, BrokerSample, BrokerView
from loadtest.result.documents import read_document, write_document
from loadtest.result.reference import Reference

SCHEMA = 1


class Requested(Struct, frozen=True, kw_only=True):
    """Load that the scenario asks for. Users and providers both count as connections and as subjects."""

    connections: int
    subjects: int
    rate: float | None
    """Requests per second, or deliveries in a broadcast (0 = as fast as possible). None in a closed loop."""
    duration_s: float


class Achieved(Struct, frozen=True, kw_only=True):
    """Counts of the measured phase.

    They count requests. In a broadcast `sent` and `errors` count messages, `received` and `rate` deliveries,
    `timed_out` deliveries that never came, and `unmatched` messages that went to the wrong user.

    If a requestor ended without a result, only its connections are counted: its last report does not separate
    the warm-up from the measured phase. The timeline includes its report.
    """

    connections: int
    subjects: int
    sent: int
    received: int
    """Replies in all, including replies after the end of the measured phase."""
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
    """Replies per second within the measured phase; later replies of a slow server are not included."""
    messages_per_s: float
    """Messages in and out of the server: four for each reply. In a broadcast, published plus delivered."""
    connect_s: float
    max_send_lag_us: float = 0.0
    """Longest time from the planned send time of a request to its sending."""
    server_errors: int = 0
    """`-ERR` messages that requestors and providers received, plus HTTP responses with an error status."""
    first_server_error: str | None = None
    statuses: dict[str, int] = {}
    """HTTP responses with an error status, by status."""
    connections_opened: int = 0
    """Connections that requestors established during the whole run."""
    churned: int = 0
    """Connections closed on purpose (churn), warm-up included."""
    reconnected: int = 0
    """Closed connections that were established again."""
    reconnect_failures: int = 0
    """Attempts to reconnect that failed; each is followed by another attempt."""


class Wire(Struct, frozen=True, kw_only=True):
    """Bytes per call on the requestors' connections, from the first phase to the end of the drain.

    Bytes are counted at the sockets, without TCP and IP headers. "out" is from the requestor to the server.
    """

    calls: int
    """Requests with a correct reply, sweep and warm-up included."""
    payload_out: float
    payload_in: float
    out: float
    in_: float = msgspec.field(name="in")
    head_out: float
    """Bytes of HTTP request heads, a part of `out`."""
    head_in: float
    """Bytes of HTTP response heads, a part of `in`."""

    @property
    def payload(self) -> float:
        """Payload bytes per call in both directions."""
        return self.payload_out + self.payload_in

    @property
    def total(self) -> float:
        """All bytes per call in both directions."""
        return self.out + self.in_

    @property
    def heads(self) -> float:
        """Bytes of HTTP heads per call in both directions."""
        return self.head_out + self.head_in


class Sweep(Struct, frozen=True, kw_only=True):
    """Counts of the sweep: one request of each user, before the warm-up."""

    sent: int
    received: int
    timed_out: int
    errors: int
    duration_s: float


class Latency(Struct, frozen=True, kw_only=True):
    """Latency in microseconds: mean, deviation and extremes are exact, percentiles are from the histogram."""

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
    """Resources that the server's process used in the measured phase; a field is None if it is not visible.

    In a broadcast, "per request" means per delivery.
    """

    cpu_percent: float | None = None
    """Processor use, in percent of the whole machine."""
    cpu_us_per_request: float | None = None
    rss_bytes: int | None = None
    """Highest resident memory."""
    rss_bytes_per_connection: float | None = None
    rss_growth_bytes_per_connection: float | None = None
    """Growth of resident memory since before the first connection, divided by the number of connections."""
    net_in_bps: float | None = None
    """Bits per second that the run's own broker received, with frames but without TCP and IP headers."""
    net_out_bps: float | None = None


class Load(Struct, frozen=True, kw_only=True):
    """Processor use of requestors and providers in the measured phase."""

    cpu_percent: float | None = None
    cpu_us_per_request: float | None = None
    requestor_cpu_us_per_request: float | None = None
    """Processor time of the requestors alone, per request."""


class Check(Struct, frozen=True, kw_only=True):
    """One equation of the conservation check."""

    name: str
    detail: str
    """Equation with its numbers."""
    holds: bool


class Conservation(Struct, frozen=True, kw_only=True):
    """Conservation check: every message is accounted for.

    With the run's own broker, the counts are the broker's. With a target, the load test counts the messages
    that it sent and received, and `dropped` counts requests that ended without a reply.
    """

    published: int
    delivered: int
    dropped: dict[str, int]
    pending: int
    checks: list[Check]
    holds: bool


class ThresholdOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of one threshold."""

    expr: str
    value: float | bool | None
    """Value that was judged. None if the run has no such value."""
    holds: bool


class Interval(Struct, frozen=True, kw_only=True):
    """Counts and latency of one second of the measured phase."""

    start_s: float
    """Start, in seconds since the measured phase began."""
    end_s: float
    sent: int
    received: int
    p50_us: float
    p99_us: float
    max_us: float
    max_send_lag_us: float = 0.0
    """Longest time from the planned send time of a request of this second to its sending."""


class Heatmap(Struct, frozen=True, kw_only=True):
    """Number of replies by time and latency, on a grid.

    Row R counts latencies of at least `edges_us[R]` and less than `edges_us[R + 1]`; the last row has no end.
    Column C is the time from `starts_s[C]` to the next start, in seconds since the measured phase began.
    """

    starts_s: list[float]
    end_s: float
    edges_us: list[float]
    counts: list[list[int]]
    """Counts by column, then by row."""


class HostSample(Struct, frozen=True, kw_only=True):
    """Activity of one machine during about a second, summed over all of its processes."""

    t_s: float
    """End of the period on the run's clock, in seconds since the run began."""
    cpu_percent: float
    """Processor use, in percent of the whole machine."""
    memory_used_bytes: int
    """Memory that is not available to new processes."""
    net_in_bps: float
    """Bits per second received by the network interfaces, except loopback."""
    net_out_bps: float
    context_switches_per_s: float | None = None
    """Context switches per second. None if the machine does not report them."""
    retransmits_per_s: float | None = None
    """Retransmitted TCP segments per second. None if the machine does not report them."""


class WorkerCounts(Struct, frozen=True, kw_only=True):
    """Counts of one worker: of the measured phase for a requestor, of all phases for a provider."""

    name: str
    host: str
    connections: int
    sent: int
    received: int
    errors: int = 0
    timed_out: int = 0
    """Requests that timed out, or deliveries of a broadcast that never came."""
    latency_us: Latency | None = None
    """Latency of the worker's requests. None for a provider, or if nothing was measured."""
    max_send_lag_us: float | None = None


class Host(Struct, frozen=True, kw_only=True):
    """One machine of a run."""

    name: str
    address: str | None = None
    """Address in the hosts file. None for the machine that the command ran on."""
    roles: list[str] = []
    """Roles of the machine: broker, requestor, provider."""
    processes: list[str] = []
    """Names of the run's processes on the machine."""
    clock_offset_s: float | None = None
    """Machine's monotonic clock minus the run's clock. None if both are the same clock."""
    clock_error_s: float | None = None
    """Largest error of `clock_offset_s`: half of the duration of the quickest exchange."""
    lost: str | None = None
    """Reason why the machine was lost during the run, with its processes' results. None if it was not."""
    environment: dict[str, Any] = {}
    samples: list[HostSample] = []


class Sample(Struct, frozen=True, kw_only=True):
    """Snapshot of the whole run, taken once a second from its start on; counts are the engine's totals."""

    t_s: float
    """Time of the snapshot, in seconds since the run began."""
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
    """Messages published to the server since the run began, replies included."""
    published_per_s: float | None = None
    """Rate between the engine's last two reports. None without a new report."""
    delivered: int = 0
    """Messages received from the server since the run began."""
    delivered_per_s: float | None = None
    broker: BrokerSample | None = None
    """Reading of the server's counters that is nearest in time. None without a monitor."""


class SoakSample(Struct, frozen=True, kw_only=True):
    """One period of a soak, from `start_s` to `end_s` since the measured phase began; None if not visible."""

    start_s: float
    end_s: float
    broker_rss_bytes: int | None
    broker_descriptors: int | None
    """Open descriptors of all threads of the broker; io_uring's connections use none."""
    broker_connections: int | None
    broker_cpu_percent: float | None
    """Processor use, in percent of the whole machine."""
    load_rss_bytes: int | None
    load_cpu_percent: float | None
    received: int
    p50_us: float
    p99_us: float
    max_us: float


class Trend(Struct, frozen=True, kw_only=True):
    """Growth of one series of a soak, in the unit of the series."""

    name: str
    """Field of the samples."""
    slope_per_hour: float | None
    """Growth per hour. None if there are too few samples."""
    limit: float
    """Largest growth per hour that is allowed."""
    p_value: float | None
    """Probability that a series without a trend rises like this one. None if there are too few samples."""
    holds: bool


class Soak(Struct, frozen=True, kw_only=True):
    """Periods of a long run, and the growth of each series after the first third of the run."""

    period_s: float
    samples: list[SoakSample]
    trends: list[Trend]
    note: str | None = None
    """Reason why growth could not be judged. None if it was."""

    @property
    def holds(self) -> bool:
        """Whether growth could be judged and no series grows beyond its limit."""
        return self.note is None and all(trend.holds for trend in self.trends)


class Histograms(Struct, frozen=True, kw_only=True):
    """Histograms of the measured phase: nanoseconds, base64, HdrHistogram's V2 encoding."""

    latency: str
    service: str | None


class Spread(Struct, frozen=True, kw_only=True):
    """Microseconds from the first receipt of a message to its last, over messages that all users received."""

    count: int
    p50: float
    p99: float
    max: float


class BroadcastFigures(Struct, frozen=True, kw_only=True):
    """Metrics of a broadcast; messages and deliveries of the measured phase."""

    subjects: int
    published: int
    deliveries: int
    """Deliveries in all, including deliveries after the end of the measured phase."""
    missing: int
    """Deliveries that were due and never came."""
    incomplete: int
    """Messages that at least one user did not receive."""
    published_per_s: float
    deliveries_per_s: float
    """Deliveries per second within the measured phase."""
    deliveries_per_s_per_core: float | None
    """Deliveries per second for each hardware thread of the server's machine. None if not known."""
    deliveries_per_broker_cpu_s: float | None
    """Deliveries for each second of processor time of the server. None if not visible."""
    spread_us: Spread | None


class TransportRun(Struct, frozen=True, kw_only=True):
    """Result of one transport in a comparison of transports."""

    transport: str
    outstanding: int
    """Number of callers, each with one request in flight."""
    calls: int
    """Measured requests with a correct reply."""
    errors: int
    timed_out: int
    statuses: dict[str, int]
    """HTTP responses with an error status, by status."""
    total_s: float
    """Time from the beginning of the measured phase to its last reply."""
    calls_per_s: float
    latency_us: Latency | None
    """Service time; it includes connecting if each request has a connection of its own."""
    wire: Wire | None
    server_cpu_us_per_call: float | None
    client_cpu_us_per_call: float | None
    connections_opened: int


class Result(Struct, frozen=True, kw_only=True):
    """Result of one run."""

    schema: int = SCHEMA
    scenario: dict[str, Any]
    target: str | None
    """Address of the target. None for the run's own broker."""
    started: str
    """Start of the measured phase, or of the run if that phase was not reached: UTC, ISO 8601."""
    duration_s: float
    error: str | None
    """Reason why the run failed. None if it completed."""
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
    """Counts of the sweep. None if the scenario has no sweep."""
    soak: Soak | None = None
    """Periods and trends of a soak. None for other scenarios."""
    broadcast: BroadcastFigures | None = None
    """Metrics of a broadcast. None for other workloads."""
    wire: Wire | None = None
    """Bytes per call. None in a broadcast, or if no request was answered."""
    transports: list[TransportRun] | None = None
    """Runs of a comparison of transports, of which the other counts are sums. None for other workloads."""
    agreement: list[Agreement] = []
    """Counts since the first connection, compared with the server's; empty if the server's are not known."""
    broker_view: BrokerView | None = None
    """Summary of the readings of the server's counters. None without a monitor."""
    hosts: list[Host] = []
    """Machines of the run."""
    heatmap: Heatmap | None = None
    """Latencies by time. None if no latency was measured."""
    command: list[str] = []
    """Command that repeats the run: the one that was given, without --out and --junit."""
    workers: list[WorkerCounts] = []
    """Workers that reported a result."""
    missing: list[str] = []
    """Workers without a result, such as "requestor 2 on host b: no result"; the counts exclude them."""
    measured_from_s: float | None = None
    """Start of the measured phase, in seconds since the run began. None if that phase was not reached."""

    @property
    def began_measuring_s(self) -> float | None:
        """Start of the measured phase, from the timeline if `measured_from_s` is missing."""
        if self.measured_from_s is not None:
            return self.measured_from_s
        return next((sample.t_s for sample in self.timeline if sample.phase == "measuring"), None)

    @property
    def holds(self) -> bool:
        """Whether all thresholds hold, and conservation, agreement and the trends of a soak too."""
        steady = self.soak is None or self.soak.holds
        agreed = all(row.holds for row in self.agreement)
        return (
            steady
            and agreed
            and self.conservation.holds
            and all(outcome.holds for outcome in self.thresholds)
        )


def read_result(folder: Path | str) -> Result:
    """Read the result in a result folder.

    Raises:
        ResultError: `result.json` is missing, broken or of another schema.
    """
    return read_document(Path(folder) / "result.json", Result, SCHEMA)


def write_result(result: Result, folder: Path) -> None:
    """Write `result.json`, in place of an earlier one if there is one.

    Raises:
        RunError: The file cannot be written; an earlier one remains.
    """
    write_document(result, folder / "result.json")
