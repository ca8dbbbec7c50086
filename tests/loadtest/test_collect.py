import statistics
from fractions import Fraction
from math import sqrt

import pytest
from msgspec import structs

from loadtest.result.histogram import Histogram
from loadtest.result.schema import Host, Load, Server
from loadtest.runner.building.result import build_result, measured_rate, merge_intervals, summarise
from loadtest.workers.messages import LatencySummary, Progress, ProviderResult, SweepCounts, WarmupCounts
from tests.loadtest import samples


def test_several_requestors_are_summarised_as_one_over_every_value():
    parts = [samples.values_ns(1000, 1), samples.values_ns(3000, 2), [7_000_000_000]]
    every = [value for part in parts for value in part]
    latency, encoded = summarise([samples.moments(part) for part in parts])
    assert latency.count == 4001
    assert latency.mean == pytest.approx(statistics.fmean(every) / 1000, rel=1e-12)
    assert latency.stddev == pytest.approx(statistics.pstdev(every) / 1000, rel=1e-9)
    assert (latency.min, latency.max) == (min(every) / 1000, max(every) / 1000)
    assert latency.p50 == pytest.approx(sorted(every)[2000] / 1000, rel=2e-3)
    assert latency.p99_99 == pytest.approx(7_000_000, rel=1e-3)
    assert Histogram.merged([encoded]).count == 4001


def test_percentiles_are_never_averaged():
    slow, fast = [100_000_000] * 100, [1_000_000] * 9900
    latency, _ = summarise([samples.moments(slow), samples.moments(fast)])
    assert latency.p95 == pytest.approx(1000, rel=1e-3)
    assert latency.p99 == pytest.approx(1000, rel=1e-3)
    assert latency.p99_9 == pytest.approx(100_000, rel=1e-3)


def test_percentiles_stay_within_the_exact_extremes():
    latency, _ = summarise([samples.moments([1_234_567])])
    assert latency.min == latency.p50 == latency.p99_99 == latency.max == 1234.567
    assert latency.stddev == 0.0


def test_the_deviation_is_exact_even_if_floats_would_cancel():
    base, count = 3_000_000_000_000, 10**9
    values = LatencySummary(
        count=2 * count,
        sum_ns=count * (2 * base + 2),
        sum_sq_ns2=count * (base**2 + (base + 2) ** 2),
        min_ns=base,
        max_ns=base + 2,
        hdr=_two_values(base, count),
    )
    latency, _ = summarise([values])
    assert latency.stddev == pytest.approx(0.001, rel=1e-9)
    assert latency.mean == float(Fraction(base + 1, 1000))


def _two_values(base: int, count: int) -> str:
    histogram = Histogram()
    histogram.record(base, count)
    histogram.record(base + 2, count)
    return histogram.encode()


def test_without_values_there_is_no_summary():
    assert summarise([]) is None
    assert summarise([samples.moments([])]) is None


def test_sums_and_histogram_that_disagree_are_refused():
    values = samples.moments([1000, 2000])
    with pytest.raises(ValueError, match="histogram has 2 values, the sums have 3"):
        summarise([structs.replace(values, count=3)])


def test_intervals_of_several_requestors_are_added_second_by_second():
    one, two = samples.values_ns(400, 1), samples.values_ns(600, 2)
    intervals, logged = merge_intervals([samples.requestor_result(one), samples.requestor_result(two)])
    assert [(part.start_s, part.end_s) for part in intervals] == [(0.0, 1.0), (1.0, 2.0)]
    assert [(part.sent, part.received) for part in intervals] == [(500, 500), (500, 500)]
    first = one[0::2] + two[0::2]
    assert intervals[0].max_us == pytest.approx(max(first) / 1000, rel=1e-3)
    assert intervals[0].p50_us == pytest.approx(sorted(first)[249] / 1000, rel=2e-3)
    assert Histogram.merged([logged[0].encoded]).count == 500


def test_no_second_has_a_higher_maximum_than_the_run():
    values = [1_000_000] * 500 + [123_456_789]  # within a range of the histogram that ends above it
    result, logged = build_result(samples.collected(values))
    assert max(part.max_us for part in result.intervals) == result.latency_us.max == 123_456.789
    assert max(part.max_ns for part in logged) == 123_456_789
    slow, _ = merge_intervals([samples.requestor_result([123_456_789] * 10)])
    assert {value for part in slow for value in (part.p50_us, part.p99_us, part.max_us)} == {123_456.789}


def test_the_longest_send_lag_of_a_second_is_kept():
    lags = [(1_500, 40_000), (2_500, 3_000)]
    results = []
    for lag in lags:
        result = samples.requestor_result(samples.values_ns(100))
        intervals = [
            structs.replace(part, max_send_lag_ns=ns) for part, ns in zip(result.intervals, lag, strict=True)
        ]
        results.append(structs.replace(result, intervals=intervals))
    intervals, _ = merge_intervals(results)
    assert [part.max_send_lag_us for part in intervals] == [2.5, 40.0]


