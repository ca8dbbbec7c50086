"""Soaks: periods with their samples, and whole runs with churn."""

import os
import random
import socket
import subprocess
import sys
import threading

import pytest

from loadtest import read_result
from loadtest.runner.building.result import build_result
from loadtest.runner.building.soak import PeriodSampler, Snapshot, build_soak
from loadtest.sampling.monitor import open_monitor
from loadtest.sampling.usage import Usage, count_descriptors
from loadtest.scenario.kinds import GrowthLimits, SoakPlan
from loadtest.workers.messages import Connect, EngineInterval
from loadtest.workers.processes import BrokerProcess, RunProcesses, WorkerProcess
from subjectbus import BrokerConfig
from tests.loadtest import samples
from tests.loadtest.test_processes import HERE, provider, wait_for
from tests.loadtest.test_run import run

PLAN = SoakPlan(period_s=60.0)
MB = 1_000_000


def snapshot(period: int, **changes) -> Snapshot:
    """A steady broker that uses half a core, and a steady load."""
    at_s = 60.0 * period
    steady = {
        "broker": Usage(at_s, 30.0 * period, 200 * MB),
        "load": Usage(at_s, 15.0 * period, 100 * MB),
        "descriptors": 1030,
        "connections": 1016,
    }
    return Snapshot(period=period, **{**steady, **changes})


def requestor(periods: int, latency_ns=lambda period: 1_000_000):
    """A requestor that had 100 replies in each period, all in its first second."""
    source, intervals = random.Random(1), []
    for period in range(periods):
        values = [int(latency_ns(period) * source.uniform(0.9, 1.1)) for _ in range(100)]
        start_s = 60.0 * period
        intervals.append(
            EngineInterval(
                start_s=start_s, end_s=start_s + 1, sent=100, received=100, hdr=samples.encode(values)
            )
        )
    return samples.requestor_result([], intervals=intervals)


def failing(soak) -> list[str]:
    return [trend.name for trend in soak.trends if not trend.holds]


def test_a_steady_soak_holds_and_has_its_figures():
    soak = build_soak(PLAN, [snapshot(period) for period in range(31)], [requestor(30), requestor(30)])
    assert soak.holds, soak.trends
    assert [trend.name for trend in soak.trends] == list(GrowthLimits().__struct_fields__)
    assert len(soak.samples) == 30
    sample = soak.samples[7]
    assert (sample.start_s, sample.end_s, sample.received) == (420.0, 480.0, 200)
    assert (sample.broker_rss_bytes, sample.load_rss_bytes) == (200 * MB, 100 * MB)
    assert (sample.broker_connections, sample.broker_descriptors) == (1016, 1030)
    assert sample.broker_cpu_percent == pytest.approx(50.0 / os.cpu_count())
    assert sample.load_cpu_percent == pytest.approx(25.0 / os.cpu_count())
    assert 900 <= sample.p50_us <= sample.p99_us <= sample.max_us <= 1101


@pytest.mark.parametrize(
    ("name", "grown"),
    [
        ("broker_rss_bytes", lambda n: {"broker": Usage(60.0 * n, 30.0 * n, (200 + n) * MB)}),
        ("load_rss_bytes", lambda n: {"load": Usage(60.0 * n, 15.0 * n, (100 + 3 * n) * MB)}),
        ("broker_descriptors", lambda n: {"descriptors": 1030 + 2 * n}),
        ("broker_connections", lambda n: {"connections": 1016 + 2 * n}),
        ("broker_cpu_percent", lambda n: {"broker": Usage(60.0 * n, 30.0 * n + n * n, 200 * MB)}),
    ],
)
def test_a_growing_series_is_named(name, grown):
    soak = build_soak(PLAN, [snapshot(n, **grown(n)) for n in range(31)], [requestor(30)])
    assert failing(soak) == [name]
    assert not soak.holds
    assert soak.note is None


