"""Repeated runs: median and spread of every metric, objectives over all runs, and how a series ends."""

import csv
import io
import signal
import subprocess

import pytest
from msgspec import structs

from loadtest.experiments.repeat import repeat, summarise_runs
from loadtest.result.repeated import read_repeated
from loadtest.result.schema import read_result
from loadtest.result.thresholds import parse_thresholds
from loadtest.scenario.load import load_scenario
from loadtest.workers.child import PYTHON
from loadtest.workers.interrupts import Interrupts
from subjectbus.cli import main
from tests.loadtest import samples
from tests.loadtest.rendered import as_markdown, as_page

BASE = samples.result(500)
OBJECTIVES = ("latency_us.p99 < 15000", "achieved.errors == 0")


def run_of(p99_us, errors=0, **changes):
    result = structs.replace(
        BASE,
        latency_us=structs.replace(BASE.latency_us, p99=p99_us),
        achieved=structs.replace(BASE.achieved, errors=errors),
        **changes,
    )
    outcomes = [threshold.judge(result) for threshold in parse_thresholds(OBJECTIVES)]
    return structs.replace(result, thresholds=outcomes)


def summary_of(*results):
    return summarise_runs({f"run-{number}": result for number, result in enumerate(results, 1)})


def spread_of(summary, name):
    return next(spread for spread in summary.metrics if spread.metric.path == name)


def test_median_and_spread_of_each_metric():
    summary = summary_of(run_of(30_000.0), run_of(10_000.0), run_of(12_000.0))
    p99 = spread_of(summary, "latency_us.p99")
    assert (p99.median, p99.min, p99.max, p99.spread) == (12_000.0, 10_000.0, 30_000.0, 20_000.0)
    assert p99.values == [30_000.0, 10_000.0, 12_000.0]
    assert p99.spread_share == pytest.approx(5 / 3)
    assert spread_of(summary, "achieved.errors").spread_share is None
    assert "| latency p99, ms | 12 | 10 | 30 | 166.7 % | 30 | 10 | 12 |" in as_markdown(summary)


def test_bounds_apply_to_the_median_and_equalities_to_each_run():
    summary = summary_of(run_of(30_000.0), run_of(10_000.0), run_of(12_000.0))
    latency, errors = summary.thresholds
    assert (latency.rule, latency.value, latency.held, latency.holds) == (
        "median", 12_000.0, [False, True, True], True,
    )  # fmt: skip
    assert (errors.rule, errors.holds) == ("each", True)
    assert summary.holds
    one_error = summary_of(run_of(10_000.0), run_of(10_000.0, errors=3), run_of(10_000.0))
    assert (one_error.thresholds[1].value, one_error.thresholds[1].holds) == (3, False)
    assert not one_error.holds
    slow = summary_of(run_of(30_000.0), run_of(10_000.0), run_of(20_000.0))
    assert not slow.thresholds[0].holds
    assert "**fails**: latency_us.p99 < 15000: median 20,000; holds in 1 of 3 runs" in as_markdown(slow)


def test_checks_have_to_hold_in_every_run():
    unbalanced = structs.replace(BASE.conservation, holds=False, checks=[])
    summary = summary_of(run_of(10_000.0), run_of(10_000.0, conservation=unbalanced))
    assert summary.complaints == ["run-2: conservation"]
    assert not summary.holds
    assert "run-2: conservation" in as_page(summary)


def test_a_failed_run_is_not_part_of_the_figures():
    summary = summary_of(run_of(10_000.0), run_of(99_000.0, error="the broker is gone"))
    p99 = spread_of(summary, "latency_us.p99")
    assert (p99.values, p99.median) == ([10_000.0, None], 10_000.0)
    assert summary.error == "run-2: the broker is gone"
    assert not summary.holds
    only = summary_of(run_of(99_000.0, error="the broker is gone"))
    assert only.metrics == []
    assert "the broker is gone" in as_page(only)


