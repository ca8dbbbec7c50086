"""Search for the capacity: the judgement of probes, the end of a search, and its files."""

import csv
import io
import json
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from loadtest.errors import ScenarioError, ThresholdError
from loadtest.experiments.capacity import BaselinePlan, find_capacity, plan_search
from loadtest.experiments.judgement import LEAST_SHARE, judge_probe
from loadtest.result.capacity import read_capacity
from loadtest.result.schema import BroadcastFigures, Check, read_result
from loadtest.result.thresholds import parse_thresholds
from loadtest.scenario.load import load_scenario
from loadtest.workers.child import PYTHON
from loadtest.workers.interrupts import Interrupts
from subjectbus import UsageError
from subjectbus.cli import main
from tests.loadtest import samples
from tests.loadtest.queues import Queue, queue_result
from tests.loadtest.rendered import as_markdown, as_page

SLO = ("latency_us.p99 < 100000",)


def search_plan(
    *overrides, slos=SLO, from_rate=None, to_rate=None, precision=0.02, probe_s=10.0, baseline=None
):
    plan = load_scenario("autocomplete", ["warmup_s=1", *overrides])
    return plan_search(
        plan,
        slos,
        from_rate=from_rate,
        to_rate=to_rate,
        precision=precision,
        probe_s=probe_s,
        baseline=baseline,
    )


def find(folder, server, interrupts=None, **options):
    said = []
    plan = search_plan(**options)
    return find_capacity(plan, folder, server.run_into, interrupts or Interrupts(), said.append), said


def judge(result, slos=SLO):
    return judge_probe(result, parse_thresholds(slos), number=1, folder="probe", purpose="growth")


@pytest.mark.parametrize("limit", [3_100.0, 20_000.0, 47_654.0])
def test_a_queue_of_known_rate_is_found(tmp_path, limit):
    server = Queue(limit)
    found, said = find(tmp_path, server)
    assert found.ending == "found"
    assert found.capacity == pytest.approx(limit, rel=0.05)
    assert found.capacity < found.fails_at < found.capacity * 1.03
    assert found.capacity_achieved == pytest.approx(limit, rel=0.05)
    assert [probe.folder for probe in found.probes] == [folder.name for folder in server.folders]
    assert found.probes[0].rate == 2500
    assert msgspec.json.encode(read_capacity(tmp_path)) == msgspec.json.encode(found)
    failing = [probe for probe in found.probes if probe.verdict == "fails"]
    assert failing
    assert all(probe.reasons for probe in failing)
    assert all(
        f"probe {probe.number}: " in text for probe, text in zip(found.probes, said[1::2], strict=True)
    )


def test_a_backlog_fails_without_any_objective_about_latency(tmp_path):
    found, _ = find(tmp_path, Queue(10_000.0), slos=("achieved.errors == 0",))
    assert found.capacity == pytest.approx(10_000, rel=0.05)
    assert "of what was planned; at least 99 % are needed" in found.explanation


def test_a_backlog_from_the_warm_up_still_fails():
    overloaded = samples_scenario(rate=12_000.0, warmup_s=5.0)
    probe = judge(queue_result(overloaded, 10_000.0), ("achieved.errors == 0",))
    assert probe.verdict == "fails"
    assert probe.achieved_share == pytest.approx((15 / 1.2 - 5) / 10, rel=0.01)


def samples_scenario(**changes):
    return structs.replace(samples.scenario(duration_s=10.0, warmup_s=1.0), **changes)


def test_a_probe_that_holds_has_no_reasons():
    probe = judge(queue_result(samples_scenario(), 2000.0))
    assert (probe.verdict, probe.reasons) == ("holds", [])
    assert probe.requested_rate == probe.rate == 1000.0
    assert probe.objectives[0].holds


def test_for_a_slow_server_that_keeps_up_the_reason_suggests_longer_probes():
    probe = judge(queue_result(samples_scenario(), 2000.0, idle_us=300_000.0), ("achieved.errors == 0",))
    assert probe.verdict == "fails"
    assert "the quickest reply took 300 ms: longer probes" in probe.reasons[0]
    longer = samples_scenario(duration_s=60.0)
    assert (
        judge(queue_result(longer, 2000.0, idle_us=300_000.0), ("achieved.errors == 0",)).verdict == "holds"
    )


