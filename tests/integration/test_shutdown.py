"""SIGTERM and SIGINT: clients are notified, served until then, and closed; a second signal ends at once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable

import nats
import pytest

from tests.servers import Broker, wait_until
from tests.wire import TRANSPORTS, StreamEndError, WebSocketWire, open_wire

Start = Callable[..., Broker]

# nats-py hands aiohttp a timeout in a form that aiohttp has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:parameter 'timeout' of type:DeprecationWarning")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_lame_duck(start_broker: Start, transport: str, number: signal.Signals) -> None:
    """INFO with ldm to those who can take it; all are served in the grace period, then closed."""
    broker = start_broker(shards=2, lame_duck_grace_s=1, lame_duck_duration_s=0.2)
    with (
        open_wire(broker, transport) as modern,
        open_wire(broker, transport) as old,
        open_wire(broker, transport) as fresh,
    ):
        modern.handshake(protocol=1)
        old.handshake(protocol=0)
        fresh.read_info()
        modern.send(b"SUB a 1\r\n")
        modern.send(b"PING\r\n")
        while modern.read_line() != b"PONG\r\n":
            pass  # a second INFO may come after the first PONG
        broker.process.send_signal(number)
        assert json.loads(modern.read_line().removeprefix(b"INFO "))["ldm"] is True
        old.send(b"PUB a 2\r\nhi\r\nPING\r\n")
        old.expect(b"PONG\r\n")
        modern.expect(b"MSG a 1 2\r\nhi\r\n")
        for wire in (modern, old, fresh):
            wire.expect_end()
            if isinstance(wire, WebSocketWire):
                assert wire.close_code == 1001
    assert broker.wait_status() == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_new_clients_while_draining(start_broker: Start, transport: str) -> None:
    broker = start_broker(lame_duck_grace_s=10, lame_duck_duration_s=10)
    with open_wire(broker, "tcp") as wire:
        wire.handshake()
        broker.process.send_signal(signal.SIGTERM)

        def is_refused() -> bool:
            try:
                open_wire(broker, transport).close()
            except (OSError, StreamEndError):
                return True
            return False

        wait_until(is_refused)
        wire.ping()
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_status()


def test_second_signal_ends_at_once(start_broker: Start) -> None:
    broker = start_broker(lame_duck_grace_s=60, lame_duck_duration_s=60)
    with open_wire(broker, "tcp") as wire:
        wire.handshake(protocol=1)
        broker.process.send_signal(signal.SIGTERM)
        while b'"ldm":true' not in wire.read_line():
            pass
        assert broker.is_running()
        # Its own times are longer than it is waited for.
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_status()
        wire.read_to_end()


def test_drain_without_clients_is_quick(start_broker: Start) -> None:
    """Nobody is there to be given grace."""
    # Longer than it is waited for.
    broker = start_broker(lame_duck_grace_s=60, lame_duck_duration_s=60)
    broker.stop()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_nats_py_is_notified_of_a_drain(start_broker: Start, transport: str) -> None:
    """The client's lame duck callback runs, and its connection then ends."""
    broker = start_broker(shards=2, lame_duck_grace_s=0.5, lame_duck_duration_s=0.5)
    warned, closed = asyncio.Event(), asyncio.Event()

    async def on_lame_duck() -> None:
        warned.set()

    async def on_close() -> None:
        closed.set()

    client = await nats.connect(
        broker.url(transport),
        allow_reconnect=False,
        lame_duck_mode_cb=on_lame_duck,
        closed_cb=on_close,
    )
    broker.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(warned.wait(), 10)
    assert not closed.is_set()
    await asyncio.wait_for(closed.wait(), 10)
    assert client.is_closed
    assert await asyncio.to_thread(broker.wait_status) == 0


def test_messages_before_a_drain_are_delivered(start_broker: Start) -> None:
    """What was published before the connections are closed is not cut off."""
    broker = start_broker(shards=2, lame_duck_grace_s=0.3, lame_duck_duration_s=0.1)
    with open_wire(broker, "tcp") as subscriber, open_wire(broker, "tcp") as publisher:
        subscriber.handshake()
        publisher.handshake()
        subscriber.send(b"SUB a 1\r\n")
        subscriber.ping()
        publisher.send(b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n" + b"PING\r\n")
        broker.process.send_signal(signal.SIGTERM)
        publisher.send(b"PUB a 1000\r\n" + b"y" * 1000 + b"\r\n" + b"PING\r\n")
        publisher.expect(b"PONG\r\nPONG\r\n")
        subscriber.expect_end(
            b"".join(b"MSG a 1 1000\r\n" + letter * 1000 + b"\r\n" for letter in (b"x", b"y"))
        )
    assert broker.wait_status() == 0