def test_latency_that_grows_is_named():
    slower = requestor(30, lambda period: 1_000_000 + 100_000 * period)
    soak = build_soak(PLAN, [snapshot(period) for period in range(31)], [slower])
    assert failing(soak) == ["p50_us", "p99_us"]


def test_the_first_third_may_grow():
    settling = [
        snapshot(
            n, broker=Usage(60.0 * n, 30.0 * n, min(100 + 10 * n, 200) * MB), descriptors=min(n, 10) * 100
        )
        for n in range(31)
    ]
    assert build_soak(PLAN, settling, [requestor(30)]).holds


def test_the_limits_come_from_the_plan():
    leaking = [snapshot(n, broker=Usage(60.0 * n, 30.0 * n, (200 + n) * MB)) for n in range(31)]
    patient = SoakPlan(growth_percent_per_hour=GrowthLimits(broker_rss_bytes=40.0))
    assert build_soak(patient, leaking, [requestor(30)]).holds


@pytest.mark.parametrize("periods", [0, 1, 13])
def test_a_soak_too_short_to_judge_does_not_hold_and_has_a_note(periods):
    soak = build_soak(PLAN, [snapshot(period) for period in range(periods + 1)], [requestor(periods)])
    judged = periods - periods // 3
    assert soak.note == (f"too short to judge: {judged} periods of 60 s after the first third, 10 are needed")
    assert not soak.holds
    assert build_soak(PLAN, [snapshot(period) for period in range(15)], [requestor(14)]).note is None


def test_series_that_are_not_visible_are_not_judged():
    hidden = [snapshot(n, broker=None, descriptors=None, connections=None) for n in range(31)]
    soak = build_soak(PLAN, hidden, [requestor(30)])
    assert [trend.name for trend in soak.trends] == ["load_rss_bytes", "p50_us", "p99_us"]
    assert soak.holds
    assert soak.samples[0].broker_rss_bytes is None


def test_a_period_without_a_sample_at_its_end_is_a_gap():
    snapshots = [snapshot(period) for period in range(31) if period != 12]
    soak = build_soak(PLAN, snapshots, [requestor(30)])
    assert [sample.start_s for sample in soak.samples] == [60.0 * n for n in range(30) if n not in (11, 12)]


def test_a_snapshot_is_taken_once_at_the_end_of_each_period():
    snapshots: list[Snapshot] = []
    watch = PeriodSampler(PLAN, 200.0, snapshots)
    for elapsed_s in (0.2, 1.2, 59.9, 60.1, 61.0, 119.0, 185.0, 199.0, 400.0):
        watch.sample(elapsed_s, (None, None), lambda: 1, dict)
    # The second was missed; after the third whole period nothing more is measured.
    assert [snapshot.period for snapshot in snapshots] == [0, 1, 3]


@pytest.mark.parametrize("counters", [None, {}, {"connections": "many"}])
def test_a_broker_without_counters_has_no_number_of_connections(counters):
    snapshots: list[Snapshot] = []
    PeriodSampler(PLAN, 60.0, snapshots).sample(0.0, (None, None), lambda: None, lambda: counters)
    assert (snapshots[0].connections, snapshots[0].descriptors) == (None, None)


def test_descriptors_of_threads_that_share_a_table_count_once():
    before, ended = count_descriptors(os.getpid()), threading.Event()
    threads = [threading.Thread(target=ended.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with socket.socket(), socket.socket():
            assert count_descriptors(os.getpid()) == before + 2
    finally:
        ended.set()
        for thread in threads:
            thread.join()


PARTED = """
import ctypes, socket, sys, threading

def hold(count):
    ctypes.CDLL(None).unshare(0x400)  # CLONE_FILES; where it is refused, all share one table
    held = [socket.socket() for _ in range(count)]
    ready.wait()
    sys.stdin.read()

ready = threading.Barrier(4)
for count in (50, 50, 70):
    threading.Thread(target=hold, args=(count,)).start()
ready.wait()
print(flush=True)
"""


@pytest.mark.process
def test_descriptors_of_threads_with_tables_of_their_own_are_all_seen():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PARTED], **pipes) as process:
        process.stdout.readline()
        # Each table also has what was open before it was parted.
        assert 170 <= count_descriptors(process.pid) <= 170 + 4 * 10
        process.communicate()
    assert count_descriptors(process.pid) is None


