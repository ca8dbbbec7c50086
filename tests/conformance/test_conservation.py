"""Conservation rule while messages wait: each waiting message is counted once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import require_driver
from tests.monitor import pending
from tests.servers import Broker, is_accounted, wait_until
from tests.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

RECEIVERS = 4
MESSAGES = 150
PAYLOAD = bytes(100_000)
DUE = RECEIVERS * MESSAGES


@pytest.fixture(params=("epoll", "uring"))
def start(request: pytest.FixtureRequest, start_broker: Callable[..., Broker]) -> Callable[..., Broker]:
    """Start a broker of two shards, so that some messages go by mail."""
    require_driver(request.param)
    return lambda **options: start_broker(driver=request.param, shards=2, **options)


def while_waiting(broker: Broker) -> dict[str, Any]:
    """The counters, once all messages are routed and accounted for, and some wait; else nothing."""
    seen = broker.conservation()
    return seen if seen["matched"] == DUE and is_accounted(seen) and seen["pending"] > 0 else {}


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "leaves"])
def test_waiting_messages_are_counted_as_pending(
    start: Callable[..., Broker], transport: str, reads: bool
) -> None:
    """More than the sockets of receivers take that do not read; then they do, or leave."""
    broker = start(write_deadline_s=100)
    with ExitStack() as stack:
        wires = [stack.enter_context(open_wire(broker, transport)) for _ in range(RECEIVERS + 1)]
        for wire in wires:
            wire.handshake()
        publisher, *receivers = wires
        for receiver in receivers:
            receiver.send(b"SUB wait 1\r\n")
            receiver.ping()
        for _ in range(MESSAGES):
            publisher.send(b"PUB wait %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD))
        publisher.ping()
        seen = wait_until(lambda: while_waiting(broker), what="messages that wait")
        assert seen["published"] == MESSAGES
        assert not any(seen["dropped"].values()), seen
        # Mail is read although receivers do not, and the kernel may take a little more meanwhile.
        waiting = wait_until(lambda: found if (found := pending(broker))["mail"] == 0 else {})
        assert 0 < waiting["output"] <= seen["pending"]
        if reads:
            for receiver in receivers:
                for _ in range(MESSAGES):
                    assert receiver.read_line() == b"MSG wait 1 %d\r\n" % len(PAYLOAD)
                    assert receiver.read(len(PAYLOAD) + 2) == PAYLOAD + b"\r\n"
    broker.wait_idle()
    counted = broker.conservation()
    assert counted["matched"] == DUE
    if reads:
        assert counted["delivered"] == DUE
    else:
        assert counted["dropped"]["closed"] > 0
        assert counted["delivered"] + sum(counted["dropped"].values()) == DUE
