import base64
import hashlib
import html
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import StringIO

import msgspec
import pytest
from msgspec import structs

from loadtest import read_result
from loadtest.errors import ResultError
from loadtest.report import artifacts
from loadtest.report.charts import over_time
from loadtest.report.live import Console
from loadtest.report.terminal import Screen
from loadtest.result.folder import claimed
from loadtest.result.metrics import number_text
from loadtest.result.schema import Interval, Sample, Server, Soak, SoakSample, ThresholdOutcome, Trend
from loadtest.runner.building.result import build_result
from loadtest.workers.messages import Progress
from subjectbus import cli
from tests.loadtest import samples
from tests.loadtest.rendered import as_page, summary

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks nesting while it reads; keeps tags, attributes, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_report_is_well_formed_and_loads_nothing():
    text = as_page(samples.result())
    page = Page(text)
    loading = {"link", "img", "iframe", "object", "embed"}
    assert loading.isdisjoint(tag for tag, _ in page.tags)
    (script,) = (attributes for tag, attributes in page.tags if tag == "script")
    assert script == {}
    addresses = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"@import|url\((?!#)", text)


def test_the_policy_allows_the_pages_own_script_and_no_other():
    text = as_page(samples.result())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert html.unescape(policy) == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    without = as_page(build_result(samples.collected([], requestors=[], providers=[], counters=None))[0])
    assert "<script" not in without
    assert "script-src" not in without


def test_ids_are_unique_and_every_reference_has_a_target():
    page = Page(as_page(samples.result()))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for name in ("aria-labelledby", "xlink:href"):
            if name in attributes:
                assert attributes[name].removeprefix("#") in ids
    for reference in re.findall(r"url\(#([^)]+)\)", as_page(samples.result())):
        assert reference in ids


def test_a_short_last_interval_is_merged_with_the_one_before():
    whole = {"p50_us": 1.0, "p99_us": 2.0, "max_us": 3.0}
    seconds = [Interval(start_s=n, end_s=n + 1, sent=100, received=90, **whole) for n in range(3)]
    sliver = Interval(start_s=3, end_s=3.001, sent=2, received=12, **whole)
    *earlier, last = over_time.merge_short_last_interval([*seconds, sliver])
    assert earlier == seconds[:2]
    assert (last.start_s, last.end_s, last.sent, last.received) == (2, 3.001, 102, 102)
    assert over_time.merge_short_last_interval(seconds) == seconds
    assert over_time.merge_short_last_interval([sliver]) == [sliver]


def figure_texts(page: str) -> list[str]:
    """What there is to read in each figure: heading, legend, drawing and table."""
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    return ["".join(ET.fromstring(figure).itertext()) for figure in figures]


def test_the_charts_are_named_drawings_in_the_pages_colours():
    page = as_page(samples.result())
    drawings = re.findall(r'<svg class="chart".*?</svg>', page, re.DOTALL)
    assert len(drawings) == 4
    for drawing in drawings:
        root = ET.fromstring(drawing)
        assert root.get("role") == "img"
        assert root.get("viewBox")
        assert root.get("width") is None
        title = root.find("title")
        assert title.text
        assert root.get("aria-labelledby") == title.get("id")
        assert re.search(r"var\(--(series|heat)-1\)", drawing)
    throughput, percentiles, over_time, heatmap = figure_texts(page)
    assert "99.9 %" in percentiles
    assert "service time" in percentiles
    assert "requests sent" in throughput
    assert "replies received" in throughput
    assert "requests planned" in throughput
    assert "maximum" in over_time
    assert "Latency heat map" in heatmap
    assert all("var(--series-1)" in drawing for drawing in drawings[:3])


def test_the_report_has_figures_thresholds_checks_and_environment():
    result = samples.result()
    text = Page(as_page(result)).text
    for title, (run, *_) in summary(result).items():
        assert title in text
        assert run in text
    for check in result.conservation.checks:
        assert check.detail in text
    for words in (
        "latency_us.p99 < 100000",
        "a processor",
        "limits.nofile_soft",
        "1,000,016",
        "MigratoryData",
    ):
        assert words in text
    assert "fails" not in text


def test_a_closed_loop_is_named_in_the_report():
    run = samples.collected(samples.values_ns(500), scenario=samples.scenario(rate=0.0, outstanding=1024))
    result = build_result(run)[0]
    assert result.requested.rate is None
    page = as_page(result)
    said = "Closed loop with 1,024 requests outstanding: nothing has a planned time"
    assert said in Page(page).text
    assert said in told(result)
    assert "planned send time" not in page
    assert "Closed loop" not in as_page(samples.result()) + told()


