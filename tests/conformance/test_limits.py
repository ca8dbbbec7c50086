"""Limits a server is configured with: at the limit all is well, one beyond it the error is exact."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from tests.servers import Broker, Server, wait_until
from tests.wire import WebSocketWire, Wire, open_wire

Start = Callable[..., Server]


def expect_fatal(server: Server, wire: Wire, text: str, code: int) -> None:
    """Check the error line, the end and, for our WebSockets, the close code."""
    wire.expect_end(f"-ERR '{text}'\r\n".encode())
    if server.ours and isinstance(wire, WebSocketWire):
        assert wire.close_code == code


def test_max_payload(start_server: Start, transport: str) -> None:
    server = start_server(max_payload=100)
    with open_wire(server, transport) as wire:
        assert wire.handshake(headers=True)["max_payload"] == 100
        wire.send(b"SUB a 1\r\nPUB a 100\r\n" + b"x" * 100 + b"\r\n")
        wire.expect(b"MSG a 1 100\r\n" + b"x" * 100 + b"\r\n")
        wire.send(b"HPUB a 12 100\r\nNATS/1.0\r\n\r\n" + b"x" * 88 + b"\r\n")
        wire.expect(b"HMSG a 1 12 100\r\nNATS/1.0\r\n\r\n" + b"x" * 88 + b"\r\n")
        wire.send(b"PUB a 101\r\n")
        expect_fatal(server, wire, "Maximum Payload Violation", 1009)
    with open_wire(server, transport) as wire:
        wire.handshake(headers=True)
        wire.send(b"HPUB a 12 101\r\n")
        expect_fatal(server, wire, "Maximum Payload Violation", 1009)


def test_max_control_line(start_server: Start, transport: str) -> None:
    server = start_server(max_control_line=100)
    with open_wire(server, transport) as wire:
        wire.read_info()
        wire.send(b'CONNECT {"verbose":false}\r\n')
        subject = b"s" * 90
        wire.send(b"SUB " + subject + b" 1\r\nPUB " + subject + b" 0\r\n\r\n")
        wire.expect(b"MSG " + subject + b" 1 0\r\n\r\n")
        wire.send(b"SUB " + b"s" * 200 + b" 2\r\n")
        expect_fatal(server, wire, "maximum control line exceeded", 1008)
    with open_wire(server, transport) as wire:
        wire.read_info()
        # The line never ends, so the limit must bite while it still grows.
        wire.send(b"PUB ")
        wire.send(b"s" * 200)
        expect_fatal(server, wire, "maximum control line exceeded", 1008)


def test_max_subscriptions(start_server: Start, transport: str) -> None:
    """The subscription beyond the limit is refused, alone; another has to go for it."""
    server = start_server(max_subscriptions=3)
    with open_wire(server, transport) as wire, open_wire(server, transport) as other:
        wire.handshake()
        wire.send(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        wire.ping()
        wire.send(b"SUB d 4\r\nPUB d 0\r\n\r\nPING\r\n")
        wire.expect(b"-ERR 'maximum subscriptions exceeded'\r\nPONG\r\n")
        wire.send(b"UNSUB 1\r\nSUB d 4\r\nPUB d 0\r\n\r\n")
        wire.expect(b"MSG d 4 0\r\n\r\n")
        other.handshake()
        other.send(b"SUB x 1\r\n")
        other.ping()


def test_max_connections(start_server: Start, transport: str) -> None:
    """The connection beyond the limit is told why; it is welcome once another has left."""
    server = start_server(max_connections=2)
    with ExitStack() as stack:
        first, second = (stack.enter_context(open_wire(server, transport)) for _ in range(2))
        first.handshake()
        second.handshake()
        with open_wire(server, transport) as third:
            line = third.read_line()
            if line.startswith(b"INFO "):
                line = third.read_line()
            assert line == b"-ERR 'maximum connections exceeded'\r\n"
            third.expect_end()
            if server.ours and isinstance(third, WebSocketWire):
                assert third.close_code == 1008
        first.ping()
        first.close()
        wait_until(lambda: server.varz()["connections"] == 1)
        with open_wire(server, transport) as third:
            third.handshake()
            third.ping()


def test_stale_connection(start_server: Start, transport: str) -> None:
    """Two PINGs without an answer, then the error."""
    server = start_server(ping_interval_s=1, ping_max=2)
    with open_wire(server, transport) as silent:
        silent.handshake()
        received = silent.read_to_end()
        assert received == b"PING\r\n" * 2 + b"-ERR 'Stale Connection'\r\n"
        if server.ours and isinstance(silent, WebSocketWire):
            assert silent.close_code == 1001


def test_answering_keeps_a_connection(start_broker: Callable[..., Broker], transport: str) -> None:
    """PONG for each PING, and the connection outlives any number of intervals."""
    server = start_broker(ping_interval_s=0.1, ping_max=1)
    with open_wire(server, transport) as wire:
        wire.handshake()
        for _ in range(8):
            wire.expect(b"PING\r\n")
            wire.send(b"PONG\r\n")
        wire.ping()


def test_slow_consumer(start_broker: Callable[..., Broker], transport: str) -> None:
    """Who subscribes and never reads is cut off; the others lose nothing and are not delayed."""
    server = start_broker(shards=2, max_payload=100_000, max_pending=1_000_000, write_deadline_s=2)
    payload = b"x" * 10_000
    message = b"MSG flood 1 10000\r\n" + payload + b"\r\n"
    with ExitStack() as stack:
        idle, reader, publisher = (stack.enter_context(open_wire(server, transport)) for _ in range(3))
        for wire in (idle, reader, publisher):
            wire.handshake()
        for wire in (idle, reader):
            wire.send(b"SUB flood 1\r\n")
            wire.ping()
        slowest = 0.0
        for _ in range(2000):
            before = time.monotonic()
            publisher.send(b"PUB flood 10000\r\n" + payload + b"\r\n")
            reader.expect(message)
            slowest = max(slowest, time.monotonic() - before)
        assert slowest < 1.0
        wait_until(lambda: server.varz()["slow_consumers"] == 1)
        assert server.varz()["connections"] == 2
        publisher.ping()
        reader.ping()
        # What was on its way may still be read, but no error text and no message cut short.
        received = idle.read_to_end()
        assert b"-ERR" not in received
        assert idle.close_code in (None, 1008)
        conservation = server.conservation()
        assert conservation["holds"], conservation
        assert conservation["published"] == 2000
        assert 2000 < conservation["matched"] <= 4000
        assert conservation["dropped"]["slow_consumer"] > 0


def test_slow_handshake(start_broker: Callable[..., Broker]) -> None:
    """A WebSocket handshake that does not end in time is cut, whatever trickles in."""
    server = start_broker(handshake_timeout_s=0.3)
    started = time.monotonic()
    with (
        socket.create_connection(server.http, 10) as silent,
        socket.create_connection(server.http, 10) as trickling,
    ):
        trickling.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        trickle_until_closed(trickling)
        assert 0.2 < time.monotonic() - started < 5
        while silent.recv(1000):
            pass
    wait_until(lambda: server.varz()["connections"] == 0)


def trickle_until_closed(connection: socket.socket) -> None:
    """Send a header field every 50 ms until the server has had enough."""
    try:
        while True:
            connection.sendall(b"X-Y: z\r\n")
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable and not connection.recv(1000):
                return
    except ConnectionError:
        return
