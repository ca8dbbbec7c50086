"""The chart of the same requests over several transports: how long a fixed number of them takes."""

from collections.abc import Sequence
from textwrap import fill

from loadtest.report.canvas import Chart, Table, add_legend, canvas, figure_text, line_style, to_svg
from loadtest.report.transports import CALLS, TITLES, published_s, scaled_s
from loadtest.result.schema import TransportRun

_HATCHES = ("", "///", "...")
_GROUP = 0.8
"""Of the distance between two transports, the part that bars fill."""


def draw(runs: Sequence[TransportRun], label: str) -> Chart | None:
    """Bars for each transport, one by number of callers and one for the published run called `label`."""
    transports = list(dict.fromkeys(run.transport for run in runs if run.calls_per_s))
    if not transports:
        return None
    columns = [
        (
            "one caller" if callers == 1 else f"{callers:,} callers",
            {run.transport: scaled_s(run) for run in runs if run.outstanding == callers},
        )
        for callers in sorted({run.outstanding for run in runs})
    ]
    columns.append((f"published {label}", {name: published_s(name) for name in transports}))
    title = f"Seconds for {CALLS:,} calls, by transport"
    with canvas(3.4) as (figure, axes):
        width = _GROUP / len(columns)
        for number, (name, values) in enumerate(columns):
            at = [place + (number - (len(columns) - 1) / 2) * width for place in range(len(transports))]
            heights = [values.get(transport) or 0.0 for transport in transports]
            colour = line_style(number)["color"]
            axes.bar(
                at, heights, width * 0.9, label=name, facecolor=colour if not number else "none",
                edgecolor=colour, hatch=_HATCHES[number % len(_HATCHES)],
            )  # fmt: skip
        axes.set_xticks(range(len(transports)), [fill(TITLES[transport], 18) for transport in transports])
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_ylabel("seconds")
        add_legend(axes)
        svg = to_svg(figure, "transport-time", title)
    rows = [
        [TITLES[transport], *(figure_text(values.get(transport)) for _, values in columns)]
        for transport in transports
    ]
    return Chart("transport-time", title, svg, Table(["transport", *(name for name, _ in columns)], rows))
