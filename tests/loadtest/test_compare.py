"""Comparison of runs: which changes are regressions, and the text about them."""

import csv
import io
import re
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from loadtest.errors import ArgumentError
from loadtest.experiments.compare import compare_runs, judge_change, read_sides
from loadtest.experiments.repeat import summarise_runs
from loadtest.result.metrics import Metric, measure
from loadtest.result.repeated import MetricSpread
from loadtest.result.schema import (
    BroadcastFigures,
    Check,
    Histograms,
    Soak,
    ThresholdOutcome,
    Trend,
    write_result,
)
from subjectbus.cli import main
from tests.loadtest import samples
from tests.loadtest.rendered import as_csv, as_markdown, as_page, as_terminal

BASE = samples.result(500)


def changed(**parts):
    """The base run with fields of its parts replaced: `latency_us={"p99": 5.0}`."""
    return structs.replace(
        BASE,
        **{
            name: structs.replace(getattr(BASE, name), **fields) if isinstance(fields, dict) else fields
            for name, fields in parts.items()
        },
    )


@pytest.fixture
def folder_of(tmp_path):
    def write(name, result):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        write_result(result, folder)
        return folder

    return write


@pytest.fixture
def repeated_of(tmp_path, folder_of):
    """The folder of a repeated run, made of results."""

    def write(name, *results):
        runs = {f"run-{number}": result for number, result in enumerate(results, 1)}
        for run, result in runs.items():
            folder_of(f"{name}/{run}", result)
        (tmp_path / name / "repeated.json").write_bytes(msgspec.json.encode(summarise_runs(runs)))
        return tmp_path / name

    return write


def compared(*folders, tolerance=0.05, judged=()):
    return compare_runs(read_sides(folders), tolerance, judged)


def cell(comparison, name, side=1):
    return next(row.cells[side] for row in comparison.rows if row.metric.path == name)


def test_a_run_compared_with_itself_has_no_regression(folder_of):
    folder = folder_of("a", BASE)
    comparison = compared(folder, folder)
    assert comparison.regressions == []
    assert comparison.differences == []
    assert {row.cells[1].verdict for row in comparison.rows} <= {"same", "not judged"}


@pytest.mark.parametrize(
    ("part", "field", "better"),
    [
        ("achieved", "rate", "higher"),
        ("latency_us", "p50", "lower"),
        ("latency_us", "p99", "lower"),
        ("latency_us", "mean", "lower"),
        ("server", "cpu_us_per_request", "lower"),
        ("server", "rss_bytes_per_connection", "lower"),
        ("achieved", "timed_out", "lower"),
        ("achieved", "errors", "lower"),
        ("achieved", "disconnected", "lower"),
    ],
)
def test_the_direction_of_each_metric(folder_of, part, field, better):
    low = folder_of("low", changed(**{part: {field: 100}}))
    high = folder_of("high", changed(**{part: {field: 120}}))
    up, down = compared(low, high), compared(high, low)
    good, bad = (up, down) if better == "higher" else (down, up)
    assert good.regressions == []
    assert cell(good, f"{part}.{field}").verdict == "better"
    assert cell(bad, f"{part}.{field}").verdict == "worse"
    assert len(bad.regressions) == 1
    assert cell(up, f"{part}.{field}").change == pytest.approx(0.2)


def test_a_regression_names_the_metric_and_both_values(folder_of):
    before = folder_of("before", changed(latency_us={"p99": 10_000.0}))
    after = folder_of("after", changed(latency_us={"p99": 12_000.0}))
    assert compared(before, after).regressions == [
        "latency p99, ms: 10 in before, 12 in after: +20.0 %, 5 % are tolerated"
    ]
    assert compared(before, after, tolerance=0.25).regressions == []


def test_the_first_loss_is_a_regression_with_any_tolerance(folder_of):
    before, after = folder_of("before", BASE), folder_of("after", changed(achieved={"timed_out": 1}))
    (text,) = compared(before, after, tolerance=10.0).regressions
    assert text.startswith("timed out, per million: 0 in before, ")
    assert "from none" in text


def test_losses_are_relative_to_the_number_sent(folder_of):
    short = folder_of("short", changed(achieved={"sent": 1000, "errors": 10}))
    long = folder_of("long", changed(achieved={"sent": 10_000, "errors": 100}))
    assert compared(short, long).regressions == []


