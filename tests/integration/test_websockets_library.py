"""The `websockets` library as an independent client: its own handshake, framing and close."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Server

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HELLO = b"MSG a 1 5\r\nhello\r\n"


@pytest.fixture
async def client(server: Server) -> AsyncIterator[ClientConnection]:
    async with connect(server.url("ws"), max_size=None) as connection:
        yield connection


async def receive(client: ClientConnection, size: int) -> bytes:
    """Read at least `size` bytes of the stream, whatever messages they come in."""
    received = b""
    while len(received) < size:
        message = await client.recv()
        assert isinstance(message, bytes)
        received += message
    return received


async def messages_until_close(client: ClientConnection) -> AsyncIterator[str | bytes]:
    """All messages up to the close frame, whatever its code."""
    with suppress(ConnectionClosed):
        while True:
            yield await client.recv()


async def greet(client: ClientConnection) -> None:
    """The first message is the whole INFO, in binary."""
    first = await client.recv()
    assert isinstance(first, bytes)
    assert json.loads(first.removeprefix(b"INFO "))["headers"] is True
    await client.send(CONNECT + b"PING\r\n")
    assert await client.recv() == b"PONG\r\n"


async def test_handshake_and_round_trip(client: ClientConnection) -> None:
    await greet(client)
    await client.send(b"SUB a 1\r\nPUB a 5\r\nhello\r\n")
    assert await receive(client, len(HELLO)) == HELLO


async def test_text_messages_are_accepted_and_answered_in_binary(client: ClientConnection) -> None:
    await greet(client)
    await client.send("SUB a 1\r\nPUB a 5\r\nhello\r\n")
    assert await receive(client, len(HELLO)) == HELLO


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_stream_in_fragments(client: ClientConnection, size: int) -> None:
    """CONNECT, SUB, PUB and PING in one message of many fragments."""
    await client.recv()
    stream = CONNECT + b"SUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n"
    await client.send([stream[i : i + size] for i in range(0, len(stream), size)])
    answer = b"MSG a 1 5\r\nhello\r\nPONG\r\n"
    assert await receive(client, len(answer)) == answer


async def test_protocol_ping(client: ClientConnection) -> None:
    await greet(client)
    latency = await (await client.ping(b"payload"))
    assert latency >= 0
    await client.pong(b"unasked")
    await client.send(b"PING\r\n")
    assert await client.recv() == b"PONG\r\n"


@pytest.mark.parametrize("code", [1000, 1001, 3999])
async def test_close_by_the_client(client: ClientConnection, code: int) -> None:
    """The server completes the closing handshake."""
    await greet(client)
    await client.close(code)
    assert client.protocol.close_rcvd is not None


async def test_close_by_the_server(client: ClientConnection, server: Server) -> None:
    """A NATS error arrives as a message, then as a close frame."""
    await greet(client)
    await client.send(b"NONSENSE\r\n")
    received = [message async for message in messages_until_close(client)]
    if server.ours:  # nats-server drops the connection, often before it wrote either
        assert received == [b"-ERR 'Unknown Protocol Operation'\r\n"]
        assert client.close_code == 1002


async def test_no_extension_is_negotiated(client: ClientConnection) -> None:
    """The library offers permessage-deflate; the server declines."""
    assert client.response is not None
    assert "Sec-WebSocket-Extensions" not in client.response.headers
    assert client.protocol.extensions == []


async def test_large_message_in_fragments(client: ClientConnection) -> None:
    await greet(client)
    payload = bytes(range(256)) * 4096
    stream = b"SUB a 1\r\nPUB a %d\r\n%b\r\n" % (len(payload), payload)
    await client.send([stream[i : i + 9999] for i in range(0, len(stream), 9999)])
    answer = b"MSG a 1 %d\r\n%b\r\n" % (len(payload), payload)
    assert await receive(client, len(answer)) == answer
