"""HTTP/1.1 as the clients' listener speaks it: RFC 9110 and 9112, and what must not be misread."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING, NamedTuple, Self

import pytest

from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Address, Broker

BYTE = b"GET /byte HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    fields: dict[str, str]
    body: bytes


class Caller:
    """A raw HTTP connection: exact bytes out, whole answers in."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_divided(self, data: bytes) -> None:
        for start in range(len(data)):
            self.send(data[start : start + 1])

    def fill(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, f"closed after {self.received!r}"
        self.received += data

    def answer(self, *, head_only: bool = False) -> Answer:
        while b"\r\n\r\n" not in self.received:
            self.fill()
        head, _, rest = self.received.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1"
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        self.received = rest
        length = 0 if head_only or status in {"100", "204"} else int(fields["content-length"])
        while len(self.received) < length:
            self.fill()
        body, self.received = self.received[:length], self.received[length:]
        return Answer(int(status), fields, body)

    def expect_end(self) -> None:
        assert self.received == b""
        with contextlib.suppress(ConnectionResetError):
            assert self.socket.recv(1) == b""


@pytest.fixture
def call(broker: Broker) -> Callable[[], Caller]:
    return lambda: Caller(broker.http)


def test_the_page_of_one_byte(broker: Broker) -> None:
    with Caller(broker.http) as caller:
        for _ in range(3):
            caller.send(BYTE)
            answer = caller.answer()
            assert (answer.status, answer.body) == (200, b"a")
            assert answer.fields["content-type"] == "text/plain"
            assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.fields["date"])


def test_divided_and_pipelined_requests_are_answered(broker: Broker) -> None:
    with Caller(broker.http) as caller:
        caller.send_divided(BYTE)
        assert caller.answer().body == b"a"
        caller.send(BYTE * 1000)
        for _ in range(1000):
            assert caller.answer().body == b"a"
        caller.send(BYTE + b"HEAD /byte HTTP/1.1\r\nHost: localhost\r\n\r\n" + BYTE)
        assert caller.answer().body == b"a"
        head = caller.answer(head_only=True)
        assert (head.status, head.fields["content-length"]) == (200, "1")
        assert caller.answer().body == b"a"


def test_answers_of_one_turn_leave_in_one_write(broker: Broker) -> None:
    before = broker.varz()["writes"]
    with Caller(broker.http) as caller:
        caller.send(BYTE * 50)
        for _ in range(50):
            caller.answer()
    assert broker.varz()["writes"] - before < 10


def test_head_is_get_without_its_body(broker: Broker) -> None:
    for path in ("/byte", "/openapi.json", "/v1/subscribe/a"):
        connection = HTTPConnection(*broker.http, timeout=10)
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        connection.close()


@pytest.mark.parametrize(
    ("request_bytes", "is_kept"),
    [
        (b"GET /byte HTTP/1.1\r\nHost: localhost\r\n\r\n", True),
        (b"GET /byte HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", False),
        (b"GET /byte HTTP/1.0\r\n\r\n", False),
        (b"GET /v1/none HTTP/1.1\r\nHost: localhost\r\n\r\n", True),
        (b"GET /byte HTTP/1.1\r\n\r\n", False),
    ],
)
def test_the_connection_is_kept_or_closed_as_http_demands(
    broker: Broker, request_bytes: bytes, *, is_kept: bool
) -> None:
    with Caller(broker.http) as caller:
        caller.send(request_bytes)
        answer = caller.answer()
        assert (answer.fields.get("connection") != "close") == is_kept
        if is_kept:
            caller.send(BYTE)
            assert caller.answer().body == b"a"
        else:
            caller.expect_end()


def test_methods_and_paths(broker: Broker) -> None:
    cases = [
        ("GET", "/v1/nothing", 404, None),
        ("DELETE", "/byte", 405, "GET, HEAD, OPTIONS"),
        ("GET", "/v1/publish/a", 405, "POST, OPTIONS"),
        ("POST", "/v1/subscribe/a", 405, "GET, HEAD, OPTIONS"),
        ("OPTIONS", "/v1/request/a", 204, "POST, OPTIONS"),
    ]
    connection = HTTPConnection(*broker.http, timeout=10)
    for method, path, status, allow in cases:
        connection.request(method, path, body=b"ignored" if method in {"POST", "DELETE"} else None)
        answer = connection.getresponse()
        body = answer.read()
        assert (answer.status, answer.getheader("Allow")) == (status, allow), path
        if status != 204:
            assert answer.getheader("Content-Type") == "application/problem+json"
            assert f'"status":{status}'.encode() in body
    connection.close()


