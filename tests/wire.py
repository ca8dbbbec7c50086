"""Raw client connections: exact bytes out, exact bytes in, every wait with a deadline."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers import Server

#: Against hanging, on a machine that is busy with something else, too.
TIMEOUT_S = 60.0
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
TRANSPORTS = ("tcp", "ws")


class StreamEndError(Exception):
    """The server closed the connection."""


class Wire:
    """A raw TCP connection to a NATS-protocol server."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(self.address(server), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        #: The code of the WebSocket close frame, once one came.
        self.close_code: int | None = None

    def address(self, server: Server) -> tuple[str, int]:
        return server.tcp

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket, without any farewell."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send a slice of the stream."""
        self.socket.sendall(data)

    def send_bytewise(self, data: bytes) -> None:
        """Send each byte on its own."""
        for i in range(len(data)):
            self.send(data[i : i + 1])

    def receive(self) -> bytes:
        """Wait for the next slice of the stream.

        Raises:
            StreamEndError: there is no more.
        """
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError as error:
            raise StreamEndError from error
        if not data:
            raise StreamEndError
        return data

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        while len(self.received) < size:
            self.received += self.receive()
        data, self.received = self.received[:size], self.received[size:]
        return data

    def read_line(self) -> bytes:
        """Read a control line, with its line end."""
        while (end := self.received.find(b"\n")) < 0:
            self.received += self.receive()
        return self.read(end + 1)

    def read_to_end(self) -> bytes:
        """Read all that comes until the server closes."""
        try:
            while True:
                self.received += self.receive()
        except StreamEndError:
            pass
        data, self.received = self.received, b""
        return data

    def expect(self, data: bytes) -> None:
        """Check that exactly these bytes come next."""
        while len(self.received) < len(data) and data.startswith(self.received):
            try:
                self.received += self.receive()
            except (StreamEndError, TimeoutError) as error:
                raise AssertionError(f"{self.received!r}, then {error!r}, not {data!r}") from error
        received = self.read(min(len(data), len(self.received)))
        assert received == data

    def expect_end(self, data: bytes = b"") -> None:
        """Check that exactly these bytes come and then the end of the connection."""
        assert self.read_to_end() == data

    def read_info(self) -> dict[str, Any]:
        """Read an INFO line and return its JSON."""
        line = self.read_line()
        assert line.startswith(b"INFO {"), line
        assert line.endswith(b"\r\n"), line
        info: dict[str, Any] = json.loads(line[5:])
        return info

    def handshake(self, **connect: object) -> dict[str, Any]:
        """INFO, CONNECT, PING, PONG; returns INFO. Fields of CONNECT override the quiet defaults."""
        info = self.read_info()
        self.send(connect_line(**connect) + b"PING\r\n")
        self.expect(b"PONG\r\n")
        return info

    def ping(self) -> None:
        """PING, and check that PONG is the next that comes: all before it was handled."""
        self.send(b"PING\r\n")
        self.expect(b"PONG\r\n")


class WebSocketWire(Wire):
    """The same stream in masked binary frames, one frame per `send`."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.frames = b""
        #: Payloads of pong frames that came between data.
        self.pongs: list[bytes] = []
        self.socket.sendall(upgrade_request(server))
        while (end := self.frames.find(b"\r\n\r\n")) < 0:
            self.frames += super().receive()
        head, self.frames = self.frames[:end], self.frames[end + 4 :]
        assert head.startswith(b"HTTP/1.1 101 "), head

    def address(self, server: Server) -> tuple[str, int]:
        return server.http

    def send(self, data: bytes) -> None:
        self.socket.sendall(frame(BINARY, data))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are, framed or not."""
        self.socket.sendall(data)

    def receive(self) -> bytes:
        while True:
            opcode, payload = self.read_frame()
            if opcode == CLOSE:
                self.close_code = int.from_bytes(payload[:2]) if payload else None
            elif opcode in (BINARY, CONTINUATION):
                return payload
            elif opcode == PONG:
                self.pongs.append(payload)
            else:
                raise AssertionError(f"unexpected frame {opcode:#x} {payload!r}")

    def read_frame(self) -> tuple[int, bytes]:
        """Read one frame: opcode and payload.

        Raises:
            StreamEndError: there is no more.
        """
        first, second = self._take(2)
        assert not first & 0x70, "reserved bits from the server"
        assert not second & 0x80, "a masked frame from the server"
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self._take(2))
        elif size == 127:
            size = int.from_bytes(self._take(8))
        return first & 0xF, self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self.frames) < size:
            self.frames += super().receive()
        data, self.frames = self.frames[:size], self.frames[size:]
        return data


def open_wire(server: Server, transport: str) -> Wire:
    """Open a raw connection; `transport` is `tcp` or `ws`."""
    return Wire(server) if transport == "tcp" else WebSocketWire(server)


def connect_line(**fields: object) -> bytes:
    """A CONNECT line, quiet unless told otherwise."""
    options = {"verbose": False, "pedantic": False, "echo": True, **fields}
    return b"CONNECT " + json.dumps(options).encode() + b"\r\n"


def upgrade_request(
    server: Server, path: str = "/", headers: Mapping[str, str | None] | None = None
) -> bytes:
    """A WebSocket upgrade request; a header given as None is left out."""
    fields: dict[str, str | None] = {
        "Host": f"{server.http[0]}:{server.http[1]}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
    }
    fields.update(headers or {})
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def frame(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True, rsv: int = 0) -> bytes:
    """A client's frame; `rsv` holds the three reserved bits, RSV1 the highest."""
    size = len(payload)
    if size < 126:
        length, extended = size, b""
    elif size < 1 << 16:
        length, extended = 126, struct.pack("!H", size)
    else:
        length, extended = 127, struct.pack("!Q", size)
    first = fin << 7 | rsv << 4 | opcode
    if not masked:
        return bytes([first, length]) + extended + payload
    key = os.urandom(4)
    return bytes([first, 0x80 | length]) + extended + key + mask(payload, key)


def mask(payload: bytes, key: bytes) -> bytes:
    """XOR with the repeated key (RFC 6455 section 5.3)."""
    pad = (key * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload) ^ int.from_bytes(pad)).to_bytes(len(payload))
