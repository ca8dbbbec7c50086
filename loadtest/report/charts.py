"""The charts of the load: latency by percentile and over time, throughput, how late it was sent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from loadtest.report.canvas import (
    Chart,
    Table,
    add_legend,
    canvas,
    figure_text,
    line_style,
    scale_percentiles,
    to_svg,
)
from loadtest.report.comparison import is_closed_loop
from loadtest.report.over_time import Series, time_chart
from loadtest.report.planned import planned_rates
from loadtest.result.histogram import Histogram
from loadtest.result.schema import Interval, Latency, Result

_NS_PER_MS, _US_PER_MS = 1e6, 1e3
_SHORTEST_S = 0.5
_PERCENTILES = {
    "p50": "50 %",
    "p90": "90 %",
    "p95": "95 %",
    "p99": "99 %",
    "p99_9": "99.9 %",
    "p99_99": "99.99 %",
    "max": "100 %",
}
_PUBLISHED = {"p50": 2.0, "p90": 10.0, "p95": 20.0, "p99": 100.0}
"""1 / (1 - share) of the percentiles that references have."""


@dataclass(frozen=True)
class Words:
    """What a workload calls things."""

    events: str
    latency: str
    unplanned: str
    """What latency is where nothing is planned."""
    planned: str
    sent: str
    received: str


REQUESTS = Words(
    events="requests",
    latency="round trip, from the planned send time",
    unplanned="service time, from the actual send",
    planned="requests planned",
    sent="requests sent",
    received="replies received",
)
BROADCAST = Words(
    events="deliveries",
    latency="delivery, from the planned publishing time",
    unplanned="delivery, from the actual publishing",
    planned="deliveries planned",
    sent="deliveries due",
    received="deliveries received",
)


def words_of(result: Result) -> Words:
    """What the result's workload calls things."""
    words = REQUESTS if result.broadcast is None else BROADCAST
    return replace(words, latency=words.unplanned) if is_closed_loop(result) else words


def percentile_chart(result: Result) -> Chart | None:
    """Latency against the share of events that were no slower; each further nine gets the same width."""
    if result.histograms is None:
        return None
    words, reference = words_of(result), result.reference
    latency = Histogram.merged([result.histograms.latency])
    curves = [(words.latency, latency)]
    # Where nothing is planned, both are the same, and a broadcast has none.
    if result.histograms.service is not None and not is_closed_loop(result):
        curves.append((words.unplanned, Histogram.merged([result.histograms.service])))
    with canvas(4.2) as (figure, axes):
        for number, (label, histogram) in enumerate(curves):
            points = [(x, ns / _NS_PER_MS) for x, ns in histogram.curve()]
            style = line_style(number) | {"marker": ""}
            axes.plot([x for x, _ in points], [ms for _, ms in points], label=label, **style)
        published = [(x, getattr(reference, f"{name}_us")) for name, x in _PUBLISHED.items()]
        marks = [(x, us / _US_PER_MS) for x, us in published if us is not None]
        if marks:
            style = line_style(3) | {"linestyle": "", "markersize": 7}
            axes.plot([x for x, _ in marks], [ms for _, ms in marks], label=reference.name, **style)
        scale_percentiles(axes, latency.count)
        axes.set_xlabel(f"share of {words.events} that took no longer")
        axes.set_ylabel("milliseconds")
        add_legend(axes)
        title = f"Latency by percentile: {words.latency}"
        svg = to_svg(figure, "percentiles", title)
    return Chart("percentiles", title, svg, _percentile_table(result))


def _percentile_table(result: Result) -> Table:
    words, reference = words_of(result), result.reference
    columns: list[tuple[str, Latency | None]] = [(words.latency, result.latency_us)]
    if result.service_us is not None and not is_closed_loop(result):
        columns.append((words.unplanned, result.service_us))
    rows = []
    for name, label in _PERCENTILES.items():
        ours = [None if column is None else getattr(column, name) / _US_PER_MS for _, column in columns]
        theirs = getattr(reference, f"{name}_us", None)
        published = None if theirs is None else theirs / _US_PER_MS
        rows.append([label, *map(figure_text, [*ours, published])])
    return Table(["share, ms", *(label for label, _ in columns), reference.name], rows)


def latency_chart(result: Result) -> Chart | None:
    """Median, 99th percentile and maximum of each second."""
    seconds = [second for second in without_sliver(result.intervals) if second.received]
    if not seconds:
        return None
    lines = [("maximum", "max_us"), ("p99", "p99_us"), ("p50", "p50_us")]
    series = [
        Series(label, [(second.start_s, getattr(second, field) / _US_PER_MS) for second in seconds])
        for label, field in lines
    ]
    title = "Latency over time"
    return time_chart(
        "latency-time", title, "milliseconds", series, thinned="highest", log=True, height=3.2,
        caption=f"By the second: {words_of(result).latency}.",
    )  # fmt: skip


def throughput_chart(result: Result) -> Chart | None:
    """What was planned, sent and received in each second."""
    intervals = without_sliver(result.intervals)
    if not intervals:
        return None
    words, each = words_of(result), deliveries_of_a_message(result)
    planned = planned_rates(result, intervals)
    rates = [] if planned is None else [(words.planned, [each * rate for rate in planned])]
    rates += [
        (words.sent, [each * second.sent / _length(second) for second in intervals]),
        (words.received, [second.received / _length(second) for second in intervals]),
    ]
    series = [
        Series(
            label,
            [
                *((second.start_s, rate) for second, rate in zip(intervals, values, strict=True)),
                (intervals[-1].end_s, values[-1]),
            ],
        )
        for label, values in rates
    ]
    title = "Throughput over time: " + ", ".join(line.label for line in series)
    return time_chart("throughput", title, f"{words.events}/s", series, steps=True, layered=True, height=3.2)


def lag_chart(result: Result) -> Chart | None:
    """How late a request of each second was sent at worst; None where no second has it."""
    seconds = result.intervals
    if is_closed_loop(result) or not any(second.max_send_lag_us for second in seconds):
        return None
    points = [(second.start_s, second.max_send_lag_us / _US_PER_MS) for second in seconds]
    title = "Schedule slip: the longest time between planned and actual send, by the second"
    return time_chart(
        "slip", title, "milliseconds", [Series("longest in the second", points)], thinned="highest"
    )


def deliveries_of_a_message(result: Result) -> float:
    """On average; 1 where nothing is broadcast."""
    if result.broadcast is None:
        return 1.0
    return int(result.scenario["users"]) / result.broadcast.subjects


def without_sliver(intervals: Sequence[Interval]) -> Sequence[Interval]:
    """The intervals, a last one too short to have a rate added to the one before it."""
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


def _length(second: Interval) -> float:
    return max(second.end_s - second.start_s, 1e-9)
