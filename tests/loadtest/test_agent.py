"""The agent of another machine, here connected by pipes; tests/hosts connects it by SSH."""

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import msgspec
import psutil
import pytest

from loadtest.errors import HostError, RunError
from loadtest.workers.agent_messages import (
    SILENCE_S,
    AgentEvent,
    Ended,
    EndInput,
    Heartbeat,
    Input,
    Launch,
    Order,
    OutputLine,
    Ready,
    Started,
)
from loadtest.workers.child import PYTHON
from loadtest.workers.machine import Program
from loadtest.workers.remote import RemoteMachine
from subjectbus import MonitorError
from tests.loadtest.monitors import FakeMonitor, saying, telling
from tests.loadtest.test_processes import wait_for

pytestmark = pytest.mark.process

MODULES = {
    "echoing": "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)\nsys.exit('over')",
    "shouting": "while True: print('x' * 1000)",
    "stubborn": "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)",
}


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


class Pipes:
    """A channel that is a child's pipes."""

    def __init__(self):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen([*PYTHON, "loadtest.workers.agent"], **pipes)

    is_connection_lost = False

    def receive(self):
        return os.read(self.process.stdout.fileno(), 65536)

    def receive_error(self):
        return os.read(self.process.stderr.fileno(), 65536)

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end_input(self):
        self.process.stdin.close()

    def close(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def opened():
    channel = Pipes()
    try:
        with RemoteMachine("b", "192.0.2.7", channel) as machine:
            machine.open()
            yield machine, channel.process
    finally:
        channel.close()


def start(machine, module, cpus=None):
    lines, errors = queue.Queue(), queue.Queue()
    process = machine.start(Program(module=[module], cpus=cpus, output=lines.put, errors=errors.put))
    return process, lines, errors


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_machine_reports_its_clock_and_its_usage():
    before_s = time.monotonic()
    with opened() as (machine, _):
        assert machine.environment["cores"] == os.cpu_count()
        assert abs(machine.clock_offset_s) <= machine.clock_error_s
        sample = wait_for(lambda: machine.samples)[0]
        error_s = 2 * machine.clock_error_s
        assert before_s - error_s < sample.t_s < time.monotonic() + error_s
        assert 0 <= sample.cpu_percent <= 100
        assert machine.listening_address("127.0.0.1") == "127.0.0.1"
        assert machine.listening_address("192.0.2.7") == "0.0.0.0"
        assert machine.listening_address("2001:db8::1") == "::"


def test_input_and_output_of_a_process_are_transferred():
    with opened() as (machine, _):
        process, lines, errors = start(machine, "echoing")
        process.send("ab\u00e9".encode())
        assert lines.get(timeout=10) == "\u00e9ba".encode()
        assert process.poll() is None
        usage = process.request_usage()()
        assert usage.rss_bytes == pytest.approx(psutil.Process(process.pid).memory_info().rss, rel=0.1)
        assert usage.cores == os.cpu_count()
        assert process.count_descriptors() >= 3
        process.end_input()
        assert process.wait(10) == 1
        assert errors.get(timeout=0) == b"over"
        assert process.request_usage()() is None
        with pytest.raises(OSError, match="ended"):
            process.send(b"more")


def test_a_process_is_terminated_and_killed():
    with opened() as (machine, _):
        process, *_ = start(machine, "echoing")
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
        process, lines, _ = start(machine, "stubborn")
        lines.get(timeout=10)
        process.terminate()
        assert process.wait(0.2) is None
        process.kill()
        assert process.wait(10) == -signal.SIGKILL


def test_a_processor_that_the_machine_lacks_is_named():
    with opened() as (machine, _):
        process, _, errors = start(machine, "echoing", cpus=frozenset({9999}))
        assert process.wait(10) == 1
        assert errors.get(timeout=0).endswith(b"processor 9999 is not usable here")


def test_counters_are_read_by_the_machine():
    with opened() as (machine, _):
        with FakeMonitor(telling(lambda: {"connections": 7})) as fake:
            counters = machine.open_counters(fake.url)
            assert counters.fetch(timeout_s=10) == {"connections": 7}
        with FakeMonitor(saying(b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n")) as fake:
            counters = machine.open_counters(fake.url)
            with pytest.raises(MonitorError, match=f"{fake.url}/varz: status 500"):
                counters.fetch(timeout_s=10)
        with pytest.raises(MonitorError, match="no answer in time"):
            counters.fetch(timeout_s=0)


def test_nothing_outlives_the_end_of_the_channel():
    with opened() as (machine, agent):
        process, lines, _ = start(machine, "stubborn")
        lines.get(timeout=10)
    assert agent.returncode == 0
    wait_for(lambda: gone(process.pid))


def test_a_machine_whose_agent_is_killed_is_lost():
    with opened() as (machine, agent):
        process, lines, _ = start(machine, "stubborn")
        lines.get(timeout=10)
        agent.kill()
        # Nobody waits for what nobody will tell.
        assert process.wait(60) is None
        assert machine.lost == "its agent has ended"
        with pytest.raises(HostError, match=r"host b \(192\.0\.2\.7\): lost: its agent has ended"):
            machine.require_reachable()
        with pytest.raises(RunError):
            start(machine, "echoing")
        with pytest.raises(OSError, match="ended"):
            process.send(b"")
        assert process.request_usage()() is None
        wait_for(lambda: gone(process.pid))


def test_the_error_of_an_agent_that_cannot_start_has_its_last_line():
    class Nothing(Pipes):
        def __init__(self):
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self.process = subprocess.Popen([sys.executable, "-c", "exit('no such thing')"], **pipes)

    channel = Nothing()
    said = "its agent has ended: no such thing"
    with RemoteMachine("b", "192.0.2.7", channel) as machine, pytest.raises(HostError, match=said):
        machine.open()
    assert channel.process.returncode == 1


class Raw:
    """An agent that gets only the messages that the test sends."""

    def __init__(self):
        self.channel = Pipes()
        self.process = self.channel.process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def order(self, *orders: Order):
        self.channel.send(b"".join(msgspec.json.encode(order) + b"\n" for order in orders))

    def hear(self) -> AgentEvent:
        return msgspec.json.decode(self.process.stdout.readline(), type=AgentEvent)

    def hear_until(self, kind):
        while not isinstance(said := self.hear(), kind):
            pass
        return said


def test_the_end_of_a_process_is_reported_after_its_output():
    with Raw() as agent:
        assert isinstance(agent.hear(), Ready)
        agent.order(Launch(1, ["echoing"]), *(Input(1, f"{n:05}") for n in range(2000)), EndInput(1))
        agent.hear_until(Started)
        said = []
        while not isinstance(one := agent.hear(), Ended):
            said.append(one)
        lines = [one.text for one in said if isinstance(one, OutputLine) and not one.error]
        assert lines == [f"{n:05}"[::-1] for n in range(2000)]
        assert one.status == 1


@pytest.mark.parametrize("module", ["stubborn", "shouting"])
def test_an_agent_without_messages_ends_itself_and_its_processes(module):
    with Raw() as agent:
        agent.order(Launch(1, [module]))
        pid = agent.hear_until(Started).pid
        # From now on nothing is read, either: a channel that is stuck keeps nobody alive.
        agent.process.wait(SILENCE_S + 10)
        wait_for(lambda: gone(pid))


def test_an_agent_that_gets_messages_keeps_running():
    with Raw() as agent:
        agent.order(Launch(1, ["stubborn"]))
        pid = agent.hear_until(Started).pid
        stop = threading.Event()

        def beat():
            while not stop.wait(0.5):
                agent.order(Heartbeat(time.monotonic()))

        beating = threading.Thread(target=beat)
        beating.start()
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                agent.process.wait(SILENCE_S + 1)
            assert not gone(pid)
        finally:
            stop.set()
            beating.join()


def test_an_unreadable_order_is_reported_and_ends_the_agent():
    with Raw() as agent:
        agent.order(Launch(1, ["stubborn"]))
        pid = agent.hear_until(Started).pid
        agent.channel.send(b'{"order":"fly"}\n')
        assert agent.process.wait(10) == 1
        assert agent.process.stderr.readline().startswith(b"unreadable order: Invalid value 'fly'")
        wait_for(lambda: gone(pid))


def test_output_of_the_login_shell_is_ignored():
    class Greeting(Pipes):
        def __init__(self):
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            agent = shlex.join([*PYTHON, "loadtest.workers.agent"])
            self.process = subprocess.Popen(["sh", "-c", f"echo welcome; exec {agent}"], **pipes)

    channel = Greeting()
    try:
        with RemoteMachine("b", "192.0.2.7", channel) as machine:
            machine.open()
            assert machine.environment["cores"] == os.cpu_count()
    finally:
        channel.close()


def test_a_long_line_counts_as_a_sign_of_life_and_arrives_completely(tmp_path):
    """A result may be megabytes in one line, from a process that says nothing else."""
    (tmp_path / "lengthy.py").write_text("print('x' * 8_000_000)")
    with opened() as (machine, _):
        process, lines, _ = start(machine, "lengthy")
        assert len(lines.get(timeout=30)) == 8_000_000
        assert process.wait(10) == 0
        assert machine.lost is None


def test_the_clocks_are_compared_over_the_last_minute_only():
    machine = RemoteMachine("b", "192.0.2.7", None)
    machine._add_exchange(10.0, 110.0, 10.001)
    assert (machine.clock_offset_s, machine.clock_error_s) == pytest.approx((99.9995, 0.0005))
    for second in range(60):
        machine._add_exchange(20.0 + second, 121.0 + second, 20.010 + second)
    assert (machine.clock_offset_s, machine.clock_error_s) == pytest.approx((100.995, 0.005))
