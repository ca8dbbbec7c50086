"""What the report's charts share: style, the page's own colours, and the element that goes inline."""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

SERIES, HEAT_LEVELS = 6, 8
_VARIABLES = (
    "ink",
    "grid",
    "band",
    *(f"series-{number}" for number in range(1, SERIES + 1)),
    *(f"heat-{number}" for number in range(1, HEAT_LEVELS + 1)),
)
# Colours that no drawing has otherwise stand for the page's variables until the drawing is finished.
_STANDING_IN = {name: f"#0101{number:02x}" for number, name in enumerate(_VARIABLES)}
INK, GRID, BAND = (_STANDING_IN[name] for name in ("ink", "grid", "band"))
HEAT = tuple(_STANDING_IN[f"heat-{number}"] for number in range(1, HEAT_LEVELS + 1))
"""Of the fewest first."""
DASHED = (0, (5, 2))
_DASHES: tuple[Any, ...] = ("-", DASHED, (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_MARKERS = "osD^vP"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "subjectbus",
    "path.simplify_threshold": 0.3,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "grid.color": GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.6,
}
_NINES = ((1.0, "0 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %"),
          (1e6, "6 nines"), (1e7, "7 nines"), (1e8, "8 nines"), (1e9, "9 nines"))  # fmt: skip
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")


@dataclass(frozen=True)
class Table:
    """Texts in columns, the first of which names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A drawing, what is to be seen in it, and its figures for those who cannot see it."""

    name: str
    """Unique in the page."""
    title: str
    svg: Markup
    table: Table
    caption: str = ""


def line_style(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of the series `number`; no two of the first 24 share colour and dashes."""
    return {
        "color": _STANDING_IN[f"series-{number % SERIES + 1}"],
        "linestyle": _DASHES[(number + number // SERIES) % len(_DASHES)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 3.5,
    }


@contextmanager
def canvas(height: float = 3.6) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one plot, 8 inches wide, transparent, in the report's style."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, height), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0.0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0.0)
        yield figure, axes


def add_legend(axes: Axes, **options: Any) -> None:  # noqa: ANN401 - matplotlib's own
    """Above the plot, where it hides nothing, in as many columns as its labels leave room for."""
    labels = axes.get_legend_handles_labels()[1]
    longest = max(map(len, labels), default=1)
    columns = max(1, min(len(labels), 100 // (longest + 8)))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=columns, **options)


def scale_percentiles(axes: Axes, count: int) -> None:
    """1 / (1 - share) to the right, where each further nine gets the same width, and latencies upwards."""
    ticks = [(x, label) for x, label in _NINES if x <= max(100.0, count)]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([x for x, _ in ticks], [label for _, label in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def to_svg(figure: Figure, name: str, title: str) -> Markup:
    """The drawing as an element to inline: scalable, titled, ids unique in the page, the page's colours."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"#0101([0-9a-f]{2})", lambda match: f"var(--{_VARIABLES[int(match[1], 16)]})", text)
    text = re.sub(r'(?<= d=")[^"]+', lambda match: _shortened(match[0]), text)
    root = f'<svg class="chart" role="img" aria-labelledby="{name}-title"'
    text = re.sub(r'<svg\b(?: (?:width|height)="[^"]*")*', root, text, count=1)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    return Markup(text.replace(">", f'><title id="{name}-title">{escape(title)}</title>', 1))  # noqa: S704


def _shortened(path: str) -> str:
    """A path to a twentieth of a point, which nobody sees, in half the characters."""
    path = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), path)
    return re.sub(r" ?\n ?", "", re.sub(r"([MLCQ]) ", r"\1", path))


def figure_text(value: float | None) -> str:
    """A figure as tables show it: three digits or more, "-" for none."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"
