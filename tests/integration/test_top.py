"""`subjectbus top` on a broker: one snapshot for scripts, and the live console on a pseudo-terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import pytest

from tests.nats_client import flush
from tests.servers import Broker, subjectbus_command, wait_until
from tests.terminal import Terminal
from tests.wire import Wire, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Server

    StartBroker = Callable[..., Broker]

pytestmark = pytest.mark.filterwarnings("ignore:parameter 'timeout' of type:DeprecationWarning")

LEAVE = "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"


def monitor_url(broker: Broker) -> str:
    host, port = broker.monitor
    return f"http://{host}:{port}"


def once(broker: Broker, *arguments: str) -> str:
    """Return the output of `--once`."""
    command = [subjectbus_command(), "top", monitor_url(broker), "--once", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def client(broker: Broker, name: str, subject: str) -> Wire:
    """A client of this name that is subscribed to the subject."""
    wire = open_wire(broker, "tcp")
    wire.handshake(name=name)
    wire.send(f"SUB {subject} 1\r\n".encode())
    wire.ping()
    return wire


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(shards=2, server_name="watched")


@pytest.fixture
def console(broker: Broker) -> Iterator[Terminal]:
    """The live console, after its first screen."""
    with Terminal([subjectbus_command(), "top", monitor_url(broker), "--interval", "0.1"]) as terminal:
        terminal.wait_for_text("watched", "by msgs_to", "q quit")
        yield terminal


def publish(wire: Wire, subject: str, times: int) -> None:
    wire.send(f"PUB {subject} 5\r\nhello\r\n".encode() * times)
    wire.ping()


def test_once_json_counts_a_known_load(broker: Broker) -> None:
    with client(broker, "reader", "news") as reader, client(broker, "writer", "unused") as writer:
        publish(writer, "news", 300)
        for _ in range(300):
            reader.expect(b"MSG news 1 5\r\nhello\r\n")
        answer: dict[str, Any] = json.loads(
            once(broker, "--json", "--sort", "msgs_from", "--interval", "0.2")
        )
    assert answer["url"] == monitor_url(broker)
    varz = answer["varz"]
    assert (varz["server_name"], varz["connections"], varz["subscriptions"]) == ("watched", 2, 2)
    assert (varz["in_msgs"], varz["in_bytes"], varz["out_msgs"], varz["out_bytes"]) == (300, 1500, 300, 1500)
    assert answer["rates"].pop("seconds") >= 0.2
    assert set(answer["rates"].values()) == {0.0}
    seen = [(row["name"], row["in_msgs"], row["out_msgs"], row["type"]) for row in answer["connections"]]
    assert seen == [("writer", 300, 0, "nats"), ("reader", 0, 300, "nats")]


async def test_once_json_measures_rates(broker: Broker) -> None:
    """While somebody publishes: whole messages over the interval, of their size, no more than there were."""
    publisher = await nats.connect(broker.url("ws"), allow_reconnect=False, name="steady")
    published = 0

    async def publish_steadily() -> None:
        nonlocal published
        while True:
            await publisher.publish("load", b"x" * 100)
            published += 1
            await flush(publisher)

    load = asyncio.create_task(publish_steadily())
    answer = json.loads(await asyncio.to_thread(once, broker, "--json", "--interval", "0.5"))
    load.cancel()
    await publisher.close()
    rates = answer["rates"]
    messages = rates["in_msgs_per_s"] * rates["seconds"]
    assert messages == pytest.approx(round(messages), abs=1e-3)
    assert 0 < messages <= published
    assert rates["in_bytes_per_s"] == pytest.approx(100 * rates["in_msgs_per_s"])
    assert rates["out_msgs_per_s"] == 0
    assert [row["type"] for row in answer["connections"]] == ["websocket"]


def test_once_text(broker: Broker) -> None:
    with client(broker, "one", "a"), client(broker, "two", "b"):
        lines = once(broker, "--sort", "cid", "--limit", "1", "--interval", "0.1").splitlines()
    assert "watched" in lines[0]
    assert any(line.startswith("connections 2 of ") for line in lines)
    (title,) = (number for number, line in enumerate(lines) if line == "1 of 2 connections by cid")
    assert lines[title + 1].split()[:2] == ["CID", "NAME"]
    assert lines[title + 2].split()[1] == "one"
    (shards,) = (number for number, line in enumerate(lines) if line.startswith("SHARD"))
    assert [line.split()[0] for line in lines[shards + 1 : shards + 3]] == ["0", "1"]


def test_each_key_of_an_order_sorts_the_connections(broker: Broker, console: Terminal) -> None:
    """Each key shows its order, and the first row is then the one that comes first."""
    with client(broker, "first", "a") as first, client(broker, "second", "b") as second:
        publish(first, "nowhere", 5)
        publish(second, "a", 7)
        second.send(b"SUB c 2\r\n")
        second.ping()

        def first_row(frame: list[str]) -> str:
            title = next((i for i, line in enumerate(frame) if " connections by " in line), len(frame))
            return "".join(frame[title + 2 : title + 3])

        for key, order, name in [
            ("c", "cid", "first"),
            ("u", "subs", "second"),
            ("a", "start", "first"),
            ("i", "msgs_from", "second"),
            ("o", "msgs_to", "first"),
            ("I", "bytes_from", "second"),
            ("O", "bytes_to", "first"),
        ]:
            console.press(key)
            console.wait_for(
                lambda frame, order=order, name=name: (
                    f"2 of 2 connections by {order}" in "\n".join(frame) and name in first_row(frame)
                )
            )
        console.press("s")
        console.wait_for_text("by bytes_from")


def test_arrows_and_other_keys_change_nothing(console: Terminal) -> None:
    """An arrow ends with a letter that would be an order."""
    console.press("\x1b[c\x1bOp\x1b[1;5ux?\x80 ")
    console.wait_for_text("paused", "by msgs_to")


def test_keys_work_while_they_are_shown(console: Terminal) -> None:
    for key in "?h":
        console.press(key)
        console.wait_for_text("q quit", "by bytes_from", "by msgs_to")
        console.press(key)
        console.wait_for_text("HOTTEST SUBJECTS over the last", "SHARD")
    console.press("?c")
    console.wait_for_text("by bytes_from", "connections by cid")


def test_other_listeners_of_the_broker_are_recognised(broker: Broker) -> None:
    for host, port in (broker.http, broker.tcp):
        command = [subjectbus_command(), "top", f"{host}:{port}", "--once"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
        assert f"http://{host}:{port}/varz: this is not the monitor listener: " in done.stderr


def requests_of_others(broker: Broker, for_s: float) -> int:
    """Requests to the monitor other than those that are made here to count them."""
    own, first, ends_s = 0, broker.varz()["http_requests"], time.monotonic() + for_s
    while time.monotonic() < ends_s:
        last, own = broker.varz()["http_requests"], own + 1
    return last - first - own


def test_pause(broker: Broker, console: Terminal) -> None:
    """A paused console asks nothing; one that goes on asks ten times a second."""
    console.wait_for_text("0 of 0 connections")
    console.press(" ")
    console.wait_for_text("paused")
    with client(broker, "late", "a"):
        wait_until(lambda: requests_of_others(broker, 0.5) == 0, what="no more requests")
        assert "0 of 0 connections" in "\n".join(console.frame())
        console.press(" ")
        frame = console.wait_for_text("1 of 1 connections", "late")
        assert "paused" not in "\n".join(frame)
        wait_until(lambda: requests_of_others(broker, 0.5) > 0, what="requests again")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (60, 10), (200, 60)])
def test_resize(console: Terminal, columns: int, rows: int) -> None:
    console.resize(columns, rows)
    frame = console.wait_for(lambda frame: len(frame) == rows and len(frame[-1]) == columns)
    assert "watched" in frame[0]
    assert frame[-1].startswith("q quit")


def assert_left_in_order(console: Terminal) -> None:
    assert termios.tcgetattr(console._slave) == console.attributes
    assert console.output.rindex(LEAVE) > console.output.rindex("\x1b[?1049h")
    assert console.output.rindex(SHOW_CURSOR) > console.output.rindex("\x1b[?25l")


@pytest.mark.parametrize("keys", ["q", "\x03"], ids=["q", "ctrl-c"])
def test_quit(console: Terminal, keys: str) -> None:
    console.press(keys)
    assert console.wait_status() == 0
    assert_left_in_order(console)
    after = console.output[console.output.rindex(LEAVE) + len(LEAVE) :]
    assert after.strip() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal(console: Terminal, number: signal.Signals) -> None:
    console.process.send_signal(number)
    assert console.wait_status() == 0
    assert_left_in_order(console)


def test_the_command_ends_when_its_terminal_closes(console: Terminal) -> None:
    console.hang_up()
    console.wait_status()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_the_command_can_be_suspended_and_continued(console: Terminal) -> None:
    console.press("\x1a")
    wait_until(lambda: is_stopped(console.process.pid), what="the console to stop")
    console.frame()
    assert_left_in_order(console)
    before = len(console.output)
    console.process.send_signal(signal.SIGCONT)
    wait_until(lambda: console.frame() and "\x1b[?1049h" in console.output[before:], what="the console again")
    console.press("c")
    console.wait_for_text("by cid")


def test_the_command_waits_for_a_lost_broker(
    start_broker: StartBroker, broker: Broker, console: Terminal
) -> None:
    broker.stop()
    console.wait_for_text("no answer for", "connection refused", "watched")
    start_broker(monitor="{}:{}".format(*broker.monitor), server_name="back-again")
    frame = console.wait_for_text("back-again")
    assert "no answer" not in "\n".join(frame)


def test_keys_work_while_the_broker_hangs(broker: Broker, console: Terminal) -> None:
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(broker.process.pid), what="the broker to stop")
        console.resize(90, 30)
        console.wait_for(lambda frame: len(frame) == 30)
        console.press("q")
        assert console.wait_status() == 0
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


def test_texts_of_clients_do_not_affect_the_terminal(broker: Broker, console: Terminal) -> None:
    with client(broker, "\x1b]0;evil\x07\x9b2J", "a"):
        console.wait_for_text(r"\x1b]0;evil\x07\x9b2J")
    console.press("q")
    console.wait_status()
    assert "\x1b]" not in console.output
    assert "\x9b" not in console.output
    assert "\x07" not in console.output


def test_the_command_needs_a_terminal(broker: Broker) -> None:
    command = [subjectbus_command(), "top", monitor_url(broker)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--once" in done.stderr


def test_another_server_is_recognised(nats_server: Server) -> None:
    url = "http://{}:{}".format(*nats_server.monitor)
    command = [subjectbus_command(), "top", url, "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"{url}/varz: not what a subjectbus of this version says: " in done.stderr


def test_a_missing_broker_at_the_start_is_an_error(broker: Broker) -> None:
    url = monitor_url(broker)
    broker.stop()
    with Terminal([subjectbus_command(), "top", url]) as terminal:
        assert terminal.wait_status() == 3
    assert terminal.output == f"subjectbus: error: {url}/varz: connection refused\r\n"