def soaked(**changes):
    sample = SoakSample(
        start_s=0.0,
        end_s=60.0,
        broker_rss_bytes=200_000_000,
        broker_descriptors=1030,
        broker_connections=1016,
        broker_cpu_percent=25.0,
        load_rss_bytes=100_000_000,
        load_cpu_percent=20.0,
        received=100,
        p50_us=100.0,
        p99_us=2000.0,
        max_us=9000.0,
    )
    seen = [structs.replace(sample, end_s=60.0 * (n + 1), **changes) for n in range(15)]
    trends = [
        Trend(name="broker_rss_bytes", slope_per_hour=2.5e6, limit=1e6, p_value=0.0001, holds=False),
        Trend(name="p99_us", slope_per_hour=-12.0, limit=2000.0, p_value=0.7, holds=True),
    ]
    return Soak(period_s=60.0, samples=seen, trends=trends)


def test_a_soak_has_its_trends_and_charts():
    result = samples.result(soak=soaked())
    assert not result.holds
    page = as_page(result)
    text = Page(page).text
    for said in (text, told(result)):
        for name, slope in (
            ("broker_rss_bytes", "+2.5e+06 per hour (at most +1e+06), by chance with p = 0.000"),
            ("p99_us", "-12 per hour (at most +2,000), by chance with p = 0.700"),
        ):
            assert re.search(rf"{name}:? {re.escape(slope)}", said)
    texts = figure_texts(page)
    assert len(texts) == 4 + 5
    for title, label in (
        ("Resident memory by period", "load, resident"),
        ("Latency by period", "latency p99"),
        ("Highest latency by period", "latency maximum"),
        ("Processor time by period", "broker, CPU"),
        ("The broker's connections and descriptors by period", "descriptors"),
    ):
        assert any(title in drawn and label in drawn for drawn in texts)
    ids = [attributes["id"] for _, attributes in Page(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert 'id="section-soak"' not in as_page(samples.result())


def test_a_soak_that_was_not_judged_shows_its_data_and_the_reason():
    hidden = dict.fromkeys(("broker_rss_bytes", "broker_cpu_percent", "broker_descriptors"))
    soak = structs.replace(soaked(**hidden, broker_connections=None), note="too short to judge: 3 periods")
    result = samples.result(soak=soak)
    page = as_page(result)
    assert "too short to judge: 3 periods" in Page(page).text
    assert "soak         FAILS  too short to judge: 3 periods" in told(result)
    assert "broker, resident" not in page
    assert "load, resident" in page
    assert "connections and descriptors by period" not in page
    empty = structs.replace(soak, samples=[], trends=[])
    assert "by period" not in as_page(samples.result(soak=empty))


def test_failed_checks_are_shown_as_failures():
    outcome = ThresholdOutcome(expr="achieved.errors == 0", value=3, holds=False)
    text = Page(as_page(samples.result(thresholds=[outcome]))).text
    assert "achieved.errors == 0 is 3 fails" in text


def test_hostile_texts_stay_text():
    scenario = {"name": "<script>alert(1)</script>", "transport": "ws"}
    result = samples.result(scenario=scenario, error='<img src="x">')
    page = Page(as_page(result))
    assert "<script>alert(1)</script>" in page.text
    assert [tag for tag, _ in page.tags if tag in ("script", "img")] == ["script"]


def test_a_run_that_measured_nothing_still_has_a_report():
    run = samples.collected([], error="provider ended", requestors=[], providers=[], counters=None)
    text = Page(as_page(build_result(run)[0])).text
    assert "The run failed: provider ended" in text
    assert "No reply was measured" in text


def test_the_reference_is_compared_in_total_and_per_thread():
    result = samples.result(
        server=Server(
            cpu_percent=12.34,
            cpu_us_per_request=5.0,
            rss_bytes=50_000_000,
            rss_bytes_per_connection=1024.4,
            rss_growth_bytes_per_connection=512.0,
            net_in_bps=2.5e6,
            net_out_bps=None,
        )
    )
    rows = summary(result)
    rate = rows["requests/s"]
    assert tuple(rate) == (
        "1,000",
        "240,000",
        "500",
        "7,500",
    )
    assert rows["latency p99, ms"][1] == "130"
    assert rows["latency p50, ms"][1] == "-"
    assert rows["latency mean, ms"][0] == number_text(result.latency_us.mean / 1000)
    assert (rows["broker CPU, % of machine"][0], rows["broker CPU, % of machine"][1]) == (
        "12.3",
        "65.0",
    )

    def figures(measure):
        return tuple(rows[measure])

    assert figures("connections") == ("116", "1,000,016", "58", "31,250")
    assert figures("broker CPU per request, µs") == ("5", "86.67", "5", "86.67")
    assert figures("broker memory, MB") == ("50", "30,000", "25", "938")
    assert figures("broker memory, bytes/connection") == ("1,024", "30,000", "1,024", "30,000")
    assert figures("broker memory growth, bytes/connection") == ("512", "-", "512", "-")
    assert figures("broker network in, Mbit/s") == ("2.5", "1,060.0", "1.2", "33.1")
    assert figures("broker network out, Mbit/s") == ("-", "1,170.0", "-", "36.6")
    assert figures("requests total") == ("2,000", "4,084,890,291", "-", "-")
    assert figures("measured time, s") == ("2", "17,020", "-", "-")
    for text in (Page(as_page(result)).text, told(result)):
        for title in rows:
            assert title in text
        for figure in ("31,250", "938", "1,170.0"):
            assert figure in text


@pytest.mark.parametrize(
    ("target", "server", "per_thread", "machine"),
    [
        ("nats://far:4222", Server(), "-", "Load machine: a processor"),
        ("nats://near:4222", Server(cpu_percent=1.0), "500", "This run: a processor"),
        (None, Server(), "500", "This run: a processor"),
    ],
)
def test_the_machine_of_the_load_is_not_taken_for_the_servers(target, server, per_thread, machine):
    result = samples.result(target=target, server=server)
    rows = summary(result)
    assert rows["requests/s"][2] == per_thread
    assert ({row[2] for row in rows.values()} == {"-"}) == (per_thread == "-")
    assert machine in Page(as_page(result)).text


def test_errors_from_the_server_are_shown():
    result = samples.result()
    assert "rrors from the server" not in as_page(result) + told()
    achieved = structs.replace(result.achieved, server_errors=1234, first_server_error="'Slow <b>'")
    result = structs.replace(result, achieved=achieved)
    assert "Errors from the server: 1,234, first: 'Slow <b>'" in Page(as_page(result)).text
    assert "Errors from the server: 1,234, first: 'Slow <b>'" in told(result)


def test_text_of_a_server_reaches_no_terminal_unescaped():
    result = samples.result()
    achieved = structs.replace(result.achieved, server_errors=1, first_server_error="'\x1b]0;title\x07'")
    scenario = {**result.scenario, "name": "\x1b[2J"}
    text = told(structs.replace(result, achieved=achieved, scenario=scenario))
    assert "first: '\\x1b]0;title\\x07'" in text
    assert "Load test: \\x1b[2J" in text
    assert "\x1b" not in text


def write(folder, count=500):
    result, logged = build_result(samples.collected(samples.values_ns(count)))
    with claimed(folder):
        artifacts.write_folder(result, logged, folder)
    return result


def test_a_result_folder_is_complete_and_reads_back(tmp_path):
    folder = tmp_path / "deep" / "run"
    result = write(folder)
    names = {"result.json", "environment.json", "latency.hlog", "latency.hgrm", "report.html", "report.md"}
    names.add("timeline.parquet")
    assert {path.name for path in folder.iterdir()} == names
    assert msgspec.json.encode(read_result(folder)) == msgspec.json.encode(result)
    assert json.loads((folder / "environment.json").read_text()) == result.environment
    top = (
        "schema scenario started duration_s requested achieved latency_us service_us server load conservation"
    )
    assert set(f"{top} thresholds reference environment".split()) <= set(
        json.loads((folder / "result.json").read_text())
    )


def test_a_report_is_rendered_again_from_the_folder_alone(tmp_path, capsys):
    folder = tmp_path / "run"
    write(folder)
    before = {name: (folder / name).read_text() for name in ("report.html", "latency.hgrm")}
    for name in before:
        (folder / name).unlink()
    assert cli.main(["loadtest", "report", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert {name: (folder / name).read_text() for name in before} == before


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 99}'])
def test_a_broken_result_is_named(tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(ResultError, match=r"result\.json: "):
        read_result(tmp_path)


def test_another_schema_is_refused(tmp_path):
    write(tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2', 1))
    with pytest.raises(ResultError, match="has schema 2, but this version reads schema 1"):
        read_result(tmp_path / "run")


def test_a_folder_with_a_result_is_never_overwritten(tmp_path):
    write(tmp_path / "run")
    with pytest.raises(ResultError, match="already has a result"), claimed(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match=r"file/run: "), claimed(tmp_path / "file" / "run"):
        pass


SAMPLE = Sample(
    t_s=3.0,
    phase="measuring",
    connections=116,
    sent=3000,
    received=2990,
    outstanding=10,
    timed_out=0,
    errors=0,
    mean_us=900.0,
    max_us=4000.0,
    server_cpu_percent=20.0,
    server_rss_bytes=1,
    load_cpu_percent=10.0,
)


class Gone(StringIO):
    """A stream whose reader leaves after some writes."""

    def __init__(self, error, writes=0):
        super().__init__()
        self.error, self.writes = error, writes

    def write(self, text):
        self.writes -= 1
        if self.writes < 0:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "gone"), OSError(5, "gone")])
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("writes", range(12))
def test_a_closed_pipe_stops_the_output_and_nothing_else(error, terminal, writes):
    file = Gone(error, writes)
    screen = Screen(file=file, force_terminal=terminal, width=120)
    console = Console(samples.scenario(), quiet=False, screen=screen)
    with console:
        for phase in ("connecting", "warmup", "measuring", "done"):
            console.show(structs.replace(SAMPLE, phase=phase), Progress(phase=phase, elapsed_s=1.0), [])
    console.announce("writing results")
    console.conclude(samples.result(20), "results/sample")
    assert screen.quiet


PHASES = ("connecting", "connected", "sweep", "swept", "warmup", "measuring", "draining", "done")


def told(result=None, *, quiet: bool = False, terminal: bool = False) -> str:
    file = StringIO()
    screen = Screen(file=file, force_terminal=terminal, quiet=quiet, width=120, color_system=None)
    console = Console(samples.scenario(), quiet=quiet, screen=screen)
    with console:
        for phase in PHASES:
            console.show(structs.replace(SAMPLE, phase=phase), Progress(phase=phase, elapsed_s=1.0), [])
    console.conclude(result or samples.result(), "results/sample")
    return file.getvalue()


def test_without_a_terminal_it_prints_a_line_a_second_then_the_table():
    said = told()
    assert "\x1b" not in said
    lines = said.splitlines()
    phases = [line.split()[2] for line in lines[: len(PHASES)]]
    assert phases == list(PHASES)
    measuring = lines[PHASES.index("measuring")]
    assert "2,990 received" in measuring
    assert "max 4.00 ms" in measuring
    assert any("requests/s" in line and "1,000" in line and "240,000" in line for line in lines)
    assert any(line.startswith("threshold    holds  latency_us.p99") for line in lines)
    assert lines[-1] == "result folder: results/sample"


def test_the_connect_phase_shows_count_rate_and_remaining_time():
    file = StringIO()
    screen = Screen(file=file, width=120, color_system=None)
    console = Console(samples.scenario(users=1_000_000), quiet=False, screen=screen)
    with console:
        for t_s, connections in ((1.0, 16), (2.0, 16), (3.0, 20_016), (13.0, 220_016), (23.0, 1_000_016)):
            sample = structs.replace(SAMPLE, t_s=t_s, phase="connecting", sent=0, connections=connections)
            console.show(sample, Progress(phase="connecting"), [])
    first, second, third, fourth, last = (
        line.split("connecting")[1].split("  broker")[0].strip() for line in file.getvalue().splitlines()
    )
    assert first == second == "16 of 1,000,016 connections"
    assert third == "20,016 of 1,000,016 connections  10,000/s  ETA 98 s"
    assert fourth == "220,016 of 1,000,016 connections  20,000/s  ETA 39 s"
    assert last == "1,000,016 of 1,000,016 connections  78,000/s  ETA 0 s"


def test_on_a_terminal_every_phase_has_its_bar():
    said = told(terminal=True)
    for name in ("connecting", "sweep", "warmup", "measuring", "draining"):
        assert name in said
    assert "swept" not in said
    assert "result folder: results/sample" in said


def test_quiet_prints_nothing():
    assert told(quiet=True) == told(quiet=True, terminal=True) == ""
