"""Charts as SVG: scales, ticks and shapes; the templates write the markup and escape the texts.

The drawing has all that a reader needs, so that it prints and needs no script. `Drawing.data` has the values
once more, for the script of the page that shows them under the pointer and enlarges a part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any, Literal

from loadtest.report.document import Block, Reach, Table

SERIES, HEAT_LEVELS = 6, 8
"""Colours of the page: `--series-1` and so on, `--heat-1` and so on from the fewest to the most."""
WIDTH = 720.0
"""Width of the drawing in its units; the page scales the drawing to its own width."""
Point = tuple[float, float | None]
"""Horizontal and vertical position in the values of the axes; None leaves a gap."""

_DASHES = ("", "6 3", "1.5 2.5", "8 3 2 3")
_DOTTED = 60
"""Largest number of points of a line whose points are marked."""
_TOP, _RIGHT, _BOTTOM = 24.0, 14.0, 42.0
_LETTER = 5.8
"""Largest width of a letter in the labels of the ticks."""
_MOST_TICKS = 7
_FEW_DECADES = 3
_MARGIN = 0.02


@dataclass(frozen=True)
class Axis:
    """A scale and its ticks."""

    low: float
    high: float
    title: str
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    """Values and labels; made from the range if empty."""
    kind: Literal["number", "share"] = "number"
    """Whether values are numbers, or 1 / (1 - share) and shown as the share."""

    def at(self, value: float) -> float:
        """Return the place of the value, 0 at the low end and 1 at the high end."""
        if self.is_log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def labelled(self) -> list[tuple[float, str]]:
        """Return places and labels of the ticks."""
        ticks = self.ticks or [(value, f"{value:,.10g}") for value in _ticks(self)]
        return [(self.at(value), label) for value, label in ticks if self.low <= value <= self.high]


def linear(values: Iterable[float], title: str) -> Axis:
    """Return an axis from 0 to a little above the highest value."""
    return Axis(0.0, 1.08 * max([*values, 1e-9]), title)


def spanning(values: Iterable[float], title: str) -> Axis:
    """Return an axis from the lowest value to the highest."""
    values = list(values)
    low, high = min(values), max(values)
    margin = _MARGIN * (high - low) or 0.5
    return Axis(low - margin, high + margin, title)


def logarithmic(values: Iterable[float], title: str) -> Axis:
    """Return a logarithmic axis around the values above 0, wide enough for two ticks."""
    above = [value for value in values if value > 0] or [1.0]
    margin = (max(above) / min(above)) ** _MARGIN
    axis = Axis(min(above) / margin, max(above) * margin, title, is_log=True)
    if len(_ticks(axis)) > 1:
        return axis
    low, high = 10.0 ** floor(log10(axis.low)), 10.0 ** ceil(log10(axis.high))
    steps = [step * decade for decade in (low, high) for step in (1, 2, 5)]
    return Axis(
        max(step for step in steps if step <= axis.low),
        min(step for step in [*steps, 10 * high] if step >= axis.high),
        title,
        is_log=True,
    )


def _ticks(axis: Axis) -> list[float]:
    if not axis.is_log:
        step = _step((axis.high - axis.low) / _MOST_TICKS)
        first, last = ceil(axis.low / step - 1e-9), floor(axis.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]
    first, last = floor(log10(axis.low)), ceil(log10(axis.high))
    within = (1, 2, 5) if last - first <= _FEW_DECADES else (1,)
    values = [float(f"{step}e{decade}") for decade in range(first, last + 1) for step in within]
    return [value for value in values if axis.low <= value <= axis.high]


def _step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, no less than `least`."""
    decade = 10.0 ** floor(log10(least))
    return next(step * decade for step in (1, 2, 5, 10) if step * decade >= least * (1 - 1e-9))


@dataclass(frozen=True)
class Style:
    """The look of a line: a colour of the page and dashes."""

    colour: str
    dashes: str = ""
    width: float = 2.0

    @property
    def css(self) -> str:
        """CSS properties of the element."""
        dashes = f";stroke-dasharray:{self.dashes}" if self.dashes else ""
        return f"stroke:var(--{self.colour});stroke-width:{self.width:g}{dashes}"


