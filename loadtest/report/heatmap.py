"""The latency heat map: how many replies of which time took how long."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from math import floor, log10

from matplotlib.axes import Axes
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from msgspec import structs

from loadtest.report.canvas import HEAT, HEAT_LEVELS, Chart, Table, canvas, to_svg
from loadtest.result.schema import Heatmap

_US_PER_MS = 1e3
_OPEN_END = 10 ** (1 / 8)
"""Height of the last row, which has no upper end, as a factor."""
_ROWS = 20
_S_PER_MINUTE = 60.0
_LONG_S = 600.0


def draw(heatmap: Heatmap | None, events: str) -> Chart | None:
    """Time across, latency upwards, the count by colour; None without any count."""
    if heatmap is None or not any(map(any, heatmap.counts)):
        return None
    heatmap = _cropped(heatmap)
    bounds = levels(max(map(max, heatmap.counts)))
    scale_s, unit = (_S_PER_MINUTE, "minutes") if heatmap.end_s >= _LONG_S else (1.0, "seconds")
    times = [at / scale_s for at in (*heatmap.starts_s, heatmap.end_s)]
    edges = _edges_ms(heatmap)
    with canvas(3.8) as (figure, axes):
        for level, cells in _by_level(heatmap, bounds).items():
            _fill(axes, cells, times, edges, HEAT[level])
        axes.set_xlim(times[0], times[-1])
        axes.set_ylim(edges[0], edges[-1])
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_xlabel(f"{unit} since the measured phase began")
        axes.set_ylabel("milliseconds")
        handles = [Patch(color=HEAT[level], label=f"{bound:,}+") for level, bound in enumerate(bounds)]
        axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=HEAT_LEVELS,
            columnspacing=1.0, handlelength=1.2, handletextpad=0.4,
        )  # fmt: skip
        title = f"Latency heat map: {events} by time and latency"
        svg = to_svg(figure, "heatmap", title)
    width_s = heatmap.starts_s[1] - heatmap.starts_s[0] if len(heatmap.starts_s) > 1 else heatmap.end_s
    caption = (
        f"Each cell counts the {events} of {width_s:,.4g} s whose latency was in its range. From colour to "
        "colour counts grow by the same factor, so that a single slow one shows beside many quick ones."
    )
    return Chart("heatmap", title, svg, tabulate(heatmap), caption)


def _cropped(heatmap: Heatmap) -> Heatmap:
    """Without the rows below and above all counts."""
    rows = [row for row in range(len(heatmap.edges_us)) if any(column[row] for column in heatmap.counts)]
    occurring = slice(rows[0], rows[-1] + 1)
    counts = [column[occurring] for column in heatmap.counts]
    return structs.replace(heatmap, edges_us=heatmap.edges_us[occurring], counts=counts)


def levels(highest: int) -> list[int]:
    """The lowest count of each colour, each about the same multiple of the one before, from 1 on."""
    bounds = [round(highest ** (level / HEAT_LEVELS)) for level in range(HEAT_LEVELS)]
    return sorted(set(bounds))


def tabulate(heatmap: Heatmap) -> Table:
    """The same counts, coarser: some rows of time, a column for each decade of latency."""
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


def _edges_ms(heatmap: Heatmap) -> list[float]:
    """With an end for the last row; a first one of 0, which a logarithmic scale has not, is moved."""
    edges = [us / _US_PER_MS for us in heatmap.edges_us]
    edges.append(edges[-1] * _OPEN_END)
    if edges[0] <= 0:
        edges[0] = edges[1] / _OPEN_END
    return edges


def _is_new_decade(heatmap: Heatmap, row: int) -> bool:
    before, edge = heatmap.edges_us[row - 1], heatmap.edges_us[row]
    return _decade(before) != _decade(edge)


def _decade(us: float) -> int:
    return floor(log10(max(us, 1e-3)) + 1e-9)


def _by_level(heatmap: Heatmap, bounds: Sequence[int]) -> dict[int, list[tuple[int, int, int]]]:
    """For each colour its cells, (column, first row, row beyond the last): neighbours are one."""
    cells: dict[int, list[tuple[int, int, int]]] = {}
    for column, counts in enumerate(heatmap.counts):
        row = 0
        for level, group in groupby(bisect_right(bounds, count) - 1 for count in counts):
            end = row + len(list(group))
            if level >= 0:
                cells.setdefault(level, []).append((column, row, end))
            row = end
    return cells


def _fill(
    axes: Axes,
    cells: Sequence[tuple[int, int, int]],
    times: Sequence[float],
    edges: Sequence[float],
    colour: str,
) -> None:
    """All cells of a colour as one path, with sharp edges so that no seams show."""
    vertices: list[tuple[float, float]] = []
    for column, first, end in cells:
        left, right, low, high = times[column], times[column + 1], edges[first], edges[end]
        vertices += [(left, low), (left, high), (right, high), (right, low), (left, low)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(cells)
    axes.add_patch(PathPatch(Path(vertices, codes), facecolor=colour, linewidth=0, antialiased=False))
