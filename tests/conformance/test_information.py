"""INFO: the fields that clients depend on, in the types that the strictest of them accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Broker, Server

#: field: type; all of these are always present.
REQUIRED: dict[str, type] = {
    "server_id": str,
    "server_name": str,
    "version": str,
    "proto": int,
    "go": str,
    "host": str,
    "port": int,
    "headers": bool,
    "max_payload": int,
}


@pytest.fixture
def info(server: Server, transport: str) -> dict[str, Any]:
    with open_wire(server, transport) as wire:
        return wire.handshake()


def test_required_fields(info: dict[str, Any]) -> None:
    assert {name: type(info.get(name)) for name in REQUIRED} == REQUIRED
    assert info["headers"] is True
    assert info["proto"] == 1
    assert info["max_payload"] == 1024 * 1024
    major, minor, patch = info["version"].split("-")[0].split(".")
    assert (int(major), int(minor), int(patch)) >= (2, 10, 0)


def test_no_field_is_null(info: dict[str, Any]) -> None:
    """Typed clients refuse null where the field is optional."""
    assert None not in info.values()


def test_no_feature_is_required_that_the_broker_lacks(info: dict[str, Any]) -> None:
    """Without TLS and authentication the client must not be told to use them."""
    assert not any(info.get(name) for name in ("tls_required", "tls_verify", "auth_required"))
    assert not info.get("jetstream")


def test_port_is_the_port_of_the_listener(server: Server, transport: str) -> None:
    with open_wire(server, transport) as wire:
        info = wire.handshake()
    assert info["port"] == (server.tcp if transport == "tcp" else server.http)[1]


def test_connections_have_different_ids(broker: Broker, transport: str) -> None:
    """Every connection has its own id, all come from one server."""
    infos = []
    for _ in range(8):
        with open_wire(broker, transport) as wire:
            infos.append(wire.handshake())
    assert len({info["client_id"] for info in infos}) == 8
    assert len({info["server_id"] for info in infos}) == 1


def split_mix(seed: int, count: int) -> list[int]:
    """The highest bits of so many numbers of the generator that chooses members of queue groups."""
    bits, state = [], seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        bits.append((mixed ^ mixed >> 31) >> 63)
    return bits


def test_the_server_id_does_not_reveal_the_choices_of_queue_groups(
    start_broker: Callable[..., Broker],
) -> None:
    """It is a random number with the usual look, and seeds nothing."""
    broker = start_broker(shards=1)
    with open_wire(broker, "tcp") as wire:
        server_id = wire.handshake()["server_id"]
        assert re.fullmatch("SB[0-9A-F]{16}", server_id)
        wire.send(b"SUB a workers 0\r\nSUB a workers 1\r\n" + b"PUB a 0\r\n\r\n" * 64)
        chosen = []
        for _ in range(64):
            chosen.append(int(wire.read_line().split()[2]))
            wire.read_line()
    foretold = split_mix(int(server_id.removeprefix("SB"), 16), 1000)
    for member in (0, 1):
        picks = [pick ^ member for pick in chosen]
        assert not any(foretold[start : start + 64] == picks for start in range(len(foretold)))


def test_the_first_message_of_a_websocket_is_the_complete_info(server: Server) -> None:
    """nats-py reads one frame and takes it for INFO."""
    with open_wire(server, "ws") as wire:
        first = wire.receive()
    assert first.startswith(b"INFO {")
    assert first.endswith((b"}\r\n", b"} \r\n"))
    assert first.count(b"\r\n") == 1
