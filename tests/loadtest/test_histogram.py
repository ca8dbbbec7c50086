import io
from datetime import UTC, datetime
from math import ceil

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from loadtest.result.histogram import HIGHEST_NS, LOWEST_NS, Histogram, LoggedInterval, write_hgrm, write_hlog
from tests.loadtest import samples

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def exact(values: list[int], percentile: float) -> int:
    return sorted(values)[max(1, ceil(len(values) * percentile / 100)) - 1]


@pytest.mark.parametrize("percentile", ["0", "50", "90", "99", "99.9", "100"])
def test_percentiles_are_the_sorted_values_within_the_precision(percentile):
    values = samples.values_ns(5000)
    (value,) = Histogram.merged([samples.encode(values)]).values_at([percentile])
    truth = exact(values, float(percentile))
    assert truth <= value <= truth * 1.001


def test_a_merge_is_the_histogram_of_all_values_not_an_average():
    slow, fast = [5_000_000] * 10, [1_000] * 990
    merged = Histogram.merged([samples.encode(slow), samples.encode(fast)])
    assert merged.count == 1000
    assert merged.values_at(["50", "99", "99.1", "100"]) == Histogram.merged(
        [samples.encode(slow + fast)]
    ).values_at(["50", "99", "99.1", "100"])
    assert merged.values_at(["99", "99.1"]) == pytest.approx([1_000, 5_000_000], rel=1e-3)


def test_an_empty_part_changes_nothing():
    values = samples.values_ns(100)
    empty = Histogram().encode()
    merged = Histogram.merged([empty, samples.encode(values), empty])
    assert merged.encode() == samples.encode(values)
    assert merged.values_at(["0"])[0] > 0
    assert Histogram.merged([empty]).values_at(["50"]) == [0]


def test_values_outside_the_range_raise_an_error():
    histogram = Histogram()
    histogram.record(LOWEST_NS)
    histogram.record(HIGHEST_NS)
    for value in (-1, HIGHEST_NS * 10):
        with pytest.raises(ValueError, match="outside"):
            histogram.record(value)
    wider = HdrHistogram(1, HIGHEST_NS * 1000, 3)
    wider.record_value(HIGHEST_NS * 500)
    with pytest.raises(ValueError, match="beyond"):
        histogram.add(wider.encode().decode())


@pytest.mark.parametrize("text", ["", "HISTF", "not base64!", "HISTFAAAABAAAAAA", "aGVsbG8gd29ybGQ="])
def test_a_text_that_is_not_a_histogram_is_refused(text):
    with pytest.raises(ValueError, match="HdrHistogram"):
        Histogram().add(text)


def test_the_curve_rises_to_the_last_value():
    values = samples.values_ns(1000)
    points = Histogram.merged([samples.encode(values)]).curve()
    assert points[0][0] == 1.0
    assert points[-1][0] == 1000.0
    assert points == sorted(points)
    assert max(values) <= points[-1][1] <= max(values) * 1.001
    assert Histogram().curve() == []


def test_a_log_is_read_back_by_the_public_reader(tmp_path):
    parts = [samples.values_ns(300, seed) for seed in range(3)]
    path = tmp_path / "latency.hlog"
    with path.open("w") as file:
        intervals = [
            LoggedInterval(float(second), second + 1.0, samples.encode(part), max(part))
            for second, part in enumerate(parts)
        ]
        write_hlog(file, "latency", STARTED, intervals)
    reader = HistogramLogReader(str(path), HdrHistogram(LOWEST_NS, HIGHEST_NS, 3))
    for second, part in enumerate(parts):
        read = reader.get_next_interval_histogram()
        assert read.get_tag() == "latency"
        assert read.get_total_count() == len(part)
        assert read.get_start_time_stamp() == pytest.approx((STARTED.timestamp() + second) * 1000)
        assert read.get_end_time_stamp() == pytest.approx((STARTED.timestamp() + second + 1) * 1000)
        assert read.get_value_at_percentile(100) == pytest.approx(max(part), rel=1e-3)
    assert reader.get_next_interval_histogram() is None
    assert reader.get_start_time_sec() == pytest.approx(STARTED.timestamp())
    reader.close()


def test_the_log_has_interval_maxima_in_milliseconds():
    file = io.StringIO()
    write_hlog(file, "latency", STARTED, [LoggedInterval(0.0, 1.0, "HISTF", 2_500_000)])
    assert file.getvalue().splitlines()[0] == "#[Histogram log format version 1.3]"
    assert file.getvalue().splitlines()[-1] == "Tag=latency,0.000,1.000,2.500,HISTF"


def test_the_distribution_file_can_be_read_by_plotters():
    values = samples.values_ns(1000)
    file = io.StringIO()
    histogram = Histogram.merged([samples.encode(values)])
    write_hgrm(file, histogram, mean_ns=2e6, stddev_ns=1e6, max_ns=max(values))
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [[float(word) for word in line.split()] for line in lines[2:] if not line.startswith("#")]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert rows[-1] == [pytest.approx(max(values) / 1e6, abs=1e-6), 1.0, 1000]
    for value, share, count, inverse in rows[:-1]:
        below = sum(1 for sample in values if sample / 1e6 <= value + 1e-6)
        assert count == below
        assert inverse == pytest.approx(1 / (1 - share), abs=0.01)
    assert lines[-3] == "#[Mean    =     2.000000, StdDeviation   =     1.000000]"
    assert lines[-2].split() == ["#[Max", "=", f"{max(values) / 1e6:.6f},", "Total", "count", "=", "1000]"]