def test_a_successful_run_holds_and_has_the_documented_figures():
    values = samples.values_ns(2000)
    result, logged = build_result(samples.collected(values))
    assert result.holds
    assert result.error is None
    assert (result.requested.connections, result.requested.subjects) == (116, 116)
    assert (result.achieved.connections, result.achieved.subjects) == (116, 116)
    assert (result.achieved.sent, result.achieved.received) == (2000, 2000)
    assert result.achieved.rate == 1000.0
    assert result.achieved.messages_per_s == 4000.0
    assert result.duration_s == 2.0
    assert result.started == "2026-01-02T03:04:05.000+00:00"
    assert len(logged) == 2
    assert result.latency_us.mean == pytest.approx(statistics.fmean(values) / 1000)
    assert result.service_us.max < result.latency_us.max
    assert [outcome.expr for outcome in result.thresholds] == [
        "latency_us.p99 < 100000",
        "achieved.max_send_lag_us <= 100000",
    ]
    assert all(outcome.holds for outcome in result.thresholds)


def test_threads_of_processes_add_up_and_rates_use_the_whole():
    run = samples.collected([], counters=None)
    run.requestors = [samples.requestor_result(samples.values_ns(count, count)) for count in (1000, 3000)]
    run.providers = [ProviderResult(connections=16, received=4100, sent=4100)]
    result, _ = build_result(run)
    assert result.achieved.connections == 216
    assert result.achieved.rate == 2000.0
    assert result.conservation.holds


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"received": 1999}, ["measured requests", "broker gave out"]),
        ({"timed_out": 1}, ["measured requests"]),
        ({"errors": 1}, ["measured requests"]),
        (
            {"warmup": WarmupCounts(sent=50, received=49, timed_out=0)},
            ["warm-up requests", "broker gave out"],
        ),
    ],
)
def test_a_request_without_an_outcome_breaks_the_check(changes, failing):
    values = samples.values_ns(2000)
    run = samples.collected(values, requestors=[samples.requestor_result(values, **changes)])
    conservation = build_result(run)[0].conservation
    assert not conservation.holds
    assert [check.name for check in conservation.checks if not check.holds] == failing


def test_lost_requests_that_are_accounted_for_do_not_break_the_check():
    values = samples.values_ns(2000)
    lost = samples.requestor_result(values, sent=2005, timed_out=3, errors=2)
    result, _ = build_result(samples.collected(values, requestors=[lost]))
    assert result.conservation.holds
    assert (result.achieved.timed_out, result.achieved.errors) == (3, 2)


def test_a_provider_that_loses_a_request_breaks_the_check():
    run = samples.collected(samples.values_ns(10))
    run.providers = [ProviderResult(connections=16, received=60, sent=59)]
    conservation = build_result(run)[0].conservation
    failing = [check.name for check in conservation.checks if not check.holds]
    assert failing == ["providers", "broker took in"]


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, []),
        ({"matched": 123, "dropped": {"slow_consumer": 2, "closed": 1}}, []),
        ({"matched": 123, "dropped": {"slow_consumer": 2}, "pending": 1}, ["broker"]),
        ({"matched": 121, "pending": 1}, ["broker"]),
        ({"matched": 119, "pending": -1}, ["broker"]),
        ({"matched": 121}, ["broker"]),
        ({"published": 119}, ["broker took in"]),
        ({"published": 121}, ["broker took in"]),
        ({"matched": 119, "delivered": 119}, ["broker gave out"]),
        ({"matched": 121, "delivered": 121}, ["broker gave out"]),
    ],
)
def test_the_counts_of_the_broker_are_compared_with_the_loads(change, failing):
    account = {"published": 120, "matched": 120, "delivered": 120, "dropped": {}, "pending": 0, **change}
    run = samples.collected(samples.values_ns(10), counters={"conservation": account})
    conservation = build_result(run)[0].conservation
    assert [check.name for check in conservation.checks if not check.holds] == failing
    assert conservation.holds is (not failing)
    assert conservation.published == account["published"]
    assert conservation.dropped == account["dropped"]


@pytest.mark.parametrize(
    ("changes", "checked"),
    [
        ({"sent": 13, "received": 10, "timed_out": 2, "late": 2, "errors": 1, "corrupt": 1}, True),
        ({"sent": 12, "received": 10, "timed_out": 2, "late": 1}, False),
        ({"sent": 11, "received": 10, "errors": 1, "disconnected": 1}, False),
        ({"warmup": WarmupCounts(sent=51, received=50, timed_out=1)}, False),
    ],
)
def test_broker_and_load_are_compared_if_all_outcomes_are_known(changes, checked):
    values = samples.values_ns(10)
    run = samples.collected(values, requestors=[samples.requestor_result(values, **changes)])
    conservation = build_result(run)[0].conservation
    names = {check.name for check in conservation.checks}
    assert ({"broker took in", "broker gave out"} <= names) is checked
    assert conservation.holds is not checked  # the sample's broker had 60 requests and 60 replies