def test_random_arrivals_are_measured_by_the_actual_plan():
    result = queue_result(samples_scenario(arrivals="poisson"), 2000.0)
    fewer = structs.replace(result.achieved, sent=9_700, rate=970.0)
    assert judge(structs.replace(result, achieved=fewer)).verdict == "holds"


def test_a_broadcast_is_measured_in_deliveries():
    plan = load_scenario("broadcast", ["rate=10", "outstanding=0", "users=500"])
    result = queue_result(samples_scenario(rate=10.0), 2000.0)
    figures = BroadcastFigures(
        subjects=1,
        published=100,
        deliveries=50_000,
        missing=0,
        incomplete=0,
        published_per_s=10.0,
        deliveries_per_s=5000.0,
        deliveries_per_s_per_core=None,
        deliveries_per_broker_cpu_s=None,
        spread_us=None,
    )
    result = structs.replace(
        result,
        scenario={**result.scenario, "users": plan.users},
        broadcast=figures,
        requested=structs.replace(result.requested, rate=5000.0),
        achieved=structs.replace(result.achieved, rate=5000.0),
    )
    assert judge(result).achieved_share == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda result: {"error": "the broker is gone"}, "the run failed: the broker is gone"),
        (
            lambda result: {
                "conservation": structs.replace(
                    result.conservation,
                    holds=False,
                    checks=[Check(name="messages", detail="3 = 4", holds=False)],
                )
            },
            "conservation, messages: 3 = 4",
        ),
        (
            lambda result: {"latency_us": structs.replace(result.latency_us, p99=250_000.0)},
            "latency_us.p99 < 100000: is 250,000",
        ),
    ],
)
def test_a_probe_that_fails_has_reasons(change, reason):
    result = queue_result(samples_scenario(), 2000.0)
    probe = judge(structs.replace(result, **change(result)))
    assert probe.verdict == "fails"
    assert probe.reasons == [reason]


def test_the_reasons_name_a_late_load_generator():
    result = queue_result(samples_scenario(rate=3000.0), 2000.0)
    late = structs.replace(result.achieved, max_send_lag_us=250_000.0)
    assert "requests left up to 250 ms late" in judge(structs.replace(result, achieved=late)).reasons[-1]


def test_an_objective_without_a_value_does_not_hold():
    probe = judge(queue_result(samples_scenario(), 2000.0), ("server.cpu_percent < 50",))
    assert probe.reasons == ["server.cpu_percent < 50: has no value"]


@pytest.mark.parametrize(("capacity", "holds"), [(950.0, True), (949.0, False), (None, False)])
def test_a_capacity_lower_by_exactly_the_tolerance_holds(tmp_path, capacity, holds):
    before, _ = find(tmp_path, Queue(1e9), from_rate=500.0, to_rate=1000.0)
    assert before.capacity == 1000
    plan = BaselinePlan("before", before, 0.05)
    assert plan.judge(capacity).holds is holds


def test_a_probe_without_a_reply_is_in_the_chart(tmp_path):
    class Silent(Queue):
        def run_into(self, scenario, folder):
            result = super().run_into(scenario, folder)
            if scenario.rate <= 100_000:
                return result
            achieved = structs.replace(result.achieved, received=0, rate=0.0, timed_out=result.achieved.sent)
            return structs.replace(result, achieved=achieved)

    found, _ = find(tmp_path, Silent(1e9), from_rate=100)
    assert 0 in [probe.achieved_rate for probe in found.probes]
    assert "svg" in as_page(found)


def test_a_search_may_find_that_no_rate_holds(tmp_path):
    found, _ = find(tmp_path, Queue(100.0))
    assert (found.ending, found.capacity, found.fails_at) == ("none", None, 2500.0)
    assert len(found.probes) == 2
    assert "not even the lowest rate, 2,500/s, holds: latency_us.p99 < 100000" in found.explanation


def test_the_highest_rate_allowed_holds(tmp_path):
    found, _ = find(tmp_path, Queue(100_000.0), to_rate=6000)
    assert (found.ending, found.capacity, found.fails_at) == ("at_most", 6000, None)