CHUNKED = b"POST /v1/publish/t.chunks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_bodies_of_any_framing_in_pieces(broker: Broker) -> None:
    sized = b"POST /v1/publish/t.sized HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    chunked = CHUNKED + b'5;ext="v"\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: ignored\r\n\r\n'
    with Caller(broker.http) as caller:
        for request in (sized, chunked):
            caller.send(request)
            assert caller.answer().status == 202
            caller.send_divided(request)
            assert caller.answer().status == 202
        caller.send(sized + chunked + BYTE)
        assert [caller.answer().status for _ in range(3)] == [202, 202, 200]


def test_a_client_may_ask_before_it_sends_a_body(broker: Broker) -> None:
    head = b"POST /v1/publish/%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
    head += b"Expect: 100-continue\r\n\r\n"
    with Caller(broker.http) as caller:
        caller.send(head % (b"a", 5))
        assert caller.answer().status == 100
        caller.send(b"hello")
        assert caller.answer().status == 202
    # What would be refused is refused before the body.
    for subject, length, status in ((b"a.*", 5, 400), (b"a", 10**9, 413)):
        with Caller(broker.http) as caller:
            caller.send(head % (subject, length))
            assert caller.answer().status == status
            caller.expect_end()
    with Caller(broker.http) as caller:
        caller.send((head % (b"a", 5)).replace(b"100-continue", b"a-miracle"))
        assert caller.answer().status == 417


POST = b"POST /v1/publish/smuggled HTTP/1.1\r\nHost: localhost\r\n"
SMUGGLING = {
    "both lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "a hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "a length beyond 64 bits": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "no length at all": POST + b"Content-Length: \r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked in 1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size with a sign": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with 0x": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with a blank": CHUNKED + b" 5\r\nhello\r\n0\r\n\r\n",
    "a chunk size too long": CHUNKED + b"0" * 17 + b"5\r\nhello\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"4\r\nhello\r\n0\r\n\r\n",
    "a chunk with a bare LF": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "a folded field": POST + b"X-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
    "a bare LF": b"POST /v1/publish/smuggled HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n",
    "a blank before the colon": POST + b"Content-Length : 0\r\n\r\n",
    "no host": b"POST /v1/publish/smuggled HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "two hosts": POST + b"Host: y\r\nContent-Length: 0\r\n\r\n",
    "an invalid host": POST.replace(b"Host: localhost", b"Host: localhost/y") + b"Content-Length: 0\r\n\r\n",
    "a NUL in a field": POST + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "no version": b"POST /v1/publish/smuggled\r\nHost: localhost\r\n\r\n",
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.parametrize("shape", SMUGGLING)
def test_ambiguous_requests_are_refused(broker: Broker, shape: str) -> None:
    """The connection ends, and what stands behind the request is not read as another one."""
    hidden = b"POST /v1/publish/hidden HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    before = broker.varz()["in_msgs"]
    with Caller(broker.http) as other, Caller(broker.http) as caller:
        caller.send(SMUGGLING[shape] + hidden)
        answer = caller.answer()
        assert answer.status in {400, 501}
        assert answer.fields["connection"] == "close"
        caller.expect_end()
        other.send(BYTE)
        assert other.answer().body == b"a"
    assert broker.varz()["in_msgs"] == before


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /byte HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /byte HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100 + b"\r\n", 431),
        (b"GET /byte HTTP/1.1\r\nHost: localhost\r\nConnection: x" + b",x" * 16 + b"\r\n\r\n", 431),
        (
            b"GET /byte HTTP/1.1\r\nHost: localhost\r\n"
            + b"Connection: a, b\r\n" * 8
            + b"Connection:\r\n\r\n",
            431,
        ),
        (b"POST /v1/publish/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n", 413),
        (CHUNKED + b"10000\r\n" + b"x" * 0x10000 + b"\r\n" + b"fffff\r\n" + b"x" * 0xFFFFF, 413),
        (CHUNKED + b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n", 400),
        (CHUNKED + b"0\r\n" + b"X: y\r\n" * 5000 + b"\r\n", 400),
        (b"GET /byte HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    ],
)
def test_oversized_requests_and_other_protocols_are_refused(
    broker: Broker, request_bytes: bytes, status: int
) -> None:
    with Caller(broker.http) as caller:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            caller.send(request_bytes)
        answer = caller.answer()
        assert answer.status in {status, 431 if status == 400 else status}
        caller.expect_end()


def test_the_largest_body_is_taken(broker: Broker) -> None:
    connection = HTTPConnection(*broker.http, timeout=10)
    connection.request("POST", "/v1/publish/large", body=b"x" * 1_048_576)
    assert connection.getresponse().status == 202
    connection.close()


def trickle(caller: Caller, piece: bytes) -> None:
    """Sends a piece every 50 ms until the broker has had enough."""
    caller.socket.settimeout(0.05)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            caller.send(piece)
            caller.received += caller.socket.recv(1000)
        except TimeoutError:
            continue
        except ConnectionError:
            return
        else:
            if b"\r\n\r\n" in caller.received:
                return
    pytest.fail("never cut")


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /byte HTTP/1.1\r\n", b"X: y\r\n"),
        (b"POST /v1/publish/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
    ],
)
def test_slow_requests_are_ended(start_broker: Callable[..., Broker], start: bytes, piece: bytes) -> None:
    """Also when the connection has been of use before. When exactly: crates/simulation/tests/timeouts.rs."""
    broker = start_broker(handshake_timeout_s=2)
    for before in (b"", BYTE):
        with Caller(broker.http) as caller:
            if before:
                caller.send(before)
                caller.answer()
            caller.send(start)
            trickle(caller, piece)
            assert caller.received.startswith(b"HTTP/1.1 408 ")
    wait_until(lambda: broker.varz()["connections"] == 0)
    assert broker.varz()["closed"]["handshake_timeout"] == 2


