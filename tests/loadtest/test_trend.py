"""Trends of generated series, with and without growth."""

import math
import random
from itertools import pairwise

import pytest

from loadtest.runner.building.trend import MIN_VALUES, judge_trend, mann_kendall, theil_sen

MINUTE_S = 60.0
HOUR_S = 3600.0
RSS, RSS_PERCENT = 200e6, 5.0
P99_US, P99_PERCENT = 5000.0, 100.0


def noise(count: int, seed: int, *, memory: float = 0.0) -> list[float]:
    """Normal values of deviation 1, each like the one before it as far as `memory` says."""
    source = random.Random(seed)
    values, last = [], source.gauss(0, 1)
    for _ in range(count):
        values.append(last)
        last = memory * last + math.sqrt(1 - memory**2) * source.gauss(0, 1)
    return values


def minutes(count: int) -> list[float]:
    return [MINUTE_S * number for number in range(count)]


def judge(values, percent):
    return judge_trend("a_series", minutes(len(values)), values, percent)


def broken(series, percent, seeds=200) -> float:
    """The share of seeds with which a series is said to grow."""
    return sum(not judge(series(seed), percent).holds for seed in range(seeds)) / seeds


@pytest.mark.parametrize("count", [MIN_VALUES, 20, 60, 200])
@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_noise_is_rarely_taken_for_growth(count, memory):
    def rss(seed):
        return [RSS * (1 + 0.01 * value) for value in noise(count, seed, memory=memory)]

    def p99(seed):
        return [P99_US * math.exp(0.4 * value) for value in noise(count, seed, memory=memory)]

    # A series of 200 takes a hundred times as long as one of 20.
    seeds = 200 if count < 200 else 60
    assert broken(rss, RSS_PERCENT, seeds) <= 0.05
    assert broken(p99, P99_PERCENT, seeds) <= 0.05


@pytest.mark.parametrize(("percent", "found"), [(10, 0.9), (30, 0.99), (200, 1.0)])
def test_a_leak_is_found_in_half_an_hour(percent, found):
    def leaking(seed):
        drift = [1 + percent / 100 * at / HOUR_S for at in minutes(20)]
        return [
            RSS * (grown + 0.005 * value)
            for grown, value in zip(drift, noise(20, seed, memory=0.3), strict=True)
        ]

    assert broken(leaking, RSS_PERCENT) >= found


def test_a_leak_in_steps_is_found():
    steps = [RSS * (1 + 0.02 * (number // 4)) for number in range(20)]
    trend = judge(steps, RSS_PERCENT)
    assert not trend.holds
    assert trend.slope_per_hour == pytest.approx(RSS * 0.02 * 15, rel=0.1)


def test_latency_that_more_than_doubles_within_an_hour_is_found_however_long_the_run():
    for count in (40, 200):

        def slowing(seed, count=count):
            drift = [1 + 3 * at / HOUR_S for at in minutes(count)]
            return [
                P99_US * grown * math.exp(0.2 * value)
                for grown, value in zip(drift, noise(count, seed), strict=True)
            ]

        assert broken(slowing, P99_PERCENT, seeds=50) >= 0.9


def test_growth_within_the_limit_is_allowed_even_if_significant():
    slow = [RSS * (1 + 0.04 * at / HOUR_S) for at in minutes(60)]
    trend = judge(slow, RSS_PERCENT)
    assert trend.holds
    assert trend.p_value < 1e-6
    assert trend.slope_per_hour == pytest.approx(RSS * 0.04)
    assert trend.limit == pytest.approx(RSS * 0.05, rel=0.02)
    assert not judge(slow, 3.0).holds


@pytest.mark.parametrize(
    "values",
    [
        [RSS] * 20,
        [RSS] * 10 + [RSS * 1.1] * 10,  # once, and then no more
        [RSS * (1 - 0.01 * number) for number in range(20)],
        [RSS * (1 + 0.1 * (number == 13)) for number in range(20)],
        [RSS * (1 + 0.1 * (number % 2)) for number in range(20)],
        [0.0] * 20,
    ],
    ids=["constant", "one step", "falling", "one spike", "alternating", "zero"],
)
def test_series_without_significant_growth_hold(values):
    assert judge(values, RSS_PERCENT).holds


def test_any_growth_from_0_is_above_the_limit():
    assert not judge([float(number) for number in range(20)], 5.0).holds


@pytest.mark.parametrize("count", [0, 1, MIN_VALUES - 1])
def test_too_few_values_are_not_judged_and_do_not_hold(count):
    trend = judge([RSS * (1 + number) for number in range(count)], RSS_PERCENT)
    assert (trend.slope_per_hour, trend.p_value, trend.holds) == (None, None, False)


def test_outliers_do_not_change_the_slope():
    times = minutes(21)
    values = [7.0 + 2.0 * at for at in times]
    assert theil_sen(times, values) == pytest.approx(2.0)
    values[5], values[17] = 1e9, -1e9
    assert theil_sen(times, values) == pytest.approx(2.0, rel=0.05)


def test_the_slope_respects_gaps():
    assert theil_sen([0.0, 60.0, 600.0], [1.0, 2.0, 11.0]) == pytest.approx(1 / 60)


@pytest.mark.parametrize(
    ("values", "score", "variance"),
    [
        # Every pair rises: S = 10 * 9 / 2, variance = 10 * 9 * 25 / 18.
        (list(range(10)), 45, 125),
        # Five pairs are ties: each takes 2 * 1 * 9 from the sum.
        ([number // 2 for number in range(10)], 40, 120),
    ],
)
def test_the_statistic_matches_known_values(values, score, variance):
    z = (score - 1) / math.sqrt(variance)
    assert mann_kendall(values) == pytest.approx(0.5 * math.erfc(z / math.sqrt(2)), rel=1e-6)


def test_a_rise_and_the_same_fall_have_mirrored_results():
    values = noise(30, 5)
    rise = [value + 0.1 * number for number, value in enumerate(values)]
    fall = [-value for value in rise]
    assert mann_kendall(rise) + mann_kendall(fall) == pytest.approx(1.0)
    assert mann_kendall([1.0] * 30) == 1.0


def test_correlated_values_make_a_rise_less_significant():
    rising = [number + 3 * value for number, value in enumerate(noise(40, 3))]
    waves = [number + 6 * math.sin(number / 4) for number in range(40)]
    assert mann_kendall(rising) < 1e-4
    naive = 0.5 * math.erfc((_score(waves) - 1) / math.sqrt(2 * 40 * 39 * 85 / 18))
    assert mann_kendall(waves) > 100 * naive


def _score(values):
    return sum((b > a) - (b < a) for index, a in enumerate(values) for b in values[index + 1 :])


def test_the_test_series_have_the_stated_correlation():
    values = noise(5000, 1, memory=0.6)
    products = sum(a * b for a, b in pairwise(values)) / sum(value * value for value in values)
    assert products == pytest.approx(0.6, abs=0.05)
