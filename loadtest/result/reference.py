"""Published results of the runs that the scenarios reproduce."""

from msgspec import Struct


class Reference(Struct, frozen=True, kw_only=True):
    """Published metrics of one run, in the units of result.json; a field is None if it was not published."""

    name: str
    hardware: str
    cores: int
    """Number of hardware threads; 0 = not published."""
    connections: int | None = None
    subjects: int | None = None
    rate: float | None = None
    """Replies per second, or deliveries per second in a broadcast."""
    messages_per_s: float | None = None
    requests: int | None = None
    """Requests in all, or deliveries in a broadcast."""
    duration_s: float | None = None
    """Duration in seconds; derived as requests divided by the rate if it was not published."""
    mean_us: float | None = None
    stddev_us: float | None = None
    p50_us: float | None = None
    p90_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    max_us: float | None = None
    cpu_percent: float | None = None
    cpu_us_per_request: float | None = None
    """Microseconds of processor time per request, derived from the processor use and the rate."""
    rss_bytes: int | None = None
    rss_bytes_per_connection: float | None = None
    """Resident memory per connection in bytes, derived from the published heap size."""
    net_in_bps: float | None = None
    net_out_bps: float | None = None
    label: str = "2016"
    """Short form of the name, for charts and tables."""

    @property
    def published_per_s(self) -> float | None:
        """Messages published per second of a broadcast: all messages less the deliveries."""
        if self.messages_per_s is None or self.rate is None:
            return None
        return self.messages_per_s - self.rate


PUBLISHED_2016 = Reference(
    name="MigratoryData 5.0.20, 2016",
    hardware="2 x Xeon E5-2670, 32 hardware threads, 64 GB",
    cores=32,
    connections=1_000_016,
    subjects=1_000_016,
    rate=240_000.0,
    messages_per_s=960_000.0,
    requests=4_084_890_291,
    duration_s=4_084_890_291 / 240_000,
    mean_us=11_820.0,
    stddev_us=26_280.0,
    p95_us=20_000.0,
    p99_us=130_000.0,
    max_us=1_783_000.0,
    cpu_percent=65.0,
    cpu_us_per_request=0.65 * 32 / 240_000 * 1e6,
    rss_bytes=30_000_000_000,
    rss_bytes_per_connection=30_000_000_000 / 1_000_016,
    net_in_bps=1.06e9,
    net_out_bps=1.17e9,
)

PUBLISHED_2025 = Reference(
    name="MigratoryData (Kafkorama), 2025",
    label="2025",
    hardware="EC2 c5n.9xlarge, 36 hardware threads, CPU below 75 %; 10,000 messages of 512 bytes a second,"
    " each to 100 users; latency from the publisher through Apache Kafka",
    cores=36,
    connections=1_000_000,
    subjects=10_000,
    rate=1_000_000.0,
    messages_per_s=1_010_000.0,
    requests=1_200_000_000,
    mean_us=4_090.0,
    p50_us=3_000.0,
    p99_us=44_000.0,
    max_us=208_000.0,
    net_out_bps=609e6 * 8,
)
"""Source: "Benchmarking Kafkorama: One Million Messages Per Second to One Million Concurrent Users (on one
node)"; the median is from its sequel, with Confluent Cloud."""

PUBLISHED_2014_BYTE = Reference(
    name="Undertow, 2014",
    label="2014",
    hardware="40 hardware threads; wrk with 256 connections and 40 threads",
    cores=40,
    connections=256,
    rate=1_039_305.0,
    duration_s=30.0,
    mean_us=247.0,
)

PUBLISHED_2014_TRANSPORTS = Reference(
    name="REST, WebSocket and sockets, 2014",
    label="2014",
    hardware="two machines with a network of 100 Mbit/s between them",
    cores=0,
    requests=2_000_000,
)

PUBLISHED_TRANSPORTS_S: dict[str, float] = {"rest-new": 1492.2, "rest": 1492.2, "ws": 825.6, "tcp": 517.8}
"""Seconds for the 2,000,000 calls of `PUBLISHED_2014_TRANSPORTS`, by transport.

It was not published whether REST reused its connections, so "rest" and "rest-new" have the same value.
"""
