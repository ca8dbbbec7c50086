"""Results of broadcasts, computed from known values."""

from itertools import pairwise

import pytest
from msgspec import structs

from loadtest.result.schema import Server
from loadtest.runner.building.broadcast import deliveries_due
from loadtest.runner.building.collected import Collected
from loadtest.runner.building.result import build_result
from loadtest.scenario.kinds import BroadcastScenario
from loadtest.workers.messages import BroadcasterResult, BroadcastWarmup, Progress
from tests.loadtest import samples
from tests.loadtest.rendered import as_page, summary
from tests.loadtest.test_report import Page

SCENARIO = BroadcastScenario(
    name="sample", users=100, rate=10.0, duration_s=2.0, thresholds=("broadcast.missing == 0",)
)


def broadcaster(values=None, **changes) -> BroadcasterResult:
    """20 messages to 100 users in two seconds, after 5 of the warm-up."""
    values = samples.values_ns(2000) if values is None else values
    base = samples.requestor_result(values)
    intervals = [structs.replace(interval, sent=10) for interval in base.intervals]
    result = BroadcasterResult(
        connect_s=0.5,
        connections=101,
        connect_failures=0,
        duration_s=2.0,
        sent=20,
        errors=0,
        expected=2000,
        received=len(values),
        incomplete=0,
        missing=2000 - len(values),
        duplicates=0,
        corrupt=0,
        misrouted=0,
        disconnected=0,
        warmup=BroadcastWarmup(sent=5, expected=500, received=500),
        latency=samples.moments(values),
        spread=samples.moments([1_000_000 * n for n in range(1, 21)]),
        intervals=intervals,
    )
    return structs.replace(result, **changes)


def account(**changes) -> dict:
    counts = {"published": 25, "matched": 2500, "delivered": 2500, "dropped": {}, "pending": 0}
    return {"conservation": {**counts, **changes}}


def collected(*results, scenario=SCENARIO, **changes) -> Collected:
    run = Collected(
        scenario=scenario,
        target=None,
        environment={"cores": 4, "cpu_model": "a processor"},
        broadcasters=list(results),
        counters=account(),
        server=Server(cpu_percent=10.0, cpu_us_per_request=2.0),
    )
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def failing(result) -> list[str]:
    return [check.name for check in result.conservation.checks if not check.holds]


@pytest.mark.parametrize("users", range(1, 9))
@pytest.mark.parametrize("subjects", range(1, 6))
def test_deliveries_due_match_a_count_over_all_messages(users, subjects):
    def receivers(number: int) -> int:
        return sum(user % subjects == number % subjects for user in range(users))

    due = [deliveries_due(count, users, subjects) for count in range(20)]
    assert [later - earlier for earlier, later in pairwise(due)] == [receivers(n) for n in range(19)]


def test_a_successful_run_holds_and_has_the_documented_figures():
    result, logged = build_result(collected(broadcaster()))
    assert result.holds
    assert failing(result) == []
    assert (result.requested.connections, result.requested.subjects) == (101, 1)
    assert result.requested.rate == 1000.0
    achieved, figures = result.achieved, result.broadcast
    assert (achieved.sent, achieved.received, achieved.timed_out) == (20, 2000, 0)
    assert (achieved.rate, achieved.messages_per_s) == (1000.0, 1010.0)
    assert (figures.subjects, figures.published, figures.deliveries, figures.missing) == (1, 20, 2000, 0)
    assert (figures.deliveries_per_s, figures.published_per_s) == (1000.0, 10.0)
    assert figures.deliveries_per_s_per_core == 250.0
    assert figures.deliveries_per_broker_cpu_s == 500_000.0
    assert (figures.spread_us.count, figures.incomplete) == (20, 0)
    assert figures.spread_us.p50 == pytest.approx(10_000, rel=1e-3)
    assert figures.spread_us.max == 20_000
    assert result.latency_us.count == 2000
    assert result.service_us is None
    assert len(logged) == 2


def test_a_closed_loop_asks_for_no_rate():
    scenario = structs.replace(SCENARIO, rate=0.0, outstanding=16)
    result, _ = build_result(collected(broadcaster(), scenario=scenario))
    assert result.requested.rate is None
    text = Page(as_page(result)).text
    assert "Closed loop with 16 messages under way" in text
    assert "delivery, from the actual publishing" in text


