"""Origins and host names that the HTTP listeners accept: RFC 6455 section 10.2, CORS, DNS rebinding.

nats-server takes every origin and every name unless it is told otherwise, so these are our own.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_gateway import Fields, call, problem
from tests.conformance.test_http import BYTE, Answer, Caller
from tests.wire import upgrade_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Address, Broker

GOOD = "https://good.example"
#: Origins that are neither that of the address that is called nor listed.
FOREIGN = [
    "https://evil.example",
    "http://good.example",
    "https://good.example:444",
    "https://good.example.evil.example",
    "null",
    "",
]


def upgrade(broker: Broker, origin: str | None, path: str = "/") -> Answer:
    """The answer to a WebSocket handshake from a page of this origin."""
    with Caller(broker.http) as caller:
        caller.send(upgrade_request(broker, path, {"Origin": origin}))
        if origin is None or b" 101 " in peek(caller):
            return Answer(101, {}, b"")
        return caller.answer()


def peek(caller: Caller) -> bytes:
    """The first line of the answer, which stays to be read."""
    while b"\r\n" not in caller.received:
        caller.fill()
    return caller.received.split(b"\r\n")[0]


def own_origins(broker: Broker) -> list[str]:
    """The origin of the address that is called, as it may be written."""
    host, port = broker.http
    return [f"http://{host}:{port}", f"HTTP://{host}:{port}"]


@pytest.mark.parametrize("path", ["/", "/echo"])
def test_only_own_pages_may_open_websockets(broker: Broker, path: str) -> None:
    for origin in [None, *own_origins(broker)]:
        assert upgrade(broker, origin, path).status == 101, origin
    host, port = broker.http
    for origin in [*FOREIGN, GOOD, f"https://{host}:{port}", f"http://{host}:{port + 1}", f"http://{host}"]:
        answer = upgrade(broker, origin, path)
        assert answer.status == 403, origin
        assert b"websocket.origins" in answer.body
        assert answer.fields["connection"] == "close"


def test_a_second_origin_field_is_also_checked(broker: Broker) -> None:
    request = upgrade_request(broker, headers={"Origin": own_origins(broker)[0]})
    with Caller(broker.http) as caller:
        caller.send(request[:-2] + b"Origin: https://evil.example\r\n\r\n")
        assert caller.answer().status == 403


def test_pages_of_listed_origins_may_connect(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(
        websocket_origins=[GOOD, "http://127.0.0.1:3000"], cors_origins=["https://other.example"]
    )
    for origin in [
        None,
        *own_origins(broker),
        GOOD,
        "HTTPS://GOOD.example",
        f"{GOOD}:443",
        "http://127.0.0.1:3000",
    ]:
        assert upgrade(broker, origin).status == 101, origin
    for origin in [*FOREIGN, "https://other.example", "http://127.0.0.1:3001"]:
        assert upgrade(broker, origin).status == 403, origin


def test_all_pages_may_connect_if_the_setting_allows_it(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(websocket_origins="*")
    for origin in [GOOD, *FOREIGN]:
        assert upgrade(broker, origin).status == 101, origin


def subscribe(broker: Broker, fields: Fields) -> int:
    answer, body = call(broker, "HEAD", "/v1/subscribe/origins", None, fields)
    assert body == b""
    return answer.status


def test_the_gateway_compares_schemes(start_broker: Callable[..., Broker]) -> None:
    """A page over TLS at the same address is another page."""
    broker = start_broker(cors_origins=[GOOD])
    host, port = broker.http
    for origin in [*own_origins(broker), GOOD, f"{GOOD}:443"]:
        assert subscribe(broker, {"Origin": origin}) == 200, origin
    for origin in [*FOREIGN, f"https://{host}:{port}", f"http://{host}"]:
        assert subscribe(broker, {"Origin": origin}) == 403, origin


def test_images_and_links_of_other_pages_cannot_subscribe(broker: Broker) -> None:
    """For these browsers name no origin, but whether the page is another one."""
    before = broker.varz()["total_subscribed"]
    for site in ("cross-site", "same-site"):
        answer, body = call(broker, "GET", "/v1/subscribe/origins", None, {"Sec-Fetch-Site": site})
        assert answer.status == 403
        assert "cors_origins" in problem(answer, body)
    assert broker.varz()["total_subscribed"] == before
    for site in ("same-origin", "none"):
        assert subscribe(broker, {"Sec-Fetch-Site": site}) == 200
    # What tells nothing of the clients may be seen from everywhere.
    assert call(broker, "GET", "/byte", None, {"Sec-Fetch-Site": "cross-site"})[0].status == 200


def test_a_page_must_send_an_origin_that_is_listed(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(cors_origins=[GOOD])
    assert subscribe(broker, {"Sec-Fetch-Site": "cross-site", "Origin": GOOD}) == 200
    assert subscribe(broker, {"Sec-Fetch-Site": "cross-site"}) == 403
    everybody = start_broker(cors_origins="*")
    assert subscribe(everybody, {"Sec-Fetch-Site": "cross-site"}) == 200


OWN_NAMES = [
    "127.0.0.1", "127.0.0.1:1", "192.0.2.7:8080", "[::1]", "[2001:db8::1]:80", "localhost", "LOCALHOST:1",
    "app.localhost:8080", socket.gethostname(), f"{socket.gethostname()}:8080", "",
]  # fmt: skip
OTHER_NAMES = [
    "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "x", "[evil]",
    "localhost:port",
]  # fmt: skip


def ask(address: Address, host: str, path: str) -> Answer:
    with Caller(address) as caller:
        caller.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return caller.answer()


def expect_misdirected(answer: Answer) -> None:
    assert answer.status == 421
    assert answer.fields["content-type"] == "application/problem+json"
    assert answer.fields["connection"] == "close"
    assert "allowed_hosts" in json.loads(answer.body)["detail"]


@pytest.mark.parametrize("listener", ["http", "monitor"])
def test_only_the_hosts_own_names_are_accepted(broker: Broker, listener: str) -> None:
    address, path = (broker.http, "/byte") if listener == "http" else (broker.monitor, "/varz")
    for name in OWN_NAMES:
        assert ask(address, name, path).status == 200, name
    for name in OTHER_NAMES:
        expect_misdirected(ask(address, name, path))
    with Caller(address) as caller:
        caller.send(f"GET http://evil.example{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        expect_misdirected(caller.answer())
    with Caller(address) as caller:
        caller.send(f"GET http://localhost{path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        assert caller.answer().status == 200


@pytest.mark.parametrize("listener", ["http", "monitor"])
def test_listed_host_names_are_accepted(start_broker: Callable[..., Broker], listener: str) -> None:
    broker = start_broker(allowed_hosts=["broker.example", "10.0.0.1"])
    address, path = (broker.http, "/byte") if listener == "http" else (broker.monitor, "/varz")
    for name in [*OWN_NAMES, "broker.example", "Broker.Example:1234", "broker.example."]:
        assert ask(address, name, path).status == 200, name
    for name in [*OTHER_NAMES, "a.broker.example", "example"]:
        assert ask(address, name, path).status == 421, name
    everything = start_broker(allowed_hosts="*")
    address = everything.http if listener == "http" else everything.monitor
    for name in ["evil.example", "x:1"]:
        assert ask(address, name, path).status == 200, name


def test_dns_rebinding_is_refused(broker: Broker) -> None:
    """A page whose name has come to mean the broker's address: all it sends is of one origin."""
    before = broker.varz()
    page = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"}
    with Caller(broker.http) as caller:
        caller.send(upgrade_request(broker, headers=dict(page)))
        expect_misdirected(caller.answer())
    answer, body = call(broker, "POST", "/v1/publish/origins", b"x", page)
    assert answer.status == 421
    assert "evil.example" in problem(answer, body)
    expect_misdirected(ask(broker.monitor, "evil.example:8080", "/connz?subs=1"))
    with Caller(broker.http) as caller:
        # What is behind a refused request is not read.
        caller.send(b"GET /byte HTTP/1.1\r\nHost: evil.example\r\n\r\n" + BYTE)
        expect_misdirected(caller.answer())
        caller.expect_end()
    after = broker.varz()
    assert (after["in_msgs"], after["total_websockets"]) == (before["in_msgs"], before["total_websockets"])
