"""Merged measurements of workers equal the measurements of one worker that measures everything."""

import math
import os
import random
from fractions import Fraction

import pytest
from hdrh.histogram import HdrHistogram

from loadtest.result.histogram import HIGHEST_NS, LOWEST_NS, Histogram
from loadtest.runner.building.result import build_result, merge_intervals, summarise
from tests.loadtest import samples

SEED = int(os.environ.get("TEST_SEED", "0"))
SEEDS = [SEED] if SEED else range(1, 13)
PERCENTILES = ("p50", "p90", "p95", "p99", "p99_9", "p99_99")


def workers(seed: int) -> list[list[int]]:
    """Latencies in nanoseconds of a few workers: many or few, fast or slow, some with none, some constant."""
    source = random.Random(seed)
    parts = []
    for _ in range(source.randint(1, 9)):
        count = source.choice([0, 1, source.randint(2, 50), source.randint(1000, 4000)])
        low, high = sorted((source.uniform(0.0, 12.0), source.uniform(0.0, 12.0)))
        if source.random() < 0.2:
            low = high
        parts.append([max(1, int(10 ** source.uniform(low, high))) for _ in range(count)])
    source.shuffle(parts)
    return [*parts, [source.randint(1, 10**9)]]


def in_one(parts: list[list[int]]) -> tuple[HdrHistogram, list[int]]:
    """One histogram, of the library itself, that is fed with every value, and the values in order."""
    histogram, values = HdrHistogram(LOWEST_NS, HIGHEST_NS, 3), sorted(v for part in parts for v in part)
    for value in values:
        assert histogram.record_value(value)
    return histogram, values


@pytest.mark.parametrize("seed", SEEDS)
def test_merging_gives_the_counts_sums_and_percentiles_of_all_values(seed):
    parts = workers(seed)
    latency, encoded = summarise([samples.moments(part) for part in parts])
    histogram, values = in_one(parts)
    assert Histogram.merged([encoded]).encode() == histogram.encode().decode()
    assert latency.count == len(values) == histogram.get_total_count()
    assert (latency.min, latency.max) == (values[0] / 1000, values[-1] / 1000)
    for name in PERCENTILES:
        # By rank: the library's own percentiles go by a float, which may be that of a neighbour.
        share = Fraction(name[1:].replace("_", ".")) / 100
        rank = max(1, math.ceil(share * len(values)))
        told = histogram.get_highest_equivalent_value(values[rank - 1])
        assert getattr(latency, name) == min(max(told, values[0]), values[-1]) / 1000, name
    mean = Fraction(sum(values), len(values))
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    assert latency.mean == pytest.approx(float(mean / 1000), rel=1e-15)
    assert latency.stddev == pytest.approx(math.sqrt(variance) / 1000, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_result_does_not_depend_on_workers_or_their_order(seed):
    parts = [part for part in workers(seed) if part]
    together = summarise([samples.moments([value for part in parts for value in part])])
    assert summarise([samples.moments(part) for part in parts]) == together
    assert summarise([samples.moments(part) for part in reversed(parts)]) == together


@pytest.mark.parametrize("seed", SEEDS)
def test_intervals_log_and_heatmap_have_every_value_once(seed):
    parts = workers(seed)
    results = [samples.requestor_result(part, seconds=1 + len(part) % 5) for part in parts]
    histogram, values = in_one(parts)
    intervals, logged = merge_intervals(results)
    assert Histogram.merged(part.encoded for part in logged).encode() == histogram.encode().decode()
    assert sum(interval.received for interval in intervals) == len(values)
    result, _ = build_result(samples.collected([], requestors=results))
    assert sum(map(sum, result.heatmap.counts)) == result.achieved.received == len(values)
