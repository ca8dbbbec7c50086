"""Whole runs, small and short, through the command itself."""

import http.client
import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time

import psutil
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from loadtest import Scenario, read_result
from loadtest.runner.execution import require_limits
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.local import LocalMachine
from loadtest.workers.processes import BrokerProcess, RunProcesses, Slot
from subjectbus import BrokerConfig, LimitError, limits
from subjectbus.config import WebSocketConfig
from tests.loadtest import commands

pytestmark = pytest.mark.process

SMALL = {
    "users": 50,
    "providers": 4,
    "rate": 400,
    "warmup_s": 0.5,
    "duration_s": 2,
    "timeout_s": 3,
    # No objective of speed: the machine may be busy with other tests.
    "max_send_lag_ms": 0,
    "thresholds": '["achieved.timed_out == 0", "achieved.errors == 0"]',
}


def command(folder, *arguments, **changes):
    return commands.run_command(folder, "autocomplete", *arguments, **{**SMALL, **changes})


def run(folder, *arguments, cwd=None, **changes):
    return commands.run(folder, "autocomplete", *arguments, cwd=cwd, **{**SMALL, **changes})


def assert_every_request_is_accounted_for(result, seconds=2):
    achieved = result.achieved
    assert achieved.connections == achieved.subjects == 54
    assert achieved.sent == pytest.approx(400 * seconds, rel=0.05)
    assert achieved.sent == achieved.received + achieved.timed_out + achieved.errors
    assert achieved.received == result.latency_us.count == result.service_us.count
    assert (achieved.timed_out, achieved.errors, achieved.duplicates, achieved.corrupt) == (0, 0, 0, 0)
    assert result.conservation.holds, result.conservation


@pytest.mark.parametrize("transport", ["ws", "tcp"])
def test_a_run_on_the_own_broker(tmp_path, transport):
    folder = tmp_path / "run"
    ended = run(folder, transport=transport)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    assert f"result folder: {folder}" in ended.stderr
    assert "\x1b" not in ended.stderr
    result = read_result(folder)
    assert_every_request_is_accounted_for(result)
    assert (
        0 < result.latency_us.min <= result.latency_us.p50 <= result.latency_us.p99 <= result.latency_us.max
    )
    assert result.service_us.mean <= result.latency_us.mean
    assert result.server.cpu_us_per_request >= 0
    assert result.server.rss_bytes > 1_000_000
    # What comes in goes out again, in frames that differ a little. The bytes themselves are compared exactly:
    # see the agreement of engine and broker.
    assert result.server.net_in_bps > 0
    assert result.server.net_out_bps == pytest.approx(result.server.net_in_bps, rel=0.5)
    assert [sample.phase for sample in result.timeline if sample.phase == "measuring"]
    assert sum(interval.sent for interval in result.intervals) == result.achieved.sent
    reader = HistogramLogReader(str(folder / "latency.hlog"), HdrHistogram(1, 3_600_000_000_000, 3))
    logged = 0
    while (interval := reader.get_next_interval_histogram()) is not None:
        logged += interval.get_total_count()
    reader.close()
    assert logged == result.latency_us.count


def test_the_broker_accounts_for_every_message_of_the_run(tmp_path):
    assert run(tmp_path / "run").returncode == 0
    result = read_result(tmp_path / "run")
    # Two messages a request, each with one subscriber: the request to its provider, the reply to its user.
    warmup = round(400 * SMALL["warmup_s"])
    assert result.conservation.delivered == pytest.approx(2 * (result.achieved.sent + warmup), rel=0.05)
    assert result.conservation.published == result.conservation.delivered


def test_several_requestors_share_users_and_rate(tmp_path):
    ended = run(tmp_path / "run", requestors=3, arrivals="poisson", seed=7)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert result.achieved.connections == 54
    assert result.achieved.sent == pytest.approx(800, rel=0.2)
    assert result.conservation.holds


def test_a_closed_loop_has_no_rate_and_still_a_result(tmp_path):
    ended = run(tmp_path / "run", rate=0, outstanding=20, requestors=2, duration_s=1)
    assert ended.returncode == 0, ended.stderr
    assert "Closed loop with 20 requests outstanding" in ended.stderr
    result = read_result(tmp_path / "run")
    assert result.requested.rate is None
    assert result.achieved.sent == result.achieved.received == result.latency_us.count > 20
    assert result.achieved.max_send_lag_us == 0
    assert result.latency_us == result.service_us
    assert result.conservation.holds, result.conservation
    measuring = [sample.outstanding for sample in result.timeline if sample.phase == "measuring"]
    # The requestors do not end in the same moment, so a last sample may find only one of them at it.
    assert max(measuring) == 20


