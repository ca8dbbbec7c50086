"""Reports as text, read by a Markdown parser."""

import shlex
import tomllib
from dataclasses import replace
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt
from msgspec import structs

from loadtest.experiments.capacity import find_capacity, plan_search
from loadtest.experiments.compare import Side, compare_runs
from loadtest.experiments.repeat import summarise_runs
from loadtest.result.histogram import Histogram
from loadtest.result.metrics import number_text
from loadtest.result.schema import Check, Host, HostSample, Soak, ThresholdOutcome, TransportRun, Trend
from loadtest.runner.building.collected import WorkerReport
from loadtest.runner.building.result import build_result
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.messages import ProviderResult
from tests.loadtest import samples
from tests.loadtest.queues import Queue
from tests.loadtest.rendered import as_csv, as_markdown


class Text:
    """What a reader of the rendered text finds: headings, tables, paragraphs and items, code."""

    def __init__(self, markdown: str) -> None:
        assert markdown.endswith("\n")
        assert "\n\n\n" not in markdown
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
        self.html = [token for token in tokens if token.type == "html_block"]
        self.code = [token.content for token in tokens if token.type == "fence"]
        self.headings: list[str] = []
        self.lines: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        for before, token in pairwise(tokens):
            if before.type == "tr_open":
                self.tables.setdefault(self.headings[-1], []).append([])
            if token.type != "inline":
                continue
            self.html += [child for child in token.children if child.type == "html_inline"]
            text = "".join(child.content for child in token.children)
            if before.type == "heading_open":
                self.headings.append(text)
            elif before.type in ("th_open", "td_open"):
                self.tables[self.headings[-1]][-1].append(text)
            else:
                self.lines.append(text)

    def table(self, heading: str) -> dict[str, list[str]]:
        """The rows of the table below a heading, by their first column."""
        rows = self.tables[heading]
        assert {len(row) for row in rows} == {len(rows[0])}
        return {row[0]: row[1:] for row in rows}


def seen(cpu_percent: float) -> HostSample:
    return HostSample(
        t_s=1.0, cpu_percent=cpu_percent, memory_used_bytes=2 * 10**9, net_in_bps=3e6, net_out_bps=4e6
    )


def test_the_report_of_a_successful_run():
    result = samples.result(command=["subjectbus", "loadtest", "run", "my scenario.toml"])
    text = Text(as_markdown(result))
    assert text.headings[0] == "Load test: sample"
    assert text.lines[0].endswith("own broker · ws · 2 s measured · seed 1")
    assert text.lines[1] == "Everything holds: thresholds and accounts."
    summary = text.table("Beside the published run")
    assert summary["requests/s"] == ["1,000", "240,000", "500", "7,500"]
    assert summary["latency p99, ms"][1] == "130"
    assert "broker CPU, % of machine" in summary  # the reference has it
    assert "HTTP heads, bytes/call" not in summary
    percentiles = text.table("Latency")
    assert percentiles["p99.9"] == [
        number_text(result.latency_us.p99_9 / 1000),
        number_text(result.service_us.p99_9 / 1000),
    ]
    assert "holds: latency_us.p99 < 100000: is" in " ".join(text.lines)
    assert "There were none of any kind." in text.lines
    command, _, scenario = text.code
    assert shlex.split(command) == result.command
    assert tomllib.loads(scenario)["users"] == 100


def test_the_report_of_a_run_with_failures():
    values = samples.values_ns(100)
    lost = samples.requestor_result(
        values, sent=103, timed_out=2, errors=1, server_errors=1, first_server_error="'Slow*'"
    )
    hosts = [
        Host(name="a", roles=["broker"], samples=[seen(10.0), seen(30.0)]),
        Host(name="b", address="10.0.0.2", roles=["requestor"], lost="no route to host"),
    ]
    reports = [
        WorkerReport("requestor 1", "b", lost),
        WorkerReport("provider 1", "a", ProviderResult(connections=16, received=150, sent=150)),
    ]
    run = samples.collected(
        values,
        workers=reports,
        requestors=[lost],
        hosts=hosts,
        missing=["requestor 2 on host b: no result"],
        error="host b was lost",
    )
    text = Text(as_markdown(build_result(run)[0]))
    assert "The run failed: host b was lost" in text.lines
    assert "host b was lost: no route to host" in text.lines
    assert "requestor 2 on host b: no result" in text.lines
    assert text.table("Errors by kind") == {
        "kind": ["count", "meaning"],
        "timed out": ["2", "requests without a reply within the scenario's timeout_s"],
        "failed": ["1", "requests answered with an error, or cut off by the end of their connection"],
        "errors from the server": ["1", "-ERR messages, or HTTP responses with an error status"],
    }
    assert "Errors from the server: 1, first: 'Slow*'" in text.lines
    assert text.table("Machines")["b"][:2] == ["10.0.0.2", "requestor"]
    table = text.table("Use of the hosts")
    assert table["a"] == ["20.0", "30.0", "2.00", "3.0", "4.0"]
    assert table["b"] == [*"-----"]
    processes = text.table("Processes of the load")
    assert processes["requestor 1"][:6] == ["b", "100", "103", "100", "1", "2"]
    assert processes["provider 1"] == ["a", "16", "150", "150", "0", "0", "-", "-", "-", "-"]
    assert any(line.startswith("fails: the run: host b was lost") for line in text.lines)


def test_a_run_that_measured_nothing():
    run = samples.collected([], error="provider ended", requestors=[], providers=[], counters=None)
    text = Text(as_markdown(build_result(run)[0]))
    assert "The run failed: provider ended" in text.lines
    assert "No reply was measured." in text.lines
    assert as_csv(build_result(run)[0]).startswith("measure,")


