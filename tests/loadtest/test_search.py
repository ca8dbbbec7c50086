"""Choice of rates in a search for the capacity, with simulated servers of known capacity."""

import random
from collections import Counter
from math import log2

import pytest

from loadtest.experiments.search import Search, rounded


def explore(search, holds):
    """Every rate that was tried, with its outcome, until the search ends."""
    tried = []
    while (step := search.next_rate()) is not None:
        rate, purpose = step
        outcome = holds(rate)
        tried.append((rate, purpose, outcome))
        search.note(rate, holds=outcome)
        assert len(tried) < 200, "the search does not end"
    return tried


@pytest.mark.parametrize("precision", [0.001, 0.02, 0.2])
def test_the_capacity_of_a_server_without_noise_is_found(precision):
    for seed in range(20):
        limit, lowest = 10 ** random.Random(seed).uniform(1, 6), 10.0
        search = Search(lowest, None, precision)
        tried = explore(search, lambda rate, limit=limit: rate <= limit)
        assert search.held <= limit < search.failed, seed
        # Half a digit's rounding lies between what was asked for and what is found.
        assert search.failed / search.held - 1 <= precision * 1.2, seed
        failures = Counter(rate for rate, _, outcome in tried if not outcome)
        assert failures[search.failed] == 2, seed
        growth, bisection = log2(limit / lowest), log2(1 / precision)
        assert len(tried) <= growth + bisection + 8, seed


def test_a_chance_failure_near_the_capacity_is_corrected():
    seen = Counter()

    def holds(rate):
        seen[rate] += 1
        return rate <= 1000 and not (rate > 950 and seen[rate] == 1)

    search = Search(100, None, 0.02)
    tried = explore(search, holds)
    assert 980 < search.held <= 1000 < search.failed
    again = [rate for rate, purpose, outcome in tried if purpose == "confirmation" and outcome]
    assert again
    assert min(again) > 950


def test_a_chance_failure_far_below_the_capacity_is_corrected():
    seen = Counter()

    def holds(rate):
        seen[rate] += 1
        return rate <= 1000 and not (rate == 400 and seen[rate] == 1)

    search = Search(100, None, 0.02)
    explore(search, holds)
    assert 980 < search.held <= 1000 < search.failed
    assert seen[400] == 2


def test_not_even_the_lowest_rate_holds_when_it_fails_twice():
    search = Search(100, None, 0.02)
    tried = explore(search, lambda rate: False)
    assert [(rate, purpose) for rate, purpose, _ in tried] == [(100, "growth"), (100, "confirmation")]
    assert search.held is None


def test_nothing_above_the_highest_rate_is_tried():
    search = Search(100, 350, 0.02)
    tried = explore(search, lambda rate: True)
    assert [rate for rate, _, _ in tried] == [100, 200, 350]
    assert (search.held, search.failed) == (350, None)


def test_a_failing_highest_rate_is_the_upper_end_of_the_search():
    search = Search(100, 350, 0.02)
    tried = explore(search, lambda rate: rate <= 300)
    assert max(rate for rate, _, _ in tried) == 350
    assert 294 < search.held <= 300


@pytest.mark.parametrize(("precision", "expected"), [(0.02, 12_350.0), (0.2, 12_300.0), (0.001, 12_346.0)])
def test_rates_have_as_few_digits_as_the_precision_asks_for(precision, expected):
    assert rounded(12_345.678, precision) == expected
