"""The published run that the benchmark workload reproduces."""

from msgspec import Struct


class Reference(Struct, frozen=True, kw_only=True):
    """Published figures, in the units of result.json; None where nothing was published."""

    name: str
    hardware: str
    cores: int
    """Hardware threads."""
    connections: int
    subjects: int
    rate: float
    messages_per_s: float
    requests: int
    mean_us: float
    stddev_us: float
    p50_us: float | None = None
    p90_us: float | None = None
    p95_us: float
    p99_us: float
    max_us: float
    cpu_percent: float
    cpu_us_per_request: float
    """Derived: the busy share of all hardware threads, divided by the rate."""
    rss_bytes: int
    rss_bytes_per_connection: float
    """Derived from the heap."""
    net_in_bps: float
    net_out_bps: float


PUBLISHED_2016 = Reference(
    name="MigratoryData 5.0.20, 2016",
    hardware="2 x Xeon E5-2670, 32 hardware threads, 64 GB",
    cores=32,
    connections=1_000_016,
    subjects=1_000_016,
    rate=240_000.0,
    messages_per_s=960_000.0,
    requests=4_084_890_291,
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
