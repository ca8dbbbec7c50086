"""Whether a series grows: Mann-Kendall's test for whether, Theil and Sen's slope for how fast.

Both look at pairs of values alone, so neither the distribution of the noise nor a few wild values matter.
Values that follow each other resemble each other, which makes chance look like growth; the test's variance is
widened accordingly (Yue and Wang 2004).

A trend breaks its limit when growth is significant *and* faster than allowed. Either alone is no reason: in
a quiet series a few bytes are significant, and in a noisy one any slope comes about by chance.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import NormalDist, fmean, median

from loadtest.result.schema import Trend

LEAST_VALUES = 10
"""Fewer values are not judged: the test's normal approximation begins here."""
SIGNIFICANCE = 0.01
"""How often growth may be found where there is none."""
_LEVEL_SHARE = 4  # the level that growth is relative to is that of the first quarter
_MOST_ALIKE = 0.75  # estimates from few values are rough, and a strict rise must stay evidence
_S_PER_HOUR = 3600.0


def judge_trend(
    name: str, times_s: Sequence[float], values: Sequence[float], percent_per_hour: float
) -> Trend:
    """The verdict over a series.

    Args:
        name: The series' name.
        times_s: When the values were taken, increasing.
        values: As many, in the series' own unit.
        percent_per_hour: Growth that is allowed, of the median of the first quarter of the values.

    Returns:
        A trend that does not hold when growth is significant and beyond the limit, or when there are too few
        values to tell.
    """
    level = median(values[: math.ceil(len(values) / _LEVEL_SHARE)]) if values else 0.0
    limit = level * percent_per_hour / 100
    if len(values) < LEAST_VALUES:
        return Trend(name=name, slope_per_hour=None, limit=limit, p_value=None, holds=False)
    slope = theil_sen(times_s, values) * _S_PER_HOUR
    p_value = mann_kendall(values)
    grows = p_value < SIGNIFICANCE and slope > limit
    return Trend(name=name, slope_per_hour=slope, limit=limit, p_value=p_value, holds=not grows)


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """The median slope of all pairs of points (Theil 1950, Sen 1968); at least two, times all different."""
    points = zip(times, values, strict=True)
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def mann_kendall(values: Sequence[float]) -> float:
    """The chance that evenly spaced values without a trend rise like these or more (Mann 1945, Kendall 1975).

    One-sided: near 0 for a rise, near 1 for a fall. Normal approximation with continuity correction, the
    variance corrected for ties and for serial correlation.
    """
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    count = len(values)
    ties = sum(n * (n - 1) * (2 * n + 5) for n in Counter(values).values())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    if variance <= 0:  # all the same
        return 1.0
    variance *= _inflation(values)
    corrected = score - (score > 0) + (score < 0)
    return 1 - NormalDist().cdf(corrected / math.sqrt(variance))


def _inflation(values: Sequence[float]) -> float:
    """What serial correlation multiplies the variance by, as in a first-order autoregressive series.

    The correlation is that of neighbouring ranks, the slope taken off before, corrected for its bias in
    short series; alternating values are not taken for evidence.
    """
    count = len(values)
    slope = theil_sen(range(count), values)
    rest = [value - slope * index for index, value in enumerate(values)]
    ordered = sorted(rest)
    ranks = [bisect_left(ordered, value) + bisect_right(ordered, value) for value in rest]
    centre = fmean(ranks)
    spread = sum((rank - centre) ** 2 for rank in ranks)
    if spread == 0 or count < LEAST_VALUES:
        return 1.0
    alike = sum((one - centre) * (other - centre) for one, other in pairwise(ranks)) / spread
    alike = min(max((count * alike + 1) / (count - 4), 0.0), _MOST_ALIKE)
    return 1 + 2 * sum((1 - lag / count) * alike**lag for lag in range(1, count))
