"""The charts of a soak, period by period."""

from loadtest.report.canvas import Chart
from loadtest.report.over_time import Series, time_chart
from loadtest.result.schema import Soak

_CHARTS = (
    (
        "soak-memory",
        "Resident memory by period",
        "MB",
        (("broker, resident", "broker_rss_bytes", 1e6), ("load, resident", "load_rss_bytes", 1e6)),
    ),
    (
        "soak-latency",
        "Latency by period",
        "milliseconds",
        (("latency p99", "p99_us", 1e3), ("p50", "p50_us", 1e3)),
    ),
    ("soak-highest", "Highest latency by period", "milliseconds", (("latency maximum", "max_us", 1e3),)),
    (
        "soak-cpu",
        "Processor time by period",
        "% of the machine",
        (("broker, CPU", "broker_cpu_percent", 1.0), ("load, CPU", "load_cpu_percent", 1.0)),
    ),
    (
        "soak-connections",
        "The broker's connections and descriptors by period",
        "open at the end",
        (("connections", "broker_connections", 1.0), ("descriptors", "broker_descriptors", 1.0)),
    ),
)


def draw(soak: Soak) -> list[Chart]:
    """Memory, latency, processor time and connections; what was never visible is left out."""
    charts = []
    for name, title, unit, lines in _CHARTS:
        series = []
        for label, field, scale in lines:
            values = [(sample.end_s, getattr(sample, field)) for sample in soak.samples]
            if any(value is not None for _, value in values):
                points = [(at, None if value is None else value / scale) for at, value in values]
                series.append(Series(label, points))
        if series:
            charts.append(time_chart(name, title, unit, series))
    return charts
