"""The catalogue of metrics: names, units and texts."""

import pytest
from msgspec import structs

from loadtest.result.metrics import SEND_LAG, Metric, catalogue, measure, number_text
from loadtest.result.paths import value_at
from loadtest.runner.building.result import build_result
from tests.loadtest import samples, test_broadcast, test_transports

RUNS = {
    "requests": samples.result,
    "broadcast": lambda: build_result(test_broadcast.collected(test_broadcast.broadcaster()))[0],
    "transports": test_transports.comparison,
    "bytes": lambda: samples.result(scenario={"name": "byte", "workload": "http-byte"}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_every_metric_has_one_name_one_title_and_known_units(kind):
    metrics = [metric for metric, _ in catalogue(RUNS[kind]())]
    assert len({metric.path for metric in metrics}) == len(metrics)
    assert len({metric.title for metric in metrics}) == len(metrics)
    for metric in metrics:
        # Values in microseconds are called "us" in data and never in texts.
        assert metric.unit != "µs"
        assert metric.display != "us"
        assert (metric.unit == "us") == (metric.display in ("ms", "µs"))
        assert not metric.judged or metric.better


@pytest.mark.parametrize("kind", ["requests", "broadcast"])
def test_the_values_equal_the_results(kind):
    result = RUNS[kind]()
    for metric, value in measure(result).items():
        if metric.unit != "per million":
            assert value == value_at(result, metric.path)


def test_every_reference_field_exists():
    for make in (RUNS["requests"], RUNS["broadcast"]):
        result = make()
        fields = [metric.reference for metric, _ in catalogue(result) if metric.reference]
        assert len(fields) > 10
        assert all(hasattr(result.reference, field) for field in fields)


def test_a_closed_loop_has_no_send_lag():
    result = samples.result()
    assert SEND_LAG in [metric.path for metric in measure(result)]
    closed = structs.replace(result, requested=structs.replace(result.requested, rate=None))
    assert SEND_LAG not in [metric.path for metric in measure(closed)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (3.0, "3"), (1234.56, "1,235"), (12.345, "12.35"), (-1.5, "-1.50"),
     (0.01234, "0.0123"), (99.999, "100.00"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_have_three_significant_digits_or_more(value, text):
    assert number_text(value) == text


def test_texts_are_in_the_unit_of_the_title():
    lag = Metric(path="p", label="send lag", unit="us", display="ms")
    assert (lag.title, lag.text(1500.0), lag.text(None)) == ("send lag, ms", "1.50", "-")
    cpu = Metric(path="p", label="CPU", unit="us", display="µs", decimals=1)
    assert (cpu.title, cpu.text(12.34)) == ("CPU, µs", "12.3")
    memory = Metric(path="p", label="memory", unit="bytes", display="MB")
    assert (memory.title, memory.text(5e7)) == ("memory, MB", "50")
    count = Metric(path="p", label="calls")
    assert (count.title, count.text(2000)) == ("calls", "2,000")
