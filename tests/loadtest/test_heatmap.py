import random
from bisect import bisect_right
from itertools import pairwise

import pytest

from loadtest.result.histogram import Histogram, LoggedInterval
from loadtest.runner.building.heatmap import build_heatmap
from loadtest.runner.building.result import build_result, merge_intervals
from tests.loadtest import samples


def interval(second: int, values: list[int], length_s: float = 1.0) -> LoggedInterval:
    return LoggedInterval(float(second), second + length_s, samples.encode(values), max(values, default=0))


def spread_values(count: int, seed: int) -> list[int]:
    """Nanoseconds to minutes."""
    source = random.Random(seed)
    return [int(10 ** source.uniform(1, 11)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_each_cell_counts_its_values_exactly(seed):
    seconds = [spread_values(400, 10 * seed + second) for second in range(6)]
    heatmap = build_heatmap([interval(second, values) for second, values in enumerate(seconds)])
    assert heatmap.starts_s == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert heatmap.end_s == 6.0
    for values, counts in zip(seconds, heatmap.counts, strict=True):
        expected = [0] * len(heatmap.edges_us)
        for value in values:
            expected[bisect_right(heatmap.edges_us, value / 1000) - 1] += 1
        assert counts == expected


def test_the_rows_are_an_eighth_of_a_decade_and_only_as_many_as_needed():
    values = [1_000_000, 5_000_000, 90_000_000]
    heatmap = build_heatmap([interval(0, values)])
    assert heatmap.edges_us[0] <= 1000
    assert heatmap.edges_us[1] > 1000
    assert heatmap.edges_us[-1] <= 90_000
    for lower, upper in pairwise(heatmap.edges_us):
        assert upper / lower == pytest.approx(10 ** (1 / 8), rel=3e-3)
    assert sum(heatmap.counts[0]) == 3
    assert heatmap.counts[0][0] == heatmap.counts[0][-1] == 1


def test_the_heat_map_has_all_replies():
    one, two = samples.values_ns(4000, 1), samples.values_ns(5001, 2)
    run = samples.collected([], requestors=[samples.requestor_result(v, seconds=7) for v in (one, two)])
    result, _ = build_result(run)
    assert sum(map(sum, result.heatmap.counts)) == result.latency_us.count == 9001


@pytest.mark.parametrize(("seconds", "columns", "width"), [(240, 240, 1), (241, 121, 2), (720, 240, 3)])
def test_long_runs_are_coarser_in_time(seconds, columns, width):
    heatmap = build_heatmap([interval(second, [1_000_000] * (1 + second % 3)) for second in range(seconds)])
    assert heatmap.starts_s == [float(width * column) for column in range(columns)]
    assert heatmap.end_s == seconds
    assert heatmap.counts[1] == [sum(1 + s % 3 for s in range(width, 2 * width))]
    assert sum(map(sum, heatmap.counts)) == sum(1 + second % 3 for second in range(seconds))


def test_seconds_without_replies_are_empty_and_the_drain_is_in_the_last():
    heatmap = build_heatmap([interval(0, [10]), interval(3, [20], length_s=4.5)])
    assert [sum(column) for column in heatmap.counts] == [1, 0, 0, 1]
    assert heatmap.end_s == 7.5


def test_without_replies_there_is_no_heat_map():
    assert build_heatmap([]) is None
    assert build_heatmap([interval(0, [])]) is None
    assert build_result(samples.collected([]))[0].heatmap is None


def test_the_intervals_of_all_workers_are_merged_first():
    values = samples.values_ns(600)
    _, logged = merge_intervals(
        [samples.requestor_result(values[:200]), samples.requestor_result(values[200:])]
    )
    heatmap = build_heatmap(logged)
    whole = Histogram.merged([samples.encode(values)])
    by_row = [sum(column) for column in zip(*heatmap.counts, strict=True)]
    assert by_row == whole.counts_from([round(edge * 1000) for edge in heatmap.edges_us]).tolist()
