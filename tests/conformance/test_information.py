"""INFO: the fields that clients depend on, in the types that the strictest of them accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.wire import open_wire

if TYPE_CHECKING:
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


def test_nothing_is_asked_that_is_not_there(info: dict[str, Any]) -> None:
    """Without TLS and authentication the client must not be told to use them."""
    assert not any(info.get(name) for name in ("tls_required", "tls_verify", "auth_required"))
    assert not info.get("jetstream")


def test_port_is_the_listener_s(server: Server, transport: str) -> None:
    with open_wire(server, transport) as wire:
        info = wire.handshake()
    assert info["port"] == (server.tcp if transport == "tcp" else server.http)[1]


def test_connections_are_told_apart(broker: Broker, transport: str) -> None:
    """Every connection has its own id, all come from one server."""
    infos = []
    for _ in range(8):
        with open_wire(broker, transport) as wire:
            infos.append(wire.handshake())
    assert len({info["client_id"] for info in infos}) == 8
    assert len({info["server_id"] for info in infos}) == 1


def test_first_message_of_a_web_socket_is_the_whole_info(server: Server) -> None:
    """nats-py reads one frame and takes it for INFO."""
    with open_wire(server, "ws") as wire:
        first = wire.receive()
    assert first.startswith(b"INFO {")
    assert first.endswith((b"}\r\n", b"} \r\n"))
    assert first.count(b"\r\n") == 1
