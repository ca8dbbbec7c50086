"""Admission: which connections are accepted, and how long a silent connection stays open."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from subjectbus.limits import raise_descriptor_limit
from tests.conformance.test_http import BYTE, Caller
from tests.conftest import BROKERS, require_driver
from tests.monitor import fetch
from tests.servers import wait_until
from tests.wire import WebSocketWire, Wire, open_wire, upgrade_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Address, Broker, Server

    Start = Callable[..., Broker]

pytestmark = pytest.mark.matrix

FULL = b"-ERR 'maximum connections exceeded'\r\n"
TOO_LATE = b"-ERR 'Authentication Timeout'\r\n"
TOO_MANY = b"-ERR 'maximum connections from this address exceeded'\r\n"


@pytest.fixture(params=BROKERS)
def start(request: pytest.FixtureRequest, start_broker: Start) -> Start:
    """Start our broker in each of its forms."""
    form = BROKERS[request.param]
    require_driver(form["driver"])
    return lambda **options: start_broker(**{**form, **options})


def check_service(broker: Broker) -> None:
    """Two new clients can talk, over both transports, and the monitor answers."""
    with open_wire(broker, "tcp") as subscriber, open_wire(broker, "ws") as publisher:
        subscriber.handshake()
        publisher.handshake()
        subscriber.send(b"SUB check 1\r\n")
        subscriber.ping()
        publisher.send(b"PUB check 2\r\nok\r\n")
        subscriber.expect(b"MSG check 1 2\r\nok\r\n")
    assert fetch(broker, "/healthz")[0] == 200


def silence(stack: ExitStack, broker: Broker, address: Address, count: int) -> None:
    """Open `count` silent connections at once, and wait until the broker has accepted them."""
    before = seen(broker)
    for _ in range(count):
        connection = stack.enter_context(socket.socket())
        connection.setblocking(False)
        connection.connect_ex(address)
    wait_until(lambda: seen(broker) >= before + count)


def seen(broker: Broker) -> int:
    """Return the connections that the broker has accepted."""
    varz = broker.varz()
    return int(varz["total_connections"] + varz["dismissed_connections"])


def connect_from(source: str, address: Address) -> socket.socket:
    """Connect from one of this machine's addresses."""
    return socket.create_connection(address, 10, (source, 0))


def test_silent_connections_are_closed_in_favour_of_clients(start: Start) -> None:
    broker = start(max_connections=5)
    with ExitStack() as stack:
        kept = stack.enter_context(open_wire(broker, "tcp"))
        kept.handshake()
        for transport in ("tcp", "ws"):
            for _ in range(5):
                # It has come when it is greeted.
                stack.enter_context(open_wire(broker, transport)).read_info()
        check_service(broker)
        kept.ping()
        wait_until(lambda: broker.varz()["closed"]["evicted"] >= 6)
        for listener in (broker.tcp, broker.http):
            silence(stack, broker, listener, 40)
            check_service(broker)
        kept.ping()


def test_clients_connect_despite_more_silent_connections_than_descriptors(start: Start) -> None:
    """With epoll a shard's table of descriptors is what fills, so it gets a small one."""
    raise_descriptor_limit()
    broker = start(max_connections=200, prefix=("prlimit", "--nofile=400"))
    with ExitStack() as stack:
        silence(stack, broker, broker.http, 1400)
        for _ in range(3):
            check_service(broker)
        varz = broker.varz()
        if varz["driver"] == "epoll":
            assert varz["connections"] < 400 * varz["shards"]
            assert varz["accept_failures"] == 0
        else:
            # There are as many slots as it takes; descriptors are needed until a connection has got one.
            assert varz["connections"] < 200 + 1024 * varz["shards"]


def test_connected_clients_are_not_closed_in_favour_of_new_ones(start: Start) -> None:
    """Clients that have introduced themselves do not give way to a newcomer, which is told so."""
    broker = start(max_connections=2)
    with ExitStack() as stack:
        clients = [stack.enter_context(open_wire(broker, transport)) for transport in ("tcp", "ws")]
        for client in clients:
            client.handshake()
        silence(stack, broker, broker.tcp, 20)
        with open_wire(broker, "tcp") as refused:
            refused.expect_end(FULL)
        with open_wire(broker, "ws") as refused:
            refused.expect_end(FULL)
            assert refused.close_code == 1008
        with Caller(broker.http) as caller:
            caller.send(BYTE)
            answer = caller.answer()
            assert (answer.status, answer.fields["connection"]) == (503, "close")
            assert "maximum connections" in json.loads(answer.body)["detail"]
            caller.expect_end()
        for client in clients:
            client.ping()
        clients[0].close()
        wait_until(lambda: has_place(broker))