def test_a_run_that_fails_at_once_ends_the_search_and_keeps_its_results(tmp_path):
    class Breaking(Queue):
        def run_into(self, scenario, folder):
            result = super().run_into(scenario, folder)
            if len(self.folders) < 3:
                return result
            return structs.replace(result, error="target is unreachable", latency_us=None)

    found, _ = find(tmp_path, Breaking(50_000.0))
    assert (found.ending, found.capacity) == ("failed", 5000)
    assert found.probes[-1].verdict == "unfinished"
    assert "target is unreachable" in found.explanation
    assert msgspec.json.encode(read_capacity(tmp_path)) == msgspec.json.encode(found)


def test_after_an_interrupt_the_search_so_far_is_kept(tmp_path):
    with Interrupts() as interrupts:
        interrupts.hold()

        class Interrupted(Queue):
            def run_into(self, scenario, folder):
                result = super().run_into(scenario, folder)
                if len(self.folders) == 3:
                    signal.raise_signal(signal.SIGINT)
                    return structs.replace(result, error="interrupted")
                return result

        found, _ = find(tmp_path, Interrupted(50_000.0), interrupts)
    assert (found.ending, found.capacity) == ("interrupted", 5000)
    assert [probe.verdict for probe in found.probes] == ["holds", "holds", "unfinished"]


def test_each_probe_is_written_before_the_next_one(tmp_path):
    seen = []

    class Looking(Queue):
        def run_into(self, scenario, folder):
            path = tmp_path / "capacity.json"
            seen.append(len(json.loads(path.read_bytes())["probes"]) if path.exists() else 0)
            return super().run_into(scenario, folder)

    found, _ = find(tmp_path, Looking(5000.0))
    assert seen == list(range(len(found.probes)))


def test_without_objectives_the_scenarios_thresholds_apply(tmp_path):
    plan = search_plan(slos=())
    assert [objective.expr for objective in plan.objectives] == list(load_scenario("autocomplete").thresholds)
    assert plan.probe(123.0).thresholds == load_scenario("autocomplete").thresholds
    assert (plan.probe(123.0).rate, plan.probe(123.0).duration_s) == (123.0, 10.0)


