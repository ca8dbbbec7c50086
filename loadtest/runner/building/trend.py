"""Growth of a series: the Mann-Kendall test shows whether it grows, the Theil-Sen slope how fast.

Both use only pairs of values, so neither the distribution of the noise nor a few outliers matter. Successive
values resemble each other, so that chance can look like growth; the variance of the test is increased
accordingly (Yue and Wang 2004).

A trend breaks its limit if the growth is significant *and* faster than allowed. Neither alone is enough: a
few bytes are significant in a quiet series, and a noisy series can have any slope by chance.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import NormalDist, fmean, median

from loadtest.result.schema import Trend

MIN_VALUES = 10
"""Smallest number of values that is judged: the normal approximation of the test needs ten."""
SIGNIFICANCE = 0.01
"""Probability of finding growth in a series that does not grow."""
_LEVEL_DIVISOR = 4  # growth is relative to the level of the first quarter
_MAX_CORRELATION = 0.75  # estimates from few values are rough, and a steady rise must stay significant
_S_PER_HOUR = 3600.0


def judge_trend(
    name: str, times_s: Sequence[float], values: Sequence[float], percent_per_hour: float
) -> Trend:
    """Return the verdict over a series.

    Args:
        name: Name of the series.
        times_s: Times of the values in seconds, increasing.
        values: As many values, in the series' own unit.
        percent_per_hour: Allowed growth, relative to the median of the first quarter of the values.

    Returns:
        A trend that does not hold if the growth is significant and beyond the limit, or if there are too few
            values.
    """
    level = median(values[: math.ceil(len(values) / _LEVEL_DIVISOR)]) if values else 0.0
    limit = level * percent_per_hour / 100
    if len(values) < MIN_VALUES:
        return Trend(name=name, slope_per_hour=None, limit=limit, p_value=None, holds=False)
    slope = theil_sen(times_s, values) * _S_PER_HOUR
    p_value = mann_kendall(values)
    grows = p_value < SIGNIFICANCE and slope > limit
    return Trend(name=name, slope_per_hour=slope, limit=limit, p_value=p_value, holds=not grows)


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope of all pairs of points (Theil 1950, Sen 1968).

    At least two points are needed, and their times must differ.
    """
    points = zip(times, values, strict=True)
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def mann_kendall(values: Sequence[float]) -> float:
    """Return the probability that values without a trend rise as much or more (Mann 1945, Kendall 1975).

    The values are evenly spaced. The test is one-sided: near 0 for a rise, near 1 for a fall. It uses the
    normal approximation with continuity correction, and corrects the variance for ties and for serial
    correlation.
    """
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    count = len(values)
    ties = sum(n * (n - 1) * (2 * n + 5) for n in Counter(values).values())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    if variance <= 0:  # all values are equal
        return 1.0
    variance *= _inflation(values)
    corrected = score - (score > 0) + (score < 0)
    return 1 - NormalDist().cdf(corrected / math.sqrt(variance))


def _inflation(values: Sequence[float]) -> float:
    """Return the factor by which serial correlation increases the variance (first-order autoregression).

    The correlation is between neighbouring ranks, after the slope has been removed. It is corrected for its
    bias in short series. A negative correlation counts as none.
    """
    count = len(values)
    slope = theil_sen(range(count), values)
    residuals = [value - slope * index for index, value in enumerate(values)]
    ordered = sorted(residuals)
    ranks = [bisect_left(ordered, value) + bisect_right(ordered, value) for value in residuals]
    centre = fmean(ranks)
    spread = sum((rank - centre) ** 2 for rank in ranks)
    if spread == 0 or count < MIN_VALUES:
        return 1.0
    correlation = sum((one - centre) * (other - centre) for one, other in pairwise(ranks)) / spread
    correlation = min(max((count * correlation + 1) / (count - 4), 0.0), _MAX_CORRELATION)
    return 1 + 2 * sum((1 - lag / count) * correlation**lag for lag in range(1, count))
