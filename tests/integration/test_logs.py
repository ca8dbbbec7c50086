"""The log: its events, protection against forged lines, and a reader that does not read."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import require_driver
from tests.servers import Broker, wait_until
from tests.wire import Wire, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., Broker]
    Line = dict[str, Any]

KINDS_WITH_A_RATE = {
    "accept_failed", "client_closed", "client_connected", "client_identified", "publisher_stalled",
    "request_refused",
}  # fmt: skip
BURST = 50


@pytest.fixture(params=("epoll", "uring"))
def start(request: pytest.FixtureRequest, start_broker: Start) -> Start:
    """Start a broker on each driver, with a log in JSON."""
    require_driver(request.param)
    return lambda **options: start_broker(driver=request.param, **{"log_format": "json", **options})


def lines(broker: Broker) -> list[Line]:
    """The whole lines of a log in JSON."""
    return [json.loads(line) for line in broker.log().splitlines(keepends=True) if line.endswith("\n")]


def wait_for(broker: Broker, kind: str, **fields: object) -> Line:
    """Wait for a line of this kind with these fields, and return it."""

    def find() -> Line | None:
        wanted = {"kind": kind, **fields}.items()
        return next((line for line in lines(broker) if wanted <= line.items()), None)

    try:
        return wait_until(find)  # type: ignore[return-value]
    except TimeoutError as error:
        raise AssertionError(f"no {kind} with {fields} in\n{broker.log()}") from error


def address(connection: socket.socket) -> str:
    """Return the local address of a connection, which is the remote address for the broker."""
    host, port = connection.getsockname()[:2]
    return f"{host}:{port}"


def test_the_broker_logs_its_start_and_its_end(start: Start) -> None:
    """What it stands on when it begins, and how it ends; in the order in which that happened."""
    broker = start(shards=2)
    began = wait_for(broker, "driver")
    assert began["driver"] == broker.varz()["driver"]
    assert (began["shards"], began["level"]) == (2, "info")
    for listener in ("tcp", "http", "monitor"):
        host, port = getattr(broker, listener)
        wait_for(broker, "listening", listener=listener, address=f"{host}:{port}", level="info")
    broker.stop()
    said = lines(broker)
    assert [line["kind"] for line in said] == ["driver", *["listening"] * 3, "draining", "drained"]
    assert (said[-2]["reason"], said[-2]["connections"]) == ("SIGTERM", 0)
    times = [line["time"] for line in said]
    assert times == sorted(times)
    for text in times:
        # RFC 3339 in UTC, with milliseconds, and of now.
        parsed = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z")
        assert len(text) == len("2026-01-01T00:00:00.000Z")
        assert abs(datetime.now(parsed.tzinfo) - parsed) < timedelta(minutes=1)


def test_a_second_signal_is_logged(start: Start) -> None:
    broker = start(lame_duck_grace_s=100)
    with closing(Wire(broker)) as wire:
        wire.handshake()
        broker.process.terminate()
        wait_for(broker, "draining", reason="SIGTERM", connections=1)
        broker.process.terminate()
        broker.wait_status()
    wait_for(broker, "stopping", reason="SIGTERM")
    assert lines(broker)[-1]["kind"] == "stopped"


def test_a_connection_is_logged_from_beginning_to_end(start: Start, transport: str) -> None:
    broker = start(log_level="debug")
    with open_wire(broker, transport) as wire:
        info = wire.handshake(name="my name", lang="python", version="3.11", protocol=1)
        wire.send(b"SUB a 1\r\nPUB a 5\r\nhello\r\n")
        wire.expect(b"MSG a 1 5\r\nhello\r\n")
        who = {"cid": info["client_id"], "remote": address(wire.socket)}
    speaks = {"tcp": "tcp", "ws": "websocket"}[transport]
    wait_for(broker, "client_connected", **who, level="debug", transport={"ws": "http"}.get(transport, "tcp"))
    said = {"name": "my name", "lang": "python", "version": "3.11"}
    wait_for(broker, "client_identified", **who, **said, transport=speaks)
    closed = wait_for(broker, "client_closed", **who, transport=speaks, level="debug", reason="client_closed")
    traffic = {key: closed[key] for key in ("in_msgs", "in_bytes", "out_msgs", "out_bytes")}
    assert traffic == {"in_msgs": 1, "in_bytes": 5, "out_msgs": 1, "out_bytes": 5}
    assert closed["duration_s"] in (0, 1)
    assert closed["shard"] in (0, 1)


@pytest.mark.parametrize(
    ("options", "sent", "reason"),
    [
        ({}, b"NONSENSE\r\n", "protocol_error"),
        ({"max_payload": 10}, b"PUB a 11\r\n", "payload_too_large"),
        ({"max_control_line": 64}, b"PUB " + b"a" * 100, "control_line_too_long"),
        ({"max_connections": 1}, b"", "too_many_connections"),
        ({"ping_interval_s": 0.1, "ping_max": 1}, b"", "stale"),
    ],
)
def test_the_reason_for_closing_a_client_is_logged(
    start: Start, options: dict[str, Any], sent: bytes, reason: str
) -> None:
    """These are warnings, and there without asking; what is in good order is not."""
    broker = start(**options)
    with closing(Wire(broker)) as fine:
        fine.handshake()
        with closing(Wire(broker)) as wire:
            wire.send(b'CONNECT {"verbose": false}\r\n' + sent)
            remote = address(wire.socket)
            wire.read_to_end()
        closed = wait_for(broker, "client_closed", remote=remote, reason=reason, level="warning")
        assert closed["transport"] == "tcp"
        assert isinstance(closed["cid"], int)
    broker.wait_idle()
    with closing(Wire(broker)) as wire:
        remote = address(wire.socket)
    broker.stop()
    assert remote not in [line.get("remote") for line in lines(broker)]


def test_a_handshake_that_takes_too_long(start: Start) -> None:
    broker = start(handshake_timeout_s=0.1)
    with socket.create_connection(broker.http, 10) as silent:
        remote = address(silent)
        while silent.recv(1000):
            pass
    wait_for(broker, "client_closed", remote=remote, reason="handshake_timeout", level="warning")


def test_slow_receivers_and_stalled_publishers_are_logged(start: Start) -> None:
    """A publisher is stalled for the sake of a receiver, which is closed in the end."""
    broker = start(max_payload=100_000, max_pending=1_000_000, write_deadline_s=0.5, log_level="debug")
    flood = (b"PUB flood 10000\r\n" + bytes(10_000) + b"\r\n") * 50
    with closing(Wire(broker)) as slow, closing(Wire(broker)) as publisher:
        slow.handshake()
        slow.send(b"SUB flood 1\r\n")
        slow.ping()
        publisher.handshake()

        def is_closed() -> bool:
            publisher.send(flood)
            return bool(broker.varz()["slow_consumers"])

        wait_until(is_closed, what="slow consumer")
        remote = address(slow.socket)
        wait_for(broker, "client_closed", remote=remote, reason="slow_consumer", level="warning")
        wait_for(broker, "publisher_stalled", remote=address(publisher.socket), level="debug")


def test_refused_requests(start: Start) -> None:
    broker = start(log_level="debug")

    def refusal(server: tuple[str, int], method: str, path: str) -> Line:
        with closing(http.client.HTTPConnection(*server, timeout=10)) as connection:
            connection.connect()
            remote = address(connection.sock)
            connection.request(method, path)
            status = connection.getresponse().status
            return wait_for(broker, "request_refused", remote=remote, status=status, transport="http")

    assert refusal(broker.http, "GET", "/")["status"] == 426
    assert refusal(broker.http, "POST", "/v1/request/nobody")["reason"] == "no subscriber to nobody"
    assert refusal(broker.http, "POST", "/v1/publish/%0A")["status"] == 400
    assert refusal(broker.monitor, "GET", "/nothing")["status"] == 404


def test_a_lack_of_descriptors_is_logged(start_broker: Start) -> None:
    """With io_uring connections hold no descriptors."""
    broker = start_broker(driver="epoll", shards=1, log_format="json")
    pid = broker.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with closing(Wire(broker)) as early:
        early.handshake()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        with closing(Wire(broker)) as late:
            assert wait_for(broker, "accept_failed", level="warning")["failures"] >= 1
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            late.handshake()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_secrets_and_payloads_are_never_logged(start: Start, log_format: str, transport: str) -> None:
    broker = start(log_level="debug", log_format=log_format)
    secret = "xyzzy"  # in every place that may hold one
    credentials = dict.fromkeys(("user", "pass", "auth_token", "jwt", "nkey", "sig"), secret)
    with open_wire(broker, transport) as wire:
        wire.handshake(name="known", headers=True, **credentials)
        wire.send(b"HPUB a 26 31\r\nNATS/1.0\r\nToken: xyzzy\r\n\r\nxyzzy\r\n")
        wire.ping()
    for broken in (
        b'CONNECT {"pass": "xyzzy", "verbose": "xyzzy"}\r\n',
        b'CONNECT {"auth_token": "xyzzy\r\n',
        b"xyzzy xyzzy\r\n",
        b"PUB a xyzzy\r\n",
    ):
        with open_wire(broker, transport) as wire:
            wire.send(broken)
            wire.read_to_end()
    with closing(http.client.HTTPConnection(*broker.http, timeout=10)) as connection:
        headers = {"Authorization": f"Bearer {secret}", "Cookie": secret, "X-Token": secret}
        connection.request("POST", "/v1/request/a", secret, headers)
        assert connection.getresponse().status == 503
    broker.stop()
    log = broker.log()
    assert secret not in log
    assert log.count("in_msgs") == 6, "each connection's end"
    assert "known" in log
    assert "request_refused" in log


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_clients_cannot_forge_log_lines(start: Start, log_format: str) -> None:
    name = 'a" level=error\r\n{"kind": "forged"}\ntime=now kind=forged \\\x1b[2J\x9b\u2028\u202e'
    broker = start(log_level="debug", log_format=log_format)
    with closing(Wire(broker)) as wire:
        wire.handshake(name=name, lang="\n\n", version='"')
    broker.stop()
    log = broker.log()
    said = log.split("\n")
    assert len(said) == len(["driver", *["listening"] * 3, "connected", "identified", "closed", "draining",
                             "drained", ""])  # fmt: skip
    assert not [character for character in "\r\x1b\x9b\u2028\u202e" if character in log]
    if log_format == "json":
        assert [line["name"] for line in lines(broker) if "name" in line] == [name]
    else:
        assert not [
            line for line in said if line.startswith("time=now") or "kind=forged" in line.split('"')[0]
        ]
        assert '\\" level=error\\r\\n{\\"kind\\": \\"forged\\"}\\ntime=now kind=forged \\\\\\u001b' in log


def metrics(broker: Broker) -> list[str]:
    """The lines of /metrics."""
    with closing(http.client.HTTPConnection(*broker.monitor, timeout=10)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode().splitlines()


def test_many_similar_events_are_logged_as_a_sum(start: Start) -> None:
    """A burst of each kind is written one by one, the rest is counted; nothing is left out of the sums."""
    broker = start(log_level="debug", shards=1)
    herd = 200
    for _ in range(herd):
        with closing(Wire(broker)) as wire:
            wire.handshake()
    broker.wait_idle()
    counted = broker.varz()["log"]
    exposed = metrics(broker)
    broker.stop()
    said = lines(broker)
    assert counted["lost"] == 0
    assert set(counted["suppressed"]) == KINDS_WITH_A_RATE
    for kind in ("client_connected", "client_identified", "client_closed"):
        written = sum(line["kind"] == kind for line in said)
        summed = [line["suppressed"] for line in said if line.get("of") == kind]
        assert BURST <= written < herd
        assert written + sum(summed) == herd
        assert counted["suppressed"][kind] == herd - written
        assert 1 <= len(summed) < 20
        assert f'subjectbus_log_suppressed_total{{kind="{kind}"}} {herd - written}' in exposed
    assert "subjectbus_log_lost_total 0" in exposed


@contextmanager
def unread_log(directory: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """A pipe as small as can be in place of standard error: the prefix of the command, the reading end."""
    path = directory / "log.fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield ("sh", "-c", f'exec "$0" "$@" 2>"{path}"'), reader
    finally:
        os.close(reader)


def read_some(reader: int) -> bytes:
    """Return the content of the pipe, at most 64 KiB."""
    try:
        return os.read(reader, 1 << 16)
    except BlockingIOError:
        return b""


def fill(broker: Broker, reader: int) -> None:
    """Cause thousands of events, until pipe and queue are full and lines are lost."""
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)

    def loses_lines() -> bool:
        for end in (b"NONSENSE\r\n", b"-ERR\r\n", b"PUB a 1000000000\r\n"):
            for _ in range(100):
                with closing(Wire(broker)) as wire:
                    wire.send(b"CONNECT {}\r\n" + end)
                    wire.read_to_end()
        return bool(broker.varz()["log"]["lost"])

    wait_until(loses_lines, 60, "lost lines")


def test_an_unread_log_does_not_block_clients(start: Start, tmp_path: Path) -> None:
    """The broker answers as ever; what was lost meanwhile is said as soon as somebody reads."""
    with unread_log(tmp_path) as (prefix, reader):
        # The more shards, the more lines are within their rate.
        broker = start(prefix=prefix, shards=8, log_level="debug")
        with closing(Wire(broker)) as wire:
            wire.handshake()
            fill(broker, reader)
            # Nobody reads meanwhile: who waited for that would wait for ever.
            for _ in range(100):
                wire.ping()
        broker.wait_idle()
        lost = broker.varz()["log"]["lost"]
        log = bytearray()

        def is_said() -> bool:
            log.extend(read_some(reader))
            said = [json.loads(line) for line in log.split(b"\n")[:-1]]
            return sum(line.get("lost", 0) for line in said) == lost

        assert lost > 0
        wait_until(is_said, 20, f"lost={lost}")
        broker.stop()


def test_an_unread_log_does_not_delay_the_end(start: Start, tmp_path: Path) -> None:
    with unread_log(tmp_path) as (prefix, reader):
        broker = start(prefix=prefix, shards=8, log_level="debug")
        fill(broker, reader)
        # Nobody reads meanwhile: who waited for that would wait for ever.
        broker.stop()


def test_the_broker_survives_the_end_of_its_logs_reader(start: Start, tmp_path: Path) -> None:
    with unread_log(tmp_path) as (prefix, reader):
        broker = start(prefix=prefix, log_level="debug")
        wait_until(lambda: read_some(reader), what="the first line")
    with closing(Wire(broker)) as wire:
        wire.handshake()
        wait_until(lambda: broker.varz()["log"]["lost"] >= 2, what="lost lines")
        wire.ping()
    broker.stop()


def test_a_monitor_that_other_machines_can_reach_is_warned_about(start_broker: Start) -> None:
    """In a network of its own, so that nobody does reach it."""
    isolated = ("unshare", "--map-root-user", "--net")
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"], check=False).returncode:
        pytest.skip("no network namespace to be had")
    everywhere = "0.0.0.0:0"
    broker = start_broker(
        prefix=isolated, tcp=everywhere, http=everywhere, monitor=everywhere, log_format="json"
    )
    warned = wait_for(broker, "listening", listener="monitor", level="warning")
    assert "no authentication" in warned["detail"]
    wait_for(broker, "listening", listener="http", level="info")


EMBEDDED = """
import socket, sys
from subjectbus import BrokerConfig, Server
options = {"log_level": sys.argv[1]} if sys.argv[1:] else {}
with Server(BrokerConfig(tcp="127.0.0.1:0", http="", monitor="", **options)) as server:
    host, port = server.addresses()["tcp"].split(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(b"NONSENSE\\r\\n")
        while client.recv(1000):
            pass
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("level", "kinds"),
    [
        ([], ["client_closed"]),
        (["error"], []),
        (["info"], ["driver", "listening", "client_closed", "draining", "drained"]),
    ],
)
def test_a_broker_inside_a_program_is_quiet(level: list[str], kinds: list[str]) -> None:
    """Warnings alone, on standard error, unless it is told otherwise."""
    command = [sys.executable, "-P", "-c", EMBEDDED, *level]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == ""
    said = [line.split(" kind=")[1].split()[0] for line in ended.stderr.splitlines()]
    # The client may have read the end of its connection before the broker has seen it.
    assert sorted(said) == sorted(kinds)
