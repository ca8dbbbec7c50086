"""Charts over the time of a run, on one scale: seconds since the measured phase began."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, nan
from statistics import fmean
from typing import Any

from matplotlib.ticker import LogLocator

from loadtest.report.canvas import (
    BAND,
    DASHED,
    Chart,
    Table,
    add_legend,
    canvas,
    figure_text,
    line_style,
    to_svg,
)
from loadtest.result.schema import Result

_POINTS = 600
"""More than the page has pixels for would only make it larger."""
_ROWS = 20
_MARKED = 60
"""Points beyond which only some have a marker."""
_S_PER_MINUTE, _S_PER_HOUR = 60.0, 3600.0
_SCALES = ((3 * _S_PER_HOUR, _S_PER_HOUR, "hours"), (10 * _S_PER_MINUTE, _S_PER_MINUTE, "minutes"))
_CHOICES: dict[str, Callable[[Sequence[float]], float]] = {"highest": max, "mean": fmean}

Points = Sequence[tuple[float, float | None]]
"""Seconds and values; None leaves a gap."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str
    points: Points


@dataclass(frozen=True)
class Band:
    """A time that is shaded: the measured phase."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class Clock:
    """What the times of a chart count from."""

    origin_s: float = 0.0
    """On the run's clock, for what is told in that."""
    since: str = "the measured phase began"
    measured: Band | None = None

    def points(self, samples: Sequence[tuple[float, float | None]]) -> Points:
        """Points on the run's clock, on this one."""
        return [(at - self.origin_s, value) for at, value in samples]


def clock_of(result: Result) -> Clock:
    """That of all charts; the run's own where nothing was measured."""
    began = result.began_measuring_s
    if began is None:
        return Clock(since="the run began")
    return Clock(origin_s=began, measured=Band(0.0, result.duration_s))


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
    height: float = 2.8,
    caption: str = "",
) -> Chart:
    """Draws series over time; None of them may be empty.

    Args:
        name: Unique in the page.
        title: What screen readers say, and the heading of the chart.
        unit: Of the values.
        series: In the order in which they lie on each other.
        clock: What their times count from.
        thinned: What stands for the seconds that long runs put together, "highest" or "mean".
        log: Values on a logarithmic scale; those of 0 are left out.
        steps: Each value holds until the next time.
        layered: Lines may lie on each other: the later, the thinner.
        height: In inches.
        caption: What is to be seen.
    """
    start_s = min(at for line in series for at, _ in line.points)
    end_s = max(at for line in series for at, _ in line.points)
    span_s = end_s - start_s
    scale_s, units = next(((s, text) for limit, s, text in _SCALES if span_s >= limit), (1.0, "seconds"))
    is_long = max(len(line.points) for line in series) > _POINTS
    with canvas(height) as (figure, axes):
        if clock.measured is not None:
            measured = clock.measured
            axes.axvspan(
                measured.start_s / scale_s, measured.end_s / scale_s, color=BAND, linewidth=0, zorder=0
            )
        for number, line in enumerate(series):
            points = gather(line.points, start_s, end_s, _POINTS, thinned) if is_long else line.points
            values = [nan if value is None or (log and value <= 0) else value for _, value in points]
            axes.plot(
                [at / scale_s for at, _ in points],
                values,
                drawstyle="steps-post" if steps else "default",
                markevery=max(1, ceil(len(points) / _MARKED) * 5) if len(points) > _MARKED else 1,
                label=line.label,
                **(line_style(number) | (_layer(number, len(series)) if layered else {})),
            )
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=_subs(series)))
            axes.minorticks_off()
        else:
            axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], 1e-9))
        axes.margins(x=0.01)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_xlabel(f"{units} since {clock.since}")
        axes.set_ylabel(unit)
        add_legend(axes)
        svg = to_svg(figure, name, title)
    if is_long:
        caption = f"{caption} Each point is the {thinned} of {span_s / _POINTS:.0f} seconds.".lstrip()
    return Chart(name, title, svg, _tabulate(series, start_s, end_s, thinned), caption)


def gather(points: Points, start_s: float, end_s: float, most: int, how: str) -> Points:
    """At most so many points: the time divided evenly, one value for all within a part, None for none."""
    width = (end_s - start_s) / most or 1.0
    parts: list[list[float]] = [[] for _ in range(most)]
    for at, value in points:
        if value is not None:
            parts[min(most - 1, int((at - start_s) / width))].append(value)
    choose = _CHOICES[how]
    return [(start_s + number * width, choose(part) if part else None) for number, part in enumerate(parts)]


def _layer(number: int, count: int) -> dict[str, Any]:
    """Lines below are broad and whole, so that they show on both sides of those on top of them."""
    style = {"linewidth": 1.4 + 1.7 * (count - 1 - number), "marker": ""}
    return style | {"linestyle": DASHED if number == count - 1 and number else "-"}


def _tabulate(series: Sequence[Series], start_s: float, end_s: float, how: str) -> Table:
    times = sorted({at for line in series for at, _ in line.points})
    if len(times) <= _ROWS:
        known = [dict(line.points) for line in series]
        rows = [[f"{at:,.1f}", *(figure_text(values.get(at)) for values in known)] for at in times]
        return Table(["second", *(line.label for line in series)], rows)
    gathered = [gather(line.points, start_s, end_s, _ROWS, how) for line in series]
    rows = [
        [f"{row[0][0]:,.1f}", *(figure_text(value) for _, value in row)]
        for row in zip(*gathered, strict=True)
    ]
    each = f"from second ({how} of {(end_s - start_s) / _ROWS:,.1f} s)"
    return Table([each, *(line.label for line in series)], rows)


def _subs(series: Sequence[Series]) -> tuple[float, ...]:
    """Ticks within a decade: more where the values span few of them."""
    values = [value for line in series for _, value in line.points if value is not None and value > 0]
    decades = ceil(log10(max(values))) - floor(log10(min(values))) if values else 1
    return (1.0,) if decades > 3 else (1.0, 2.0, 5.0)  # noqa: PLR2004
