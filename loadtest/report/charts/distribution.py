"""Charts of how latencies are distributed: by percentile, and by time as a heat map."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from math import floor, log10

from msgspec import structs

from loadtest.report.charts.over_time import terms_of
from loadtest.report.charts.svg import HEAT_LEVELS, Axis, Canvas, Chart, Key, line_style, logarithmic
from loadtest.report.document import Table
from loadtest.result.comparison import Curve
from loadtest.result.histogram import Histogram
from loadtest.result.metrics import PERCENTILES, is_closed_loop, number_text
from loadtest.result.schema import Heatmap, Latency, Result

_NS_PER_MS, _US_PER_MS = 1e6, 1e3
_SHARES = {**PERCENTILES, "max": "100"}
_PERCENTILE_TICKS = (
    (1.0, "0 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %"),
    (1e6, "6 nines"), (1e7, "7 nines"), (1e8, "8 nines"), (1e9, "9 nines"),
)  # fmt: skip
"""Ticks of the percentile axis: 1 / (1 - share), and labels."""
_OPEN_END = 10 ** (1 / 8)
"""Height of the last row of a heat map, which has no upper end, as a factor."""
_ROWS = 20
_S_PER_MINUTE = 60.0
_LONG_S = 600.0


def percentile_chart(result: Result) -> Chart | None:
    """Draw latency against the share of events that were no slower, beside the published percentiles."""
    if result.histograms is None:
        return None
    terms, reference = terms_of(result), result.reference
    latency = Histogram.merged([result.histograms.latency])
    curves = [Curve(terms.latency, latency)]
    columns: list[tuple[str, Latency | None]] = [(terms.latency, result.latency_us)]
    # Without planned times, latency and service time are the same. A broadcast has no service time.
    if result.histograms.service is not None and not is_closed_loop(result):
        curves.append(Curve(terms.unplanned, Histogram.merged([result.histograms.service])))
        columns.append((terms.unplanned, result.service_us))
    fields = {name: getattr(reference, f"{name}_us", None) for name in _SHARES}
    marks = [
        (1 / (1 - float(share) / 100), us / _US_PER_MS)
        for name, share in PERCENTILES.items()
        if (us := fields[name]) is not None
    ]
    canvas = _by_percentile(curves, f"share of {terms.events} that took no longer", [ms for _, ms in marks])
    if marks:
        inside = [(x, ms) for x, ms in marks if x <= canvas.x.high]
        canvas.dots(reference.name, inside, line_style(3))
    rows = []
    for name, share in _SHARES.items():
        published = fields[name]
        ours = [None if column is None else getattr(column, name) / _US_PER_MS for _, column in columns]
        theirs = None if published is None else published / _US_PER_MS
        rows.append([f"{share} %", *map(number_text, [*ours, theirs])])
    table = Table(["share, ms", *(label for label, _ in columns), reference.name], rows)
    return canvas.finish("percentiles", f"Latency by percentile: {terms.latency}", table)


def compare_percentiles(curves: Sequence[Curve]) -> Chart | None:
    """Draw the latencies of several runs against the share of replies that were no slower."""
    curves = [curve for curve in curves if curve.latency.count]
    if not curves:
        return None
    shares = list(_SHARES.values())
    columns = [curve.latency.values_at(shares) for curve in curves]
    rows = [
        [f"{share} %", *(number_text(values[index] / _NS_PER_MS) for values in columns)]
        for index, share in enumerate(shares)
    ]
    table = Table(["share of replies", *(f"{curve.label}, ms" for curve in curves)], rows)
    return _by_percentile(curves, "share of replies").finish("percentiles", "Latency by percentile", table)


def _by_percentile(curves: Sequence[Curve], title: str, more_ms: Sequence[float] = ()) -> Canvas:
    """Return the curves drawn; to the right each further nine has the same width."""
    points = [[(x, ns / _NS_PER_MS) for x, ns in curve.latency.curve()] for curve in curves]
    highest = max(100.0, *(float(curve.latency.count) for curve in curves))
    canvas = Canvas(
        Axis(1.0, highest, title, is_log=True, ticks=_PERCENTILE_TICKS, kind="share"),
        logarithmic([*(ms for line in points for _, ms in line), *more_ms], "milliseconds"),
        300,
    )
    for number, (curve, line) in enumerate(zip(curves, points, strict=True)):
        canvas.line(curve.label, line, line_style(number), dots=False)
    return canvas


def heatmap_chart(heatmap: Heatmap | None, events: str) -> Chart | None:
    """Draw time across, latency upwards and the count by colour; None without any count."""
    if heatmap is None or not any(map(any, heatmap.counts)):
        return None
    heatmap = _cropped(heatmap)
    bounds = levels(max(map(max, heatmap.counts)))
    scale_s, unit = (_S_PER_MINUTE, "minutes") if heatmap.end_s >= _LONG_S else (1.0, "seconds")
    times = [at / scale_s for at in (*heatmap.starts_s, heatmap.end_s)]
    edges = _edges_ms(heatmap)
    canvas = Canvas(
        Axis(times[0], times[-1], f"{unit} since the measured phase began"),
        Axis(edges[0], edges[-1], "milliseconds", is_log=True),
        290,
    )
    for level, cells in by_level(heatmap, bounds).items():
        css = f"fill:var(--heat-{level + 1})"
        canvas.fill(
            [(times[column], times[column + 1], edges[first], edges[end]) for column, first, end in cells],
            css,
        )
    canvas.keys += [
        Key(f"{bound:,}+", f"fill:var(--heat-{level + 1})", is_filled=True)
        for level, bound in enumerate(bounds)
    ]
    canvas.extra = {
        "cells": {
            "x": [round(at, 3) for at in times],
            "y": [float(f"{ms:.4g}") for ms in edges],
            "counts": [" ".join(str(count or "") for count in column).rstrip() for column in heatmap.counts],
            "events": events,
        }
    }
    width_s = heatmap.starts_s[1] - heatmap.starts_s[0] if len(heatmap.starts_s) > 1 else heatmap.end_s
    caption = (
        f"Each cell counts the {events} of {width_s:,.4g} s whose latency was in its range. From colour to "
        "colour counts grow by the same factor, so that a single slow one shows beside many quick ones."
    )
    title = f"Latency heat map: {events} by time and latency"
    return canvas.finish("heatmap", title, tabulate(heatmap), caption)


def levels(highest: int) -> list[int]:
    """Return the lowest count of each colour, from 1 on, evenly spaced on a logarithmic scale."""
    bounds = [round(highest ** (level / HEAT_LEVELS)) for level in range(HEAT_LEVELS)]
    return sorted(set(bounds))


def by_level(heatmap: Heatmap, bounds: Sequence[int]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the cells of each colour: column, first row, row beyond the last; neighbours are one cell."""
    cells: dict[int, list[tuple[int, int, int]]] = {}
    for column, counts in enumerate(heatmap.counts):
        row = 0
        for level, group in groupby(bisect_right(bounds, count) - 1 for count in counts):
            end = row + len(list(group))
            if level >= 0:
                cells.setdefault(level, []).append((column, row, end))
            row = end
    return cells


