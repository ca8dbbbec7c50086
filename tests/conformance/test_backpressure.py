"""What a slow receiver, or a message to very many, may hold up: its publisher, and nobody else."""

from __future__ import annotations

import http.client
import json
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


@pytest.mark.parametrize("options", [{}, {"no_fast_producer_stall": True}], ids=["stalled", "unstalled"])
def test_a_receiver_stalls_its_publisher_for_a_bounded_time(
    start: Callable[..., Broker], transport: str, options: dict[str, bool]
) -> None:
    """At most twenty stalls, or none where they are off; then it is a slow consumer."""
    broker = start(max_pending=4 * MIB, write_deadline_s=100, **options)
    # More than the sockets of a receiver that does not read take, and than may wait for it.
    batches = [[b"%0100d" % n for n in range(first, first + 50)] for first in range(0, 150_000, 50)]
    with open_wire(broker, transport) as receiver, open_wire(broker, transport) as publisher:
        receiver.handshake()
        publisher.handshake()
        receiver.send(b"SUB flood 1\r\n")
        receiver.ping()
        for batch in batches:
            publisher.send(b"".join(b"PUB flood 100\r\n%b\r\n" % text for text in batch))
        publisher.ping()
        wait_until(lambda: broker.varz()["slow_consumers"] == 1, what="a slow consumer")
        counters = broker.varz()
        assert counters["in_msgs"] == 150_000
        if options:
            assert counters["stalled_clients"] == 0
        else:
            assert 1 <= counters["stalled_clients"] <= 20
    broker.wait_idle()
    conservation = broker.conservation()
    assert conservation["dropped"]["slow_consumer"] + conservation["delivered"] == conservation["matched"]


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