@pytest.mark.parametrize(
    ("overrides", "options", "error", "text"),
    [
        (("rate=0", "outstanding=10"), {}, ScenarioError, "needs an open loop"),
        ((), {"to_rate": 10}, UsageError, "to_rate: 10 is below the lowest rate, 2500"),
        ((), {"from_rate": 0}, UsageError, "from_rate: expected a rate above 0"),
        ((), {"slos": ("latency_us.p98 < 1",)}, ThresholdError, 'no number "latency_us.p98"'),
    ],
)
def test_an_impossible_search_is_refused(overrides, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        search_plan(*overrides, **options)


def test_the_report_has_curve_objective_and_reasons(tmp_path):
    found, _ = find(tmp_path, Queue(20_000.0))
    page, text = as_page(found), as_markdown(found)
    assert page.count("<figure") == 2
    assert "objective: p99 below 100 ms" in page
    assert 'href="./probe-01-2500/report.html"' in page
    assert not re.search(r'(src|href)="https?:', page)
    for wording in (page, text):
        assert "latency_us.p99 &lt; 100000" in wording or "latency_us.p99 < 100000" in wording
        assert f"{found.capacity:,.0f}" in wording
    assert text.count("\n| ") >= len(found.probes)


def test_the_report_says_if_the_rate_differs_from_the_requested_rate(tmp_path):
    found, _ = find(tmp_path, Queue(20_000.0))
    assert "of the search: " not in as_markdown(found)
    assert "messages published" in as_markdown(
        structs.replace(found, scenario={**found.scenario, "workload": "broadcast"})
    )
    ramped = [structs.replace(probe, requested_rate=0.75 * probe.rate) for probe in found.probes]
    assert "the profile's factors" in as_markdown(structs.replace(found, probes=ramped))


def test_the_reports_are_made_again_and_printed_as_text(tmp_path, capsys):
    found, _ = find(tmp_path, Queue(20_000.0))
    assert main(["loadtest", "report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text() == as_page(found)
    capsys.readouterr()
    assert main(["loadtest", "report", str(tmp_path), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (tmp_path / "report.md").read_text() == as_markdown(found)
    assert main(["loadtest", "report", str(tmp_path), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["rate"]) for row in rows] == [probe.rate for probe in found.probes]
    assert [float(row["latency_p99_us"]) for row in rows] == [probe.latency_us.p99 for probe in found.probes]


def test_a_search_without_measurements_still_has_a_report(tmp_path):
    class Gone(Queue):
        def run_into(self, scenario, folder):
            result = super().run_into(scenario, folder)
            return structs.replace(result, error="refused", latency_us=None)

    found, _ = find(tmp_path, Gone(1.0))
    assert "<figure" not in as_page(found)
    assert "refused" in as_markdown(found)


def command(folder, *arguments):
    return [
        *PYTHON, "subjectbus", "loadtest", "capacity", "autocomplete", "--out", str(folder), "--quiet",
        "--set", "users=50", "--set", "providers=4", "--set", "warmup_s=0.2", *arguments,
    ]  # fmt: skip


@pytest.mark.process
@pytest.mark.timeout(600)
def test_providers_that_serve_a_known_rate(tmp_path):
    """The whole way: a D/1 queue in the providers, probed by real runs.

    A busy machine may fail any probe, so what is found is at most the known rate. That the search finds such
    a queue's rate is shown above without a clock, and in rust_core/crates/simulation that the engine measures
    it exactly.
    """
    served = 1300
    folder = Path(tempfile.mkdtemp(dir=tmp_path)) / "search"
    arguments = command(
        folder, "--set", f"provider_rate={served}", "--slo", "achieved.errors == 0", "--from", "900",
        "--probe-s", "2", "--precision", "0.05",
    )  # fmt: skip
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=500, check=False)
    found = read_capacity(folder)
    assert (ended.returncode, found.ending) in ((0, "found"), (1, "none")), ended.stderr
    if found.ending == "found":
        assert found.capacity <= served / LEAST_SHARE
        assert found.capacity < found.fails_at
    [*_, last] = [probe for probe in found.probes if probe.verdict == "fails"]
    assert "of what was planned; at least 99 % are needed" in last.reasons[0]
    for probe in found.probes:
        result = read_result(folder / probe.folder)
        assert result.requested.rate == probe.rate
        # The phase lasts until the last request has left, which may be late.
        phases = result.duration_s / 2
        assert probe.achieved_share == pytest.approx(phases * result.achieved.rate / probe.rate, rel=0.01)
        assert (probe.verdict == "holds") == (probe.achieved_share >= LEAST_SHARE)
        assert probe.verdict == "fails" or probe.rate <= served / LEAST_SHARE
    assert (folder / "report.md").read_text().startswith("# Capacity of autocomplete")


@pytest.mark.process
def test_ctrl_c_keeps_the_search_so_far(tmp_path):
    folder = tmp_path / "search"
    arguments = command(folder, "--slo", "achieved.errors == 0", "--from", "200", "--probe-s", "1")
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        second = wait_for(lambda: next(folder.glob("probe-02-*"), None), process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 3, said
    found = read_capacity(folder)
    assert found.ending == "interrupted"
    # On a machine that stood still in the first probe, that one was made again.
    assert found.capacity in (200, None)
    held = "200/s held so far" if found.capacity else "no rate held so far"
    assert said.startswith(f"subjectbus: error: interrupted; {held}")
    assert (second.parent / "probe-01-200" / "result.json").exists()
    assert "did not come to its end" in (folder / "report.html").read_text()


def wait_for(condition, process):
    while (found := condition()) is None:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slo", "p99 < 5"), 'threshold "p99 < 5": results have no number "p99"'),
        (("--precision", "0"), "--precision"),
        (("--set", "rate=0", "--set", "outstanding=5"), "needs an open loop"),
        (("--server-pid", "1"), "--server-pid: needs a target"),
    ],
)
def test_unusable_arguments_are_one_line_and_status_2(tmp_path, capsys, arguments, said):
    folder = tmp_path / "search"
    assert main(command(folder, *arguments)[len(PYTHON) + 1 :]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert said in printed
    assert not folder.exists()


def test_a_folder_that_holds_a_search_is_not_used_again(tmp_path, capsys):
    find(tmp_path, Queue(3000.0))
    before = (tmp_path / "capacity.json").read_bytes()
    assert main(command(tmp_path)[len(PYTHON) + 1 :]) == 2
    assert "already has a search for the capacity" in capsys.readouterr().err
    assert (tmp_path / "capacity.json").read_bytes() == before