def series(folder, results, interrupts=None):
    made = iter(results)
    return repeat(
        4,
        load_scenario("autocomplete"),
        folder,
        lambda plan, into: next(made),
        interrupts or Interrupts(),
        str,
    )


def test_a_series_is_written_and_read_back(tmp_path):
    summary = series(tmp_path, [run_of(10_000.0 + number) for number in range(4)])
    assert (summary.asked, summary.runs, summary.error) == (4, ["run-1", "run-2", "run-3", "run-4"], None)
    read = read_repeated(tmp_path)
    assert (read.runs, read.metrics, read.thresholds) == (summary.runs, summary.metrics, summary.thresholds)


def test_the_reports_are_made_again_and_printed_as_text(tmp_path, capsys):
    summary = series(tmp_path, [run_of(10_000.0 + number) for number in range(4)])
    assert main(["loadtest", "report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text() == as_page(summary)
    capsys.readouterr()
    assert main(["loadtest", "report", str(tmp_path), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    p99 = next(row for row in rows if row["metric"] == "latency_us.p99")
    assert [float(p99[name]) for name in ("median", "run-1", "run-4")] == [10_001.5, 10_000.0, 10_003.0]


def test_a_series_ends_with_the_first_run_that_fails(tmp_path):
    summary = series(tmp_path, [run_of(10_000.0), run_of(10_000.0, error="the broker is gone")])
    assert summary.runs == ["run-1", "run-2"]
    assert read_repeated(tmp_path).error == "run-2: the broker is gone"


def test_a_series_ends_with_an_interrupt_and_keeps_its_runs(tmp_path):
    with Interrupts() as interrupts:
        interrupts.hold()

        def results():
            yield run_of(10_000.0)
            signal.raise_signal(signal.SIGINT)
            yield run_of(10_000.0)

        summary = series(tmp_path, results(), interrupts)
    assert summary.error == "interrupted after run-2"
    assert spread_of(summary, "latency_us.p99").values == [10_000.0, 10_000.0]


def arguments(folder, *more):
    return [
        "loadtest", "run", "autocomplete", "--out", str(folder), "--set", "users=20", "--set", "providers=2",
        "--set", "rate=200", "--set", "warmup_s=0.2", "--set", "max_send_lag_ms=0",
        "--set", "duration_s=1", *more,
    ]  # fmt: skip


@pytest.mark.process
def test_two_runs_of_the_command(tmp_path):
    folder = tmp_path / "twice"
    objectives = '["achieved.errors == 0", "achieved.timed_out == 0"]'
    ended = subprocess.run(
        [*PYTHON, "subjectbus", *arguments(folder, "--repeat", "2", "--set", f"thresholds={objectives}")],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    assert "2 of 2 runs" in ended.stderr
    summary = read_repeated(folder)
    rates = [read_result(folder / run).achieved.rate for run in ("run-1", "run-2")]
    assert spread_of(summary, "achieved.rate").values == rates
    assert summary.command[:3] == ["subjectbus", "loadtest", "run"]
    assert "--out" not in summary.command
    shown = "subjectbus loadtest run autocomplete --set users=20 "
    assert f'<pre tabindex="0">{shown}' in (folder / "report.html").read_text()
    assert f"\n{shown}" in (folder / "report.md").read_text()
    assert 'href="./run-2/report.html"' in (folder / "report.html").read_text()
    assert (folder / "report.md").read_text().startswith("# autocomplete, 2 of 2 runs")


@pytest.mark.parametrize("times", ["1", "0", "many"])
def test_fewer_than_two_runs_are_refused(tmp_path, capsys, times):
    assert main(arguments(tmp_path / "none", "--repeat", times)) == 2
    assert "--repeat" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_folder_that_holds_a_series_is_not_used_again(tmp_path, capsys):
    series(tmp_path, [run_of(10_000.0)] * 4)
    assert main(arguments(tmp_path, "--repeat", "2")) == 2
    assert "already has repeated runs" in capsys.readouterr().err
