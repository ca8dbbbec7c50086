"""Whole broadcasts, small and short: by the command, or in this process if a worker is stopped."""

import os
import signal

import psutil
import pytest
from msgspec import structs

import loadtest
from loadtest import BroadcastScenario, read_result
from loadtest.runner.building.result import build_result
from loadtest.runner.execution import Options, require_limits, run_scenario
from loadtest.scenario.target import parse_target
from loadtest.workers.interrupts import Interrupts
from subjectbus import BrokerConfig, LimitError, limits
from tests.loadtest import commands

pytestmark = pytest.mark.process

NOTHING_LOST = [
    "broadcast.missing == 0",
    "achieved.errors == 0",
    "achieved.duplicates == 0",
    "achieved.corrupt == 0",
    "achieved.unmatched == 0",
    "achieved.disconnected == 0",
]
SMALL = {
    "users": 50,
    "rate": 40,
    "warmup_s": 0.5,
    "duration_s": 2,
    "timeout_s": 5,
    # No objective of speed: the machine may be busy with other tests.
    "max_send_lag_ms": 0,
    "thresholds": NOTHING_LOST,
}


def run(**changes):
    return loadtest.run("broadcast", **{**SMALL, **changes})


def assert_everybody_received_everything(result, users=50):
    achieved, figures = result.achieved, result.broadcast
    subjects = figures.subjects
    assert achieved.sent == figures.published > 0
    assert achieved.received == figures.deliveries == result.latency_us.count
    if users % subjects == 0 and achieved.sent % subjects == 0:
        assert achieved.received == achieved.sent * users // subjects
    assert (figures.missing, figures.incomplete) == (0, 0)
    assert figures.spread_us.count == achieved.sent
    assert 0 <= figures.spread_us.p50 <= figures.spread_us.p99 <= figures.spread_us.max
    assert figures.spread_us.max <= result.latency_us.max
    assert result.conservation.holds, result.conservation
    assert result.holds, result.thresholds


@pytest.mark.parametrize("transport", ["ws", "tcp"])
def test_a_broadcast_on_the_own_broker(tmp_path, transport):
    ended = commands.run(tmp_path / "run", "broadcast", **{**SMALL, "transport": transport})
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert_everybody_received_everything(result)
    assert result.achieved.connections == 51
    assert (result.achieved.sent, result.achieved.received) == (80, 4000)
    assert 0 < result.achieved.rate == result.broadcast.deliveries_per_s < 2020
    assert result.broadcast.deliveries_per_s_per_core == pytest.approx(
        result.achieved.rate / os.cpu_count(), rel=1e-6
    )
    # Published in both phases, each to everybody, and counted by the broker.
    assert result.conservation.published == 100
    assert result.conservation.delivered == 5000
    assert "deliveries/s" in ended.stderr
    assert "conservation holds  deliveries: 100 messages to 50 users of 1 subject: 5,000" in ended.stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_several_subjects_publishers_threads_and_processes():
    changes = {
        "subjects": 7,
        "publishers": 3,
        "threads": 2,
        "processes": 3,
        "arrivals": "poisson",
        "rate": 200,
    }
    result = run(**changes)
    assert_everybody_received_everything(result)
    assert result.achieved.connections == 53
    assert sum(interval.sent for interval in result.intervals) == result.achieved.sent


def test_a_closed_loop():
    result = run(rate=0, outstanding=16, duration_s=1, message_bytes=100)
    assert_everybody_received_everything(result)
    assert result.requested.rate is None
    assert max(sample.outstanding for sample in result.timeline) <= 16


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_a_broadcast_on_nats_server(nats_server, transport):
    target = nats_server.url(transport)
    result = run(target=target, server_pid=nats_server.process.pid, subjects=5, processes=2)
    assert_everybody_received_everything(result)
    assert result.target == target
    assert result.server.cpu_us_per_request >= 0


class Meddler:
    """Does something to the second worker of a run once that is measured."""

    def __init__(self, number: signal.Signals) -> None:
        self.signal = number
        self.done_at: int | None = None
        self.worker: psutil.Process | None = None

    def show(self, sample, progress, rows) -> None:
        if progress.phase == "measuring" and self.done_at is None:
            workers = [p for p in psutil.Process().children() if "loadtest.workers.worker" in p.cmdline()]
            self.worker = max(workers, key=lambda process: process.pid)
            self.worker.send_signal(self.signal)
            self.done_at = sample.sent