def has_place(broker: Broker) -> bool:
    """Return whether a new client is served."""
    with open_wire(broker, "tcp") as wire:
        if not wire.read_line().startswith(b"INFO "):
            return False
        wire.ping()
        return True


def test_a_client_closed_in_favour_of_another_gets_an_error(start_broker: Start) -> None:
    broker = start_broker(max_connections=1, shards=1)

    def give_way() -> None:
        with open_wire(broker, "tcp") as newcomer:
            newcomer.handshake()
        wait_until(lambda: broker.varz()["connections"] == 0)

    with open_wire(broker, "tcp") as wire:
        wire.read_info()
        give_way()
        wire.expect_end(FULL)
    with open_wire(broker, "ws") as wire:
        wire.read_info()
        give_way()
        wire.expect_end(FULL)
        assert wire.close_code == 1008
    with Caller(broker.http) as caller:
        caller.send(b"GET / HTTP/1.1\r\n")
        wait_until(lambda: broker.varz()["connections"] == 1)
        give_way()
        assert caller.answer().status == 503
    assert broker.varz()["closed"]["evicted"] == 3


@pytest.mark.parametrize("sent", [b"", b"CONNECT {", b"PUB a 10\r\n12345"])
def test_a_client_must_connect_in_time(start_broker: Start, transport: str, sent: bytes) -> None:
    broker = start_broker(handshake_timeout_s=2)
    with open_wire(broker, transport) as wire:
        wire.read_info()
        wire.send(sent)
        wire.expect_end(TOO_LATE)
        assert not isinstance(wire, WebSocketWire) or wire.close_code == 1008
    wait_until(lambda: broker.varz()["connections"] == 0)
    assert broker.varz()["closed"]["handshake_timeout"] == 1


def test_a_caller_that_becomes_a_websocket_must_connect_in_time(start_broker: Start) -> None:
    broker = start_broker(handshake_timeout_s=2)
    with Caller(broker.http) as caller:
        caller.send(BYTE)
        assert caller.answer().status == 200
        caller.send(upgrade_request(broker))
        while TOO_LATE not in caller.received:
            caller.fill()
    wait_until(lambda: broker.varz()["connections"] == 0)
    assert broker.varz()["closed"]["handshake_timeout"] == 1


def test_a_client_may_send_an_operation_instead_of_connect(
    start_server: Callable[..., Server], transport: str
) -> None:
    """For people who type operations by hand; nats-server has no deadline without authentication."""
    server = start_server()
    with open_wire(server, transport) as wire:
        wire.read_info()
        wire.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        wire.expect(b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\n")


def test_a_client_that_has_sent_an_operation_has_no_deadline(start_broker: Start, transport: str) -> None:
    broker = start_broker(handshake_timeout_s=2)
    with open_wire(broker, transport) as wire:
        wire.read_info()
        wire.ping()
        for _ in range(2):
            with open_wire(broker, transport) as other:
                other.read_info()
                other.expect_end(TOO_LATE)
        wire.ping()


def test_an_address_has_a_limited_number_of_connections(start: Start) -> None:
    broker = start(limits_connections_per_address=2, max_connections=50)
    with open_wire(broker, "tcp") as first, open_wire(broker, "ws") as second:
        first.handshake()
        second.handshake()
        for transport in ("tcp", "ws"):
            with open_wire(broker, transport) as third:
                third.expect_end(TOO_MANY)
        with Caller(broker.http) as caller:
            caller.send(BYTE)
            answer = caller.answer()
            assert answer.status == 503
            assert "from this address" in json.loads(answer.body)["detail"]
        with connect_from("127.0.0.2", broker.tcp) as other:
            assert other.recv(5) == b"INFO "
        # A client sees the end before the shard's turn, in which it is counted, is over.
        wait_until(lambda: broker.varz()["closed"]["too_many_from_address"] == 3)
        first.close()
        wait_until(lambda: has_place(broker))
        second.ping()


def test_connections_above_the_rate_limit_wait(start: Start) -> None:
    """They are served all the same, and the monitor at once."""
    broker = start(limits_connects_per_s=100, max_connections=500)
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker)) for _ in range(60)]
        assert fetch(broker, "/healthz")[0] == 200
        for wire in wires:
            wire.handshake()
    assert broker.varz()["accept_failures"] == 0
