"""Scenarios over HTTP, and the figures and texts of a comparison of transports."""

import re

import pytest
from msgspec import structs

from loadtest import FetchScenario, TransportsScenario, load_scenario
from loadtest.errors import ScenarioError
from loadtest.report.transports import findings, tables
from loadtest.result.schema import Host, HostSample, TransportRun, read_result, write_result
from loadtest.runner.building.collected import WorkerReport
from loadtest.runner.transports import build_comparison
from loadtest.scenario.kinds import with_transport
from loadtest.workers.messages import RequestorResult, Traffic
from tests.loadtest import samples
from tests.loadtest.rendered import as_markdown, as_page, summary


def test_the_shipped_comparison_matches_the_published_one_of_2014():
    plan = load_scenario("transports")
    assert isinstance(plan, TransportsScenario)
    assert (plan.calls, plan.sequential_calls, plan.outstanding) == (2_000_000, 200_000, 64)
    runs = plan.runs()
    assert [(run.transport, run.outstanding, run.calls) for run in runs] == [
        (transport, outstanding, calls)
        for outstanding, calls in ((1, 200_000), (64, 2_000_000))
        for transport in ("rest-new", "rest", "ws", "tcp")
    ]
    assert {(run.users == run.outstanding, run.providers, run.provider_transport) for run in runs} == {
        (True, 1, "tcp")
    }
    assert {(run.request_bytes, run.reply_bytes) for run in runs} == {(32, 256)}
    only = load_scenario("transports", ["sequential_calls=0", 'transports=["ws"]'])
    assert [run.name for run in only.runs()] == ["ws, 64 at once"]


def test_the_shipped_baseline_of_http():
    scenario = load_scenario("http-byte")
    assert isinstance(scenario, FetchScenario)
    assert (scenario.users, scenario.outstanding, scenario.reply_bytes) == (256, 256, 1)
    assert (scenario.transport, scenario.path, scenario.connections) == ("rest", "/byte", 256)
    opened = load_scenario("http-byte", ["rate=1000", "outstanding=0"])
    assert (opened.rate, opened.outstanding) == (1000, 0)


@pytest.mark.parametrize(
    ("name", "overrides", "error"),
    [
        ("autocomplete", ["calls=100"], "calls: only a closed loop ends after a number of requests"),
        (
            "autocomplete",
            ["rate=0", "outstanding=8", "calls=3", "requestors=4"],
            "calls: 3 are fewer than the 4 requestor threads",
        ),
        ("autocomplete", ["calls=-1"], "calls: expected int >= 0"),
        (
            "autocomplete",
            ["transport=rest", "rate=0", "outstanding=20_000"],
            "outstanding: 20000 are more than the 10000 users; over HTTP each has one request",
        ),
        ("soak", ["transport=rest-new"], "churn_rate: churn is not possible over HTTP; set transport to ws"),
        ("autocomplete", ["provider_transport=rest"], "provider_transport: invalid enum value 'rest'"),
        ("broadcast", ["transport=rest"], "transport: invalid enum value 'rest' (choose from ws, tcp)"),
        ("http-byte", ["transport=ws"], "transport: invalid enum value 'ws' (choose from rest, rest-new)"),
        ("http-byte", ["providers=1"], 'providers: not a key of the workload "http-byte"'),
        ("http-byte", ["rate=10"], "rate, outstanding: both are given"),
        ("transports", ["users=1"], 'users: not a key of the workload "transports"'),
        ("transports", ["transport=ws"], 'transport: not a key of the workload "transports"'),
        ("transports", ["outstanding=1"], "outstanding: expected int >= 2"),
        ("transports", ["transports=[]"], "transports: expected array of length >= 1"),
    ],
)
def test_an_unusable_scenario_is_one_line(name, overrides, error):
    with pytest.raises(ScenarioError) as raised:
        load_scenario(name, overrides)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "overrides", "transport", "error"),
    [
        ("autocomplete", ["transport=rest"], "tcp", "transport: rest needs a target http://HOST:PORT"),
        ("autocomplete", ["transport=rest-new"], "ws", "transport: rest-new needs a target http://"),
        ("autocomplete", ["provider_transport=tcp"], "rest", "a target http:// is reached over WebSocket"),
        ("http-byte", [], "tcp", "fetches over HTTP, and needs a target http://HOST:PORT"),
        ("broadcast", [], "rest", "broadcasts need a target nats:// or ws://"),
        ("transports", [], "ws", "takes no target"),
    ],
)
def test_a_target_that_does_not_suit_the_scenario_is_refused(name, overrides, transport, error):
    with pytest.raises(ScenarioError, match=re.escape(error)):
        with_transport(load_scenario(name, overrides), transport)