def line_style(number: int, width: float = 2.0) -> Style:
    """Return the look of the series `number`; no two of the first 24 share colour and dashes."""
    dashes = _DASHES[(number + number // SERIES) % len(_DASHES)]
    return Style(f"series-{number % SERIES + 1}", dashes, width)


@dataclass(frozen=True)
class Shape:
    """Path in the plot; `title` is shown under the pointer without any script."""

    kind: Literal["line", "dots", "fill", "rule", "cross"]
    path: str
    css: str
    title: str = ""


@dataclass(frozen=True)
class Label:
    """A text in the drawing."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "middle"


@dataclass(frozen=True)
class Key:
    """An entry of the legend: the look of a line, or a filled colour."""

    text: str
    css: str
    is_filled: bool = False


@dataclass(frozen=True)
class Drawing:
    """A finished drawing; all lengths are in units of the drawing."""

    height: float
    left: float
    plot_width: float
    plot_height: float
    x_ticks: Sequence[tuple[float, str]]
    """Distances from the left of the plot, and labels."""
    y_ticks: Sequence[tuple[float, str]]
    """Distances from the top of the plot, and labels."""
    x_title: str
    y_title: str
    shapes: Sequence[Shape]
    labels: Sequence[Label]
    keys: Sequence[Key]
    data: Mapping[str, Any] | None
    """Axes and values for the script. None if it has nothing to show."""
    width: float = WIDTH
    top: float = _TOP


@dataclass(frozen=True)
class Chart(Block):
    """A drawing, its meaning, and its values as a table."""

    name: str
    """Identifier in the page."""
    title: str
    drawing: Drawing
    table: Table
    caption: str = ""
    reach: Reach = field(default=Reach.PAGE, kw_only=True)


class Canvas:
    """A plot that shapes are drawn on."""

    def __init__(self, x: Axis, y: Axis, height: float) -> None:
        self.x, self.y, self.height = x, y, height
        longest = max((len(label) for _, label in y.labelled()), default=1)
        self.left = 14.0 + _LETTER * longest
        self.width = WIDTH - self.left - _RIGHT
        self.plot_height = height - _TOP - _BOTTOM
        self.shapes: list[Shape] = []
        self.labels: list[Label] = []
        self.keys: list[Key] = []
        self.lines: list[dict[str, Any]] = []
        self.extra: dict[str, Any] = {}

    def line(
        self, label: str, points: Sequence[Point], style: Style, *, steps: bool = False, dots: bool = True
    ) -> None:
        """Draw a line through the points; with `steps` each value holds until the next point."""
        shown = [(x, y if self._has_place(y) else None) for x, y in points]
        self.shapes.append(Shape("line", self._path(shown, steps=steps), style.css))
        there = [(x, y) for x, y in shown if y is not None]
        if dots and len(there) <= _DOTTED and not steps:
            self._dot(there, style)
        self.keys.append(Key(label, style.css))
        self._remember(label, style, points, steps=steps)

    def dots(self, label: str, points: Sequence[tuple[float, float]], style: Style) -> None:
        """Draw points without a line; without a label they belong to a line of the same style."""
        self._dot(points, style)
        if label:
            self.keys.append(Key(label, Style(style.colour, "0 13", 6).css))
            self._remember(label, style, points, steps=False)

    def crosses(self, label: str, points: Sequence[tuple[float, float]]) -> None:
        """Draw crosses over points."""
        places = [(self._left(x), self._down(y)) for x, y in points if self._has_place(y)]
        path = "".join(f"M{x - 5:.1f} {y - 5:.1f}l10 10m-10 0l10 -10" for x, y in places)
        self.shapes.append(Shape("cross", path, "stroke:var(--ink);stroke-width:2"))
        self.keys.append(Key(f"crossed out: {label}", "stroke:none"))

    def band(self, low: float, high: float) -> None:
        """Shade the plot between two horizontal positions, behind all other shapes."""
        left, right = (self._left(min(max(value, self.x.low), self.x.high)) for value in (low, high))
        path = f"M{left:.1f} 0H{right:.1f}V{self.plot_height:g}H{left:.1f}z"
        self.shapes.insert(0, Shape("fill", path, "fill:var(--band)"))

    def level(self, value: float, text: str) -> None:
        """Draw a horizontal rule with a text above."""
        if self.y.low <= value <= self.y.high:
            y = self._down(value)
            self.shapes.append(Shape("rule", f"M0 {y:.1f}h{self.width:g}", Style("ink", "2 2", 1).css))
            self.labels.append(Label(self.left + 6, _TOP + y - 4, text, "start"))

    def upright(self, value: float, label: str) -> None:
        """Draw a vertical rule with an entry in the legend."""
        style = Style("ink", "6 2 1 2", 1)
        self.shapes.append(Shape("rule", f"M{self._left(value):.1f} 0v{self.plot_height:g}", style.css))
        self.keys.append(Key(label, style.css))

    def fill(self, cells: Iterable[tuple[float, float, float, float]], css: str, title: str = "") -> None:
        """Fill rectangles as one shape: left, right, low, high in the values of the axes."""
        path = "".join(
            f"M{self._left(left):.1f} {self._down(low):.1f}V{self._down(high):.1f}H{self._left(right):.1f}"
            f"V{self._down(low):.1f}z"
            for left, right, low, high in cells
        )
        self.shapes.append(Shape("fill", path, css, title))

    def write(self, x: float, y: float, text: str) -> None:
        """Write a text directly above a place of the plot."""
        self.labels.append(Label(self.left + self._left(x), _TOP + self._down(y) - 4, text))

    def finish(self, name: str, title: str, table: Table, caption: str = "") -> Chart:
        """Return the chart."""
        axes = {"x": _axis(self.x), "y": _axis(self.y)}
        drawing = Drawing(
            height=self.height,
            left=round(self.left, 1),
            plot_width=round(self.width, 1),
            plot_height=self.plot_height,
            x_ticks=[(round(self.width * place, 1), label) for place, label in self.x.labelled()],
            y_ticks=[(round(self.plot_height * (1 - place), 1), label) for place, label in self.y.labelled()],
            x_title=self.x.title,
            y_title=self.y.title,
            shapes=self.shapes,
            labels=self.labels,
            keys=self.keys,
            data={**axes, "lines": self.lines, **self.extra} if self.lines or self.extra else None,
        )
        return Chart(name, title, drawing, table, caption)

    def _has_place(self, y: float | None) -> bool:
        """Return whether the vertical axis has a place for a value: a logarithmic one has none for 0."""
        return y is not None and (y > 0 or not self.y.is_log)

    def _left(self, x: float) -> float:
        return self.width * self.x.at(x)

    def _down(self, y: float) -> float:
        return self.plot_height * (1 - self.y.at(y))

    def _path(self, points: Sequence[Point], *, steps: bool) -> str:
        """Return a path through the points, with gaps; a point between two gaps is a short line."""
        parts: list[str] = []
        runs: list[list[tuple[float, float]]] = [[]]
        for x, y in points:
            if y is None:
                runs.append([])
            else:
                runs[-1].append((self._left(x), self._down(y)))
        for run in filter(None, runs):
            (x, y), *rest = run
            parts.append(f"M{x:.1f} {y:.1f}" if rest else f"M{x - 1:.1f} {y:.1f}h2")
            parts += [f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}" for x, y in rest]
        return "".join(parts).replace(".0", "")

    def _dot(self, points: Sequence[tuple[float, float]], style: Style) -> None:
        shown = [(x, y) for x, y in points if self._has_place(y)]
        path = "".join(f"M{self._left(x):.1f} {self._down(y):.1f}h0" for x, y in shown)
        self.shapes.append(Shape("dots", path, Style(style.colour, width=6).css))

    def _remember(self, label: str, style: Style, points: Sequence[Point], *, steps: bool) -> None:
        self.lines.append(
            {
                "label": label,
                "colour": style.colour,
                "steps": steps,
                "x": [_short(x) for x, _ in points],
                "y": [None if y is None else _short(y) for _, y in points],
            }
        )


def _axis(axis: Axis) -> dict[str, Any]:
    return {"low": axis.low, "high": axis.high, "log": axis.is_log, "kind": axis.kind, "title": axis.title}


def _short(value: float) -> float:
    """Return the value with six significant digits, as a whole number if it is one."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short