def test_failed_checks_are_reported():
    trend = Trend(name="p99_us", slope_per_hour=5.0, limit=1.0, p_value=0.001, holds=False)
    result = samples.result(
        thresholds=[ThresholdOutcome(expr="achieved.errors == 0", value=None, holds=False)],
        soak=Soak(period_s=60.0, samples=[], trends=[trend], note="too short to judge"),
    )
    lines = Text(as_markdown(result)).lines
    assert "Not everything holds: see below." in lines
    assert "fails: achieved.errors == 0: is no value" in lines
    assert "fails: p99_us: +5 per hour (at most +1), by chance with p = 0.001" in lines
    assert "fails: too short to judge" in lines


HOSTILE = [
    "<script>alert(1)</script>", "a | b\nc", "`x` *y* [z](http://h/)", "\\|", "_a_ __b__ c_d &lt; ~~e~~",
    "# f", "- g", "<!-- g -->", "a<b>c</b>", "<http://h/>", "+ h", "1. i", "2) j", "===", "> k",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_text(text):
    shown = " ".join(text.split())
    named = {"name": text, "description": text}
    trend = Trend(name=text, slope_per_hour=None, limit=1.0, p_value=None, holds=False)
    check = Check(name=text, detail=text, holds=False)
    result = samples.result(
        scenario=named,
        error=text,
        missing=[text],
        soak=Soak(period_s=60.0, samples=[], trends=[trend], note=text),
        conservation=structs.replace(samples.result(1).conservation, checks=[check]),
        environment={"cpu_model": text},
    )
    page = Text(as_markdown(result))
    assert page.html == []
    assert page.headings[0] == f"Load test: {shown}"
    assert shown in page.lines
    assert f"The run failed: {shown}" in page.lines
    assert f"fails: {shown}: {shown}" in page.lines
    assert f"fails: {shown}: not judged (at most +1 per hour)" in page.lines
    assert page.table("Environment")["cpu_model"] == [shown]
    host = Host(name=text, roles=["broker"], samples=[seen(1.0)])
    assert Text(as_markdown(samples.result(hosts=[host]))).table("Machines")[shown][1] == "broker"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_text_in_the_reports_of_experiments(text, tmp_path):
    shown = " ".join(text.split())
    results = [samples.result(10, scenario={"name": text}, error=error) for error in (None, text)]
    summary = summarise_runs(dict(zip(("run-1", "run-2"), results, strict=True)))
    series = Text(as_markdown(structs.replace(summary, complaints=[text])))
    assert series.headings == [
        f"{shown}, 2 of 2 runs", "Metrics", "Thresholds", "How to reproduce it",
    ]  # fmt: skip
    assert shown in series.lines
    assert f"Failed: run-2: {shown}" in series.lines
    plan = plan_search(
        samples.scenario(name=text), [], from_rate=100.0, to_rate=100.0, precision=0.02, probe_s=1.0
    )
    search = find_capacity(plan, tmp_path, Queue(20_000.0).run_into, Interrupts(), str)
    probes = [structs.replace(probe, reasons=[text]) for probe in search.probes]
    found = Text(as_markdown(structs.replace(search, explanation=text, probes=probes)))
    assert found.headings == [
        f"Capacity of {shown}", "Probes", "Why probes failed", "Conditions", "How to reproduce it",
    ]  # fmt: skip
    assert f"Capacity: {shown}." in found.lines
    assert any(line.endswith(f"(holds): {shown}") for line in found.lines)
    sides = [Side(name, results, summary, Histogram()) for name in (text, "other")]
    comparison = replace(compare_runs(sides, 0.05), regressions=[text], differences=[text])
    compared = Text(as_markdown(comparison))
    assert compared.headings == [f"{shown}, other", "Metrics", "What differs besides"]
    assert shown in compared.lines
    assert shown in compared.lines
    assert compared.tables["Metrics"][0][1] == shown
    for page in (series, found, compared):
        assert page.html == []


def test_a_comparison_of_transports_is_a_row_for_each_run():
    latency = samples.result(10).latency_us
    run = TransportRun(
        transport="rest", outstanding=16, calls=10, errors=0, timed_out=0, statuses={}, total_s=2.0,
        calls_per_s=5.0, latency_us=latency, wire=None, server_cpu_us_per_call=None,
        client_cpu_us_per_call=1.5, connections_opened=16,
    )  # fmt: skip
    result = samples.result(
        transports=[run, structs.replace(run, transport="ws")],
        scenario={"name": "transports", "request_bytes": 32, "reply_bytes": 256},
    )
    header, first, second = (line.split(",") for line in as_csv(result).splitlines())
    assert header[:3] == ["transport", "outstanding", "calls"]
    rest = dict(zip(header, first, strict=True))
    assert (rest["transport"], rest["calls_per_s"], rest["server_cpu_us_per_call"]) == ("rest", "5", "")
    assert float(rest["latency_us.p99"]) == pytest.approx(latency.p99)
    assert second[0] == "ws"
    named = {**result.scenario, "name": "a <b>"}
    failing = [ThresholdOutcome(expr="achieved.errors == 0", value=3, holds=False)]
    failed = structs.replace(
        result, scenario=named, error="no route", missing=["provider 1: no result"], thresholds=failing
    )
    text = Text(as_markdown(failed))
    assert text.html == []
    assert text.headings == [
        "Transports: a <b>", "Transports side by side", "16 callers", "Thresholds",
        "Errors by kind", "Conservation", "Environment", "How to reproduce it",
    ]  # fmt: skip
    assert text.table("16 callers")["calls/s"] == ["5", "5"]
    for line in (
        "The run failed: no route",
        "provider 1: no result",
        "fails: achieved.errors == 0: is 3",
    ):
        assert line in text.lines
    assert tomllib.loads(text.code[-1])["name"] == "a <b>"
