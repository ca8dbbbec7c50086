"""The percentile curves of several runs in one chart."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.report.canvas import Chart, Table, add_legend, canvas, figure_text, line_style, to_svg
from loadtest.result.histogram import Histogram

_NS_PER_MS = 1e6
_NINES = ((1.0, "0 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %"),
          (1e6, "6 nines"), (1e7, "7 nines"), (1e8, "8 nines"), (1e9, "9 nines"))  # fmt: skip
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
        most = max(curve.latency.count for curve in curves)
        ticks = [(x, label) for x, label in _NINES if x <= max(100.0, most)]
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([x for x, _ in ticks], [label for _, label in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
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
