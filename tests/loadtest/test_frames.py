"""Result folders as pandas frames, against the results that they are made of."""

import subprocess
import sys

import pandas as pd
import pytest
from msgspec import structs

import loadtest
from loadtest.errors import ResultError
from loadtest.result.broker_view import BrokerSample
from loadtest.result.capacity import FILE, Capacity, Probe
from loadtest.result.documents import write_document
from loadtest.result.schema import Heatmap, Host, HostSample, Result, Sample, write_result
from loadtest.runner.transports import build_comparison
from loadtest.scenario.kinds import TransportsScenario
from tests.loadtest import samples

FRAMES = ("summary", "percentiles", "timeline", "intervals", "hosts", "heatmap", "transports")


def load(result: Result, folder) -> loadtest.Run:
    folder.mkdir(exist_ok=True)
    write_result(result, folder)
    return loadtest.load_run(folder)


@pytest.fixture
def result():
    return samples.result(2000)


@pytest.fixture
def run(result, tmp_path):
    return load(result, tmp_path / "first")


def sample(t_s, **changes):
    counts = dict.fromkeys(("connections", "sent", "received", "outstanding", "timed_out", "errors"), 7)
    values = {"mean_us": 70.5, "max_us": 99.5, "server_cpu_percent": 3.5, "server_rss_bytes": 1000}
    return Sample(t_s=t_s, phase="measuring", load_cpu_percent=None, **counts, **values, **changes)


def test_the_summary_is_one_row_that_can_be_concatenated(run, result, tmp_path):
    row = run.summary.loc["first"]
    assert row.scenario == "sample"
    assert row.achieved_received == row.latency_count == result.latency_us.count
    assert row.latency_p99_us == result.latency_us.p99
    assert row.service_max_us == result.service_us.max
    assert row.requested_rate_per_s == 1000
    assert bool(row.conservation_holds) is result.conservation.holds is True
    assert pd.isna(row.error)
    assert pd.isna(row.server_rss_bytes)
    other = load(structs.replace(result, latency_us=None, histograms=None), tmp_path / "second")
    both = pd.concat([run.summary, other.summary])
    assert list(both.index) == ["first", "second"]
    assert both.latency_p99_us.isna().tolist() == [False, True]


def test_the_percentiles_equal_the_results(run, result):
    at = run.percentiles.latency_us
    latency = result.latency_us
    asked = {50: latency.p50, 90: latency.p90, 95: latency.p95, 99: latency.p99, 99.9: latency.p99_9}
    assert {percentile: at.loc[percentile] for percentile in asked} == asked
    assert (at.loc[100], run.percentiles.service_us.loc[100]) == (latency.max, result.service_us.max)
    assert at.is_monotonic_increasing
    assert run.percentiles.index.is_monotonic_increasing
    assert run.percentiles.index.is_unique


@pytest.mark.parametrize("count", [1, 2, 10, 1000, 1234])
def test_percentiles_go_as_far_as_there_are_replies(tmp_path, count):
    frame = load(samples.result(count), tmp_path / "run").percentiles
    beyond = [(1 - percentile / 100) * count for percentile in frame.index[:-1]]
    assert all(replies > 1 - 1e-9 for replies in beyond)
    assert frame.index[-1] == 100
    assert frame.one_in.iloc[-1] == count
    # One step further would tell nothing new: twice the last share would be beyond the last reply but one.
    assert min(beyond) < 2


