"""A slow receiver, or a message to very many receivers, delays its publisher and no other client."""

from __future__ import annotations

import http.client
import itertools
import json
import select
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


def test_a_large_message_to_many_receivers_does_not_block_others(
    start: Callable[..., Broker], transport: str
) -> None:
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


def own_subscriptions(queue: bytes) -> list[bytes]:
    """Subscriptions of one subject, as many as a client may have."""
    return [b"s" + queue + b" %d" % number for number in range(60_000)]


def own_patterns() -> list[bytes]:
    """Every pattern within the default limits that has stars and matches sixteen tokens."""
    tokens = [b"t"] * 16
    patterns = []
    for stars in range(1, 6):
        for places in itertools.combinations(range(16), stars):
            pattern = [b"*" if place in places else token for place, token in enumerate(tokens)]
            patterns.append(b".".join(pattern))
    return [pattern + b" %d" % number for number, pattern in enumerate(patterns)]


@pytest.mark.parametrize(
    ("subscriptions", "subject", "messages"),
    [
        (own_subscriptions(b""), b"s", 1000),
        (own_subscriptions(b" q"), b"s", 1000),
        (own_patterns(), b".".join([b"t"] * 16), 400),
    ],
    ids=["members", "queue_members", "patterns"],
)
def test_a_search_for_receivers_counts_for_its_publisher(
    start: Callable[..., Broker], subscriptions: list[bytes], subject: bytes, messages: int
) -> None:
    """Without any receiver; who asks later than the publisher, and for less, is answered before it."""
    broker = start()
    with open_wire(broker, "tcp") as publisher, open_wire(broker, "tcp") as other:
        publisher.handshake(echo=False)
        other.handshake()
        publisher.send(b"".join(b"SUB " + subscription + b"\r\n" for subscription in subscriptions))
        publisher.ping()
        # One read for the broker, and far more work than a turn may take.
        publisher.send((b"PUB " + subject + b" 0\r\n\r\n") * messages + b"PING\r\n")
        wait_until(lambda: broker.varz()["in_msgs"] > 0, what="the first turn")
        other.ping()
        assert not select.select([publisher.socket], [], [], 0)[0], "the publisher was answered first"
        publisher.expect(b"PONG\r\n")
        varz = broker.varz()
        assert (varz["in_msgs"], varz["out_msgs"]) == (messages, 0)