def swept(counts: list[SweepCounts | None], answered: int):
    """A run of two requestors with 50 users each that swept, and a broker that saw it."""
    values = samples.values_ns(10)
    requestors = [samples.requestor_result(values, sweep=sweep) for sweep in counts]
    account = {"published": 2 * answered, "matched": 2 * answered, "delivered": 2 * answered, "dropped": {}}
    return samples.collected(
        values,
        scenario=samples.scenario(sweep=True),
        requestors=requestors,
        providers=[ProviderResult(connections=16, received=answered, sent=answered)],
        counters={"conservation": account},
    )


def test_a_sweep_is_reported_separately_and_counts_in_all_checks():
    halves = [SweepCounts(sent=50, received=50, timed_out=0, errors=0, duration_s=s) for s in (0.5, 0.75)]
    result, _ = build_result(swept(halves, 2 * (10 + 50 + 50)))
    assert result.conservation.holds, result.conservation
    assert {"sweep", "broker took in", "broker gave out"} <= {c.name for c in result.conservation.checks}
    assert (result.sweep.sent, result.sweep.received, result.sweep.duration_s) == (100, 100, 0.75)
    assert result.achieved.sent == 20
    assert build_result(samples.collected(samples.values_ns(10)))[0].sweep is None


@pytest.mark.parametrize(
    "second",
    [
        SweepCounts(sent=50, received=49, timed_out=1, errors=0, duration_s=10.0),
        SweepCounts(sent=50, received=49, timed_out=0, errors=1, duration_s=0.5),
        SweepCounts(sent=50, received=49, timed_out=0, errors=0, duration_s=0.5),
        SweepCounts(sent=49, received=49, timed_out=0, errors=0, duration_s=0.5),
        SweepCounts(sent=51, received=51, timed_out=0, errors=0, duration_s=0.5),
        None,
    ],
)
def test_a_sweep_with_a_loss_fails_the_run(second):
    first = SweepCounts(sent=50, received=50, timed_out=0, errors=0, duration_s=0.5)
    conservation = build_result(swept([first, second], 220))[0].conservation
    failing = [check.name for check in conservation.checks if not check.holds]
    assert failing[0] == "sweep"


def test_late_and_corrupt_replies_are_deliveries_too():
    values = samples.values_ns(10)
    result = samples.requestor_result(values, sent=13, timed_out=2, late=2, errors=1, corrupt=1)
    counts = {"published": 126, "matched": 126, "delivered": 126, "dropped": {}, "pending": 0}
    provider = ProviderResult(connections=16, received=63, sent=63)
    run = samples.collected(
        values, requestors=[result], providers=[provider], counters={"conservation": counts}
    )
    conservation = build_result(run)[0].conservation
    assert conservation.holds, conservation.checks


@pytest.mark.parametrize("astray", ["unanswerable", "misrouted", "corrupt"])
def test_an_unexpected_message_at_a_provider_breaks_the_check(astray):
    run = samples.collected(samples.values_ns(10), counters=None)
    run.providers = [structs.replace(run.providers[0], **{astray: 1234})]
    failing = [check for check in build_result(run)[0].conservation.checks if not check.holds]
    assert [check.name for check in failing] == ["providers"]
    assert f"{astray} 1,234" in failing[0].detail


def test_replies_of_the_drain_do_not_count_for_the_rate():
    late = samples.requestor_result(samples.values_ns(4000), seconds=4, duration_s=2.0)
    achieved = build_result(samples.collected([], requestors=[late], counters=None))[0].achieved
    assert (achieved.received, achieved.rate, achieved.messages_per_s) == (4000, 1000.0, 4000.0)


def test_an_interval_across_the_end_counts_in_part():
    result = samples.requestor_result(samples.values_ns(3000), seconds=3, duration_s=2.5)
    assert measured_rate([result]) == 2500 / 2.5
    assert measured_rate([result, samples.requestor_result(samples.values_ns(500))]) == 1000 + 250
    assert measured_rate([structs.replace(result, duration_s=0.0)]) == 0.0


def test_other_findings_of_the_engine_are_kept():
    values = samples.values_ns(10)
    one = samples.requestor_result(values, max_send_lag_ns=1_500_000, server_errors=2)
    two = samples.requestor_result(
        values, max_send_lag_ns=2_500, server_errors=1, first_server_error="'Slow Consumer'"
    )
    run = samples.collected(values, requestors=[one, two], counters=None)
    run.providers = [structs.replace(run.providers[0], server_errors=4, first_server_error="other")]
    achieved = build_result(run)[0].achieved
    assert achieved.max_send_lag_us == 1500.0
    assert (achieved.server_errors, achieved.first_server_error) == (7, "'Slow Consumer'")


