"""Output for continuous integration: JUnit files, annotations, summaries, benchmark feeds, baselines."""

import json
import os
import re
import subprocess
from datetime import datetime
from importlib import import_module
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

import loadtest
from loadtest.ci import github
from loadtest.ci.benchmarks import to_bencher, to_github_benchmark
from loadtest.ci.cases import Case, Suite, failed_suite, suite_of, with_error
from loadtest.ci.junit import to_junit
from loadtest.errors import ArgumentError, ResultError, RunError
from loadtest.experiments.capacity import plan_baseline
from loadtest.experiments.repeat import summarise_runs
from loadtest.result.checks import describe_lateness
from loadtest.result.schema import write_result
from loadtest.result.thresholds import parse_thresholds, thresholds_of
from loadtest.scenario.load import load_scenario
from subjectbus import UsageError
from subjectbus.cli import main
from tests.loadtest import commands, samples
from tests.loadtest.queues import Queue
from tests.loadtest.test_capacity import find, search_plan

BASE = samples.result(500)
HOSTILE = "a<b>&\"'|`*[x](y)%0A::error::\r\n\x00\x1b[2J\ud800\ufffe]]>日本"


def search(folder, server, **options):
    """A search in a new folder, and what it said."""
    folder.mkdir(exist_ok=True)
    return find(folder, server, **options)


def late(lag_us=153_000.0, *exprs):
    """Return a run whose load generator was late."""
    result = structs.replace(BASE, achieved=structs.replace(BASE.achieved, max_send_lag_us=lag_us))
    outcomes = [one.judge(result) for one in parse_thresholds(["achieved.max_send_lag_us <= 100000", *exprs])]
    return structs.replace(result, thresholds=outcomes)


def hostile_suite():
    cases = [
        Case("threshold", HOSTILE, holds=False, text=HOSTILE),
        Case("run", HOSTILE, holds=False, text=HOSTILE, is_error=True),
        Case("agreement", HOSTILE, holds=True, text=HOSTILE),
    ]
    return Suite(HOSTILE, cases, "2026-01-02T03:04:05.678+01:00", 12.3456)