@pytest.mark.process
def test_the_number_of_connections_comes_from_the_broker():
    with RunProcesses() as processes:
        broker = BrokerProcess(BrokerConfig(shards=2), HERE)
        processes.brokers.append(broker)
        broker.wait_ready()
        worker = WorkerProcess("provider", provider(broker.addresses["tcp"], providers=20), HERE)
        processes.providers.append(worker)
        worker.send(Connect())
        wait_for(lambda: worker.progress.phase == "connected")
        snapshots: list[Snapshot] = []
        counters = open_monitor(broker.addresses["monitor"])
        PeriodSampler(PLAN, 60.0, snapshots).sample(
            0.0, (None, None), broker.process.count_descriptors, lambda: counters.fetch(timeout_s=10)
        )
    assert snapshots[0].connections == 20
    assert snapshots[0].descriptors > 0


def test_the_result_holds_only_if_the_soak_does():
    plan = samples.scenario(soak=PLAN, duration_s=1800.0)
    steady = [snapshot(period) for period in range(31)]
    leaking = [snapshot(n, broker=Usage(60.0 * n, 30.0 * n, (200 + n) * MB)) for n in range(31)]
    values = samples.values_ns(2000)
    for snapshots, holds in ((steady, True), (leaking, False), ([], False)):
        run = samples.collected(values, scenario=plan, snapshots=snapshots)
        result, _ = build_result(run)
        assert result.soak is not None
        assert result.conservation.holds
        assert result.holds is holds
    assert build_result(samples.collected(values))[0].soak is None


@pytest.mark.parametrize(
    ("closed", "back", "holds"), [(50, 50, True), (50, 49, False), (46, 46, True), (40, 40, False)]
)
def test_connections_that_do_not_come_back_break_the_check(closed, back, holds):
    plan = samples.scenario(churn_rate=10.0, warmup_s=1.0, duration_s=4.0)
    values = samples.values_ns(2000)
    result = samples.requestor_result(values, churned=closed, reconnected=back, reconnect_failures=3)
    built, _ = build_result(samples.collected(values, scenario=plan, requestors=[result]))
    check = next(check for check in built.conservation.checks if check.name == "churn")
    assert check.holds is holds
    assert f"closed {closed} of 50 planned = reconnected {back}, failed attempts 3" in check.detail
    assert (built.achieved.churned, built.achieved.reconnected) == (closed, back)
    assert built.achieved.reconnect_failures == 3


SHORT = {"users": 60, "warmup_s": 0.2, "churn_rate": 40, "soak.period_s": 1}


@pytest.mark.process
@pytest.mark.parametrize("transport", ["ws", "tcp"])
def test_churn_loses_nothing(tmp_path, transport):
    ended = run(tmp_path / "run", **SHORT, transport=transport, requestors=2)
    result = read_result(tmp_path / "run")
    assert result.error is None
    assert result.conservation.holds, result.conservation
    achieved = result.achieved
    assert achieved.churned == achieved.reconnected == pytest.approx(40 * 2.2, abs=2)
    assert (achieved.timed_out, achieved.errors, achieved.disconnected, achieved.unmatched) == (0, 0, 0, 0)
    assert achieved.connections == 64
    assert [sample.end_s for sample in result.soak.samples] == [1.0, 2.0]
    assert sum(sample.received for sample in result.soak.samples) <= achieved.received
    assert result.soak.samples[0].broker_connections == pytest.approx(64, abs=5)
    # Two seconds of one-second periods are no soak.
    assert ended.returncode == 1
    assert "soak         FAILS  too short to judge: 2 periods of 1 s" in ended.stderr
    assert "Soak" in (tmp_path / "run" / "report.html").read_text()
