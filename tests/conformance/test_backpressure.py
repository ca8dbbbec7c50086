"""What a slow receiver, or a message to very many, may hold up: its publisher, and nobody else."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import require_driver
from tests.servers import Broker, wait_until
from tests.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


@pytest.fixture(params=("epoll", "uring"))
def start(request: pytest.FixtureRequest, start_broker: Callable[..., Broker]) -> Callable[..., Broker]:
    """Start a broker of one shard, so that all of its counters are of one moment."""
    require_driver(request.param)
    return lambda **options: start_broker(driver=request.param, shards=1, **options)


def test_a_stalled_publisher_stops_within_a_read(start: Callable[..., Broker], transport: str) -> None:
    """One message a stall, however many were received with it; the others are kept, and lost is none."""
    broker = start(max_pending=4 * MIB, write_deadline_s=100)
    # More than the sockets of a receiver that does not read take, and than makes it fall behind.
    batches = [[b"%0100d" % n for n in range(first, first + 50)] for first in range(0, 150_000, 50)]
    with open_wire(broker, transport) as receiver, open_wire(broker, transport) as publisher:
        receiver.handshake()
        publisher.handshake()
        receiver.send(b"SUB flood 1\r\n")
        receiver.ping()

        def publish() -> None:
            # Over WebSocket a read holds the rest of one frame, and others.
            for batch in batches:
                publisher.send(b"".join(b"PUB flood 100\r\n%b\r\n" % text for text in batch))

        sender = threading.Thread(target=publish, daemon=True)
        sender.start()

        def routes_one_message_a_stall() -> bool:
            before = broker.varz()
            after = wait_until(lambda: has_stalled(broker, before["stalled_clients"] + 10), what="stalls")
            stalls = after["stalled_clients"] - before["stalled_clients"]
            return bool(before["stalled_clients"] and after["in_msgs"] - before["in_msgs"] == stalls)

        # The kernel may take a little more even from a receiver that does not read.
        wait_until(routes_one_message_a_stall, what="one message a stall")
        assert broker.varz()["in_msgs"] < 150_000
        for batch in batches:
            receiver.expect(b"".join(b"MSG flood 1 100\r\n%b\r\n" % text for text in batch))
        sender.join(10)
        publisher.ping()
        receiver.ping()
    broker.wait_idle()
    assert not any(broker.conservation()["dropped"].values())


def has_stalled(broker: Broker, times: int) -> dict[str, Any] | None:
    """The counters, once publishers were stalled so often."""
    counters = broker.varz()
    return counters if counters["stalled_clients"] >= times else None


def test_a_large_message_to_many_leaves_room_for_others(start: Callable[..., Broker], transport: str) -> None:
    """It fills no more than 4 MiB of output at once, and requests are answered in between."""
    broker = start()
    copies = 40
    payload = bytes(MIB)
    monitor = http.client.HTTPConnection(*broker.monitor)
    with (
        closing(monitor),
        open_wire(broker, transport) as receiver,
        open_wire(broker, transport) as publisher,
    ):
        receiver.handshake()
        publisher.handshake()
        receiver.send(b"".join(b"SUB big %d\r\n" % sid for sid in range(copies)))
        receiver.ping()

        def delivered() -> int:
            monitor.request("GET", "/varz")
            counters: dict[str, Any] = json.load(monitor.getresponse())
            return int(counters["out_msgs"])

        def is_answered_in_between() -> bool:
            """Whether it was seen: a test that is not let run meanwhile misses it."""
            before = delivered()
            publisher.send(b"PUB big %d\r\n%b\r\n" % (len(payload), payload))
            seen = [0]
            while seen[-1] < copies:
                seen.append(delivered() - before)
            for _ in range(copies):
                receiver.read_line()
                receiver.read(len(payload) + 2)
            return any(0 < count < copies for count in seen)

        wait_until(is_answered_in_between, what="an answer between two slices")
