"""Clients that send invalid data, stall or vanish: the broker serves the others and leaks nothing.

Each test leaves its connections as they are; the fixture then checks that the broker is idle and
that its counters still add up.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Address, Broker, wait_until
from tests.wire import BINARY, TRANSPORTS, Wire, connect_line, frame, open_wire, upgrade_request

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.matrix

LISTENERS: dict[str, Callable[[Broker], Address]] = {
    "tcp": lambda broker: broker.tcp,
    "http": lambda broker: broker.http,
    "monitor": lambda broker: broker.monitor,
}
#: Set to replay a run.
SEED = int(os.environ.get("TEST_SEED", "20160901"))


def open_raw(address: Address) -> socket.socket:
    return socket.create_connection(address, 10)


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def drain(connection: socket.socket) -> None:
    """Read until the server closes, or for as long as it answers within a second."""
    connection.settimeout(1)
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


def check_service(broker: Broker) -> None:
    """Two new clients can talk, over both transports."""
    with open_wire(broker, "tcp") as subscriber, open_wire(broker, "ws") as publisher:
        subscriber.handshake()
        publisher.handshake()
        subscriber.send(b"SUB check 1\r\n")
        subscriber.ping()
        publisher.send(b"PUB check 2\r\nok\r\n")
        subscriber.expect(b"MSG check 1 2\r\nok\r\n")


@pytest.mark.parametrize("listener", LISTENERS)
def test_random_bytes(broker: Broker, listener: str) -> None:
    """Noise of every size, with the write side closed after it."""
    generator = random.Random(SEED)
    with open_wire(broker, "tcp") as witness:
        witness.handshake()
        for _ in range(40):
            noise = generator.randbytes(generator.choice((1, 2, 7, 100, 5000, 70_000)))
            with open_raw(LISTENERS[listener](broker)) as connection:
                try:
                    connection.sendall(noise)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    continue
                drain(connection)
        witness.ping()
    check_service(broker)


def mutate(stream: bytes, generator: random.Random) -> bytes:
    """A valid stream with a few bytes changed, lost or repeated."""
    data = bytearray(stream)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(data))
        match generator.randrange(3):
            case 0:
                data[at] = generator.randrange(256)
            case 1:
                del data[at : at + generator.randint(1, 8)]
            case _:
                data[at:at] = data[at : at + generator.randint(1, 64)]
    return bytes(data)


CONVERSATION = (
    connect_line(headers=True, no_responders=True)
    + b"SUB foo.* 1\r\nSUB foo.> group 2\r\nPUB foo.bar re.ply 5\r\nhello\r\nUNSUB 1 2\r\n"
    + b"HPUB foo.bar 12 14\r\nNATS/1.0\r\n\r\nhi\r\nUNSUB 2\r\nPING\r\n"
)


def conversation(broker: Broker, transport: str) -> bytes:
    """Everything a client sends in a whole valid conversation."""
    if transport == "tcp":
        return CONVERSATION
    half = len(CONVERSATION) // 2
    frames = frame(BINARY, CONVERSATION[:half]) + frame(0x9, b"ping")
    frames += frame(BINARY, CONVERSATION[half:]) + frame(0x8, (1000).to_bytes(2))
    return upgrade_request(broker) + frames


def listener_of(broker: Broker, transport: str) -> Address:
    return broker.tcp if transport == "tcp" else broker.http


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_mutated_conversations(broker: Broker, transport: str) -> None:
    generator = random.Random(SEED)
    stream = conversation(broker, transport)
    head = 0 if transport == "tcp" else stream.index(b"\r\n\r\n") + 4
    for _ in range(200):
        with open_raw(listener_of(broker, transport)) as connection:
            try:
                connection.sendall(stream[:head] + mutate(stream[head:], generator))
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            drain(connection)
    check_service(broker)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("farewell", ["fin", "reset"])
def test_closed_at_every_byte(broker: Broker, transport: str, farewell: str) -> None:
    """A valid conversation that breaks off after each of its bytes."""
    stream = conversation(broker, transport)
    for size in range(len(stream) + 1):
        connection = open_raw(listener_of(broker, transport))
        connection.sendall(stream[:size])
        if farewell == "fin":
            connection.close()
        else:
            reset(connection)
    check_service(broker)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_half_open(broker: Broker, transport: str) -> None:
    """A client that closes its write side has ended; what it sent before still counts."""
    with open_wire(broker, "tcp") as witness:
        witness.handshake()
        witness.send(b"SUB foo.bar 1\r\n")
        witness.ping()
        with open_wire(broker, transport) as wire:
            wire.handshake()
            wire.send(b"PUB foo.bar 2\r\nhi\r\n")
            wire.socket.shutdown(socket.SHUT_WR)
            witness.expect(b"MSG foo.bar 1 2\r\nhi\r\n")
            wire.read_to_end()


@pytest.mark.parametrize("listener", LISTENERS)
def test_silent_connections(broker: Broker, listener: str) -> None:
    """Hundreds that connect and say nothing hold nobody up."""
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(open_raw(LISTENERS[listener](broker)))
        check_service(broker)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_subscriptions_of_vanished_clients_are_removed(broker: Broker, transport: str) -> None:
    with open_wire(broker, transport) as wire:
        wire.handshake()
        wire.send(b"".join(b"SUB s.%d.* %d\r\n" % (n, n) for n in range(1, 1001)))
        wire.ping()
        assert broker.varz()["subscriptions"] == 1000
        reset(wire.socket)
        wait_until(lambda: broker.varz()["subscriptions"] == 0)
    check_service(broker)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_subscriber_that_vanishes_under_load(broker: Broker, transport: str) -> None:
    """Messages to a connection that dies meanwhile are dropped by name, not lost."""
    with open_wire(broker, "tcp") as publisher, open_wire(broker, "tcp") as witness:
        for wire in (publisher, witness):
            wire.handshake()
        witness.send(b"SUB load 1\r\n")
        witness.ping()
        before = broker.conservation()["published"]
        for round_number in range(20):
            # What was published before must not reach the next victim ahead of its PONG.
            publisher.ping()
            victim = open_wire(broker, transport)
            victim.handshake()
            victim.send(b"SUB load 1\r\n")
            victim.ping()
            publisher.send(b"PUB load 4\r\nload\r\n" * 500)
            if round_number % 2:
                reset(victim.socket)
            else:
                victim.close()
        witness.expect(b"MSG load 1 4\r\nload\r\n" * 10_000)
        assert broker.conservation()["published"] - before == 10_000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_payload_that_never_arrives_does_no_harm(broker: Broker, transport: str) -> None:
    """Many announce a large message and stall; memory grows with what arrived, not with promises."""
    resident_before = resident_bytes(broker)
    with ExitStack() as stack:
        wires: list[Wire] = []
        for _ in range(200):
            wire = stack.enter_context(open_wire(broker, transport))
            wire.handshake()
            wire.send(b"PUB a 1000000\r\n" + b"x" * 1000)
            wires.append(wire)
        check_service(broker)
        assert resident_bytes(broker) - resident_before < 50_000_000
        wires[0].send(b"x" * 999_000 + b"\r\nPING\r\n")
        wires[0].expect(b"PONG\r\n")


def resident_bytes(broker: Broker) -> int:
    fields = Path(f"/proc/{broker.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(broker: Broker) -> int:
    """Open descriptors, summed over threads: each shard has a table of its own."""
    tasks = Path(f"/proc/{broker.process.pid}/task")
    return sum(1 for _ in tasks.glob("*/fd/*"))


def test_churn_leaks_no_descriptor(broker: Broker) -> None:
    """Thousands of connections come and go; the broker ends with as many descriptors as before."""
    check_service(broker)
    broker.wait_idle()
    before = descriptors(broker)
    for _ in range(1000):
        open_raw(broker.tcp).close()
        open_raw(broker.http).close()
    check_service(broker)
    broker.wait_idle()
    wait_until(lambda: descriptors(broker) <= before + 4)
