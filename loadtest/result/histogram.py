"""Histograms of nanosecond values as the engine records them: merging, percentiles and two file formats."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import ceil
from typing import Self, TextIO

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

LOWEST_NS = 1
HIGHEST_NS = 3_600_000_000_000
SIGNIFICANT_DIGITS = 3
_NS_PER_MS = 1_000_000
_TICKS_PER_HALF_DISTANCE = 5


class Histogram:
    """Counts of nanosecond values from 1 ns to 1 h, with three significant digits."""

    def __init__(self) -> None:
        """Make an empty histogram."""
        self._hdr = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)

    @classmethod
    def merged(cls, encoded: Iterable[str]) -> Self:
        """Return the sum of histograms, each a base64 text in HdrHistogram's V2 encoding.

        Raises:
            ValueError: A text is not a histogram, or has values beyond the range.
        """
        histogram = cls()
        for text in encoded:
            histogram.add(text)
        return histogram

    def add(self, encoded: str) -> None:
        """Add a histogram, given as a base64 text in HdrHistogram's V2 encoding.

        Raises:
            ValueError: The text is not a histogram, or has values beyond the range.
        """
        try:
            other = HdrHistogram.decode(encoded.encode("ascii"))
        except Exception as error:
            # The package lets exceptions of zlib, base64 and its own through; Exception is their only base.
            raise ValueError(f"not an HdrHistogram: {error}") from error
        if not other.get_total_count():  # adding it would make the minimum 0
            return
        try:
            self._hdr.add(other)
        except IndexError as error:
            raise ValueError(f"the histogram has values beyond {HIGHEST_NS} ns") from error

    def record(self, value_ns: int, count: int = 1) -> None:
        """Add a value `count` times.

        Raises:
            ValueError: The value is out of range.
        """
        if not self._hdr.record_value(value_ns, count):
            raise ValueError(f"{value_ns} ns is outside {LOWEST_NS}..{HIGHEST_NS}")

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self._hdr.get_total_count())

    def encode(self) -> str:
        """Return the histogram as a base64 text in HdrHistogram's V2 encoding."""
        return str(self._hdr.encode().decode("ascii"))

    def values_at(self, percentiles: Sequence[str]) -> list[int]:
        """Return the value in nanoseconds at each percentile, such as "99.9"; 0 if the histogram is empty.

        Like in all HdrHistogram tools, a value is the upper end of one of the histogram's ranges.
        """
        cumulative = np.cumsum(self._counts)
        return [self._value_at(Fraction(percentile) / 100, cumulative) for percentile in percentiles]

    def curve(self, points_per_decade: int = 40) -> list[tuple[float, int]]:
        """Return the points (1 / (1 - share), nanoseconds) of a percentile chart, in rising order."""
        if not self.count:
            return []
        cumulative = np.cumsum(self._counts)
        points: list[tuple[float, int]] = []
        step = 0
        while (inverse := 10 ** (step / points_per_decade)) < self.count:
            points.append((inverse, self._value_at(1 - 1 / Fraction(inverse), cumulative)))
            step += 1
        points.append((float(self.count), self._value_at(Fraction(1), cumulative)))
        return points

    def floor(self, value_ns: int) -> int:
        """Return the lower end, in nanoseconds, of the histogram's range that has this value."""
        return int(self._hdr.get_lowest_equivalent_value(value_ns))

    def counts_from(self, edges_ns: Sequence[int]) -> NDArray[np.int64]:
        """Return the number of values from each edge up to the next one, and from the last edge on.

        Edges rise, and each is a `floor`. Values below the first edge are not counted.
        """
        starts = [self._hdr.get_counts_array_index(edge) for edge in edges_ns]
        return np.add.reduceat(self._counts, starts)

    def distribution(self) -> list[tuple[int, float, int]]:
        """Return the rows of a .hgrm file: nanoseconds, share of the values up to that, number of these."""
        if not self.count:
            return []
        return [
            (step.value_iterated_to, step.percentile_level_iterated_to / 100, step.total_count_to_this_value)
            for step in self._hdr.get_percentile_iterator(_TICKS_PER_HALF_DISTANCE)
        ]

    @property
    def buckets(self) -> tuple[int, int]:
        """Numbers of buckets and of sub-buckets, which .hgrm files contain."""
        return self._hdr.bucket_count, self._hdr.sub_bucket_count

    @property
    def _counts(self) -> NDArray[np.int64]:
        """Count of each range, in the order of values; a view, not a copy."""
        return np.frombuffer(self._hdr.counts, dtype=np.int64)

    def _value_at(self, share: Fraction, cumulative: NDArray[np.int64]) -> int:
        total = int(cumulative[-1])
        if not total:
            return 0
        index = int(np.searchsorted(cumulative, max(1, ceil(share * total))))
        return int(self._hdr.get_highest_equivalent_value(self._hdr.get_value_from_index(index)))


@dataclass(frozen=True)
class LoggedInterval:
    """One line of a histogram log."""

    start_s: float
    """Start of the interval, in seconds since the log's start."""
    end_s: float
    """End of the interval, in seconds since the log's start."""
    encoded: str
    """Histogram of the interval: base64, HdrHistogram's V2 encoding."""
    max_ns: int


def write_hlog(file: TextIO, tag: str, started: datetime, intervals: Iterable[LoggedInterval]) -> None:
    """Write a histogram log, format 1.3: nanosecond values, interval maxima in milliseconds, tagged lines."""
    file.write("#[Histogram log format version 1.3]\n")
    file.write(f"#[StartTime: {started.timestamp():.3f} (seconds since epoch), {started.isoformat()}]\n")
    file.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')
    for interval in intervals:
        length = interval.end_s - interval.start_s
        peak = interval.max_ns / _NS_PER_MS
        file.write(f"Tag={tag},{interval.start_s:.3f},{length:.3f},{peak:.3f},{interval.encoded}\n")


def write_hgrm(file: TextIO, histogram: Histogram, *, mean_ns: float, stddev_ns: float, max_ns: int) -> None:
    """Write the percentile distribution in milliseconds, in the format of HdrHistogram's plotters.

    Mean, deviation and maximum are arguments because the engine computes them from the exact values.
    """
    file.write(f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}\n\n")
    for value, share, count in histogram.distribution():
        row = f"{min(value, max_ns) / _NS_PER_MS:12.6f} {share:2.12f} {count:10d}"
        file.write(f"{row} {1 / (1 - share):14.2f}\n" if share < 1 else f"{row}\n")
    buckets, sub_buckets = histogram.buckets
    file.write(
        f"#[Mean    = {mean_ns / _NS_PER_MS:12.6f}, StdDeviation   = {stddev_ns / _NS_PER_MS:12.6f}]\n"
    )
    file.write(f"#[Max     = {max_ns / _NS_PER_MS:12.6f}, Total count    = {histogram.count:12d}]\n")
    file.write(f"#[Buckets = {buckets:12d}, SubBuckets     = {sub_buckets:12d}]\n")
