"""Charts over the time of a run, on one scale: seconds since the measured phase began."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from msgspec import Struct, structs

from loadtest.errors import ScenarioError
from loadtest.report.charts.svg import Canvas, Chart, Point, Style, line_style, linear, logarithmic, spanning
from loadtest.report.document import Table
from loadtest.result.checks import error_kinds
from loadtest.result.metrics import LATENCY_LABELS, is_closed_loop, number_text
from loadtest.result.schema import Host, Interval, Result, Soak
from loadtest.scenario.kinds import TransportsScenario
from loadtest.scenario.load import scenario_of

_US_PER_MS = 1e3
_SHORTEST_S = 0.5
_POINTS = 600
"""Largest number of points of a line; more points than pixels would only make the page larger."""
_ROWS = 20
_S_PER_MINUTE, _S_PER_HOUR = 60.0, 3600.0
_SCALES = ((3 * _S_PER_HOUR, _S_PER_HOUR, "hours"), (10 * _S_PER_MINUTE, _S_PER_MINUTE, "minutes"))
_CHOICES: dict[str, Callable[[Sequence[float]], float]] = {"highest": max, "mean": fmean}
_PER_HOST = (
    ("host-cpu", "Processor time by host", "% of the machine", "cpu_percent", 1.0),
    ("host-memory", "Memory in use by host", "GB", "memory_used_bytes", 1e9),
    ("host-net-in", "Network in by host, without loopback", "Mbit/s", "net_in_bps", 1e6),
    ("host-net-out", "Network out by host, without loopback", "Mbit/s", "net_out_bps", 1e6),
    ("host-switches", "Context switches by host", "thousands/s", "context_switches_per_s", 1e3),
    ("host-retransmits", "TCP segments sent again by host", "segments/s", "retransmits_per_s", 1.0),
)
"""Name, title, unit, field of a host's samples and scale of each chart of the hosts."""
_Lines = tuple[tuple[str, str, float], ...]
"""Label, field of the samples and scale of each line."""
_PROCESSES: tuple[tuple[str, str, str, _Lines], ...] = (
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
_SOAK: tuple[tuple[str, str, str, _Lines], ...] = (
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
_BROKER_RATES = (
    (
        "view-in",
        "Messages a second that the engine published and that the broker took in",
        "messages in per second",
        "published_per_s",
        "in_msgs",
    ),
    (
        "view-out",
        "Messages a second that the engine received and that the broker sent",
        "messages out per second",
        "delivered_per_s",
        "out_msgs",
    ),
)


@dataclass(frozen=True)
class Series:
    """One line of a chart: seconds and values; None leaves a gap."""

    label: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Clock:
    """The origin of a chart's times."""

    origin_s: float = 0.0
    """The origin on the run's clock."""
    since: str = "the measured phase began"
    measured_s: float | None = None
    """Length of the measured phase, which is shaded; None if nothing was measured or shaded."""

    def points(self, samples: Iterable[Point]) -> list[Point]:
        """Return points on the run's clock as points on this clock."""
        return [(at - self.origin_s, value) for at, value in samples]


@dataclass(frozen=True)
class WorkloadTerms:
    """Terms for the requests and replies of a workload."""

    events: str
    latency: str
    unplanned: str
    """Meaning of latency without planned times."""
    planned: str
    sent: str
    received: str


_REQUESTS = WorkloadTerms(
    events="requests",
    latency="round trip, from the planned send time",
    unplanned="service time, from the actual send",
    planned="requests planned",
    sent="requests sent",
    received="replies received",
)
_BROADCAST = WorkloadTerms(
    events="deliveries",
    latency="delivery, from the planned publishing time",
    unplanned="delivery, from the actual publishing",
    planned="deliveries planned",
    sent="deliveries due",
    received="deliveries received",
)


def terms_of(result: Result) -> WorkloadTerms:
    """Return the terms for the result's workload."""
    terms = _REQUESTS if result.broadcast is None else _BROADCAST
    return replace(terms, latency=terms.unplanned) if is_closed_loop(result) else terms


def clock_of(result: Result) -> Clock:
    """Return the clock of the run's charts; the run's own if nothing was measured."""
    began = result.began_measuring_s
    if began is None:
        return Clock(since="the run began")
    return Clock(origin_s=began, measured_s=result.duration_s)


def latency_chart(result: Result) -> Chart | None:
    """Draw median, 99th percentile and maximum of each second."""
    seconds = [second for second in merge_short_last_interval(result.intervals) if second.received]
    if not seconds:
        return None
    lines = [(LATENCY_LABELS[name], f"{name}_us", _US_PER_MS) for name in ("max", "p99", "p50")]
    return time_chart(
        "latency-time",
        "Latency over time",
        "milliseconds",
        [Series(label, _levels(seconds, field, scale, "start_s")) for label, field, scale in lines],
        thinned="highest",
        log=True,
        caption=f"By the second: {terms_of(result).latency}.",
    )


def throughput_chart(result: Result) -> Chart | None:
    """Draw the planned, sent and received counts of each second."""
    intervals = merge_short_last_interval(result.intervals)
    if not intervals:
        return None
    terms, each = terms_of(result), _deliveries_of_a_message(result)
    planned = planned_rates(result, intervals)
    rates = [] if planned is None else [(terms.planned, [each * rate for rate in planned])]
    rates += [
        (terms.sent, [each * second.sent / _length(second) for second in intervals]),
        (terms.received, [second.received / _length(second) for second in intervals]),
    ]
    times = [*(second.start_s for second in intervals), intervals[-1].end_s]
    series = [Series(label, list(zip(times, [*values, values[-1]], strict=True))) for label, values in rates]
    title = "Throughput over time: " + ", ".join(line.label for line in series)
    return time_chart("throughput", title, f"{terms.events}/s", series, steps=True, layered=True)


def send_lag_chart(result: Result) -> Chart | None:
    """Draw the longest send lag of each second; None if no second has a send lag."""
    seconds = result.intervals
    if is_closed_loop(result) or not any(second.max_send_lag_us for second in seconds):
        return None
    series = [Series("longest in the second", _levels(seconds, "max_send_lag_us", _US_PER_MS, "start_s"))]
    title = "Send lag: the longest time between planned and actual send, by the second"
    return time_chart("send-lag", title, "milliseconds", series, thinned="highest")


def machine_charts(result: Result) -> list[Chart]:
    """Draw a chart for each measure of the hosts, and charts of the run's own processes."""
    clock, charts = clock_of(result), []
    for name, title, unit, field, scale in _PER_HOST:
        if name == "host-retransmits" and has_no_retransmits(result.hosts):
            continue
        series = [
            Series(_host_label(host), clock.points(_levels(host.samples, field, scale)))
            for host in result.hosts
        ]
        if shown := [line for line in series if line.points]:
            charts.append(time_chart(name, title, unit, shown, clock=clock))
    for name, title, unit, lines in _PROCESSES:
        series = [
            Series(label, clock.points(_levels(result.timeline, field, scale)))
            for label, field, scale in lines
        ]
        if shown := [line for line in series if line.points]:
            charts.append(time_chart(name, title, unit, shown, clock=clock))
    return charts


def has_no_retransmits(hosts: Sequence[Host]) -> bool:
    """Return whether retransmitted segments were counted and their number is 0."""
    counts = [sample.retransmits_per_s for host in hosts for sample in host.samples]
    seen = [count for count in counts if count is not None]
    return bool(seen) and not any(seen)


def soak_charts(soak: Soak) -> list[Chart]:
    """Draw memory, latency, processor time and connections by period; charts without values are left out."""
    charts = []
    for name, title, unit, lines in _SOAK:
        series = [
            Series(label, points)
            for label, field, scale in lines
            if (points := _levels(soak.samples, field, scale, "end_s"))
        ]
        if series:
            charts.append(time_chart(name, title, unit, series))
    return charts


def broker_charts(result: Result) -> list[Chart]:
    """Draw the broker's own counters, connections and messages beside the engine's."""
    timeline, clock = result.timeline, clock_of(result)
    seen = [sample.broker for sample in timeline if sample.broker is not None]
    if not seen:
        return []
    lines: list[tuple[str, str, str, list[tuple[str, list[Point]]]]] = [
        (
            "view-connections",
            "Connections, by the engine and by the broker",
            "connections",
            [("engine", _levels(timeline, "connections")), ("broker", _levels(seen, "connections"))],
        )
    ]
    for name, title, unit, ours, theirs in _BROKER_RATES:
        rates = _increases(_levels(seen, theirs))
        lines.append((name, title, unit, [("engine", _levels(timeline, ours)), ("broker", rates)]))
    memory = [
        ("resident memory", _levels(seen, "mem", 1e6)),
        ("output that waits", _levels(seen, "pending_bytes", 1e6)),
    ]
    lines.append(("view-memory", "The broker's memory by its own account", "MB", memory))
    cpu = [("processor time", _levels(seen, "cpu"))]
    lines.append(("view-cpu", "The broker's processor time by its own account", "% of one processor", cpu))
    return [
        time_chart(name, title, unit, drawn, clock=clock, layered=True)
        for name, title, unit, parts in lines
        if (drawn := [Series(label, clock.points(points)) for label, points in parts if points])
    ]


def error_chart(result: Result) -> Chart | None:
    """Draw each kind of error in the time line, per second; None if there is no error of any kind."""
    broker = [sample.broker for sample in result.timeline if sample.broker is not None]
    kinds, clock = error_kinds(result), clock_of(result)
    counters: list[tuple[str, Sequence[Struct], str]] = [
        (kinds["timed_out"][0], result.timeline, "timed_out"),
        (kinds["errors"][0], result.timeline, "errors"),
        ("dropped by the broker", broker, "dropped"),
        ("slow consumers closed", broker, "slow_consumers"),
    ]
    rates = [(label, _increases(_levels(samples, field))) for label, samples, field in counters]
    series = [
        Series(label, clock.points(points)) for label, points in rates if any(rate for _, rate in points)
    ]
    if not series:
        return None
    return time_chart("errors", "Errors by kind over time", "per second", series, clock=clock)


def planned_rates(result: Result, seconds: Sequence[Interval]) -> list[float] | None:
    """Return requests, or messages published, per second that were planned in each interval.

    Nothing is planned beyond the end of the measured phase, where the last interval may reach. None if
    replies or the server set the pace, or if the result's scenario is not one of this version.
    """
    try:
        scenario = scenario_of(result.scenario)
    except ScenarioError:
        return None
    if isinstance(scenario, TransportsScenario) or not scenario.rate:
        return None
    return [scenario.planned(second.start_s, second.end_s) / _length(second) for second in seconds]


def merge_short_last_interval(intervals: Sequence[Interval]) -> Sequence[Interval]:
    """Return the intervals; a last one too short to have a rate is merged with the one before."""
    if len(intervals) < 2 or intervals[-1].end_s - intervals[-1].start_s >= _SHORTEST_S:  # noqa: PLR2004
        return intervals
    *earlier, before, last = intervals
    whole = structs.replace(
        before,
        end_s=last.end_s,
        sent=before.sent + last.sent,
        received=before.received + last.received,
        max_us=max(before.max_us, last.max_us),
        max_send_lag_us=max(before.max_send_lag_us, last.max_send_lag_us),
    )
    return [*earlier, whole]


def time_chart(
    name: str,
    title: str,
    unit: str,
    series: Sequence[Series],
    *,
    clock: Clock = Clock(),
    thinned: str = "mean",
    log: bool = False,
    steps: bool = False,
    layered: bool = False,
    caption: str = "",
) -> Chart:
    """Draw series over time; each has a point.

    Args:
        name: Identifier in the page.
        title: Heading of the chart, which screen readers read.
        unit: Unit of the values.
        series: Lines, the lowest layer first.
        clock: Origin of the times.
        thinned: Value that stands for the seconds that a long run puts together: "highest" or "mean".
        log: Whether values are on a logarithmic scale, which leaves out those of 0.
        steps: Whether each value holds until the next time.
        layered: Whether lines may lie on each other: the later, the thinner.
        caption: What is to be seen.
    """
    times = [at for line in series for at, _ in line.points]
    start_s, end_s = min(times), max(times)
    span_s = end_s - start_s
    scale_s, units = next(((s, text) for limit, s, text in _SCALES if span_s >= limit), (1.0, "seconds"))
    is_long = max(len(line.points) for line in series) > _POINTS
    drawn = [
        gather(line.points, start_s, end_s, _POINTS, thinned) if is_long else line.points for line in series
    ]
    values = [value for points in drawn for _, value in points if value is not None]
    canvas = Canvas(
        spanning([start_s / scale_s, end_s / scale_s], f"{units} since {clock.since}"),
        logarithmic(values, unit) if log else linear(values, unit),
        260 if log or steps else 230,
    )
    if clock.measured_s is not None:
        canvas.band(0, clock.measured_s / scale_s)
    for number, (line, points) in enumerate(zip(series, drawn, strict=True)):
        style = _layer(number, len(series)) if layered else line_style(number)
        canvas.line(
            line.label, [(at / scale_s, value) for at, value in points], style, steps=steps, dots=not layered
        )
    if is_long:
        caption = f"{caption} Each point is the {thinned} of {span_s / _POINTS:.0f} seconds.".lstrip()
    return canvas.finish(name, title, _tabulate(series, start_s, end_s, thinned), caption)


def gather(points: Sequence[Point], start_s: float, end_s: float, most: int, how: str) -> Sequence[Point]:
    """Return at most so many points: one for each part of the time, with None for an empty part."""
    width = (end_s - start_s) / most or 1.0
    parts: list[list[float]] = [[] for _ in range(most)]
    for at, value in points:
        if value is not None:
            parts[min(most - 1, int((at - start_s) / width))].append(value)
    choose = _CHOICES[how]
    return [(start_s + number * width, choose(part) if part else None) for number, part in enumerate(parts)]


def _tabulate(series: Sequence[Series], start_s: float, end_s: float, how: str) -> Table:
    times = sorted({at for line in series for at, _ in line.points})
    if len(times) <= _ROWS:
        known = [dict(line.points) for line in series]
        rows = [[f"{at:,.1f}", *(number_text(values.get(at)) for values in known)] for at in times]
        return Table(["second", *(line.label for line in series)], rows)
    gathered = [gather(line.points, start_s, end_s, _ROWS, how) for line in series]
    rows = [
        [f"{row[0][0]:,.1f}", *(number_text(value) for _, value in row)]
        for row in zip(*gathered, strict=True)
    ]
    each = f"from second ({how} of {(end_s - start_s) / _ROWS:,.1f} s)"
    return Table([each, *(line.label for line in series)], rows)


def _layer(number: int, count: int) -> Style:
    """Return a style that keeps overlapping lines visible: lower lines are wide, upper lines are thin."""
    dashes = "6 4" if number == count - 1 and number else ""
    return replace(line_style(number, 2.0 + 2.6 * (count - 1 - number)), dashes=dashes)


def _host_label(host: Host) -> str:
    label = f"{host.name} ({', '.join(host.roles)})" if host.roles else host.name
    return f"{label}, lost" if host.lost else label


def _levels(samples: Sequence[Struct], field: str, scale: float = 1.0, time: str = "t_s") -> list[Point]:
    """Return times and scaled values of a field, without those that are None."""
    values = [(getattr(sample, time), getattr(sample, field)) for sample in samples]
    return [(at, value / scale) for at, value in values if value is not None]


def _increases(counts: Sequence[Point]) -> list[Point]:
    """Return the rates between readings; none if a counter falls, since a process ended or restarted."""
    return [
        (later_s, (after - before) / (later_s - earlier_s))
        for (earlier_s, before), (later_s, after) in pairwise(counts)
        if before is not None and after is not None and after >= before and later_s > earlier_s
    ]


def _deliveries_of_a_message(result: Result) -> float:
    """Return the mean number of deliveries of a message; 1 in a run of requests."""
    if result.broadcast is None:
        return 1.0
    return int(result.scenario["users"]) / result.broadcast.subjects


def _length(second: Interval) -> float:
    return max(second.end_s - second.start_s, 1e-9)
