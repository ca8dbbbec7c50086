"""The opening handshake: RFC 6455 section 4.2, and the HTTP around it."""

from __future__ import annotations

import base64
import hashlib
import socket
from typing import TYPE_CHECKING

import pytest

from tests.wire import frame, upgrade_request

if TYPE_CHECKING:
    from tests.servers import Broker, Server

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
Headers = dict[str, str | None]
Response = tuple[int, dict[str, str]]


def exchange(server: Server, request: bytes) -> Response:
    """Send a request; return the status and the header fields, names in lower case."""
    with socket.create_connection(server.http, 10) as connection:
        connection.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            data = connection.recv(1 << 16)
            assert data, f"closed after {received!r}"
            received += data
        lines = received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        fields = (line.split(":", 1) for line in lines[1:])
        response = int(lines[0].split()[1]), {n.lower(): v.strip() for n, v in fields}
        if response[0] != 101 and server.ours:
            expect_closed(connection)
        return response


def expect_closed(connection: socket.socket) -> None:
    """A refused handshake ends the connection."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass


def header(name: str, value: str | None) -> Headers:
    return {name: value}


def test_accept(server: Server) -> None:
    """The example of RFC 6455 section 1.3; `Connection` is exactly what nats.go compares with."""
    status, fields = exchange(server, upgrade_request(server, headers=header("Sec-WebSocket-Key", KEY)))
    assert status == 101
    digest = hashlib.sha1((KEY + GUID).encode()).digest()
    assert fields["sec-websocket-accept"] == base64.b64encode(digest).decode()
    assert fields["connection"] == "Upgrade"
    assert fields["upgrade"].lower() == "websocket"


@pytest.mark.parametrize("path", ["/", "/any/path", "/?query=1", "/a%20b?x&y"])
def test_any_path(server: Server, path: str) -> None:
    assert exchange(server, upgrade_request(server, path))[0] == 101


@pytest.mark.parametrize("value", ["upgrade", "keep-alive, Upgrade", "Upgrade,keep-alive", "UPGRADE"])
def test_connection_is_a_list_without_case(server: Server, value: str) -> None:
    assert exchange(server, upgrade_request(server, headers=header("Connection", value)))[0] == 101


def test_upgrade_without_case(server: Server) -> None:
    assert exchange(server, upgrade_request(server, headers=header("Upgrade", "WebSocket")))[0] == 101


def test_extensions_and_protocols_are_not_accepted(server: Server) -> None:
    """Offers that the server does not take are declined by silence."""
    offers: Headers = {
        "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
        "Sec-WebSocket-Protocol": "nats, chat",
    }
    status, fields = exchange(server, upgrade_request(server, headers=offers))
    assert status == 101
    assert "sec-websocket-extensions" not in fields
    assert "sec-websocket-protocol" not in fields


def test_request_byte_by_byte(server: Server) -> None:
    with socket.create_connection(server.http, 10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in upgrade_request(server):
            connection.sendall(bytes([byte]))
        assert connection.recv(100).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Sec-WebSocket-Version", "12", 426),
        ("Sec-WebSocket-Version", "0", 426),
        ("Sec-WebSocket-Version", None, 426),
        ("Upgrade", None, 426),
        ("Upgrade", "h2c", 426),
        ("Connection", None, 400),
        ("Connection", "keep-alive", 400),
        ("Sec-WebSocket-Key", None, 400),
        ("Sec-WebSocket-Key", "", 400),
        ("Sec-WebSocket-Key", "c2hvcnQ=", 400),
        ("Sec-WebSocket-Key", "not base64 at all !!!!!!", 400),
        ("Host", None, 400),
    ],
)
def test_refused(broker: Broker, name: str, value: str | None, status: int) -> None:
    """Each refusal has its status and names the version that would do."""
    refusal, fields = exchange(broker, upgrade_request(broker, headers=header(name, value)))
    assert refusal == status
    assert fields["sec-websocket-version"] == "13"


def test_http_1_0(broker: Broker) -> None:
    request = upgrade_request(broker).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert exchange(broker, request)[0] == 505


def test_other_methods(broker: Broker) -> None:
    status, fields = exchange(broker, upgrade_request(broker).replace(b"GET", b"PUT", 1))
    assert status == 405
    assert "GET" in fields["allow"]


def test_duplicate_key(broker: Broker) -> None:
    extra = f"Sec-WebSocket-Key: {KEY}\r\n\r\n".encode()
    assert exchange(broker, upgrade_request(broker)[:-2] + extra)[0] == 400


def test_a_plain_request_gets_426(broker: Broker) -> None:
    status, fields = exchange(broker, b"GET /no-such-page HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status, fields["upgrade"]) == (426, "websocket")


def test_oversized_head(broker: Broker) -> None:
    status, _ = exchange(broker, upgrade_request(broker, headers=header("X", "y" * 20_000)))
    assert status == 431


def test_a_head_that_never_ends_is_refused(broker: Broker) -> None:
    """The limit bites while the head still grows."""
    request = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000
    assert exchange(broker, request)[0] == 431


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / FTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    ],
)
def test_malformed_head(broker: Broker, request_bytes: bytes) -> None:
    assert exchange(broker, request_bytes)[0] == 400


def test_bytes_before_the_answer_do_no_harm(broker: Broker) -> None:
    """A client must wait for the 101; one that does not may be refused, not believed half."""
    with socket.create_connection(broker.http, 10) as connection:
        connection.sendall(upgrade_request(broker) + frame(0x2, b"PING\r\n"))
        first = connection.recv(100)
        assert first.startswith((b"HTTP/1.1 101 ", b"HTTP/1.1 400 "))
