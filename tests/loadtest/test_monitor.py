"""The thread that reads a server's counters, on monitors that answer and on those that do not."""

import os
import socket
import threading
import time

import pytest

from loadtest.sampling import monitor
from loadtest.sampling.monitor import CounterSampler, open_monitor
from tests.loadtest.monitors import FakeMonitor, answer, hanging, read_request, saying, telling, trickling
from tests.servers import wait_until

DEEP = b'{"a": ' + b"[" * 20_000


@pytest.fixture
def watch():
    """Starts monitors, which are closed after the test."""
    started = []

    def start(url, load_cpus=None):
        started.append(CounterSampler(open_monitor(url), load_cpus))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.close()
    assert not any(thread.name == "monitor" for thread in threading.enumerate())


def test_the_monitor_is_read_once_a_second_over_one_connection(watch, monkeypatch):
    monkeypatch.setattr(monitor, "_EVERY_S", 0.05)
    asked = []
    with FakeMonitor(telling(lambda: asked.append(time.monotonic()) or {"n": len(asked)})) as fake:
        watching = watch(fake.url)
        wait_until(lambda: len(watching.readings) >= 5)
        watching.close()
        assert fake.accepted == 1
    assert [reading.counters["n"] for reading in watching.readings] == list(range(1, len(asked) + 1))
    times = [reading.at_s for reading in watching.readings]
    assert times == sorted(times)
    assert (times[4] - times[0]) >= 4 * 0.05 * 0.9
    assert (watching.failures, watching.first_failure) == (0, None)
    assert watching.slowest_s > 0


def test_a_fresh_reading_begins_after_its_request(watch, monkeypatch):
    monkeypatch.setattr(monitor, "_EVERY_S", 60.0)
    state = {"n": 0}
    with FakeMonitor(telling(lambda: state)) as fake:
        watching = watch(fake.url)
        for number in range(1, 30):
            state["n"] = number
            assert watching.fresh().counters["n"] == number
        # Those out of turn are not of the timeline.
        assert len(watching.readings) == 1


def test_a_kept_connection_closed_while_idle_does_not_count_as_failure(watch, monkeypatch):
    monkeypatch.setattr(monitor, "_EVERY_S", 60.0)

    def once(connection: socket.socket, _: threading.Event) -> None:
        read_request(connection)
        connection.sendall(answer(b'{"connections": 3}'))

    with FakeMonitor(once) as fake:
        watching = watch(fake.url)
        for _ in range(4):
            assert watching.fresh().counters == {"connections": 3}
        assert fake.accepted >= 4
    assert watching.first_failure is None


def test_chunked_answers_are_read_as_nats_server_gives_them(watch):
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b'4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n'
    )
    with FakeMonitor(saying(chunked)) as fake:
        watching = watch(fake.url)
        assert watching.fresh().counters == watching.fresh().counters == {"a": 1}
        assert fake.accepted == 1


@pytest.mark.parametrize(
    ("response", "failure"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n", "this is not the monitor listener: the answer is not HTTP"),
        (b"\x00\xff\r\n\r\n", "this is not the monitor listener: the answer is not HTTP"),
        (answer(b"not found", "404 Not Found"), "status 404 Not Found"),
        (answer(b"<html>"), "this is not the monitor listener: the answer is not a JSON object"),
        (answer(b"\xff\xfe{}"), "this is not the monitor listener: the answer is not a JSON object"),
        (answer(DEEP), "this is not the monitor listener: the answer is not a JSON object"),
        (answer(DEEP, "500 Internal Server Error"), "status 500 Internal Server Error"),
        (answer(b"[1, 2]"), "this is not the monitor listener: the answer is not a JSON object"),
        (answer(b" " * (1 << 20) + b"{}"), "the answer is longer than 1048576 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{}", "no answer within 0.3 s"),
    ],
)
def test_an_invalid_answer_is_a_failure_that_quotes_it(watch, monkeypatch, response, failure):
    monkeypatch.setattr(monitor, "_TIMEOUT_S", 0.3)
    with FakeMonitor(saying(response)) as fake:
        watching = watch(fake.url)
        assert watching.fresh(5) is None
        assert watching.failures == 1
        assert watching.readings == []
        assert watching.first_failure.startswith(f"{fake.url}/varz: {failure}")
        assert "\n" not in watching.first_failure


def test_a_name_that_no_host_can_have_is_a_failure_of_each_reading(watch):
    watching = watch("a..b:8222")
    for _ in range(2):
        assert watching.fresh(5) is None
    assert watching.first_failure.startswith("http://a..b:8222/varz: the host's name")


@pytest.mark.parametrize("serve", [hanging, trickling])
def test_a_monitor_that_hangs_does_not_block_the_run(watch, monkeypatch, serve):
    # Who waited would wait for longer than a test may take.
    monkeypatch.setattr(monitor, "_TIMEOUT_S", 600.0)
    monkeypatch.setattr(monitor, "_JOIN_S", 600.0)
    with FakeMonitor(serve) as fake:
        watching = watch(fake.url)
        wait_until(lambda: fake.accepted)
        assert watching.fresh(0.05) is None
        watching.close()
    monkeypatch.setattr(monitor, "_TIMEOUT_S", 0.2)
    with FakeMonitor(serve) as fake:
        watching = watch(fake.url)
        assert watching.fresh(5) is None
        assert watching.first_failure == f"{fake.url}/varz: no answer within 0.2 s"


def test_a_monitor_that_disappears_and_comes_back(watch, monkeypatch):
    monkeypatch.setattr(monitor, "_EVERY_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    watching = watch(f"http://127.0.0.1:{port}")
    wait_until(lambda: watching.failures >= 2)
    assert watching.first_failure == f"http://127.0.0.1:{port}/varz: connection refused"
    listener = socket.create_server(("127.0.0.1", port))
    monkeypatch.setattr(socket, "create_server", lambda _: listener)
    with FakeMonitor(telling(lambda: {"connections": 1})):
        wait_until(lambda: len(watching.readings) >= 2)
    before = watching.failures
    wait_until(lambda: watching.failures > before)


def test_readings_avoid_the_loads_processors(watch):
    here = os.sched_getaffinity(0)
    seen = {}

    def counters():
        # By the reading thread's own state, as the kernel has it.
        thread = next(thread for thread in threading.enumerate() if thread.name == "monitor")
        seen["cpus"] = os.sched_getaffinity(thread.native_id)
        return {}

    with FakeMonitor(telling(counters)) as fake:
        load = frozenset({min(here)})
        assert watch(fake.url, load).fresh() is not None
        assert seen["cpus"] == (here - load or here)
    assert os.sched_getaffinity(0) == here