def test_a_lost_delivery_fails_the_run_and_is_reported_everywhere():
    lost = broadcaster(samples.values_ns(1990), incomplete=10, disconnected=1)
    counts = account(matched=2495, delivered=2492, dropped={"slow_consumer": 3})
    result, _ = build_result(collected(lost, counters=counts))
    assert not result.holds
    assert failing(result) == []  # for each one it is known what became of it
    assert (result.broadcast.missing, result.achieved.timed_out) == (10, 10)
    assert "received 2,490 + missing 10" in result.conservation.checks[0].detail
    assert "10 deliveries missing" in Page(as_page(result)).text
    assert summary(result)["deliveries missing"][0] == "10"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"received": 1999}, ["deliveries", "broker gave out"]),
        ({"missing": 1}, ["deliveries"]),
        ({"expected": 1900}, ["deliveries", "broker matched"]),
        ({"sent": 21}, ["deliveries", "broker took in"]),
        ({"duplicates": 1}, ["broker gave out"]),
        ({"misrouted": 1}, ["broker gave out"]),
    ],
)
def test_a_delivery_that_does_not_add_up_breaks_the_check(changes, expected):
    result, _ = build_result(collected(broadcaster(**changes)))
    assert failing(result) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"published": 24}, ["broker took in"]),
        ({"published": 26}, ["broker took in"]),
        ({"matched": 2499, "delivered": 2499}, ["broker matched", "broker gave out"]),
        ({"matched": 2501, "delivered": 2501}, ["broker matched", "broker gave out"]),
        ({"delivered": 2490, "dropped": {"closed": 10}}, ["broker gave out"]),
        ({"delivered": 2499, "pending": 1}, ["broker", "broker gave out"]),
    ],
)
def test_the_counts_of_the_broker_are_compared_with_the_loads(changes, expected):
    result, _ = build_result(collected(broadcaster(), counters=account(**changes)))
    assert failing(result) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"published": 24, "matched": 2400, "delivered": 2600, "dropped": {}}, ["broker"]),
        ({"published": 24, "matched": 2499, "delivered": 2499}, ["broker gave out"]),
        ({"published": 26}, ["broker took in"]),
        ({"matched": 2501, "delivered": 2501}, ["broker matched"]),
    ],
)
def test_after_a_lost_connection_only_one_side_may_count_more(changes, expected):
    run = collected(broadcaster(disconnected=1), counters=account(**changes))
    assert failing(build_result(run)[0]) == expected


def test_a_target_has_only_the_counts_of_the_load():
    lost = broadcaster(samples.values_ns(1990))
    result, _ = build_result(collected(lost, target="nats://far:4222", counters=None, server=Server()))
    account = result.conservation
    assert (account.published, account.delivered, account.dropped) == (25, 2490, {"missing": 10})
    assert account.holds
    assert not result.holds
    assert result.broadcast.deliveries_per_s_per_core is None
    assert result.broadcast.deliveries_per_broker_cpu_s is None


def test_several_processes_are_summed_up():
    """The users of both receive message K at 1000 K and some more."""
    scenario = structs.replace(SCENARIO, users=10, subjects=2, processes=2)
    first = [(number, 3, 1000 * number + 10, 1000 * number + 20) for number in range(5, 25)]
    second = [(number, 2, 1000 * number + 5, 1000 * number + 15 + number) for number in range(5, 25)]
    second[-1] = (24, 1, 0, 999_999)  # one did not receive it: no spread
    one = broadcaster(samples.values_ns(60), expected=60, missing=0, connections=7, messages=first)
    one = structs.replace(one, warmup=BroadcastWarmup(sent=5, expected=15, received=15))
    two = broadcaster(samples.values_ns(39, 2), sent=0, expected=40, missing=1, connections=4)
    two = structs.replace(two, warmup=BroadcastWarmup(expected=10, received=10), messages=second)
    intervals = [structs.replace(interval, sent=0) for interval in two.intervals]
    two = structs.replace(two, intervals=intervals)
    result, _ = build_result(collected(one, two, scenario=scenario, counters=None))
    assert failing(result) == []
    assert (result.achieved.connections, result.achieved.sent, result.achieved.received) == (11, 20, 99)
    assert (result.broadcast.missing, result.broadcast.incomplete) == (1, 1)
    assert sum(interval.sent for interval in result.intervals) == 20
    spread = result.broadcast.spread_us
    assert spread.count == 19
    expected = sorted(max(20, 15 + number) - 5 for number in range(5, 24))
    assert spread.max == expected[-1] / 1000
    assert spread.p50 == pytest.approx(expected[9] / 1000, abs=1e-3)


def test_a_failed_run_is_marked_and_still_has_a_report():
    waiting = [Progress(phase="measuring", connections=101)]
    run = collected(error="broadcaster 1 ended", last_progress=waiting, counters=None)
    result, _ = build_result(run)
    assert failing(result) == ["the run"]
    assert result.achieved.connections == 101
    assert result.broadcast.spread_us is None
    text = Page(as_page(result)).text
    assert "The run failed: broadcaster 1 ended" in text
    assert "No delivery was measured" in text


def test_the_report_has_deliveries_and_the_published_run_of_2025():
    result, _ = build_result(collected(broadcaster()))
    text = Page(as_page(result)).text
    for words in (
        "deliveries/s 1,000",
        "share of deliveries",
        "deliveries due",
        "deliveries received",
        "MigratoryData (Kafkorama), 2025",
        "2025, per hardware thread",
        "spread p50, ms",
        "of the 20 messages received by all their users",
        "from the planned publishing time to each single receipt",
    ):
        assert words in text, words
    for words in ("requests", "per request", "replies", "reply"):
        assert words not in text, words
    rows = summary(result)
    rate = rows["deliveries/s"]
    assert (rate[0], rate[2]) == ("1,000", "250")
    assert (rate[1], rate[3]) == ("1,000,000", "27,778")
    assert rows["messages published/s"][1] == "10,000"
    assert rows["latency p50, ms"][1] == "3"
    assert rows["deliveries per broker CPU second"][0] == "500,000"
    assert rows["spread maximum, ms"][0] == "20"
    assert rows["broker CPU per delivery, µs"][0] == "2"