def tabulate(heatmap: Heatmap) -> Table:
    """Return the same counts, coarser: some rows of time, a column for each decade of latency."""
    starts = [0, *(row for row, us in enumerate(heatmap.edges_us) if row and _is_new_decade(heatmap, row))]
    ends = [*starts[1:], len(heatmap.edges_us)]
    names = [f"from {heatmap.edges_us[start] / _US_PER_MS:,.3g} ms" for start in starts]
    each = -(-len(heatmap.counts) // _ROWS)
    rows = []
    for first in range(0, len(heatmap.counts), each):
        columns = heatmap.counts[first : first + each]
        counts = [
            sum(sum(column[start:end]) for column in columns) for start, end in zip(starts, ends, strict=True)
        ]
        rows.append([f"{heatmap.starts_s[first]:,.4g}", *(f"{count:,}" for count in counts)])
    return Table(["from second", *names], rows)


def _cropped(heatmap: Heatmap) -> Heatmap:
    """Return the heat map without the rows below and above all counts."""
    rows = [row for row in range(len(heatmap.edges_us)) if any(column[row] for column in heatmap.counts)]
    occurring = slice(rows[0], rows[-1] + 1)
    counts = [column[occurring] for column in heatmap.counts]
    return structs.replace(heatmap, edges_us=heatmap.edges_us[occurring], counts=counts)


def _edges_ms(heatmap: Heatmap) -> list[float]:
    """Return the edges of the rows with an end for the last one; a first edge of 0 is moved up."""
    edges = [us / _US_PER_MS for us in heatmap.edges_us]
    edges.append(edges[-1] * _OPEN_END)
    if edges[0] <= 0:  # a logarithmic scale has no 0
        edges[0] = edges[1] / _OPEN_END
    return edges


def _is_new_decade(heatmap: Heatmap, row: int) -> bool:
    before, edge = heatmap.edges_us[row - 1], heatmap.edges_us[row]
    return _decade(before) != _decade(edge)


def _decade(us: float) -> int:
    return floor(log10(max(us, 1e-3)) + 1e-9)
