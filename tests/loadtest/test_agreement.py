"""Comparison of the broker's counters with the engine's, from given counts."""

import pytest
from msgspec import structs

from loadtest.report.parquet import encode_timeline
from loadtest.result.checks import describe_agreement, describe_difference
from loadtest.result.documents import encode_document
from loadtest.result.schema import Sample
from loadtest.runner.building.agreement import compare, join_counters, summarise_monitor
from loadtest.runner.building.collected import CountsAt, Observed
from loadtest.runner.building.result import build_result
from loadtest.runner.transports import build_comparison
from loadtest.sampling.monitor import Reading
from loadtest.scenario.kinds import TransportsScenario
from loadtest.workers.messages import Progress
from tests.loadtest import samples

BEFORE = {
    "connections": 2,
    "total_connections": 9,
    "in_msgs": 100,
    "out_msgs": 50,
    "in_bytes": 1000,
    "out_bytes": 500,
    "slow_consumers": 1,
    "closed": {"client_closed": 6, "stale": 1},
    "conservation": {"dropped": {"closed": 3}},
}
ENGINE = Progress(
    phase="done",
    connections=116,
    opened=126,
    churned=10,
    published=4000,
    published_bytes=90_000,
    delivered=3900,
    delivered_bytes=80_000,
)
DRAINED = {
    **BEFORE,
    "connections": 118,
    "in_msgs": 4100,
    "out_msgs": 3950,
    "in_bytes": 91_000,
    "out_bytes": 80_500,
}
CLOSED = {**DRAINED, "connections": 2, "total_connections": 135, "closed": {"client_closed": 132, "stale": 1}}
EVERY = (
    "connected sessions",
    "messages in",
    "messages out",
    "payload in",
    "payload out",
    "connections opened",
    "connections closed for a reason, or left",
    "connections closed by the load",
)


def run(engine=ENGINE, drained=DRAINED, closed=CLOSED, before=BEFORE, **changes):
    observed = Observed(
        monitor="http://broker:8222",
        began_s=1000.0,
        before=before,
        drained=CountsAt(engine=engine, counters=drained) if drained else None,
        closed=CountsAt(engine=engine, counters=closed) if closed else None,
    )
    return samples.collected(samples.values_ns(100), observed=observed, **changes)


def differences(collected):
    return {row.name: row.difference for row in compare(collected) if not row.matches}


def test_counts_from_before_the_run_are_excluded():
    rows = compare(run())
    assert tuple(row.name for row in rows) == EVERY
    assert all(row.matches and row.holds and row.expected is None for row in rows)
    assert [row.engine for row in rows] == [116, 4000, 3900, 90_000, 80_000, 126, 126, 126]
    assert [row.broker for row in rows] == [row.engine for row in rows]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("connections", "connected sessions"),
        ("in_msgs", "messages in"),
        ("out_msgs", "messages out"),
        ("in_bytes", "payload in"),
        ("out_bytes", "payload out"),
    ],
)
@pytest.mark.parametrize("by", [1, -1])
def test_one_more_or_less_is_a_difference_that_fails_the_run(key, name, by):
    collected = run(drained={**DRAINED, key: DRAINED[key] + by})
    assert differences(collected) == {name: by}
    result = build_result(collected)[0]
    assert not result.holds
    row = next(row for row in result.agreement if not row.matches)
    assert (row.expected, row.holds) == (None, False)
    said = describe_difference(row)
    assert said == f"{name}: engine {row.engine:,}, broker {row.broker:,} {row.unit}, difference {by:+}"
    assert "match in 7 of 8 counts" in describe_agreement(result)
    assert build_result(run())[0].holds


def test_each_connection_is_accounted_for_by_a_reason():
    one_lost = {**CLOSED, "closed": {"client_closed": 131, "stale": 1}}
    assert differences(run(closed=one_lost)) == {
        "connections closed for a reason, or left": -1,
        "connections closed by the load": -1,
    }
    for_another = {**CLOSED, "closed": {"client_closed": 131, "stale": 2}}
    assert differences(run(closed=for_another)) == {"connections closed by the load": -1}
    by_reset = {**CLOSED, "closed": {"client_closed": 130, "stale": 1, "connection_failed": 2}}
    assert differences(run(closed=by_reset)) == {}
    still_there = {**CLOSED, "connections": 3, "closed": {"client_closed": 131, "stale": 1}}
    assert differences(run(closed=still_there)) == {"connections closed by the load": -1}
    assert differences(run(engine=structs.replace(ENGINE, opened=127))) == {
        "connections opened": -1,
        "connections closed for a reason, or left": -1,
    }