@pytest.mark.parametrize("counters", [{}, {"conservation": None}, {"conservation": {"matched": "many"}}])
def test_a_broker_without_conservation_counts_does_not_hold(counters):
    run = samples.collected(samples.values_ns(10), counters=counters)
    assert not build_result(run)[0].conservation.holds


def test_on_a_target_the_counts_of_the_load_are_checked():
    values = samples.values_ns(2000)
    lost = samples.requestor_result(values, sent=2005, timed_out=3, errors=2)
    run = samples.collected(values, counters=None, target="nats://127.0.0.1:4222", requestors=[lost])
    conservation = build_result(run)[0].conservation
    assert conservation.holds
    assert conservation.published == 2005 + 50 + 2050
    assert conservation.delivered == 2000 + 50 + 2050
    assert conservation.dropped == {"timed_out": 3, "errors": 2}


def test_a_failed_run_keeps_its_data_and_does_not_hold():
    run = samples.collected([], error="provider ended", requestors=[], providers=[], counters=None)
    run.last_progress = [Progress(phase="measuring", connections=100, sent=70, received=60, timed_out=1)]
    result, logged = build_result(run)
    assert (result.error, result.latency_us, result.histograms, logged) == ("provider ended", None, None, [])
    assert (result.achieved.connections, result.achieved.sent, result.achieved.rate) == (100, 0, 0.0)
    assert not result.conservation.holds
    assert [outcome.holds for outcome in result.thresholds] == [False, True]


def test_of_a_requestor_that_died_only_connections_count():
    run = samples.collected(samples.values_ns(500), error="requestor 2 ended")
    run.last_progress = [Progress(phase="measuring", connections=100, sent=70, received=60)]
    achieved = build_result(run)[0].achieved
    # What it reported has the warm-up in it.
    assert (achieved.connections, achieved.sent, achieved.received) == (216, 500, 500)
    assert achieved.rate == 250.0


def test_values_that_are_not_visible_are_null():
    result, _ = build_result(samples.collected(samples.values_ns(10)))
    assert result.server == Server()
    assert result.load == Load()


def test_square_roots_of_merged_sums_match_the_merged_values():
    values = [samples.values_ns(500, seed) for seed in range(4)]
    every = [Fraction(value) for part in values for value in part]
    mean = sum(every) / len(every)
    variance = sum((value - mean) ** 2 for value in every) / len(every)
    latency, _ = summarise([samples.moments(part) for part in values])
    assert latency.stddev == pytest.approx(sqrt(variance) / 1000, rel=1e-12)


def halves(values: list[int]) -> list[ProviderResult]:
    """Two provider processes that answered the sample's requests, one of them a few more."""
    answered = len(values) + 50
    counts = (answered // 2 - 7, answered - answered // 2 + 7)
    return [ProviderResult(connections=8, received=count, sent=count) for count in counts]


def test_several_providers_are_checked_as_one():
    values = samples.values_ns(2000)
    result, _ = build_result(samples.collected(values, providers=halves(values)))
    assert result.conservation.holds, result.conservation
    assert {"broker took in", "broker gave out"} <= {check.name for check in result.conservation.checks}
    assert (result.achieved.connections, result.achieved.subjects) == (116, 116)


def test_extra_and_missing_replies_of_providers_do_not_cancel_out():
    values = samples.values_ns(2000)
    one, two = halves(values)
    providers = [structs.replace(one, sent=one.sent + 1), structs.replace(two, sent=two.sent - 1)]
    conservation = build_result(samples.collected(values, providers=providers))[0].conservation
    assert [check.name for check in conservation.checks if not check.holds] == ["providers"]


def test_results_of_lost_workers_are_listed_as_missing():
    values = samples.values_ns(2000)
    one, _ = halves(values)
    lost = ["provider 2 on host d: no result"]
    result, _ = build_result(samples.collected(values, providers=[one], missing=lost))
    assert result.missing == lost
    failing = [check for check in result.conservation.checks if not check.holds]
    assert [(check.name, check.detail) for check in failing] == [("the run", lost[0])]
    assert not result.holds


def test_machines_and_command_come_with_the_result():
    hosts = [Host(name="here", roles=["broker"]), Host(name="b", address="10.0.0.2", lost="no route to host")]
    command = ["subjectbus", "loadtest", "run", "autocomplete"]
    result, _ = build_result(samples.collected(samples.values_ns(10), hosts=hosts, command=command))
    assert result.hosts == hosts
    assert result.command == command
