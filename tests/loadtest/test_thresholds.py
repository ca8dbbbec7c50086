import pytest
from msgspec import structs

from loadtest.errors import ThresholdError
from loadtest.result.paths import value_paths
from loadtest.result.schema import Server
from loadtest.result.thresholds import parse_threshold
from tests.loadtest import samples


@pytest.mark.parametrize(
    ("op", "limits"),
    [("<", (False, False, True)), ("<=", (False, True, True)), (">", (True, False, False)),
     (">=", (True, True, False)), ("==", (False, True, False))],
)  # fmt: skip
def test_each_operator_below_at_and_above_the_value(op, limits):
    result = samples.result(100)
    for limit, holds in zip((99, 100, 101), limits, strict=True):
        outcome = parse_threshold(f"achieved.sent {op} {limit}").judge(result)
        assert (outcome.value, outcome.holds) == (100, holds)


@pytest.mark.parametrize(
    "expr", ["latency_us.p99<1e5", "  latency_us.p99  <  100_000  ", "latency_us.p99 < 100000.0"]
)
def test_spaces_and_number_forms(expr):
    threshold = parse_threshold(expr)
    assert (threshold.path, threshold.op, threshold.limit) == ("latency_us.p99", "<", 100_000.0)


def test_truth_values_and_free_tables():
    result = samples.result(100)
    assert parse_threshold("conservation.holds == true").judge(result).holds
    assert not parse_threshold("conservation.holds == false").judge(result).holds
    assert parse_threshold("conservation.dropped.slow_consumer == 0").judge(result).holds
    assert parse_threshold("scenario.users == 100").judge(result).holds


def test_a_value_that_the_run_does_not_have_never_holds():
    result = structs.replace(samples.result(100), server=Server(), latency_us=None)
    for expr in ("server.rss_bytes < 1e18", "latency_us.p99 < 1e18", "conservation.dropped.closed == 0"):
        outcome = parse_threshold(expr).judge(result)
        assert (outcome.value, outcome.holds) == (None, False)


@pytest.mark.parametrize(
    ("expr", "error"),
    [
        ("", "expected PATH OP NUMBER"),
        ("latency_us.p99", "expected PATH OP NUMBER"),
        ("latency_us.p99 != 3", "expected PATH OP NUMBER"),
        ("latency_us.p99 < 3 4", "expected PATH OP NUMBER"),
        ("3 < latency_us.p99", "expected PATH OP NUMBER"),
        ("__import__('os') < 1", "expected PATH OP NUMBER"),
        ("latency_us.p99 < soon", '"soon" is not a finite number'),
        ("latency_us.p99 < nan", '"nan" is not a finite number'),
        ("latency_us.p99 < inf", '"inf" is not a finite number'),
        ("latency_us.p98 < 1", 'results have no number "latency_us.p98" (did you mean "latency_us.p'),
        ("latency_us < 1", 'no number "latency_us"'),
        ("started < 1", 'no number "started"'),
        ("holds == true", 'no number "holds"'),
        ("__class__ < 1", 'no number "__class__"'),
    ],
)
def test_an_unusable_threshold_is_one_line(expr, error):
    with pytest.raises(ThresholdError) as raised:
        parse_threshold(expr)
    assert error in str(raised.value)
    assert str(raised.value).startswith(f'threshold "{expr}": ')


def test_the_paths_match_the_documented_values():
    paths = set(value_paths())
    for section, names in {
        "achieved": "connections subjects sent received timed_out errors duplicates corrupt rate connect_s",
        "latency_us": "count mean stddev min p50 p90 p95 p99 p99_9 p99_99 max",
        "service_us": "count mean stddev min p50 p90 p95 p99 p99_9 p99_99 max",
        "server": "cpu_percent cpu_us_per_request rss_bytes rss_bytes_per_connection net_in_bps net_out_bps",
        "load": "cpu_percent cpu_us_per_request",
        "requested": "connections subjects rate duration_s",
        "conservation": "published delivered holds",
    }.items():
        assert {f"{section}.{name}" for name in names.split()} <= paths