def test_a_maximum_is_judged_on_request_only(folder_of):
    before, after = folder_of("before", BASE), folder_of("after", changed(latency_us={"max": 1e9}))
    assert compared(before, after).regressions == []
    (text,) = compared(before, after, judged=["latency_us.max"]).regressions
    assert text.startswith("latency maximum, ms")


METRIC = Metric(
    path="latency_us.p99", label="latency p99", unit="us", display="ms", better="lower", judged=True
)


def spread(*values):
    middle = sorted(values)[len(values) // 2]
    return MetricSpread(metric=METRIC, values=list(values), median=middle, min=min(values), max=max(values))


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (spread(100, 101, 102), spread(120, 121, 122), "worse"),
        (spread(100, 101, 102), spread(80, 81, 82), "better"),
        (spread(100, 101, 102), spread(103, 104, 105), "same"),
        (spread(90, 101, 125), spread(120, 121, 122), "within spread"),
        (spread(100, 101, 102), spread(100, 121, 140), "within spread"),
        (spread(90, 100, 110), spread(120, 121, 122), "worse"),
        (spread(100), spread(120), "worse"),
        (spread(0), spread(0), "same"),
        (spread(0), spread(1), "worse"),
    ],
)
def test_a_difference_within_the_spread_is_not_a_regression(before, after, verdict):
    assert judge_change(METRIC, before, after, 0.05)[1] == verdict


def test_repeated_runs_are_compared_by_their_medians(repeated_of):
    def runs(*p99s):
        return [changed(latency_us={"p99": p99}) for p99 in p99s]

    steady, wild = runs(10_000.0, 10_100.0, 90_000.0), runs(20_000.0, 20_200.0, 20_400.0)
    comparison = compared(
        repeated_of("steady", *runs(10_000.0, 10_100.0, 10_200.0)), repeated_of("slow", *wild)
    )
    assert [text.partition(":")[0] for text in comparison.regressions] == ["latency p99, ms"]
    assert cell(comparison, "latency_us.p99").change == pytest.approx(1.0)
    assert "20.20 (20 to 20.40)" in as_markdown(comparison)
    noisy = compared(repeated_of("noisy", *steady), repeated_of("other", *wild))
    assert noisy.regressions == []
    assert cell(noisy, "latency_us.p99").verdict == "within spread"
    assert "within the spread" in as_markdown(noisy)


def test_a_check_that_no_longer_holds_is_a_regression(folder_of):
    before = folder_of("before", BASE)
    outcome = ThresholdOutcome(expr=BASE.thresholds[0].expr, value=200_000.0, holds=False)
    (missed,) = compared(before, folder_of("missed", changed(thresholds=[outcome]))).regressions
    assert missed == "missed: threshold latency_us.p99 < 100000 (is 200,000), which before holds"
    unbalanced = changed(conservation={"holds": False, "checks": []})
    (text,) = compared(before, folder_of("unbalanced", unbalanced)).regressions
    assert text == "unbalanced: conservation"


def test_a_run_that_failed_is_a_regression_and_has_no_metrics(folder_of):
    before, after = (
        folder_of("before", BASE),
        folder_of("after", structs.replace(BASE, error="host b is lost")),
    )
    comparison = compared(before, after)
    assert comparison.regressions == ["failed: after: host b is lost"]
    assert cell(comparison, "latency_us.p99").verdict == "absent"
    as_page(comparison)