def test_over_http_the_server_may_close_idle_connections():
    answered = structs.replace(ENGINE, answered=100)
    closed = {
        **CLOSED,
        "closed": {"client_closed": 22, "stale": 1, "http_answered": 100, "handshake_timeout": 10},
    }
    kept = run(scenario=samples.scenario(transport="rest"), engine=answered, closed=closed)
    assert [row.name for row in compare(kept)] == list(EVERY[:-1])
    assert differences(kept) == {}
    single = run(scenario=samples.scenario(transport="rest-new"), engine=answered, closed=closed)
    assert [row.name for row in compare(single)] == [*EVERY[:-1], "connections closed after an answer"]
    assert differences(single) == {}
    fewer = {**closed, "closed": {**closed["closed"], "http_answered": 99, "client_closed": 23}}
    single = run(scenario=samples.scenario(transport="rest-new"), engine=answered, closed=fewer)
    assert differences(single) == {"connections closed after an answer": -1}


@pytest.mark.parametrize(
    ("changes", "scenario", "excused"),
    [
        ({"disconnected": 2}, {}, {"messages in", "messages out"}),
        ({"timed_out": 2}, {}, {"messages out"}),
        ({"timed_out": 2, "churned": 0}, {}, set()),
        ({"timed_out": 2, "churned": 0}, {"transport": "rest"}, {"messages in", "messages out"}),
    ],
)
def test_lost_connections_may_cause_a_difference(changes, scenario, excused):
    drained = {**DRAINED, "connections": 117, "in_msgs": 4099, "out_msgs": 3951}
    collected = run(
        engine=structs.replace(ENGINE, **changes), drained=drained, scenario=samples.scenario(**scenario)
    )
    rows = {row.name: row for row in compare(collected)}
    for name in ("messages in", "messages out"):
        assert rows[name].holds == bool(excused), rows[name]
        assert not rows[name].matches
    # Nobody may be counted who is not there.
    assert not rows["connected sessions"].holds
    assert rows["payload in"].expected is None


def test_failed_attempts_may_count_as_connections_on_one_side():
    closed = {**CLOSED, "total_connections": 136, "closed": {"client_closed": 133, "stale": 1}}
    failed = run(engine=structs.replace(ENGINE, connect_failures=3), closed=closed)
    rows = {row.name: row for row in compare(failed)}
    assert rows["connections opened"].expected == "3 attempts to connect failed"
    assert build_result(failed)[0].holds
    assert not build_result(run(closed=closed))[0].holds


def test_a_targets_other_clients_are_expected():
    collected = run(drained={**DRAINED, "in_msgs": 4107}, target="nats://there")
    row = next(row for row in compare(collected) if not row.matches)
    assert (row.name, row.difference) == ("messages in", 7)
    assert row.expected == "a target counts all of its clients"
    assert describe_difference(row).endswith("difference +7 (a target counts all of its clients)")
    assert build_result(collected)[0].holds


def test_a_target_reports_fewer_counts_than_the_own_broker():
    few = dict.fromkeys(("connections", "in_msgs", "out_msgs", "total_connections"), 1)
    after = {"connections": 117, "in_msgs": 4001, "out_msgs": 3901, "total_connections": 127}
    rows = compare(run(before=few, drained=after, closed={**after, "connections": 1}))
    assert [row.name for row in rows] == [*EVERY[:3], "connections opened"]
    assert all(row.matches for row in rows)
    nonsense = {
        "connections": "many",
        "in_msgs": True,
        "out_msgs": None,
        "closed": [1],
        "total_connections": {},
    }
    assert compare(run(before=nonsense, drained=nonsense, closed=nonsense)) == []


@pytest.mark.parametrize("huge", [2**63, -(2**63), 10**30, 1e30, float("inf"), float("nan")])
def test_a_number_that_no_counter_can_have_is_not_known(huge):
    closed = {"client_closed": huge, "stale": 2**62, "other": 2**62}
    counters = {
        **dict.fromkeys(BEFORE, huge),
        "closed": closed,
        "conservation": {"dropped": {"closed": huge}},
    }
    collected = run(drained=counters, closed=counters, timeline=[sample(0.4), sample(1.4)])
    assert compare(collected) == []
    collected.observed.readings = [Reading(1000.4, BEFORE), Reading(1001.4, counters)]
    result = build_result(collected)[0]
    assert result.timeline[1].broker.in_msgs is None
    assert result.timeline[1].broker.connections is None
    encode_timeline(result)
    encode_document(result)


