"""The charts of a search for the capacity, over the rates that were tried."""

import re
from collections.abc import Sequence

from matplotlib.axes import Axes

from loadtest.report.canvas import INK, Chart, Table, add_legend, canvas, figure_text, line_style, to_svg
from loadtest.result.capacity import Capacity, Probe
from loadtest.result.schema import Latency

_US_PER_MS = 1e3
_ALWAYS = ("p50", "p99", "p99_9")
_FIGURES = "|".join(name for name in Latency.__struct_fields__ if name != "count")
_LATENCY = re.compile(rf"latency_us\.(?P<name>{_FIGURES})\s*<=?\s*(?P<limit>\S+)", re.ASCII)
_WIDE = 30.0
"""Rates that lie further apart than this are drawn on a logarithmic scale."""


def draw_latency(capacity: Capacity) -> Chart | None:
    """Latency against the requested rate, with the objectives that are about it."""
    probes = [probe for probe in _measured(capacity) if probe.latency_us is not None]
    if not probes:
        return None
    limits = _limits(capacity.objectives)
    names = list(dict.fromkeys([*_ALWAYS, *(name for name, _ in limits)]))
    labels = [name.replace("_", ".") for name in names]
    rates = [probe.requested_rate or 0.0 for probe in probes]
    columns = [[getattr(probe.latency_us, name) / _US_PER_MS for probe in probes] for name in names]
    title = "Latency against the requested rate"
    with canvas(4.2) as (figure, axes):
        for number, (label, values) in enumerate(zip(labels, columns, strict=True)):
            _plot(axes, probes, values, label, number)
        for name, limit_us in limits:
            axes.axhline(limit_us / _US_PER_MS, color=INK, linewidth=1.0, linestyle=(0, (2, 2)))
            text = f"objective: {name.replace('_', '.')} below {limit_us / _US_PER_MS:,.10g} ms"
            axes.annotate(
                text, (0.01, limit_us / _US_PER_MS), xycoords=("axes fraction", "data"), va="bottom",
                xytext=(0, 2), textcoords="offset points", fontsize=9,
            )  # fmt: skip
        _mark_failures(axes, probes, [max(values) for values in zip(*columns, strict=True)])
        _mark_capacity(axes, capacity)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel("milliseconds, log scale")
        _scale_rates(axes, rates)
        add_legend(axes)
        svg = to_svg(figure, "latency-by-rate", title)
    rows = [
        [figure_text(rate), probe.verdict, *(figure_text(values[index]) for values in columns)]
        for index, (rate, probe) in enumerate(zip(rates, probes, strict=True))
    ]
    table = Table(["requested per second", "verdict", *(f"{label}, ms" for label in labels)], rows)
    return Chart("latency-by-rate", title, svg, table, _caption(capacity))


def draw_achieved(capacity: Capacity) -> Chart | None:
    """What was answered against what was requested."""
    probes = _measured(capacity)
    if not probes:
        return None
    rates = [probe.requested_rate or 0.0 for probe in probes]
    achieved = [probe.achieved_rate for probe in probes]
    title = "Achieved against requested rate"
    with canvas(4.2) as (figure, axes):
        ends = [min(rates), max(rates)]
        axes.plot(ends, ends, color=INK, linewidth=1.0, linestyle=(0, (2, 2)), label="all that was requested")
        _plot(axes, probes, achieved, "achieved", 0)
        _mark_failures(axes, probes, achieved)
        _mark_capacity(axes, capacity)
        if _is_wide(rates):
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.1 * max(*rates, *achieved))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_ylabel("achieved per second")
        _scale_rates(axes, rates)
        add_legend(axes)
        svg = to_svg(figure, "achieved-by-rate", title)
    rows = [
        [
            figure_text(rate),
            figure_text(probe.achieved_rate),
            f"{100 * probe.achieved_share:.2f} %",
            probe.verdict,
        ]
        for rate, probe in zip(rates, probes, strict=True)
    ]
    columns = ["requested per second", "achieved per second", "of what was planned", "verdict"]
    return Chart("achieved-by-rate", title, svg, Table(columns, rows), _caption(capacity))


def _measured(capacity: Capacity) -> list[Probe]:
    """Those that say something about their rate, lowest first."""
    probes = [probe for probe in capacity.probes if probe.verdict != "unfinished"]
    return sorted(probes, key=lambda probe: (probe.requested_rate or 0.0, probe.number))


def _limits(objectives: Sequence[str]) -> list[tuple[str, float]]:
    """Figure and microseconds of the objectives that bound a latency."""
    matches = [_LATENCY.fullmatch(text.strip()) for text in objectives]
    return [(match["name"], float(match["limit"])) for match in matches if match]


def _plot(axes: Axes, probes: Sequence[Probe], values: Sequence[float], label: str, number: int) -> None:
    """A line through the last probe of each rate, which decided it; the ones before it beside the line."""
    style = line_style(number)
    points = [(probe.requested_rate or 0.0, value) for probe, value in zip(probes, values, strict=True)]
    last = dict(points)
    axes.plot(list(last), list(last.values()), label=label, **style)
    earlier = [(rate, value) for rate, value in points if last[rate] != value]
    if earlier:
        axes.plot(*zip(*earlier, strict=True), **style | {"linestyle": ""})


def _mark_failures(axes: Axes, probes: Sequence[Probe], heights: Sequence[float]) -> None:
    failed = [
        (probe.requested_rate or 0.0, height)
        for probe, height in zip(probes, heights, strict=True)
        if probe.verdict == "fails"
    ]
    if failed:
        xs, ys = zip(*failed, strict=True)
        axes.plot(xs, ys, "x", color=INK, markersize=9, markeredgewidth=1.8, label="fails", zorder=5)


def _mark_capacity(axes: Axes, capacity: Capacity) -> None:
    held = [probe.requested_rate for probe in capacity.probes if probe.rate == capacity.capacity]
    if held and held[0]:
        axes.axvline(
            held[0], color=INK, linewidth=1.0, linestyle=(0, (6, 2, 1, 2)), label="highest that holds"
        )


def _scale_rates(axes: Axes, rates: Sequence[float]) -> None:
    if _is_wide(rates):
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel("requested per second" + (", log scale" if _is_wide(rates) else ""))


def _is_wide(rates: Sequence[float]) -> bool:
    return max(rates) > _WIDE * min(rates)


def _caption(capacity: Capacity) -> str:
    return (
        f"A point is one run of {capacity.probe_s:g} s, crossed out where it fails; lines go through the "
        "last run at each rate. Latency runs from the planned send time: beyond the capacity it grows with "
        "the length of the run."
    )
