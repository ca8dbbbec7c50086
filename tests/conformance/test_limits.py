"""Configured limits: at the limit there is no error, one above it the exact error."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

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


def test_max_subject_tokens(start_server: Start, transport: str) -> None:
    """A pattern of too many tokens is refused, alone, in words that clients know."""
    server = start_server(max_subject_tokens=4)
    with open_wire(server, transport) as wire:
        wire.handshake()
        wire.send(b"SUB a.*.c.> 1\r\nSUB a.*.c.d.> 2\r\nPUB a.b.c.d.e 0\r\n\r\n")
        violation = wire.read_line()
        start = b'-ERR \'Permissions Violation for Subscription to "a.*.c.d.>", too many tokens'
        assert violation.startswith(start), violation
        wire.expect(b"MSG a.b.c.d.e 1 0\r\n\r\n")
        wire.ping()


@pytest.mark.parametrize(
    ("option", "allowed", "refused", "why"),
    [
        ({"max_subject_tokens": 4}, b"a.b.c.d.e.f 1", b"*.b.c.d.e 2", "too many tokens"),
        ({"max_subject_wildcards": 2}, b"a.*.c.> 1", b"*.*.> 2", "too many wildcards"),
        ({"max_subject_length": 64}, b"s" * 64 + b" 1", b"s" * 65 + b" 2", "too long a subject"),
        ({"max_sid_length": 8}, b"a 12345678", b"a 123456789", "too long a SID"),
        ({"max_control_line": 9000}, b"a q 1", b"s" * 8000 + b" 2", "too long a subject"),
    ],
)
def test_limits_of_subscriptions(
    start_broker: Callable[..., Broker],
    transport: str,
    option: dict[str, int],
    allowed: bytes,
    refused: bytes,
    why: str,
) -> None:
    """The error names limit and option, the connection goes on, and PUB has no such limit."""
    server = start_broker(**option)
    with open_wire(server, transport) as wire:
        wire.handshake()
        wire.send(b"SUB " + allowed + b"\r\n")
        wire.ping()
        wire.send(b"SUB " + refused + b"\r\nPING\r\n")
        violation = wire.read_line().decode()
        assert violation.startswith("-ERR 'Permissions Violation for Subscription to \""), violation
        assert why in violation, violation
        assert next(key for key in (*option, "max_subject_length") if key in violation)
        assert len(violation) < 500, violation
        wire.expect(b"PONG\r\n")
        subject, sid = allowed.split()[0].replace(b"*", b"x").replace(b">", b"y.z"), allowed.split()[-1]
        wire.send(b"PUB " + subject + b" 0\r\n\r\n")
        wire.expect(b"MSG " + subject + b" " + sid + b" 0\r\n\r\n")
        deep = b".".join([b"t"] * 500)
        wire.send(b"PUB " + deep + b" 0\r\n\r\nSUB ok 3\r\nPUB ok 0\r\n\r\n")
        wire.expect(b"MSG ok 3 0\r\n\r\n")
    wait_until(lambda: server.varz()["subscriptions"] == 0)


def test_default_limits_do_not_affect_usual_clients(start_broker: Callable[..., Broker]) -> None:
    """What NATS clients, JetStream, key-value and object stores subscribe to is within the defaults."""
    server = start_broker()
    patterns = [
        b">",
        b"_INBOX.7LrzVHHW9oXI9kTpaZVgTb.*",
        b"_INBOX.7LrzVHHW9oXI9kTpaZVgTb.7LrzVHHW9oXI9kTpaZVh2W",
        b"$JS.EVENT.ADVISORY.CONSUMER.*.*.*",
        b"$JS.ACK.*.*.*.*.>",
        b"$JS.API.CONSUMER.MSG.NEXT.*.*",
        b"$SYS.ACCOUNT.*.SERVER.CONNZ",
        b"$SRV.PING.service.7LrzVHHW9oXI9kTpaZVgTb",
        b"$KV.bucket.a.b.c.d.e.f.g.h.i.j.k.>",
        b"$O.bucket.M.*",
        b".".join([b"deep"] * 100),
        b"s" * 1024,
    ]
    with open_wire(server, "tcp") as wire:
        wire.handshake()
        for number, pattern in enumerate(patterns):
            wire.send(b"SUB " + pattern + b" %d\r\n" % number)
        wire.send(b"SUB sid %s\r\n" % (b"9" * 64))
        wire.ping()
        assert server.varz()["subscriptions"] == len(patterns) + 1


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


def test_answering_pings_keeps_a_connection(start_broker: Callable[..., Broker], transport: str) -> None:
    """PONG for each PING, and the connection outlives any number of intervals."""
    server = start_broker(ping_interval_s=1, ping_max=1)
    with open_wire(server, transport) as wire:
        wire.handshake()
        for _ in range(3):
            wire.expect(b"PING\r\n")
            wire.send(b"PONG\r\n")
        wire.send(b"PING\r\n")
        while (line := wire.read_line()) == b"PING\r\n":
            wire.send(b"PONG\r\n")
        assert line == b"PONG\r\n"


def test_slow_consumer(start_broker: Callable[..., Broker], transport: str) -> None:
    """Who subscribes and never reads is cut off; the others lose nothing.

    That they are not delayed, either, is shown by rust_core/crates/simulation/tests/timeouts.rs.
    """
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
        for _ in range(2000):
            publisher.send(b"PUB flood 10000\r\n" + payload + b"\r\n")
            reader.expect(message)
        wait_until(lambda: server.varz()["slow_consumers"] == 1)
        assert server.varz()["connections"] == 2
        publisher.ping()
        reader.ping()
        # What was on its way may still be read, but no error text and no message cut short.
        received = idle.read_to_end()
        assert b"-ERR" not in received
        assert idle.close_code in (None, 1008)
        conservation = server.wait_settled()
        assert conservation["published"] == 2000
        assert 2000 < conservation["matched"] <= 4000
        assert conservation["dropped"]["slow_consumer"] > 0


def test_slow_handshake(start_broker: Callable[..., Broker]) -> None:
    """A WebSocket handshake that does not end in time is cut, whatever trickles in."""
    server = start_broker(handshake_timeout_s=0.3)
    with (
        socket.create_connection(server.http, 10) as silent,
        socket.create_connection(server.http, 10) as trickling,
    ):
        trickling.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        trickle_until_closed(trickling)
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
