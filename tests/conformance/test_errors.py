"""Errors that a client can cause: the exact text, and whether the connection is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.wire import WebSocketWire, Wire, connect_line, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Server

UNKNOWN = "Unknown Protocol Operation"
HEADERS = {"headers": True}

#: name: (fields of CONNECT, bytes, text of -ERR or None for a silent close, WebSocket close code)
FATAL: dict[str, tuple[dict[str, Any], bytes, str | None, int]] = {
    "unknown operation": ({}, b"FOO bar\r\n", UNKNOWN, 1002),
    "unknown operation that starts like one": ({}, b"PUBLISH a 0\r\n\r\n", UNKNOWN, 1002),
    "empty line": ({}, b"\r\n", UNKNOWN, 1002),
    "leading blank": ({}, b" PING\r\n", UNKNOWN, 1002),
    "zero byte": ({}, b"\0", UNKNOWN, 1002),
    "http request": ({}, b"GET / HTTP/1.1\r\n\r\n", UNKNOWN, 1002),
    "a server's MSG": ({}, b"MSG a 1 2\r\nhi\r\n", UNKNOWN, 1002),
    "a route's RMSG": ({}, b"RMSG $G a 2\r\nhi\r\n", UNKNOWN, 1002),
    "a leaf node's LMSG": ({}, b"LMSG a 2\r\nhi\r\n", UNKNOWN, 1002),
    "a route's A+": ({}, b"A+ $G\r\n", UNKNOWN, 1002),
    "a route's RS+": ({}, b"RS+ $G a\r\n", UNKNOWN, 1002),
    "payload longer than its size": ({}, b"PUB a 2\r\nhello\r\n", UNKNOWN, 1002),
    "payload ended by a bare line feed": ({}, b"PUB a 2\r\nhi\nPING\r\n", UNKNOWN, 1002),
    "payload ended by CR and no LF": ({}, b"PUB a 2\r\nhi\rPING\r\n", UNKNOWN, 1002),
    "PUB without size": ({}, b"PUB a\r\n", None, 1002),
    "PUB with four arguments": ({}, b"PUB a b c 2\r\nhi\r\n", None, 1002),
    "size with a letter": ({}, b"PUB a 2x\r\nhi\r\n", None, 1002),
    "negative size": ({}, b"PUB a -1\r\n", None, 1002),
    "size with a plus sign": ({}, b"PUB a +2\r\nhi\r\n", None, 1002),
    "size beyond 64 bits": ({}, b"PUB a 99999999999999999999999\r\n", None, 1002),
    "SUB without sid": ({}, b"SUB a\r\n", None, 1002),
    "SUB with four arguments": ({}, b"SUB a q 1 2\r\n", None, 1002),
    "UNSUB with three arguments": ({}, b"UNSUB 1 2 3\r\n", None, 1002),
    "HPUB without negotiated headers": ({}, b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", None, 1002),
    "HPUB without total size": (HEADERS, b"HPUB a 12\r\n", None, 1002),
    "headers longer than the total": (HEADERS, b"HPUB a 15 14\r\n", None, 1002),
    "HPUB with a bad header size": (HEADERS, b"HPUB a x 14\r\n", None, 1002),
    "payload above the maximum": ({}, b"PUB a 1048577\r\n", "Maximum Payload Violation", 1009),
    "headers and payload above the maximum": (
        HEADERS,
        b"HPUB a 12 1048577\r\n",
        "Maximum Payload Violation",
        1009,
    ),
    "control line above the maximum": (
        {},
        b"PUB " + b"a" * 5000 + b" 2\r\nhi\r\n",
        "maximum control line exceeded",
        1008,
    ),
    "control line without an end": ({}, b"SUB " + b"a" * 5000, "maximum control line exceeded", 1008),
}


def error_line(text: str | None) -> bytes:
    return b"" if text is None else f"-ERR '{text}'\r\n".encode()


def expect_fatal(server: Server, wire: Wire, text: str | None, code: int) -> None:
    """Check that the error line comes, then the close frame, then the end.

    nats-server drops a WebSocket at a parse error, often before it wrote the line.
    """
    received = wire.read_to_end()
    if not isinstance(wire, WebSocketWire):
        assert received == error_line(text)
    elif server.ours:
        assert (received, wire.close_code) == (error_line(text), code)
    else:
        assert received in (b"", error_line(text))
        assert wire.close_code in (None, code)


@pytest.mark.parametrize("name", FATAL)
def test_fatal(server: Server, connect: Callable[..., Wire], name: str) -> None:
    """The text, then the end, and nothing of what follows is handled."""
    fields, sent, text, code = FATAL[name]
    wire = connect(**fields)
    wire.send(sent)
    expect_fatal(server, wire, text, code)


@pytest.mark.parametrize("name", FATAL)
def test_operations_before_a_fatal_error_take_effect(
    server: Server, connect: Callable[..., Wire], name: str
) -> None:
    """Operations before the bad one take effect, in one slice with it; others do not notice."""
    fields, sent, text, code = FATAL[name]
    witness, wire = connect(), connect(**fields)
    witness.send(b"SUB before 1\r\nSUB after 2\r\n")
    witness.ping()
    wire.send(b"PUB before 2\r\nhi\r\n" + sent + b"PUB after 0\r\n\r\n")
    expect_fatal(server, wire, text, code)
    witness.expect(b"MSG before 1 2\r\nhi\r\n")
    witness.ping()


@pytest.mark.parametrize(
    ("fields", "text", "code"),
    [
        ({"protocol": 2}, "invalid client protocol", 1002),
        ({"protocol": -1}, "invalid client protocol", 1002),
        (
            {"headers": False, "no_responders": True},
            "no responders requires headers support",
            1011,
        ),
    ],
)
def test_refused_connect(
    server: Server, transport: str, fields: dict[str, object], text: str, code: int
) -> None:
    with open_wire(server, transport) as wire:
        wire.read_info()
        wire.send(connect_line(**fields))
        expect_fatal(server, wire, text, code)


@pytest.mark.parametrize("json", [b"{", b"", b"[]", b'"x"', b'{"verbose":1}', b'{"verbose":true}}', b"\xff"])
def test_connect_with_bad_json(server: Server, transport: str, json: bytes) -> None:
    """The connection closes without -ERR."""
    with open_wire(server, transport) as wire:
        wire.read_info()
        wire.send(b"CONNECT " + json + b"\r\n")
        wire.expect_end()


def test_an_error_from_the_client_closes(connect: Callable[..., Wire]) -> None:
    wire = connect()
    wire.send(b"-ERR 'whatever'\r\n")
    wire.expect_end()


BAD_SUBJECTS = [b".", b".a", b"a.", b"a..b", b">.a", b"a.>.b", b"*..a"]


@pytest.mark.parametrize("subject", BAD_SUBJECTS)
def test_invalid_subject(connect: Callable[..., Wire], subject: bytes) -> None:
    """A bad subject refuses the subscription, not the connection, and leaves the SID free."""
    wire = connect()
    wire.send(b"SUB " + subject + b" 1\r\nPING\r\n")
    wire.expect(b"-ERR 'Invalid Subject'\r\nPONG\r\n")
    wire.send(b"SUB good 1\r\nPUB good 0\r\n\r\n")
    wire.expect(b"MSG good 1 0\r\n\r\n")


@pytest.mark.parametrize("subject", [b"a.*", b"a.>", b"*", b"a..b", b".a", b"a."])
def test_invalid_publish_subject(connect: Callable[..., Wire], subject: bytes) -> None:
    """Only a pedantic connection is told, and it stays."""
    wire = connect(pedantic=True)
    wire.send(b"PUB " + subject + b" 0\r\n\r\nPING\r\n")
    wire.expect(b"-ERR 'Invalid Publish Subject'\r\nPONG\r\n")
    wire = connect(pedantic=False)
    wire.send(b"PUB " + subject + b" 0\r\n\r\nPING\r\n")
    wire.expect(b"PONG\r\n")
