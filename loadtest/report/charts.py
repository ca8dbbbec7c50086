"""The report's charts: SVG that takes its colours from the page, so it follows light and dark."""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from msgspec import structs

from loadtest.result.histogram import Histogram
from loadtest.result.reference import Reference
from loadtest.result.schema import Interval

_INK, _GRID = "#010101", "#020202"
_FIRST, _SECOND, _THIRD = "#030303", "#040404", "#050505"
_VARIABLES = {_INK: "--ink", _GRID: "--grid", _FIRST: "--first", _SECOND: "--second", _THIRD: "--third"}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "subjectbus",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_NS_PER_MS = 1e6
_SHORTEST_S = 0.5
_NINES = ((1.0, "0 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %"),
          (1e6, "6 nines"), (1e7, "7 nines"), (1e8, "8 nines"), (1e9, "9 nines"))  # fmt: skip


@dataclass(frozen=True)
class Words:
    """What a workload calls things."""

    events: str
    latency: str
    unplanned: str
    """What latency is where nothing is planned."""
    sent: str
    received: str


REQUESTS = Words(
    events="requests",
    latency="round trip, from the planned send time",
    unplanned="service time, from the actual send",
    sent="requests sent",
    received="replies received",
)
BROADCAST = Words(
    events="deliveries",
    latency="delivery, from the planned publishing time",
    unplanned="delivery, from the actual publishing",
    sent="deliveries due",
    received="deliveries received",
)


def percentile_chart(
    latency: Histogram, service: Histogram | None, reference: Reference, words: Words
) -> str:
    """Latency against the share of events that were no slower; each further nine gets the same width."""
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas()
        curves = [(words.latency, latency, _FIRST, "-")]
        if service is not None:
            curves.insert(0, (words.unplanned, service, _SECOND, "--"))
        for label, histogram, colour, line in curves:
            points = histogram.curve()
            axes.plot(
                [x for x, _ in points], [ns / _NS_PER_MS for _, ns in points], line, color=colour, label=label
            )
        percentiles = ((2.0, reference.p50_us), (20.0, reference.p95_us), (100.0, reference.p99_us))
        published = [(x, us / 1000) for x, us in percentiles if us is not None]
        if published:
            axes.plot(
                [x for x, _ in published],
                [ms for _, ms in published],
                "o",
                color=_THIRD,
                label=reference.name,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = [(x, label) for x, label in _NINES if x <= max(100.0, latency.count)]
        axes.set_xticks([x for x, _ in ticks], [label for _, label in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(f"share of {words.events}")
        axes.set_ylabel("milliseconds, log scale")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        measured = words.latency if service is None else "round trip, service time"
        return _svg(figure, "percentiles", f"Latency by percentile: {measured} and the published run")


def throughput_chart(intervals: Sequence[Interval], words: Words, each: float = 1.0) -> str:
    """What was sent, times `each`, and what was received in each second of the measured phase."""
    intervals = without_sliver(intervals)
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas()
        starts = [interval.start_s for interval in intervals]
        lengths = [max(interval.end_s - interval.start_s, 1e-9) for interval in intervals]
        for label, counts, colour, line in (
            (words.sent, [each * interval.sent for interval in intervals], _SECOND, "--"),
            (words.received, [interval.received for interval in intervals], _FIRST, "-"),
        ):
            rates = [count / length for count, length in zip(counts, lengths, strict=True)]
            axes.step(
                [*starts, intervals[-1].end_s],
                [*rates, rates[-1]],
                line,
                where="post",
                color=colour,
                label=label,
            )
        axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], 1.0))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("seconds since the measured phase began")
        axes.set_ylabel("per second")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        return _svg(
            figure, "throughput", f"Throughput over time: {words.sent} and {words.received} per second"
        )


@dataclass(frozen=True)
class Line:
    """One line of a chart; None leaves a gap."""

    label: str
    values: Sequence[float | None]


def lines_chart(name: str, title: str, unit: str, minutes: Sequence[float], lines: Sequence[Line]) -> str:
    """Up to three lines over the minutes of the measured phase, from zero up."""
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas()
        styles = ((_FIRST, "-"), (_SECOND, "--"), (_THIRD, ":"))
        for line, (colour, dashes) in zip(lines, styles, strict=False):
            values = [math.nan if value is None else value for value in line.values]
            axes.plot(minutes, values, dashes, color=colour, label=line.label, marker=".", markersize=4)
        axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], 1e-9))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel("minutes since the measured phase began")
        axes.set_ylabel(unit)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return _svg(figure, name, title)


@dataclass(frozen=True)
class Curve:
    """One line of a chart over the seconds of a run: its points, each with its time."""

    label: str
    points: Sequence[tuple[float, float]]


def curves_chart(name: str, title: str, unit: str, curves: Sequence[Curve]) -> str:
    """Up to three curves over the seconds of the run, from zero up; the later ones lie above the others."""
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas()
        styles = ((_SECOND, "-", 3.0), (_FIRST, "--", 1.5), (_THIRD, ":", 1.5))
        for curve, (colour, dashes, width) in zip(curves, styles, strict=False):
            times, values = [at for at, _ in curve.points], [value for _, value in curve.points]
            axes.plot(times, values, dashes, color=colour, label=curve.label, linewidth=width)
        axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], 1e-9))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel("seconds since the run began")
        axes.set_ylabel(unit)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return _svg(figure, name, title)


def without_sliver(intervals: Sequence[Interval]) -> Sequence[Interval]:
    """The intervals, a last one too short to have a rate added to the one before it."""
    *earlier, last = intervals
    if not earlier or last.end_s - last.start_s >= _SHORTEST_S:
        return intervals
    *earlier, before = earlier
    whole = structs.replace(
        before, end_s=last.end_s, sent=before.sent + last.sent, received=before.received + last.received
    )
    return [*earlier, whole]


def _canvas() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    return figure, axes


def _svg(figure: Figure, name: str, title: str) -> str:
    """The drawing as an element to inline: scalable, titled, ids unique in the page, the page's colours."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    root = f'<svg class="chart" role="img" aria-labelledby="{name}-title"'
    text = re.sub(r'<svg\b(?: (?:width|height)="[^"]*")*', root, text, count=1)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    return text.replace(">", f'><title id="{name}-title">{escape(title)}</title>', 1)
