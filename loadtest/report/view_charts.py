"""The report's charts of both views of a run: the engine's counts and the broker's own, second by second."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from loadtest.report.canvas import Chart
from loadtest.report.over_time import Clock, Series, time_chart
from loadtest.result.broker_view import BrokerSample
from loadtest.result.schema import Sample

_BYTES_PER_MB = 1e6
_BOTH = (
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


def draw(timeline: Sequence[Sample], clock: Clock) -> list[Chart]:
    """Connections and messages a second of both, memory and processor time of the broker; what it told of."""
    seen = [sample.broker for sample in timeline if sample.broker is not None]
    if not seen:
        return []
    charts = [
        (
            "view-connections",
            "Connections, by the engine and by the broker",
            "connections",
            [
                ("engine", [(sample.t_s, float(sample.connections)) for sample in timeline]),
                ("broker", list(_levels(seen, "connections"))),
            ],
        )
    ]
    for name, title, unit, ours, theirs in _BOTH:
        engine = [(sample.t_s, value) for sample in timeline if (value := getattr(sample, ours)) is not None]
        charts.append((name, title, unit, [("engine", engine), ("broker", list(_rates(seen, theirs)))]))
    memory = [
        ("resident memory", list(_levels(seen, "mem", _BYTES_PER_MB))),
        ("output that waits", list(_levels(seen, "pending_bytes", _BYTES_PER_MB))),
    ]
    charts.append(("view-memory", "The broker's memory by its own account", "megabytes", memory))
    cpu = [("processor time", list(_levels(seen, "cpu")))]
    charts.append(("view-cpu", "The broker's processor time by its own account", "% of one processor", cpu))
    return [
        time_chart(name, title, unit, drawn, clock=clock, layered=True)
        for name, title, unit, lines in charts
        if (drawn := [Series(label, clock.points(points)) for label, points in lines if points])
    ]


def _levels(seen: Sequence[BrokerSample], field: str, scale: float = 1.0) -> Iterator[tuple[float, float]]:
    for sample in seen:
        value = getattr(sample, field)
        if value is not None:
            yield sample.t_s, value / scale


def _rates(seen: Sequence[BrokerSample], field: str) -> Iterator[tuple[float, float]]:
    """Per second between two readings; none where a counter has begun anew."""
    for before, after in pairwise(seen):
        first, last, elapsed = getattr(before, field), getattr(after, field), after.t_s - before.t_s
        if first is not None and last is not None and last >= first and elapsed > 0:
            yield after.t_s, (last - first) / elapsed
