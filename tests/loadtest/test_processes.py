"""The processes of a run, each started for real."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from msgspec import structs

from loadtest.errors import ArgumentError, RunError
from loadtest.runner.meter import UsageMeter
from loadtest.sampling.monitor import open_monitor
from loadtest.sampling.usage import Processes, Traffic, Usage, parse_traffic
from loadtest.scenario.cpus import parse_cpus
from loadtest.workers.child import PYTHON, command_line
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.local import LocalMachine
from loadtest.workers.messages import Configure, Connect, ProviderConfig, Stop
from loadtest.workers.processes import BrokerProcess, ManagedProcess, RunProcesses, Slot, WorkerProcess
from subjectbus import BrokerConfig, UsageError

pytestmark = pytest.mark.process

HERE = Slot(machine=LocalMachine())


def wait_for(condition, timeout_s=15.0):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "condition never came"
        threading.Event().wait(0.01)
    return value


def provider(address: str, **changes) -> Configure:
    config = ProviderConfig(
        transport="tcp",
        address=address,
        host=address,
        path="/",
        providers=4,
        first_provider=0,
        reply_bytes=64,
        threads=1,
        driver="auto",
    )
    return Configure(provider=structs.replace(config, **changes))


def test_processor_lists():
    here = sorted(os.sched_getaffinity(0))
    assert parse_cpus(str(here[0])) == {here[0]}
    assert parse_cpus(",".join(map(str, here))) == set(here)
    assert parse_cpus(f"{here[0]}-{here[0]}") == {here[0]}


@pytest.mark.parametrize(
    "text", ["", "x", "1-", "-1", "1,", "0-x", "9999", "3-1", "\u0663", "0-\u00b2", "0-99999999999"]
)
def test_an_unusable_processor_list_is_named(text):
    with pytest.raises(UsageError, match=f'processor list "{text}"'):
        parse_cpus(text)


def test_a_child_becomes_the_command_on_its_processors():
    cpu = min(os.sched_getaffinity(0))
    code = "import os; print(os.getpid(), sorted(os.sched_getaffinity(0)))"
    with subprocess.Popen(
        command_line([sys.executable, "-c", code], frozenset({cpu})), stdout=subprocess.PIPE, text=True
    ) as process:
        said, _ = process.communicate(timeout=20)
    assert said.split(maxsplit=1) == [str(process.pid), f"[{cpu}]\n"]


def test_a_child_does_not_outlive_its_parent():
    code = (
        "import subprocess, sys; from loadtest.workers.child import command_line;"
        "p = subprocess.Popen(command_line([sys.executable, '-c', 'print(1, flush=True); input()'], None),"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE);"
        "p.stdout.readline(); print(p.pid, flush=True); input()"
    )
    parent = subprocess.Popen([*PYTHON[:2], "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    grandchild = int(parent.stdout.readline())
    assert psutil.pid_exists(grandchild)
    parent.kill()
    parent.communicate()
    wait_for(
        lambda: (
            not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
        )
    )


def test_a_worker_ends_when_its_input_does():
    worker = subprocess.Popen(
        [*PYTHON, "loadtest.workers.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    said, _ = worker.communicate(timeout=20)
    assert (worker.returncode, said) == (0, b"")


def test_a_worker_ignores_the_terminals_interrupt():
    worker = subprocess.Popen(
        [*PYTHON, "loadtest.workers.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_for(lambda: int(_status(worker.pid, "SigIgn"), 16) & (1 << (signal.SIGINT - 1)), 20)
    worker.send_signal(signal.SIGINT)
    assert worker.communicate(timeout=20)[0] == b""
    assert worker.returncode == 0


def _status(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"command":"fly"}\n', b'{"command":"configure"}\n'])
def test_a_worker_reports_an_invalid_command(line):
    worker = subprocess.Popen(
        [*PYTHON, "loadtest.workers.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    said, _ = worker.communicate(line, timeout=20)
    assert worker.returncode == 1
    assert json.loads(said)["event"] == "failed"


@pytest.fixture
def processes():
    with RunProcesses() as processes:
        yield processes


@pytest.fixture
def broker(processes):
    broker = BrokerProcess(BrokerConfig(shards=1), HERE)
    processes.brokers.append(broker)
    broker.wait_ready()
    return broker


def fetch(broker):
    with open_monitor(broker.addresses["monitor"]) as monitor:
        return monitor.fetch(timeout_s=10)


def test_a_broker_has_ports_counters_and_a_clean_end(processes, broker):
    assert set(broker.addresses) == {"tcp", "http", "monitor"}
    assert "conservation" in fetch(broker)
    processes.end()
    assert not psutil.pid_exists(broker.pid)


def test_a_broker_configuration_at_fault_is_a_usage_error(processes):
    broker = BrokerProcess(BrokerConfig(tcp="nowhere"), HERE)
    processes.brokers.append(broker)
    with pytest.raises(UsageError, match="tcp"):
        broker.wait_ready()


def test_a_provider_connects_and_reports_its_counts(processes, broker):
    worker = WorkerProcess("provider", provider(broker.addresses["tcp"]), HERE)
    processes.providers.append(worker)
    worker.send(Connect())
    wait_for(lambda: worker.progress.phase == "connected")
    processes.require_alive()
    assert worker.progress.connections == 4
    assert worker.may_report
    worker.send(Stop())
    wait_for(lambda: worker.finished)
    assert (worker.provider.received, worker.provider.sent) == (0, 0)
    assert not worker.may_report
    assert worker.end() == 0


def test_a_worker_that_dies_is_named_with_its_status(processes, broker):
    worker = WorkerProcess("provider", provider(broker.addresses["tcp"]), HERE)
    processes.providers.append(worker)
    worker.send(Connect())
    wait_for(lambda: worker.progress.phase == "connected")
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: not worker.may_report)
    with pytest.raises(RunError, match="provider ended with status -9"):
        processes.require_alive()


def test_a_worker_configuration_at_fault_is_a_usage_error(processes, broker):
    worker = WorkerProcess("provider", provider(broker.addresses["tcp"], providers=0), HERE)
    processes.providers.append(worker)

    def refused():
        try:
            worker.require_alive()
        except UsageError as error:
            return str(error)
        return ""

    assert "providers" in wait_for(refused)


class Stubborn(ManagedProcess):
    """A process that ignores being told to end, once it has said so."""

    def __init__(self, connections: int) -> None:
        self.ready = threading.Event()
        super().__init__("stubborn", ["stubborn"], HERE, connections)

    def _handle_line(self, line):
        self.ready.set()


def test_the_more_connections_the_longer_a_process_may_take_to_end(tmp_path, monkeypatch):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    (tmp_path / "stubborn.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    few, many = Stubborn(0), Stubborn(1_000_000)
    try:
        assert few.end_timeout_s == 10.0
        assert many.end_timeout_s == 60.0
        assert few.ready.wait(20)
        few.end_timeout_s = 0.2
        assert few.end() == -signal.SIGKILL
    finally:
        few.kill()
        many.kill()


def test_leaving_the_context_ends_all_processes(broker):
    with RunProcesses() as other:
        other.providers.append(WorkerProcess("provider", provider(broker.addresses["tcp"]), HERE))
        pid = other.providers[0].pid
    assert not psutil.pid_exists(pid)


def test_usage_between_two_samples():
    cores = os.cpu_count()
    before, after = Usage(10.0, 3.0, 100), Usage(12.0, 4.0, 100)
    assert after.cpu_percent_since(before) == pytest.approx(100 * 1.0 / (2.0 * cores))
    assert after.cpu_us_per(1000.0, before) == pytest.approx(500.0)
    assert after.cpu_us_per(0.0, before) is None
    assert before.cpu_percent_since(before) == 0.0


def test_traffic_between_two_samples():
    before, after = Traffic(10.0, 1_000, 2_000), Traffic(12.0, 2_000, 5_000)
    assert after.bps_since(before) == (4_000.0, 12_000.0)
    assert before.bps_since(before) is None


def test_the_traffic_of_a_broker_comes_from_its_counters(broker, processes):
    before = parse_traffic(fetch(broker), 1.0)
    worker = WorkerProcess("provider", provider(broker.addresses["tcp"]), HERE)
    processes.providers.append(worker)
    worker.send(Connect())
    wait_for(lambda: worker.progress.phase == "connected")
    after = parse_traffic(fetch(broker), 2.0)
    # Each connection sends at least CONNECT, SUB and PING, and is sent INFO and PONG.
    assert after.received - before.received > 4 * 100
    assert after.sent - before.sent > 4 * 100
    assert parse_traffic({"wire_bytes_in": 1}, 1.0) is None


def test_processes_are_summed_and_an_ended_one_is_not_visible():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        both = Processes([os.getpid(), child.pid])
        alone = Processes([os.getpid()]).usage()
        assert both.usage().rss_bytes > alone.rss_bytes
        child.communicate()
    assert both.usage() is None
    for pid in (2**22 + 1, -1, 2**40):
        with pytest.raises(ArgumentError, match=f"server_pid: process {pid} does not exist"):
            UsageMeter(pid)


class Scripted:
    """A child whose process uses what it is told to."""

    machine = HERE.machine

    def __init__(self, usages):
        usages = iter(usages)
        self.process = self
        self.request_usage = lambda: lambda: next(usages)


def test_usage_covers_the_measured_phase_and_memory_its_growth():
    meter = UsageMeter(None)
    broker = Scripted([Usage(0, 0, 1000), Usage(1, 9, 5000), Usage(2, 10, 6000), Usage(3, 11, 8000),
                       Usage(4, 12, 7000), Usage(5, 99, 9000)])  # fmt: skip
    meter.watch_server([broker])
    # Who only matters at both ends is looked at there alone.
    meter.watch_load(
        [Scripted(Usage(at, at, 1) for at in range(6))], [Scripted([Usage(1, 1, 0), Usage(3, 4, 0)])]
    )
    meter.sample_idle()
    for measuring in (False, True, True, False, False):
        meter.sample(measuring=measuring)
    server, load = meter.summary(rate=1000.0, connections=100)
    assert load.cpu_us_per_request == pytest.approx(1000)
    assert load.requestor_cpu_us_per_request == pytest.approx(1500)
    assert server.cpu_us_per_request == pytest.approx((12 - 10) / 2 / 1000 * 1e6)
    assert server.cpu_percent == pytest.approx(100 * 2 / (2 * os.cpu_count()))
    assert server.rss_bytes == 8000
    assert server.rss_bytes_per_connection == 80.0
    assert server.rss_growth_bytes_per_connection == 70.0
    assert (server.net_in_bps, server.net_out_bps) == (None, None)
    assert load.cpu_percent == pytest.approx(100 / os.cpu_count())


def test_processor_time_is_averaged_over_several_ticks_of_its_clock():
    meter = UsageMeter(None)
    usages = [
        Usage(0, 0, 1),
        Usage(0.02, 0.01, 1),
        Usage(0.2, 0.03, 1),
        Usage(0.5, 0.1, 1),
        Usage(1.5, 0.1, 1),
    ]
    meter.watch_server([Scripted(usages)])
    percents = [meter.sample(measuring=False)[0] for _ in usages]
    assert percents == [None, None, None, pytest.approx(20 / os.cpu_count()), 0.0]


def test_traffic_covers_the_measured_phase_or_is_unknown():
    def net(looks):
        meter, told = UsageMeter(None), iter(looks)
        meter.watch_server([Scripted(Usage(at, at, 1) for at in range(6))])
        meter.watch_traffic(lambda: next(told))
        for measuring in (False, True, True, False, False):
            meter.sample(measuring=measuring)
        server, _ = meter.summary(rate=1.0, connections=1)
        return server.net_in_bps, server.net_out_bps

    assert net([Traffic(1, 0, 0), Traffic(5, 1_000, 3_000)]) == (2_000.0, 6_000.0)
    assert net([None, Traffic(5, 1_000, 3_000)]) == (None, None)
    assert net([Traffic(1, 0, 0), None]) == (None, None)


def test_an_interrupt_between_start_and_entry_comes_after_the_entry():
    with Interrupts() as interrupts:
        processes = RunProcesses(interrupts)

        def start():
            signal.raise_signal(signal.SIGINT)
            return SimpleNamespace(process=SimpleNamespace(kill=lambda: None), kill=lambda: None)

        with pytest.raises(KeyboardInterrupt):
            processes.add_worker(processes.requestors, start)
        assert len(processes.requestors) == 1
        with interrupts.held():
            pass  # it has been raised once