def test_every_percentile_matches_the_sorted_values(run):
    values = sorted(samples.values_ns(2000))
    for percentile, latency_us in run.percentiles.latency_us.items():
        exact_us = values[max(0, -(-round(percentile * 1000) * len(values) // 100_000) - 1)] / 1000
        assert latency_us == pytest.approx(exact_us, rel=1e-3)


def test_the_timeline_has_every_second_and_the_brokers_own_counters(result, tmp_path):
    broker = BrokerSample(t_s=1.1, connections=116, cpu=3.5, mem=4096, in_msgs=20)
    frame = load(
        structs.replace(result, timeline=[sample(1.0, broker=broker), sample(2.0)]), tmp_path / "run"
    ).timeline
    assert frame.index.name == "t_s"
    assert frame.index.tolist() == [1.0, 2.0]
    assert frame.phase.tolist() == ["measuring", "measuring"]
    first, second = (frame.loc[at] for at in (1.0, 2.0))
    assert (first.broker_cpu_percent, first.broker_rss_bytes, first.broker_in_msgs) == (3.5, 4096, 20)
    assert pd.isna(second.broker_cpu_percent)
    assert (first.server_cpu_percent, first.server_rss_bytes) == (3.5, 1000)
    assert frame.load_cpu_percent.dtype == float  # None is no object


def test_intervals_have_rates_of_their_own_length(run, result):
    assert run.intervals.sent.sum() == result.achieved.sent
    whole = structs.replace(result.intervals[0], start_s=2.0, end_s=2.5, sent=100, received=50)
    frame = loadtest.Run(run.folder, structs.replace(result, intervals=[whole])).intervals
    assert frame.loc[2.0, ["sent_per_s", "received_per_s"]].tolist() == [200, 100]


def test_hosts_by_name_and_time(run, result):
    def seen(t_s, cpu):
        return HostSample(t_s=t_s, cpu_percent=cpu, memory_used_bytes=5, net_in_bps=8.0, net_out_bps=9.0)

    hosts = [
        Host(name="a", samples=[seen(1.0, 10.0), seen(2.0, 20.0)]),
        Host(name="b", samples=[seen(1.0, 30.0)]),
    ]
    frame = loadtest.Run(run.folder, structs.replace(result, hosts=hosts)).hosts
    assert frame.loc[("a", 2.0), "cpu_percent"] == 20
    assert frame.cpu_percent.groupby("host").mean().to_dict() == {"a": 15, "b": 30}


@pytest.mark.parametrize("edges", [[10.0, 20.0], [10.0, 20.0, 40.0]])
def test_the_heat_map_by_time_and_range(run, result, edges):
    heatmap = Heatmap(starts_s=[0.0, 1.0], end_s=2.0, edges_us=edges, counts=[[3, 1], [0, 4]])
    frame = loadtest.Run(run.folder, structs.replace(result, heatmap=heatmap)).heatmap
    assert (frame.index.name, frame.columns.name) == ("start_s", "at_least_us")
    assert (frame.loc[0.0, 10.0], frame.loc[1.0, 20.0]) == (3, 4)
    assert frame.to_numpy().sum() == 8


def test_transports_by_name_and_callers(tmp_path):
    scenario = TransportsScenario(outstanding=2)
    runs = []
    for part in scenario.runs():
        collected = samples.collected(samples.values_ns(500))
        collected.scenario = part
        runs.append(collected)
    comparison = build_comparison(scenario, runs)
    frame = load(comparison, tmp_path / "run").transports
    assert frame.index.names == ["transport", "callers"]
    assert len(frame) == 8
    row, run = frame.loc[("tcp", 2)], comparison.transports[-1]
    assert (row.calls, row.latency_p99_us) == (run.calls, run.latency_us.p99)


def test_a_run_that_measured_nothing_has_empty_frames_with_their_columns(result, tmp_path):
    absent = dict.fromkeys(("latency_us", "service_us", "histograms", "heatmap"))
    nothing = structs.replace(result, **absent, intervals=[], timeline=[], error="broke")
    run = load(nothing, tmp_path / "run")
    assert run.summary.loc["run", "error"] == "broke"
    for name in FRAMES[1:]:
        assert getattr(run, name).empty
    assert {"latency_us", "service_us", "one_in"} <= set(run.percentiles.columns)
    assert {"p99_us", "received_per_s"} <= set(run.intervals.columns)
    assert {"phase", "broker_rss_bytes"} <= set(run.timeline.columns)


def test_columns_that_are_not_counts_have_a_unit_in_their_name(run):
    units = (
        "_us",
        "_s",
        "_percent",
        "_bytes",
        "_bps",
        "_per_s",
        "_per_request",
        "_per_connection",
        "_call",
        "_core",
    )
    for name in FRAMES:
        frame = getattr(run, name)
        fractions = [
            column
            for column, kind in frame.dtypes.items()
            if kind.kind == "f" and frame[column].notna().any()
        ]
        assert [column for column in fractions if not column.endswith((*units, "one_in"))] == []


def test_a_folder_that_is_not_a_result_folder_is_refused_with_a_reason(tmp_path):
    with pytest.raises(ResultError, match="No such file"):
        loadtest.load_run(tmp_path / "nowhere")
    (tmp_path / "result.json").write_text('{"schema": 1')
    with pytest.raises(ResultError, match=r"result\.json"):
        loadtest.load_run(str(tmp_path))


def probe(number, rate, verdict, **changes):
    counts = dict.fromkeys(("sent", "received", "timed_out", "errors"), 0)
    values = {"requested_rate": rate, "achieved_rate": rate, "achieved_share": 1.0, "max_send_lag_us": 0.0,
              "objectives": [], "reasons": [], "latency_us": None, "server_cpu_percent": None,
              "load_cpu_percent": None, **counts, **changes}  # fmt: skip
    folder = f"probe-{number}"
    return Probe(number=number, folder=folder, purpose="growth", rate=rate, verdict=verdict, **values)


def search(probes):
    return Capacity(
        scenario={}, target=None, started="2026-01-02T03:04:05+00:00", objectives=["latency_us.p99 < 100"],
        least_share=0.99, from_rate=100.0, to_rate=None, precision=0.02, probe_s=10.0, ending="found",
        explanation="", capacity=100.0, capacity_achieved=100.0, fails_at=200.0, probes=probes,
        environment={},
    )  # fmt: skip


def test_the_probes_of_a_search_and_their_runs(result, tmp_path):
    probes = [
        probe(1, 100.0, "holds", latency_us=result.latency_us),
        probe(2, 200.0, "fails", reasons=["too slow", "too few"]),
    ]
    written = search(probes)
    write_document(written, tmp_path / FILE)
    load(result, tmp_path / "probe-1")
    found = loadtest.load_capacity(tmp_path)
    assert found.search == written
    assert found.probes.rate_per_s.to_dict() == {1: 100, 2: 200}
    assert found.probes.latency_p99_us.iloc[0] == result.latency_us.p99
    assert pd.isna(found.probes.latency_p99_us.iloc[1])
    assert found.probes.reasons.tolist() == ["", "too slow; too few"]
    assert found.run(1).result.histograms == result.histograms
    with pytest.raises(ResultError, match="probe-2"):
        found.run(2)
    with pytest.raises(KeyError):
        found.run(3)


def test_a_folder_that_is_not_a_search_is_refused_with_a_reason(run):
    with pytest.raises(ResultError, match=r"capacity\.json: No such file"):
        loadtest.load_capacity(run.folder)


@pytest.mark.process
def test_without_pandas_the_package_works_and_names_the_missing_extra(run):
    """Nothing but frames needs it."""
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import loadtest, pathlib\n"
        f"folder = pathlib.Path({str(run.folder)!r})\n"
        "print(loadtest.read_result(folder).schema)\n"
        "try: loadtest.load_run(folder)\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    needs = "load_run needs pandas: pip install '.[analysis]' in a checkout of subjectbus"
    assert done.stdout.splitlines() == ["1", needs]