def test_counters_at_both_ends_of_what_is_known_have_no_growth():
    ends = run(before={**BEFORE, "in_msgs": -(2**62)}, drained={**DRAINED, "in_msgs": 2**62})
    assert "messages in" not in {row.name for row in compare(ends)}


@pytest.mark.parametrize(
    ("missing", "note"),
    [
        ({"before": None}, "the monitor did not answer before the first connection"),
        ({"drained": None, "closed": None}, "the monitor did not answer at the end of the drain"),
    ],
)
def test_without_counters_there_is_nothing_to_compare(missing, note):
    result = build_result(run(**missing, target="nats://there"))[0]
    assert (result.agreement, result.broker_view.note) == ([], note)
    assert describe_agreement(result) == f"nothing to compare: {note}"
    assert result.holds


def test_the_agreement_of_a_failed_run_names_the_failure():
    result = build_result(run(drained=None, closed=None, error="provider ended"))[0]
    assert result.broker_view.note == "the run failed"
    assert build_result(samples.collected([]))[0].broker_view is None


def sample(t_s, **changes):
    return Sample(
        t_s=t_s, phase="measuring", connections=1, sent=0, received=0, outstanding=0, timed_out=0, errors=0,
        mean_us=0, max_us=0, server_cpu_percent=None, server_rss_bytes=None, load_cpu_percent=None, **changes,
    )  # fmt: skip


def test_each_reading_is_beside_the_engines_count_of_its_second():
    observed = Observed(monitor="m", began_s=1000.0, before=BEFORE)
    observed.readings = [
        Reading(1000.4, BEFORE),
        Reading(1001.4, {**BEFORE, "in_msgs": 130, "connections": 12, "mem": 5, "cpu": 1.5}),
        Reading(1001.6, {**BEFORE, "in_msgs": 140}),
        Reading(1009.0, {**BEFORE, "in_msgs": 900}),
        Reading(1020.0, {"in_msgs": "?", "conservation": {"dropped": {"closed": 8, "shutdown": 1}}}),
    ]
    joined = join_counters([sample(t_s) for t_s in (0.5, 1.0, 1.5, 4.0, 9.1, 20.5)], observed)
    views = [one.broker and (one.broker.t_s, one.broker.in_msgs) for one in joined]
    assert views == [(0.4, 0), None, (1.4, 30), None, (9.0, 800), (20.0, None)]
    told = joined[2].broker
    assert (told.connections, told.mem, told.cpu, told.pending_bytes, told.dropped) == (12, 5, 1.5, None, 0)
    assert joined[5].broker.dropped == 6
    assert join_counters([], observed) == []
    assert join_counters([sample(1.0)], None) == [sample(1.0)]


def test_the_summary_describes_the_readings_of_the_monitor():
    collected = run()
    observed = collected.observed
    observed.readings, observed.failures = [Reading(1000.4, BEFORE)] * 3, 2
    observed.first_failure, observed.slowest_s = "timed out", 0.25
    view = summarise_monitor(collected)
    assert (view.readings, view.failures, view.slowest_s, view.note) == (3, 2, 0.25, None)
    assert view.closed == {"client_closed": 126}
    assert set(view.units) == set(joined_fields())
    said = describe_agreement(build_result(collected)[0])
    assert said == (
        "engine and broker match in 8 of 8 counts: 116 sessions, 4,000 messages in, 3,900 out; "
        "2 of 5 readings failed, the first: timed out"
    )


def joined_fields():
    return join_counters([sample(0.4)], Observed(monitor="m", began_s=0, readings=[Reading(0.4, BEFORE)]))[
        0
    ].broker.__struct_fields__


def test_the_runs_of_a_comparison_keep_their_rows():
    runs = [
        run(scenario=samples.scenario(name="ws, one caller"), timeline=[sample(1.0), sample(2.0)]),
        run(
            scenario=samples.scenario(name="tcp, one caller"),
            timeline=[sample(1.0)],
            drained={**DRAINED, "out_msgs": 3951},
        ),
    ]
    for one in runs:
        one.observed.readings = [Reading(1000.9, DRAINED)]
    result = build_comparison(TransportsScenario(name="both"), runs)
    assert len(result.agreement) == 16
    assert [row.name for row in result.agreement if not row.holds] == ["tcp, one caller: messages out"]
    assert not result.holds
    assert [one.broker and one.broker.t_s for one in result.timeline] == [0.9, None, 2.9]
    assert result.broker_view.closed == {"client_closed": 252}
    assert result.broker_view.readings == 2