def test_a_failed_run_cannot_be_the_baseline(folder_of, repeated_of, capsys):
    failed = structs.replace(BASE, error="host b is lost")
    good = str(folder_of("good", BASE))
    for folder in (folder_of("bad", failed), repeated_of("worse", failed)):
        assert main(["loadtest", "compare", str(folder), good]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert f"compare: {folder.name} has no metrics to compare with: " in printed.err
        assert "host b is lost" in printed.err
    failed_later = repeated_of("later", BASE, failed)
    assert compared(failed_later, folder_of("only", failed)).regressions == ["failed: only: host b is lost"]


def test_a_missing_judged_metric_is_a_regression(folder_of):
    before = folder_of("before", changed(latency_us={"p99": 10_000.0}))
    after = folder_of("after", changed(latency_us=None, service_us=None, histograms=None))
    comparison = compared(before, after)
    assert "latency p99, ms: 10 in before, none in after" in comparison.regressions
    assert not [text for text in comparison.regressions if "maximum" in text]
    assert cell(comparison, "latency_us.p99").verdict == "missing"
    assert "MISSING" in as_terminal(comparison)
    assert compared(after, before).regressions == []


def test_complaints_are_compared_by_kind(folder_of):
    checks = [Check(name=name, detail="1 = 2", holds=False) for name in ("replies", "messages")]
    before = folder_of("before", changed(conservation={"holds": False, "checks": checks[:1]}))
    trend = Trend(name="p99_us", slope_per_hour=5.0, limit=1.0, p_value=0.001, holds=False)
    soak = Soak(period_s=60.0, samples=[], trends=[trend])
    unbalanced = structs.replace(BASE.conservation, holds=False, checks=checks)
    after = folder_of("after", structs.replace(BASE, conservation=unbalanced, soak=soak))
    assert compared(before, after).regressions == [
        "after: conservation, messages: 1 = 2",
        "after: soak, p99_us: +5 per hour (at most +1), by chance with p = 0.001",
    ]
    assert compared(after, before).regressions == []


def test_in_a_broadcast_losses_are_relative_to_deliveries(folder_of):
    def broadcast(messages, received, missing):
        run = structs.replace(
            BASE.achieved, sent=messages, received=received, timed_out=missing, duplicates=missing
        )
        metrics = BroadcastFigures(
            subjects=1, published=messages, deliveries=received, missing=missing, incomplete=missing,
            published_per_s=1.0, deliveries_per_s=1.0, deliveries_per_s_per_core=None,
            deliveries_per_broker_cpu_s=None, spread_us=None,
        )  # fmt: skip
        return structs.replace(BASE, achieved=run, broadcast=metrics)

    short, long = broadcast(10, 999_990, 10), broadcast(100, 9_999_900, 100)
    losses = {metric.path: value for metric, value in measure(short).items()}
    assert (losses["achieved.timed_out"], losses["achieved.duplicates"]) == (10.0, 10.0)
    comparison = compared(folder_of("short", short), folder_of("long", long))
    assert comparison.regressions == []
    assert cell(comparison, "broadcast.missing").verdict == "not judged"
    fewer_users = broadcast(10, 99_990, 10)
    (text, _) = compared(folder_of("many", short), folder_of("few", fewer_users)).regressions
    assert text.startswith("timed out, per million: 10 in many, 100 in few")


def test_names_are_not_taken_as_markup_on_the_terminal(folder_of):
    head = as_terminal(compared(folder_of("r[red]", BASE), folder_of("[bold]x", BASE))).splitlines()
    assert any("r[red]" in line and "[bold]x" in line for line in head[:3])


def test_differences_of_scenario_and_environment_are_listed(folder_of):
    other = structs.replace(
        BASE,
        scenario={**BASE.scenario, "users": 7, "broker": {**BASE.scenario["broker"], "shards": 9}},
        environment={**BASE.environment, "cpu_model": "another"},
        target="nats://h:4222",
    )
    comparison = compared(folder_of("a", BASE), folder_of("b", other))
    said = "\n".join(comparison.differences)
    for text in (
        "scenario users: 100 in a, 7 in b",
        "scenario broker.shards:",
        "environment cpu_model: a processor in a, another in b",
        "target: none in a, nats://h:4222 in b",
    ):
        assert text in said
    assert "scenario users: 100 in a, 7 in b" in as_page(comparison)
    assert "scenario users: 100 in a, 7 in b" in as_markdown(comparison)


def test_folders_of_the_same_name_get_different_names(folder_of):
    comparison = compared(folder_of("x/run", BASE), folder_of("y/run", BASE))
    assert comparison.names == ["x/run", "y/run"]


def test_every_form_has_every_judged_metric(folder_of):
    comparison = compared(
        folder_of("a", BASE), folder_of("b", changed(latency_us={"p99": 1e9})), folder_of("c", BASE)
    )
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison))))
    assert len(rows) == 3 * len(comparison.rows)
    worse = [(row["metric"], row["run"]) for row in rows if row["verdict"] == "worse"]
    assert worse == [("latency_us.p99", "b")]
    p99 = next(row for row in rows if (row["metric"], row["run"]) == ("latency_us.p99", "b"))
    assert float(p99["median"]) == 1e9
    for text in (as_terminal(comparison), as_markdown(comparison), as_page(comparison)):
        assert "latency p99, ms" in text
        assert "1,000,000" in text
        assert "WORSE" in text
    page = as_page(comparison)
    assert page.count("<figure") == 1
    assert not re.search(r'(src|href)="https?:', page)