@pytest.mark.parametrize("load", [{}, {"rate": 0, "outstanding": 10}])
def test_a_sweep_shows_that_every_connection_works(tmp_path, load):
    ended = run(tmp_path / "run", sweep="true", requestors=2, threads=2, duration_s=1, **load)
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert (result.sweep.sent, result.sweep.received) == (50, 50)
    assert result.sweep.duration_s > 0
    assert "sweep: users 50 = sent 50 = received 50" in ended.stderr
    phases = list(dict.fromkeys(sample.phase for sample in result.timeline))
    assert [phase for phase in phases if phase in ("sweep", "warmup", "measuring")] in (
        ["sweep", "warmup", "measuring"],
        ["warmup", "measuring"],  # when it was over before anybody looked
    )
    assert result.conservation.holds, result.conservation


def test_the_broker_takes_lists_tables_and_listeners_that_are_off(tmp_path):
    config = BrokerConfig(
        cors_origins=("https://a.example", "https://b.example"),
        allowed_hosts=("*",),
        websocket=WebSocketConfig(origins=("*",)),
        monitor=None,
        echo=True,
        server_name='quoted "name"',
    )
    with RunProcesses() as processes:
        processes.brokers.append(broker := BrokerProcess(config, Slot(machine=LocalMachine())))
        broker.wait_ready()
        assert set(broker.addresses) == {"tcp", "http"}
        host, port = broker.addresses["tcp"].split(":")
        with socket.create_connection((host, int(port)), 5) as client:
            assert b'"server_name":"quoted \\"name\\""' in client.recv(65536)
        answer = http.client.HTTPConnection(broker.addresses["http"], timeout=5)
        answer.request("POST", "/v1/publish/a", headers={"Origin": "https://b.example"})
        assert answer.getresponse().status == 202


@pytest.mark.parametrize("scheme", ["nats", "ws"])
def test_a_run_against_a_target_with_its_process_sampled(tmp_path, scheme):
    with RunProcesses() as processes:
        broker = BrokerProcess(BrokerConfig(), Slot(machine=LocalMachine()))
        processes.brokers.append(broker)
        broker.wait_ready()
        address = broker.addresses["tcp" if scheme == "nats" else "http"]
        ended = run(
            tmp_path / "run", "--target", f"{scheme}://{address}", "--server-pid", str(broker.pid), "--quiet"
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        result = read_result(tmp_path / "run")
        assert_every_request_is_accounted_for(result)
        assert result.target == f"{scheme}://{address}"
        assert result.scenario["transport"] == ("tcp" if scheme == "nats" else "ws")
        assert result.server.rss_bytes > 1_000_000
        processes.require_alive()


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_a_run_against_nats_server(tmp_path, nats_server, transport):
    target = nats_server.url(transport)
    ended = run(tmp_path / "run", "--target", target, "--server-pid", str(nats_server.process.pid))
    assert ended.returncode == 0, ended.stderr
    result = read_result(tmp_path / "run")
    assert_every_request_is_accounted_for(result)
    assert result.target == target
    assert result.server.cpu_us_per_request > 0


def test_a_threshold_that_fails_is_exit_status_1(tmp_path):
    ended = run(tmp_path / "run", thresholds='["latency_us.p50 < 0.001"]')
    assert ended.returncode == 1
    assert "threshold    FAILS  latency_us.p50 < 0.001" in ended.stderr
    assert not read_result(tmp_path / "run").holds


def test_an_unreachable_target_is_exit_status_3_and_still_written(tmp_path):
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        port = refusing.getsockname()[1]
        ended = run(tmp_path / "run", "--target", f"nats://127.0.0.1:{port}", "--quiet")
    assert ended.returncode == 3
    assert (
        ended.stderr
        == f"subjectbus: error: target nats://127.0.0.1:{port} is unreachable: Connection refused\n"
    )
    result = read_result(tmp_path / "run")
    assert "unreachable" in result.error
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"providers": 65_537, "provider_threads": 16}, "providers"), ({"broker.tcp": '"nowhere"'}, "tcp")],
)
def test_errors_that_only_the_engine_finds_are_exit_status_2(tmp_path, changes, named):
    ended = run(tmp_path / "run", "--quiet", **changes)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert named in ended.stderr
    assert not (tmp_path / "run").exists()