#: What the schema of Ant's JUnit task, the stricter one, wants of each element: attributes, children.
ANT = {
    "testsuites": ((), ("testsuite",)),
    "testsuite": (
        ("name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"),
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "properties": ((), ("property",)),
    "property": (("name", "value"), ()),
    "testcase": (("name", "classname", "time"), ("failure", "error")),
    "failure": (("message", "type"), ()),
    "error": (("message", "type"), ()),
    "system-out": ((), ()),
    "system-err": ((), ()),
}


def assert_valid(text):
    """Parse a JUnit file and check its form; return its only suite."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = ANT[element.tag]
        assert tuple(element.attrib) == attributes
        places = [children.index(child.tag) for child in element]
        assert places == sorted(places)
    (suite,) = root
    assert [child.tag for child in suite if child.tag != "testcase"] == [
        "properties",
        "system-out",
        "system-err",
    ]
    assert all(len(case) <= 1 for case in suite.iter("testcase"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    for element in [suite, *suite.iter("testcase")]:
        assert re.fullmatch(r"\d+\.\d{3}", element.get("time"))
        assert element.get("name")
    assert suite.get("hostname")
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        assert int(suite.get(count)) == len(list(suite.iter(tag)))
    return suite


def failed_names(suite):
    return {case.get("name"): case[0].get("message") for case in suite.iter("testcase") if len(case)}


def test_each_threshold_and_check_is_a_case():
    suite = suite_of(late(1000.0, "latency_us.p99 < 1", "server.cpu_percent < 50"))
    groups = {group: [case for case in suite.cases if case.group == group] for group in ("run", "threshold")}
    assert [case.holds for case in groups["run"]] == [True]
    assert [(case.name, case.holds) for case in groups["threshold"]] == [
        ("achieved.max_send_lag_us <= 100000", True),
        ("latency_us.p99 < 1", False),
        ("server.cpu_percent < 50", BASE.server.cpu_percent is not None),
    ]
    assert {case.name for case in suite.cases} >= {check.name for check in BASE.conservation.checks}
    assert len([case for case in suite.cases if case.group == "agreement"]) == len(BASE.agreement)
    element = assert_valid(to_junit(suite))
    p99 = failed_names(element)["latency_us.p99 < 1"]
    assert p99.startswith("is ")


def test_a_failed_run_is_an_error_beside_its_checks():
    suite = suite_of(structs.replace(BASE, error="host b is lost"))
    element = assert_valid(to_junit(suite))
    assert element.get("errors") == "1"
    assert failed_names(element)["the run came to its end"] == "host b is lost"
    assert with_error(suite, "another") == suite
    assert with_error(suite_of(BASE), "no space left").failed[0].text == "no space left"
    assert_valid(to_junit(failed_suite("autocomplete", "host b cannot be reached")))


def test_repeated_runs_searches_and_comparisons_are_cases_too(tmp_path):
    broken = structs.replace(BASE, conservation=structs.replace(BASE.conservation, holds=False, checks=[]))
    repeated = summarise_runs({"run-1": late(), "run-2": late()})
    assert [case.holds for case in suite_of(repeated).cases] == [True, False, True, True]
    repeated = summarise_runs({"run-1": BASE, "run-2": broken})
    assert [case.name for case in suite_of(repeated).failed] == ["run-2: every check"]
    found, _ = search(tmp_path / "search", Queue(20_000.0))
    suite = suite_of(found)
    assert suite.failed == []
    assert [case.group for case in suite.cases] == ["run", "capacity", "threshold"]
    none, _ = search(tmp_path / "none", Queue(100.0))
    assert {case.group for case in suite_of(none).failed} == {"capacity", "threshold"}
    slower = structs.replace(BASE, latency_us=structs.replace(BASE.latency_us, p99=1e7))
    comparison = loadtest.compare({"before": BASE, "after": slower})
    (worse,) = suite_of(comparison).failed
    assert worse.name == "after: latency p99, ms"
    assert worse.text in comparison.regressions
    (broken_here,) = suite_of(loadtest.compare({"before": BASE, "after": late()})).failed
    assert (broken_here.group, broken_here.name) == ("check", "after")
    assert "threshold achieved.max_send_lag_us <= 100000 (is 153,000), which before holds" in broken_here.text
    for one in (repeated, found, none, comparison):
        assert_valid(to_junit(suite_of(one)))


def test_hostile_text_is_escaped_everywhere():
    suite = hostile_suite()
    text = to_junit(suite)
    element = assert_valid(text)
    assert element.get("timestamp") == "2026-01-02T02:04:05"
    assert "日本" in element.get("name")
    assert r"\x1b[2J" in element.get("name")
    assert "<b>" in element.get("name")
    lines = list(github.annotations(suite))
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("::error title=")
        assert line.isprintable()
        properties = line.removeprefix("::error title=").partition("::")[0]
        assert "," not in properties
        assert ":" not in properties
        assert not re.search(r"%(?!25|0D|0A|3A|2C)", line)
    summary = github.summary(suite)
    assert summary.count("\n| ") == 4  # the head and three rows
    rows = [line for line in summary.splitlines() if line.startswith("| ") and "a" in line and "\\<b" in line]
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert "<b>" not in summary
    assert "**2 of 3 do not hold.**" in summary


def test_bare_urls_are_no_links_in_a_summary():
    case = Case("threshold", "www.a.example", holds=False, text="see http://b.example")
    summary = github.summary(Suite("www.c.example", [case], "2026-01-02T03:04:05.678+01:00", 1.0))
    assert r"| www\.a\.example | see http\://b\.example |" in summary
    assert r"www\.c\.example" in summary


def test_a_late_load_generator_is_reported_with_a_remedy():
    text = describe_lateness(late())
    assert text.startswith("the load generator was late: a request left 153 ms after its planned time")
    for remedy in ("(load_cpus, threads,", "lower rate", "max_send_lag_ms sets"):
        assert remedy in text
    assert describe_lateness(late(99_000.0)) is None
    assert describe_lateness(BASE) is None
    (case,) = suite_of(late()).failed
    assert case.text == f"is 153,000: {text}"


@pytest.mark.parametrize(
    ("scenario", "changes", "expected"),
    [
        ("autocomplete", {}, "achieved.max_send_lag_us <= 100000"),
        ("autocomplete", {"max_send_lag_ms": 0.5}, "achieved.max_send_lag_us <= 500"),
        ("autocomplete", {"max_send_lag_ms": 0}, None),
        ("autocomplete", {"thresholds": ["achieved.max_send_lag_us < 7"]}, "achieved.max_send_lag_us < 7"),
        ("autocomplete", {"rate": 0, "outstanding": 5}, None),
        ("autocomplete", {"transport": "rest"}, None),
        ("broadcast", {}, "achieved.max_send_lag_us <= 100000"),
        ("http-byte", {}, None),
        ("transports", {"max_send_lag_ms": 3}, None),
        ("soak", {}, "achieved.max_send_lag_us <= 100000"),
        ("migratorydata-2016", {}, "achieved.max_send_lag_us <= 100000"),
    ],
)
def test_open_loops_have_a_threshold_on_their_own_lateness(scenario, changes, expected):
    exprs = [one.expr for one in thresholds_of(load_scenario(scenario, changes))]
    assert [expr for expr in exprs if "send_lag" in expr] == ([] if expected is None else [expected])


def test_a_benchmark_feed_of_one_run():
    document = to_bencher(BASE)
    measures = document["sample"]
    assert measures["latency-us-p99"] == {"value": BASE.latency_us.p99}
    assert measures["achieved-rate"] == {"value": BASE.achieved.rate}
    assert all(re.fullmatch(r"[a-z0-9-]{1,64}", name) for name in measures)
    smaller, bigger = (to_github_benchmark(BASE, better) for better in ("lower", "higher"))
    assert {"name": "sample: latency p99", "unit": "us", "value": BASE.latency_us.p99} in smaller
    assert bigger[0]["name"] == "sample: requests/s"
    for point in smaller + bigger:
        assert set(point) == {"name", "unit", "value"}
        assert point["unit"]
    assert len(measures) == len(smaller) + len(bigger)


def test_a_benchmark_feed_of_several_runs_and_of_a_search(tmp_path):
    other = structs.replace(BASE, latency_us=structs.replace(BASE.latency_us, p99=BASE.latency_us.p99 + 100))
    summary = summarise_runs({"run-1": BASE, "run-2": other})
    metric = to_bencher(summary)["sample"]["latency-us-p99"]
    assert (metric["lower_value"], metric["value"], metric["upper_value"]) == (
        BASE.latency_us.p99,
        BASE.latency_us.p99 + 50,
        BASE.latency_us.p99 + 100,
    )
    assert all("range" in point for point in to_github_benchmark(summary, "lower"))
    found, _ = search(tmp_path, Queue(20_000.0))
    assert to_bencher(found) == {"autocomplete": {"capacity": {"value": found.capacity}}}
    assert to_github_benchmark(found, "higher") == [
        {"name": "autocomplete: capacity", "unit": "1/s", "value": found.capacity}
    ]
    assert to_github_benchmark(found, "lower") == []


def test_a_failed_run_has_no_benchmark_feed(tmp_path, capsys):
    with pytest.raises(ResultError, match="its metrics say nothing: gone"):
        to_bencher(structs.replace(BASE, error="gone"))
    write_result(structs.replace(BASE, error="gone"), tmp_path)
    assert main(["loadtest", "report", str(tmp_path), "--format", "bencher"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("form", ["bencher", "github-smaller", "github-bigger"])
def test_feeds_are_printed_as_json(tmp_path, capsys, form):
    write_result(BASE, tmp_path)
    assert main(["loadtest", "report", str(tmp_path), "--format", form]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document
    assert isinstance(document, dict if form == "bencher" else list)


@pytest.mark.parametrize(("limit", "holds", "change"), [(20_000.0, True, 0.0), (15_000.0, False, -0.25)])
def test_a_search_is_judged_by_its_baseline(tmp_path, limit, holds, change):
    before, _ = search(tmp_path / "before", Queue(20_000.0))
    baseline = plan_baseline(tmp_path / "before", 5.0)
    after, _ = search(tmp_path / "after", Queue(limit), baseline=baseline)
    assert after.baseline.holds is after.holds is holds
    assert after.baseline.capacity == before.capacity
    assert after.baseline.change == pytest.approx(change, abs=0.04)
    assert "of the baseline, of which 5 % may be lost" in after.explanation
    failed = [case.name for case in suite_of(after).failed]
    assert failed == ([] if holds else ["at most 5 % below the baseline"])
    none, _ = search(tmp_path / "none", Queue(100.0), baseline=baseline)
    assert (none.baseline.change, none.holds) == (-1.0, False)


@pytest.mark.parametrize(
    ("overrides", "options", "text"),
    [
        (("users=77",), {}, r"baseline: has users = \d+, and this search 77"),
        (("reply_bytes=99",), {}, r"baseline: has reply_bytes = \d+, and this search 99"),
        ((), {"probe_s": 7.0}, r"baseline: has probes of another length: 10 s, and this search 7 s"),
        ((), {"to_rate": 3000.0}, r"to_rate: 3000 is below the baseline's capacity"),
    ],
)
def test_a_baseline_of_another_load_is_refused(tmp_path, overrides, options, text):
    search(tmp_path / "before", Queue(20_000.0))
    baseline = plan_baseline(tmp_path / "before", 5.0)
    search_plan("broker.shards=1", baseline=baseline)
    with pytest.raises(UsageError, match=text):
        search_plan(*overrides, baseline=baseline, **options)


def test_an_unusable_baseline_is_refused(tmp_path, capsys):
    search(tmp_path / "none", Queue(100.0))
    found, _ = search(tmp_path / "found", Queue(20_000.0))
    with pytest.raises(ArgumentError, match=r"baseline: .*none found no capacity: not even the lowest rate"):
        plan_baseline(tmp_path / "none", 5.0)
    with pytest.raises(
        ArgumentError, match=r"baseline: has other objectives: latency_us.p99 < 100000, and this"
    ):
        loadtest.capacity("autocomplete", slo="latency_us.p99 < 5", baseline=found)
    slo = found.objectives
    with pytest.raises(ArgumentError, match="tolerance: 1 % is finer than the search, 2 %"):
        loadtest.capacity("autocomplete", slo=slo, baseline=found, tolerance=1)
    with pytest.raises(ArgumentError, match="tolerance: expected 0 to 100 %, got nan"):
        loadtest.capacity("autocomplete", slo=slo, baseline=found, tolerance=float("nan"))
    arguments = ["loadtest", "capacity", "autocomplete", "--out", str(tmp_path / "new")]
    assert main([*arguments, "--baseline", str(tmp_path / "absent")]) == 2
    assert "absent/capacity.json: No such file" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.fixture
def on_github(tmp_path, monkeypatch):
    """The summary file of a step in GitHub Actions."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path / "summary.md"


def folders(tmp_path):
    slower = structs.replace(BASE, latency_us=structs.replace(BASE.latency_us, p99=1e7))
    for name, result in (("a", BASE), ("b", slower)):
        (tmp_path / name).mkdir()
        write_result(result, tmp_path / name)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_a_comparison_annotates_and_appends_to_the_summary(tmp_path, capsys, on_github):
    a, b = folders(tmp_path)
    on_github.write_text("before\n")
    assert main(["loadtest", "compare", a, b, "--junit", str(tmp_path / "junit.xml"), "--format", "csv"]) == 1
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if line.startswith("::")]
    assert line.startswith("::error title=a%2C b%3A metric::b: latency p99, ms: latency p99, ms: ")
    assert said.out.startswith("metric,")
    summary = on_github.read_text()
    assert summary.startswith("before\n### Load test: a, b\n")
    assert "| **FAILS** | metric |" in summary
    element = assert_valid((tmp_path / "junit.xml").read_text())
    assert list(failed_names(element)) == ["b: latency p99, ms"]
    assert datetime.fromisoformat(element.get("timestamp"))


