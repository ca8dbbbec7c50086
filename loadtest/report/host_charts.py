"""The charts of the machines, and of the run's processes, second by second."""

from collections.abc import Sequence

from loadtest.report.canvas import Chart
from loadtest.report.over_time import Clock, Series, time_chart
from loadtest.result.schema import Host, Result

_MEASURES = (
    ("host-cpu", "Processor time by host", "% of the machine", "cpu_percent", 1.0),
    ("host-memory", "Memory in use by host", "GB", "memory_used_bytes", 1e9),
    ("host-net-in", "Network in by host, without loopback", "Mbit/s", "net_in_bps", 1e6),
    ("host-net-out", "Network out by host, without loopback", "Mbit/s", "net_out_bps", 1e6),
    ("host-switches", "Context switches by host", "thousands/s", "context_switches_per_s", 1e3),
    ("host-retransmits", "TCP segments sent again by host", "segments/s", "retransmits_per_s", 1.0),
)
_PROCESSES = (
    (
        "process-cpu",
        "Processor time of the run's own processes",
        "% of the machine",
        (("broker", "server_cpu_percent", 1.0), ("load", "load_cpu_percent", 1.0)),
    ),
    (
        "process-memory",
        "Resident memory of the broker's process",
        "MB",
        (("broker", "server_rss_bytes", 1e6),),
    ),
)


def draw(result: Result, clock: Clock) -> list[Chart]:
    """A chart for each measure, with a line for each host; then those of the run's own processes."""
    return [*_of_hosts(result.hosts, clock), *_of_processes(result, clock)]


def has_no_retransmits(hosts: Sequence[Host]) -> bool:
    """Whether they were counted, and there was none."""
    counts = [sample.retransmits_per_s for host in hosts for sample in host.samples]
    seen = [count for count in counts if count is not None]
    return bool(seen) and not any(seen)


def _of_hosts(hosts: Sequence[Host], clock: Clock) -> list[Chart]:
    charts = []
    for name, title, unit, field, scale in _MEASURES:
        series = []
        for host in hosts:
            levels = [(sample.t_s, getattr(sample, field)) for sample in host.samples]
            points = [(at, value / scale) for at, value in levels if value is not None]
            if points:
                label = f"{host.name} ({', '.join(host.roles)})" if host.roles else host.name
                series.append(Series(f"{label}, lost" if host.lost else label, clock.points(points)))
        if name == "host-retransmits" and has_no_retransmits(hosts):
            continue
        if series:
            charts.append(time_chart(name, title, unit, series, clock=clock))
    return charts


def _of_processes(result: Result, clock: Clock) -> list[Chart]:
    charts = []
    for name, title, unit, lines in _PROCESSES:
        series = []
        for label, field, scale in lines:
            levels = [(sample.t_s, getattr(sample, field)) for sample in result.timeline]
            points = [(at, value / scale) for at, value in levels if value is not None]
            if points:
                series.append(Series(label, clock.points(points)))
        if series:
            charts.append(time_chart(name, title, unit, series, clock=clock))
    return charts