def test_regressions_set_the_status_and_go_to_standard_error(folder_of, tmp_path, capsys):
    a, b = str(folder_of("a", BASE)), str(folder_of("b", changed(latency_us={"p99": 1e9})))
    assert main(["loadtest", "compare", a, a]) == 0
    assert "latency p99, ms" in capsys.readouterr().out
    assert main(["loadtest", "compare", a, b, "--format", "csv"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("metric,unit,run,")
    assert printed.err.startswith("regression: latency p99, ms: ")
    page = tmp_path / "page.html"
    assert (
        main(["loadtest", "compare", a, b, "--tolerance", "1e12", "--format", "html", "--out", str(page)])
        == 0
    )
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b'{"schema": 1, "scen', "truncated"),
        (b"plain text", "malformed"),
        (b'{"schema": 2}', ""),
        (b"[]", ""),
    ],
)
def test_a_folder_without_a_result_gives_one_line_and_status_2(folder_of, tmp_path, capsys, content, said):
    broken = tmp_path / "broken"
    broken.mkdir()
    if content is not None:
        (broken / "result.json").write_bytes(content)
    assert main(["loadtest", "compare", str(folder_of("a", BASE)), str(broken)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert str(broken) in printed.err
    assert said in printed.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"histograms": Histograms(latency="?", service=None)}, "not an HdrHistogram"),
        ({"thresholds": [ThresholdOutcome(expr="fast", value=1.0, holds=True)]}, 'threshold "fast"'),
    ],
)
def test_an_impossible_value_gives_one_line_that_names_the_file(
    folder_of, repeated_of, tmp_path, capsys, changes, said
):
    good = str(folder_of("good", BASE))
    bad = structs.replace(BASE, **changes)
    series = repeated_of("series", BASE)
    write_result(bad, series / "run-1")
    for folder, file in ((folder_of("bad", bad), "bad/result.json"), (series, "series/run-1/result.json")):
        assert main(["loadtest", "compare", good, str(folder)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert f"{tmp_path / file}: " in printed.err
        assert said in printed.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("repeated.json", b'{"schema": 9}', "repeated.json: has schema 9, but this version reads schema 1"),
        ("repeated.json", b'{"schema": 1', "repeated.json: truncated or not JSON"),
        ("capacity.json", b"{}", "a search for the capacity; its probes can be compared"),
    ],
)
def test_other_result_folders_are_refused_with_a_reason(folder_of, tmp_path, capsys, name, content, said):
    other = tmp_path / "other"
    other.mkdir()
    (other / name).write_bytes(content)
    assert main(["loadtest", "compare", str(folder_of("a", BASE)), str(other)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a",), "compare: 2 results or more are needed, got 1"),
        (
            ("a", "a", "--judge", "latency_us.p98"),
            '"latency_us.p98" in these runs (did you mean "latency_us.p99"?)',
        ),
        (("a", "a", "--judge", "requested.rate"), 'no metric "requested.rate"'),
        (("a", "a", "--tolerance", "-1"), "--tolerance"),
        (("a", "a", "--out", "nowhere/page.html"), "--out nowhere/page.html: No such file or directory"),
        (("a", "a", "--out", "x" * 300), "File name too long"),
        (("a", "x" * 300), "File name too long"),
        (("a", "circle"), "Too many levels of symbolic links"),
    ],
)
def test_unusable_arguments_are_status_2(folder_of, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(folder_of("a", BASE).parent)
    Path("circle").symlink_to("circle")
    assert main(["loadtest", "compare", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_runs_of_one_side_with_different_thresholds_are_refused():
    outcome = ThresholdOutcome(expr="achieved.errors < 5", value=0, holds=True)
    more = structs.replace(BASE, thresholds=[*BASE.thresholds, outcome])
    for runs in ([more, BASE], [BASE, more]):
        with pytest.raises(ArgumentError, match=r"same thresholds, but run-1 has .* and run-2 has "):
            read_sides([runs, BASE])


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_comparison_that_is_not_on_a_terminal_has_no_colours(folder_of, monkeypatch, capsys, form):
    monkeypatch.setenv("FORCE_COLOR", "1")
    slower = changed(latency_us={"p99": 1e7})
    arguments = [str(folder_of("a", BASE)), str(folder_of("b", slower)), "--format", form]
    assert main(["loadtest", "compare", *arguments]) == 1
    printed = capsys.readouterr().out
    assert "latency p99" in printed
    assert "x1b" not in ascii(printed)


def test_every_metric_of_a_run_is_in_its_result():
    names = [metric.path for metric in measure(BASE)]
    assert len(names) == len(set(names))
    assert {"achieved.rate", "latency_us.p99", "achieved.errors"} <= set(names)
