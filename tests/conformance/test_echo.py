"""Echo endpoint, tested with an independent WebSocket client like by conformance suites."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.servers import Broker

SIZES = (0, 1, 125, 126, 127, 128, 65_535, 65_536, 1024 * 1024)


@pytest.fixture
async def echo(broker: Broker) -> AsyncIterator[ClientConnection]:
    async with connect(broker.url("ws") + "/echo", max_size=None) as connection:
        yield connection


@pytest.mark.parametrize("size", SIZES)
async def test_binary(echo: ClientConnection, size: int) -> None:
    message = os.urandom(size)
    await echo.send(message)
    assert await echo.recv() == message


@pytest.mark.parametrize("size", SIZES)
async def test_text(echo: ClientConnection, size: int) -> None:
    """Characters of one to four bytes come back as text."""
    message = ("aä€😀" * (size // 10 + 1))[:size]
    message = message.encode()[:size].decode(errors="ignore")
    await echo.send(message)
    assert await echo.recv() == message


@pytest.mark.parametrize("parts", [["a", "b", "c"], ["", "x", ""], ["ä" * 70_000, "€" * 70_000]])
async def test_fragmented_text(echo: ClientConnection, parts: list[str]) -> None:
    await echo.send(parts)
    assert await echo.recv() == "".join(parts)


async def test_fragmented_binary(echo: ClientConnection) -> None:
    parts = [os.urandom(size) for size in (1, 0, 125, 126, 65_536)]
    await echo.send(parts)
    assert await echo.recv() == b"".join(parts)


async def test_many_messages_keep_their_order(echo: ClientConnection) -> None:
    messages = [os.urandom(n % 300) for n in range(1000)]
    for message in messages:
        await echo.send(message)
    assert [await echo.recv() for _ in messages] == messages


@pytest.mark.parametrize("size", [0, 1, 125])
async def test_ping(echo: ClientConnection, size: int) -> None:
    pong = await echo.ping(os.urandom(size))
    assert await pong >= 0


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "going"), (3000, "ä" * 60)])
async def test_close(echo: ClientConnection, code: int, reason: str) -> None:
    """The close handshake is completed with the same code."""
    await echo.close(code, reason)
    assert echo.close_code == code
    assert echo.protocol.close_rcvd is not None
    assert echo.protocol.close_rcvd.code == code


async def test_the_echo_endpoint_is_off_by_default(start_broker: Callable[..., Broker]) -> None:
    """Without --echo the path is a NATS client's like any other."""
    async with connect(start_broker().url("ws") + "/echo") as connection:
        first = await connection.recv()
    assert isinstance(first, bytes)
    assert first.startswith(b"INFO {")


async def test_upgrade_errors_are_http(broker: Broker) -> None:
    with pytest.raises(InvalidStatus) as error:
        async with connect(broker.url("ws") + "/echo", additional_headers={"Sec-WebSocket-Key": "again"}):
            pass
    assert error.value.response.status_code == 400