def test_an_idle_connection_is_closed(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(http_idle_timeout_s=0.3)
    with Caller(broker.http) as caller:
        caller.send(2 * BYTE)
        for _ in range(2):
            assert caller.answer().status == 200
        caller.expect_end()


def test_a_caller_that_does_not_read_is_closed(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(max_pending=2_000_000, max_payload=100_000, write_deadline_s=1)
    with Caller(broker.http) as caller, Caller(broker.http) as other:
        caller.socket.settimeout(20)
        requests = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000_000
        with pytest.raises((ConnectionError, TimeoutError)):
            caller.send(requests)
        other.send(BYTE)
        assert other.answer().body == b"a"
    wait_until(lambda: broker.varz()["connections"] == 0)
    assert broker.varz()["slow_consumers"] == 1


def test_the_number_of_connections_is_limited(start_broker: Callable[..., Broker]) -> None:
    """One that finds none is told so; the place of one that ends is free again."""
    broker = start_broker(max_connections=2)
    with Caller(broker.http) as first, Caller(broker.http) as second:
        for caller in (first, second):
            caller.send(BYTE)
            assert caller.answer().status == 200
        with Caller(broker.http) as third:
            third.send(BYTE)
            answer = third.answer()
            assert answer.status == 503
            assert b"maximum connections" in answer.body
            third.expect_end()
    wait_until(lambda: broker.varz()["connections"] == 0)
    with Caller(broker.http) as caller:
        caller.send(BYTE)
        assert caller.answer().status == 200


def test_upgrades_to_something_else_are_ignored(broker: Broker) -> None:
    """As Java's client offers (RFC 9110 section 7.8)."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n"
    with Caller(broker.http) as caller:
        caller.send(BYTE[:-2] + upgrade)
        assert caller.answer().body == b"a"


def test_a_connection_used_for_http_may_become_a_websocket(broker: Broker) -> None:
    from tests.wire import upgrade_request  # noqa: PLC0415

    with Caller(broker.http) as caller:
        caller.send(BYTE)
        caller.answer()
        caller.send(upgrade_request(broker))
        while b"INFO {" not in caller.received:
            caller.fill()
        assert caller.received.startswith(b"HTTP/1.1 101 ")
