"""The percentile curves of several runs in one chart."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from loadtest.result.histogram import Histogram

_NS_PER_MS = 1e6
_PERCENTILES = ("50", "90", "99", "99.9", "99.99", "100")


@dataclass(frozen=True)
class Curve:
    """The latencies of a side, of all its runs together."""

    label: str
    latency: Histogram


def draw_percentiles(curves: Sequence[Curve]) -> Chart | None:
    """Latency against the share of replies that were no slower; each further nine gets the same width."""
    curves = [curve for curve in curves if curve.latency.count]
    if not curves:
        return None
    title = "Latency by percentile"
    with canvas(4.2) as (figure, axes):
        for number, curve in enumerate(curves):
            points = curve.latency.curve()
            style = line_style(number) | {"markevery": (number * 7, 40)}
            axes.plot(
                [x for x, _ in points], [ns / _NS_PER_MS for _, ns in points], label=curve.label, **style
            )
        scale_percentiles(axes, max(curve.latency.count for curve in curves))
        axes.set_xlabel("share of replies")
        axes.set_ylabel("milliseconds, log scale")
        add_legend(axes)
        svg = to_svg(figure, "percentiles", title)
    columns = [curve.latency.values_at(_PERCENTILES) for curve in curves]
    rows = [
        [f"{name} %", *(figure_text(values[index] / _NS_PER_MS) for values in columns)]
        for index, name in enumerate(_PERCENTILES)
    ]
    table = Table(["share of replies", *(f"{curve.label}, ms" for curve in curves)], rows)
    return Chart("percentiles", title, svg, table)