@pytest.mark.parametrize(
    ("scenario", "target", "transport"),
    [
        ("ws", "rest", "rest"),
        ("tcp", "rest", "rest"),
        ("rest-new", "rest", "rest-new"),
        ("rest", "rest", "rest"),
        ("tcp", "ws", "ws"),
    ],
)
def test_a_target_sets_the_transport_that_the_scenario_leaves_open(scenario, target, transport):
    plan = load_scenario("autocomplete", [f"transport={scenario}"])
    assert with_transport(plan, target).transport == transport


TRAFFIC = Traffic(wire_bytes_in=410_000, wire_bytes_out=140_000, head_bytes_in=147_600, head_bytes_out=74_400)


def requestor(**changes) -> RequestorResult:
    return samples.requestor_result(samples.values_ns(1950), traffic=TRAFFIC, connections_opened=7, **changes)


def test_bytes_are_divided_by_all_calls_that_were_answered():
    run = samples.collected(samples.values_ns(1950), requestors=[requestor(), requestor()])
    wire = samples.build_result(run)[0].wire
    assert wire is not None
    # 1,950 and 50 of the warm-up, twice.
    assert (wire.calls, wire.payload_out, wire.payload_in) == (4000, 32, 256)
    assert (wire.out, wire.in_, wire.head_out, wire.head_in) == (70, 205, 37.2, 73.8)
    assert (wire.payload, wire.total, wire.heads) == (288, 275, pytest.approx(111))
    rows = summary(samples.build_result(run)[0])
    assert rows["on the wire, bytes/call"][0] == "275.0"
    assert rows["HTTP heads, bytes/call"][0] == "111.0"
    assert rows["connections opened"][0] == "14"


def test_statuses_are_added_and_shown():
    failing = requestor(errors=3, sent=1953, statuses={"503": 2, "500": 1})
    run = samples.collected(samples.values_ns(1950), requestors=[failing, failing])
    result = samples.build_result(run)[0]
    assert result.achieved.statuses == {"500": 2, "503": 4}
    assert "by status: 500: 2, 503: 4." in as_page(result)


def test_a_run_ends_after_the_given_number_of_calls():
    scenario = samples.scenario(rate=0.0, outstanding=4, calls=2000)
    for count, holds in ((2000, True), (1999, False)):
        values = samples.values_ns(count)
        run = samples.collected(values, scenario=scenario)
        checks = {check.name: check for check in samples.build_result(run)[0].conservation.checks}
        assert (checks["calls"].holds, checks["calls"].detail) == (
            holds,
            f"sent {count:,} = asked for 2,000",
        )


#: Calls per second, bytes on the wire, of these heads, and server CPU in microseconds.
FIGURES = {
    "rest-new": (4_000.0, 560.0, 270.0, 100.0),
    "rest": (20_000.0, 530.0, 240.0, 12.0),
    "ws": (21_000.0, 340.0, 0.0, 9.5),
    "tcp": (22_000.0, 330.0, 0.0, 9.0),
}


def comparison(**rates: float):
    """A result of the four transports with one caller and with 64."""
    plan = load_scenario("transports")
    result = build_comparison(plan, [])
    blank = samples.result().wire
    assert blank is not None
    rows = []
    for outstanding in (1, 64):
        for transport, (rate, wire, heads, cpu) in FIGURES.items():
            per_s = rates.get(transport.replace("-", "_"), rate) * (1 if outstanding == 1 else 2)
            rows.append({
                "transport": transport,
                "outstanding": outstanding,
                "calls": 2000,
                "errors": 0,
                "timed_out": 0,
                "statuses": {},
                "total_s": 2000 / per_s,
                "calls_per_s": per_s,
                "latency_us": samples.result().latency_us,
                "wire": structs.replace(
                    blank, out=wire / 2, in_=wire / 2, head_out=heads / 2, head_in=heads / 2
                ),
                "server_cpu_us_per_call": cpu,
                "client_cpu_us_per_call": None,
                "connections_opened": 1,
            })  # fmt: skip
    return structs.replace(
        result, transports=[TransportRun(**row) for row in rows], environment=samples.result().environment
    )


def test_there_is_a_table_for_each_number_of_callers():
    one, many = tables(comparison().transports)
    assert (one.title, many.title) == ("One caller", "64 callers")
    assert one.columns[1:] == [
        "REST, a connection for each call",
        "REST, connections kept",
        "WebSocket",
        "TCP",
    ]
    by_name, by_other = ({row[0]: row[1:] for row in part} for part in (one.rows, many.rows))
    assert by_name["calls/s"] == ["4,000", "20,000", "21,000", "22,000"]
    assert by_other["calls/s"] == ["8,000", "40,000", "42,000", "44,000"]
    assert by_name["s for 2,000,000 calls at that rate"] == ["500.0", "100.0", "95.2", "90.9"]
    assert by_name["s for 2,000,000 calls, published 2014"] == ["1,492.2", "1,492.2", "825.6", "517.8"]
    assert by_name["on the wire, bytes/call"] == ["560.0", "530.0", "340.0", "330.0"]
    assert by_name["request heads, bytes/call"] == ["135.0", "120.0", "0.0", "0.0"]
    assert by_name["broker CPU per call, µs"] == ["100", "12", "9.50", "9"]
    assert by_name["load CPU per call, µs"] == ["-"] * 4


