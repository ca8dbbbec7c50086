"""The latency heat map: a run's histograms over time, on a grid coarse enough to draw."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from loadtest.result.histogram import HIGHEST_NS, Histogram, LoggedInterval
from loadtest.result.schema import Heatmap

_MAX_COLUMNS = 240
_ROWS_PER_DECADE = 8
_NS_PER_US = 1000


def build_heatmap(logged: Sequence[LoggedInterval]) -> Heatmap | None:
    """Return the number of values in each cell of the grid; None without any value.

    A column is a second, or as many whole seconds as keep the number of columns at 240 or less. The edges of
    the rows are edges of the histograms' own ranges, so that each range belongs to one row.
    """
    if not logged:
        return None
    seconds = 1 + max(round(part.start_s) for part in logged)
    width = ceil(seconds / _MAX_COLUMNS)
    edges = _edges_ns()
    counts = np.zeros((ceil(seconds / width), len(edges)), dtype=np.int64)
    for part in logged:
        counts[round(part.start_s) // width] += Histogram.merged([part.encoded]).counts_from(edges)
    rows = np.flatnonzero(counts.any(axis=0))
    if not rows.size:
        return None
    occurring = slice(rows[0], rows[-1] + 1)
    return Heatmap(
        starts_s=[float(column * width) for column in range(len(counts))],
        end_s=max(part.end_s for part in logged),
        edges_us=[edge / _NS_PER_US for edge in edges[occurring]],
        counts=counts[:, occurring].tolist(),
    )


def _edges_ns() -> list[int]:
    """Return edges in nanoseconds from 0 to the histogram's limit, evenly spaced on a logarithmic scale."""
    histogram, edges, step = Histogram(), {0}, 0
    while (edge := int(10 ** (step / _ROWS_PER_DECADE))) <= HIGHEST_NS:
        edges.add(histogram.floor(edge))
        step += 1
    return sorted(edges)
