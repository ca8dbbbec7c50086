"""The latency heat map: a run's histograms by time, on a grid coarse enough to draw."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from loadtest.result.histogram import HIGHEST_NS, Histogram, LoggedInterval
from loadtest.result.schema import Heatmap

_MOST_COLUMNS = 240
_ROWS_PER_DECADE = 8
_NS_PER_US = 1000


def draw_heatmap(logged: Sequence[LoggedInterval]) -> Heatmap | None:
    """Every value of the intervals in one cell; None without any.

    A column is a second, or as many whole ones as leave at most 240. Edges are ends of the histograms'
    own ranges, so that no range lies in two rows.
    """
    if not logged:
        return None
    seconds = 1 + max(round(part.start_s) for part in logged)
    width = ceil(seconds / _MOST_COLUMNS)
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
    """Evenly spaced on a logarithmic scale, from 0 on, over all that a histogram can hold."""
    histogram, edges, step = Histogram(), {0}, 0
    while (edge := int(10 ** (step / _ROWS_PER_DECADE))) <= HIGHEST_NS:
        edges.add(histogram.floor(edge))
        step += 1
    return sorted(edges)