def test_outside_of_github_nothing_is_printed_for_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    a, b = folders(tmp_path)
    assert main(["loadtest", "compare", a, b]) == 1
    assert "::error" not in capsys.readouterr().err
    assert not (tmp_path / "summary.md").exists()


@pytest.mark.parametrize("command", ["run", "capacity", "compare"])
@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("absent/junit.xml", "No such file"),
        ("folder", "is a folder"),
        pytest.param("x" * 300, "File name too long", id="long name"),
    ],
)
def test_a_file_that_cannot_be_written_is_noticed_before_the_run(tmp_path, capsys, command, file, why):
    (tmp_path / "folder").mkdir()
    arguments = {
        "run": ["autocomplete", "--out", str(tmp_path / "run")],
        "capacity": ["autocomplete", "--out", str(tmp_path / "run")],
        "compare": ["a", "b"],
    }[command]
    assert main(["loadtest", command, *arguments, "--junit", str(tmp_path / file)]) == 2
    said = capsys.readouterr().err
    assert said == f"subjectbus: error: --junit {tmp_path / file}: {why}\n" or f"{file}: {why}" in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]


def test_arguments_that_cannot_be_used_are_an_error_in_the_file(tmp_path, capsys, on_github):
    junit = tmp_path / "junit.xml"
    assert main(["loadtest", "run", "autocomplete", "--set", "users=0", "--junit", str(junit)]) == 2
    element = assert_valid(junit.read_text())
    (message,) = failed_names(element).values()
    assert message == "--set users=0: users: expected int >= 1"
    assert (
        "::error title=autocomplete%3A run::the run came to its end: --set users=0" in capsys.readouterr().err
    )
    assert "FAILS" in on_github.read_text()