def test_equal_times_are_compared_by_bytes_and_processor_time():
    said = findings(comparison().transports)
    assert said[0] == (
        "With one caller calls/s are: TCP 22,000, WebSocket 21,000, REST with connections kept 20,000, "
        "REST with a connection for each call 4,000."
    )
    assert said[1] == (
        "With one caller REST with connections kept is as quick as WebSocket; it takes "
        "530 bytes on the wire for each call against 340, 240 of them heads and 12.0 µs of the server's CPU "
        "against 9.5."
    )
    assert "takes 5.00 times the time of kept connections, and 88.0 µs more" in said[2]
    assert "5.25 times the time of WebSocket's and 5.50 times the time of TCP's" in said[3]
    assert "of REST: 1.81 times and 2.88 times." in said[3]
    assert [text.startswith("With 64 callers") for text in said] == [False] * 4 + [True] * 4


def test_different_times_are_compared_as_a_ratio():
    said = findings(comparison(rest=10_500.0).transports)
    assert "kept takes 2.00 times the time of WebSocket's; besides, it takes 530 bytes" in said[1]


def test_one_transport_alone_is_compared_with_nothing():
    assert findings([run for run in comparison().transports if run.transport == "ws"]) == []


def test_the_comparison_is_written_as_html_and_markdown(tmp_path):
    result = comparison()
    page, text = as_page(result), as_markdown(result)
    for sentence in findings(result.transports):
        assert sentence.replace("'", "&#39;") in page
        assert sentence in text
    assert "Latency by percentile" not in page
    assert "<h3>64 callers</h3>" in page
    assert "| calls/s | 4,000 | 20,000 | 21,000 | 22,000 |" in text
    assert "without TCP and IP" in text
    write_result(result, tmp_path)
    assert read_result(tmp_path).transports == result.transports


def test_runs_become_one_result_with_every_check():
    plan = load_scenario("transports")
    parts = [
        samples.collected(
            samples.values_ns(1950), scenario=structs.replace(run, calls=1950), requestors=[requestor()]
        )
        for run in plan.runs()[:3]
    ]
    result = build_comparison(plan, parts)
    assert [run.transport for run in result.transports] == ["rest-new", "rest", "ws"]
    assert (result.achieved.sent, result.achieved.received) == (5850, 5850)
    assert result.achieved.connections_opened == 21
    assert result.error is None
    assert result.conservation.holds, result.conservation
    assert {check.name.partition(": ")[0] for check in result.conservation.checks} == {
        "rest-new, one caller",
        "rest, one caller",
        "ws, one caller",
    }
    assert [outcome.holds for outcome in result.thresholds] == [True] * 5
    run = result.transports[0]
    assert (run.calls, run.total_s, run.calls_per_s, run.wire.calls) == (1950, 2.0, 975.0, 2000)
    parts[1].error = "the broker is gone"
    broken = build_comparison(plan, parts)
    assert broken.error == "rest, one caller: the broker is gone"
    assert not broken.holds


def test_the_joined_result_has_the_machines_the_processes_and_the_command_of_its_runs():
    plan = load_scenario("transports")
    look = samples.four_hosts(4, 10).timeline[-1]
    sample = HostSample(t_s=3.0, cpu_percent=10.0, memory_used_bytes=1, net_in_bps=0.0, net_out_bps=0.0)
    command = ["subjectbus", "loadtest", "run", "transports"]
    parts = [
        samples.collected(
            samples.values_ns(1950),
            scenario=structs.replace(run, calls=1950),
            requestors=[requestor()],
            workers=[WorkerReport("requestor 1", "a", requestor())],
            hosts=[Host(name="a", roles=["broker"], processes=[name, "broker"], samples=[sample])],
            timeline=[structs.replace(look, t_s=5.0)],
            missing=["provider 1: no result"] if number else [],
            command=command,
        )
        for number, (run, name) in enumerate(zip(plan.runs()[:2], ("one", "two"), strict=True))
    ]
    result = build_comparison(plan, parts)
    assert result.command == command
    assert result.missing == ["rest, one caller: provider 1: no result"]
    assert [worker.name for worker in result.workers] == [
        "rest-new, one caller: requestor 1",
        "rest, one caller: requestor 1",
    ]
    (host,) = result.hosts
    assert [seen.t_s for seen in host.samples] == [3.0, 8.0]
    assert [seen.t_s for seen in result.timeline] == [5.0, 10.0]
    assert host.processes == ["one", "broker", "two"]
    text = as_markdown(result)
    for said in (
        "rest, one caller: provider 1: no result",
        "subjectbus loadtest run transports",
        "## Machines",
    ):
        assert said in text
    assert "subjectbus loadtest run transports" in as_page(result)