class Stopper(Meddler):
    """Stops it for so many messages that no server keeps them for it."""

    def __init__(self, messages: int) -> None:
        super().__init__(signal.SIGSTOP)
        self.messages = messages

    def show(self, sample, progress, rows) -> None:
        super().show(sample, progress, rows)
        if self.worker is not None and sample.sent >= self.done_at + self.messages:
            self.worker.send_signal(signal.SIGCONT)
            self.worker = None


def run_here(scenario: BroadcastScenario, options: Options, view: Meddler):
    with Interrupts() as interrupts:
        result, _ = build_result(run_scenario(scenario, options, view, interrupts))
    assert view.done_at is not None
    return result


#: 20 MB a second for each user. In the three seconds of the stop that is twice what the sockets of publisher
#: and user and `CUTS_OFF_SOON` hold; a user who reads may stay behind for most of a second, if it must.
FLOOD = BroadcastScenario(
    name="flood",
    transport="tcp",
    users=4,
    rate=200.0,
    message_bytes=100_000,
    warmup_s=0.2,
    duration_s=5.0,
    timeout_s=5.0,
    processes=2,
    thresholds=("broadcast.missing == 0", "achieved.disconnected == 0"),
    max_send_lag_ms=0.0,
)
CUTS_OFF_SOON = {"max_pending": 16_000_000, "write_deadline_s": 2}


def flood(scenario: BroadcastScenario, options: Options):
    """The result of a run whose second process is stopped for a while; it has two of the four users."""
    stopper = Stopper(messages=600)
    result = run_here(scenario, options, stopper)
    assert stopper.worker is None, "never went on"
    return result


def assert_two_of_four_were_cut_off(result):
    """Check that two of the users received nothing more and the others received everything."""
    assert result.error is None
    assert result.achieved.disconnected == 2
    missing = result.broadcast.missing
    assert 2 * 200 < missing <= 2 * result.achieved.sent
    assert result.achieved.received + missing == 4 * result.achieved.sent
    assert result.broadcast.incomplete > 200
    assert [outcome.holds for outcome in result.thresholds] == [False, False]
    assert not result.holds
    assert result.conservation.holds, result.conservation.checks


def test_deliveries_to_slow_consumers_are_missing_and_fail_the_run():
    result = flood(structs.replace(FLOOD, broker=BrokerConfig(**CUTS_OFF_SOON)), Options())
    assert_two_of_four_were_cut_off(result)
    assert result.conservation.dropped["slow_consumer"] > 0


def test_losses_of_slow_consumers_are_visible_for_every_server(start_server):
    target = parse_target(start_server(**CUTS_OFF_SOON).url("tcp"))
    assert_two_of_four_were_cut_off(flood(FLOOD, Options(target=target)))


def test_deliveries_of_a_process_that_dies_are_not_counted_as_received():
    scenario = structs.replace(FLOOD, message_bytes=100, rate=40.0, users=50, duration_s=60.0)
    result = run_here(scenario, Options(), Meddler(signal.SIGKILL))
    assert result.error == "broadcaster 2 ended with status -9"
    assert 0 < result.achieved.received <= 25 * result.achieved.sent
    assert [check.name for check in result.conservation.checks if not check.holds] == [
        "deliveries",
        "the run",
    ]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"users": 1000}, None),
        ({"users": 1001}, "a thread of users needs 1101 open files"),
        ({"users": 4000, "threads": 2, "processes": 2}, None),
        ({"users": 4001, "threads": 2, "processes": 2}, "threads= or processes="),
        ({"users": 2000, "threads": 2, "subjects": 1001, "publishers": 1001}, "the publishing thread"),
    ],
)
def test_each_thread_has_the_full_limit(monkeypatch, changes, error):
    monkeypatch.setattr(limits, "descriptors_allowed", lambda: 1100)
    scenario = BroadcastScenario(rate=1.0, load_driver="epoll", **changes)
    if error is None:
        require_limits(scenario)
        return
    with pytest.raises(LimitError, match=error) as raised:
        require_limits(scenario)
    assert "\n" not in str(raised.value)