def test_a_file_of_a_comparison_is_tried_before_the_work(tmp_path, capsys):
    junit, out = tmp_path / "junit.xml", tmp_path / "absent" / "page.html"
    assert main(["loadtest", "compare", "a", "b", "--out", str(out), "--junit", str(junit)]) == 2
    said = f"--out {out}: No such file or directory"
    assert capsys.readouterr().err == f"subjectbus: error: {said}\n"
    assert list(failed_names(assert_valid(junit.read_text())).values()) == [said]


@pytest.mark.parametrize(
    ("function", "error", "status", "said"),
    [
        (
            "write_text",
            RunError("page.html: No space left on device"),
            3,
            "page.html: No space left on device",
        ),
        ("to_document", ValueError("a fault"), 70, "internal: ValueError: a fault"),
    ],
)
def test_a_comparison_that_fails_does_not_leave_earlier_verdicts(
    tmp_path, monkeypatch, function, error, status, said
):
    def fail(*_arguments):
        raise error

    junit = tmp_path / "junit.xml"
    junit.write_text("earlier")
    # The package has the command under the module's name.
    monkeypatch.setattr(import_module("loadtest.cli.compare"), function, fail)
    arguments = [*folders(tmp_path), "--out", str(tmp_path / "page.html"), "--junit", str(junit)]
    assert main(["loadtest", "compare", *arguments]) == status
    assert list(failed_names(assert_valid(junit.read_text())).values()) == [said]