def test_folders_named_like_the_packages_are_not_imported(tmp_path):
    for package in ("subjectbus", "loadtest", "msgspec"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    ended = run(tmp_path / "run", cwd=tmp_path, duration_s=1)
    assert ended.returncode == 0, ended.stderr


def test_a_run_continues_after_its_output_is_closed(tmp_path):
    process = subprocess.Popen(command(tmp_path / "run"), stderr=subprocess.PIPE)
    process.stderr.readline()
    process.stderr.close()
    assert process.wait(60) == 0
    assert_every_request_is_accounted_for(read_result(tmp_path / "run"))
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_continues_after_its_terminal_is_closed(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(tmp_path / "run"), stderr=theirs)
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert process.wait(60) == 0
    assert_every_request_is_accounted_for(read_result(tmp_path / "run"))


def test_an_ignored_hangup_stays_ignored(tmp_path):
    ignoring = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command(tmp_path / "run")]
    process = subprocess.Popen(ignoring, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "measuring" in line:
            process.send_signal(signal.SIGHUP)
            break
    process.communicate(timeout=200)
    assert process.returncode == 0
    assert_every_request_is_accounted_for(read_result(tmp_path / "run"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_does_not_stop_results_from_being_written(tmp_path, number):
    process = subprocess.Popen(command(tmp_path / "run", duration_s=1), stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "writing results" in line:
            process.send_signal(number)
            break
    process.communicate(timeout=200)
    assert process.returncode == 0
    assert read_result(tmp_path / "run").error is None
    assert (tmp_path / "run" / "report.html").exists()


def test_only_the_first_signal_raises_and_held_signals_do_not():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert interrupts.count == 2
    with Interrupts() as interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.count == 1
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"users": 1000}, None),
        ({"users": 1001}, "a requestor thread needs 1101 open files"),
        ({"users": 4000, "threads": 2, "requestors": 2}, None),
        ({"users": 4001, "threads": 2, "requestors": 2}, "threads= or requestors="),
        ({"users": 1, "providers": 2000, "provider_threads": 2}, None),
        ({"users": 1, "providers": 2001, "provider_threads": 2}, "provider_threads="),
    ],
)
def test_each_thread_has_the_full_limit(monkeypatch, changes, error):
    monkeypatch.setattr(limits, "descriptors_allowed", lambda: 1100)
    scenario = Scenario(rate=1.0, load_driver="epoll", **changes)
    if error is None:
        require_limits(scenario)
        return
    with pytest.raises(LimitError, match=error) as raised:
        require_limits(scenario)
    assert "\n" not in str(raised.value)


class Started:
    """A run that is under way, and all its processes."""

    def __init__(self, folder, **changes):
        self.folder = folder
        self.process = subprocess.Popen(
            command(folder, **{"duration_s": 60, **changes}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stderr:
            if "measuring" in line:
                break
        else:
            pytest.fail("never came to measure")
        self.children = psutil.Process(self.process.pid).children(recursive=True)

    def child(self, word: str) -> psutil.Process:
        return next(child for child in self.children if word in child.cmdline())

    def assert_all_ended(self):
        deadline = time.monotonic() + 10
        while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in self.children):
            assert time.monotonic() < deadline, "a process was left behind"
            threading.Event().wait(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_ends_its_processes_and_writes_its_data(tmp_path, number):
    started = Started(tmp_path / "run")
    assert len(started.children) == 3
    started.process.send_signal(number)
    _, said = started.process.communicate(timeout=30)
    assert started.process.returncode == 3
    assert "writing results" in said
    assert said.endswith("subjectbus: error: interrupted\n")
    started.assert_all_ended()
    result = read_result(tmp_path / "run")
    assert result.error == "interrupted"
    assert result.achieved.sent > 0
    assert result.latency_us.count > 0


@pytest.mark.parametrize(("word", "name"), [("serve", "broker"), ("loadtest.workers.worker", "provider")])
def test_a_process_that_dies_ends_the_run_with_status_3(tmp_path, word, name):
    started = Started(tmp_path / "run")
    started.child(word).kill()
    _, said = started.process.communicate(timeout=30)
    assert started.process.returncode == 3
    assert said.splitlines()[-1].startswith(f"subjectbus: error: {name}")
    started.assert_all_ended()
    assert not read_result(tmp_path / "run").conservation.holds


def test_nothing_outlives_a_run_that_is_killed(tmp_path):
    started = Started(tmp_path / "run")
    os.kill(started.process.pid, signal.SIGKILL)
    started.process.communicate(timeout=30)
    started.assert_all_ended()


def test_the_environment_file_has_the_machines_facts(tmp_path):
    assert run(tmp_path / "run", duration_s=1).returncode == 0
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["cores"] == os.cpu_count()
    assert environment["memory_bytes"] == psutil.virtual_memory().total
    assert environment["limits"]["nofile_hard"] > 0
    assert environment["versions"]["subjectbus"]