@pytest.mark.parametrize("option", ["--out", "--junit"])
def test_a_link_to_the_file_stays_a_link(tmp_path, option):
    a, b = folders(tmp_path)
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    for _ in range(2):  # at first the file is not there
        assert main(["loadtest", "compare", a, b, option, str(link)]) == 1
        assert link.readlink() == file
        assert "latency p99" in file.read_text()
    link.unlink()
    link.symlink_to("/dev/null")
    assert main(["loadtest", "compare", a, b, option, str(link)]) == 1
    assert link.is_char_device()


@pytest.mark.parametrize("option", ["--out", "--junit"])
def test_a_pipe_is_written_into(tmp_path, option):
    a, b = folders(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        assert main(["loadtest", "compare", a, b, option, str(pipe)]) == 1
        assert "latency p99" in reader.read()
    assert pipe.is_fifo()


@pytest.mark.process
def test_a_run_writes_its_verdicts_even_if_it_fails(tmp_path):
    small = {"users": 20, "providers": 2, "rate": 200, "warmup_s": 0.2, "duration_s": 1, "max_send_lag_ms": 0}
    objectives = ["achieved.errors == 0", "latency_us.p50 < 0.001"]
    junit = tmp_path / "junit.xml"
    words = ("--junit", str(junit), "--quiet")
    ended = commands.run(tmp_path / "run", "autocomplete", *words, **small, thresholds=objectives)
    assert ended.returncode == 1, ended.stderr
    assert re.fullmatch(r"threshold fails: latency_us\.p50 < 0\.001: is [\d.,]+\n", ended.stderr)
    element = assert_valid(junit.read_text())
    assert list(failed_names(element)) == ["latency_us.p50 < 0.001"]
    values = {one.get("name"): one.get("value") for one in element.iter("property")}
    assert values["threshold: achieved.errors == 0"] == "is 0"
    assert element.get("time") != "0.000"
    target = ("--target", "nats://127.0.0.1:1")
    ended = commands.run(tmp_path / "gone", "autocomplete", *words, *target, **small)
    assert ended.returncode == 3
    element = assert_valid(junit.read_text())
    assert "target nats://127.0.0.1:1 is unreachable" in failed_names(element)["the run came to its end"]


@pytest.mark.process
def test_a_late_load_generator_fails_the_run_and_is_reported_at_the_end(tmp_path):
    small = {"users": 20, "providers": 2, "rate": 200, "warmup_s": 0.2, "duration_s": 1, "thresholds": []}
    ended = commands.run(tmp_path / "run", "autocomplete", **small, max_send_lag_ms=0.000001)
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("the load generator was late: a request left ")
    assert "threshold    FAILS  achieved.max_send_lag_us <= 0.001" in ended.stderr


@pytest.mark.process
def test_repeated_runs_have_verdicts(tmp_path):
    small = {"users": 20, "providers": 2, "rate": 200, "warmup_s": 0.2, "duration_s": 1, "max_send_lag_ms": 0}
    junit = tmp_path / "junit.xml"
    command = commands.run_command(
        tmp_path / "run", "autocomplete", "--repeat", "2", "--quiet", "--junit", str(junit),
        **small, thresholds=["achieved.errors == 0"],
    )  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    element = assert_valid(junit.read_text())
    assert [case.get("name") for case in element.iter("testcase")] == [
        "the run came to its end",
        "achieved.errors == 0",
        "run-1: every check",
        "run-2: every check",
    ]
