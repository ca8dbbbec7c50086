"""Raw connections to a broker: exact bytes, without a library, and a deadline for each wait."""

import base64
import json
import os
import resource
import select
import socket
import time
from types import TracebackType
from typing import Self

Address = tuple[str, int]

TIMEOUT_S = 120.0
_PIECE = 1 << 20
_PAUSE_S = 0.02
_POLL_MS = 1000
_PING, _PONG = b"PING\r\n", b"PONG\r\n"
_OK = 200


class EndedError(ConnectionError):
    """The end of a connection by the broker; the text is its last `-ERR`, if it sent one."""


def parse_address(text: str) -> Address:
    """Split `host:port`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def open_socket(address: Address, timeout_s: float = TIMEOUT_S, receive_buffer: int = 0) -> socket.socket:
    """Connect over TCP.

    Args:
        address: The listener.
        timeout_s: Limit of connecting and of every later call, in seconds.
        receive_buffer: Size of the kernel's buffer in bytes; 0 leaves it to the kernel.
    """
    connection = socket.socket()
    try:
        connection.settimeout(timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class Client:
    """NATS client over TCP, after the exchange of `INFO`, `CONNECT`, `PING` and `PONG`."""

    def __init__(
        self, address: Address, timeout_s: float = TIMEOUT_S, receive_buffer: int = 0, **options: object
    ) -> None:
        self.socket = open_socket(address, timeout_s, receive_buffer)
        self._received = b""
        try:
            self.cid = int(json.loads(self._read_reply().removeprefix(b"INFO "))["client_id"])
            self.send(connect_line(**options) + _PING)
            while self._read_reply() != _PONG:
                pass
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes without changing them."""
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Return the bytes that were received and not yet returned, waiting for at least one.

        Raises:
            EndedError: The broker has closed the connection.
        """
        data, self._received = self._received, b""
        if not data and not (data := self.socket.recv(_PIECE)):
            raise EndedError("the broker has closed the connection")
        return data

    def read_line(self) -> bytes:
        """Return the next line, including its line end."""
        data = self.receive()
        while (end := data.find(b"\n")) < 0:
            data += self.receive()
        self._received = data[end + 1 :]
        return data[: end + 1]

    def _read_reply(self) -> bytes:
        """Return the next line.

        Raises:
            EndedError: The line is an `-ERR`, with which a broker refuses a client.
        """
        line = self.read_line()
        if line.startswith(b"-ERR"):
            raise EndedError(line.decode(errors="replace").strip())
        return line

    def carry_out(self, operations: bytes) -> str:
        """Send operations and wait until all are carried out; messages that arrive are discarded.

        Returns:
            The first `-ERR`, or a description of the connection's end; empty if neither came.
        """
        left, problem, tail, is_done = memoryview(operations + _PING), "", b"", False
        # Not select(), which does not accept descriptors above 1,023.
        poll = select.poll()
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while not is_done:
                if time.monotonic() > deadline:
                    return problem or f"not carried out in {TIMEOUT_S:.0f} s"
                poll.register(self.socket, select.POLLIN | (select.POLLOUT if left else 0))
                events = sum(event for _, event in poll.poll(_POLL_MS))
                if left and events & select.POLLOUT:
                    left = left[self.socket.send(left[:_PIECE]) :]
                if events & ~select.POLLOUT:
                    data = tail + self.receive()
                    if not problem and (at := data.find(b"-ERR")) >= 0:
                        problem = data[at : at + 80].split(b"\r")[0].decode(errors="replace")
                    is_done, tail = _PONG in data, data[1 - len(_PONG) :]
        except OSError as error:
            return problem or f"the broker has closed the connection ({type(error).__name__})"
        return problem


def connect_line(**options: object) -> bytes:
    """Return a CONNECT with these options; `verbose` is false by default."""
    return b"CONNECT " + json.dumps({"verbose": False, **options}).encode() + b"\r\n"


def upgrade(address: Address) -> socket.socket:
    """Open a WebSocket; data that the server sends after the handshake is not read."""
    connection = open_socket(address)
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET / HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    try:
        connection.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            if not (more := connection.recv(1)):
                raise EndedError(f"not a WebSocket handshake: {answer!r}")
            answer += more
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise EndedError(f"not a WebSocket handshake: {answer!r}")
    except OSError:
        connection.close()
        raise
    return connection


def get(address: Address, path: str, timeout_s: float = TIMEOUT_S) -> tuple[int, bytes]:
    """Fetch a page over a connection of its own; return status and body."""
    with open_socket(address, timeout_s) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        return read_answer(connection)


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Read one HTTP response with a Content-Length; return status and body.

    Raises:
        EndedError: The connection ended before the response was complete.
    """
    data = bytearray()
    head_end = length = status = -1
    while head_end < 0 or len(data) < head_end + length:
        if not (more := connection.recv(_PIECE)):
            raise EndedError("the connection ended before the response was complete")
        data += more
        if head_end < 0 and (end := data.find(b"\r\n\r\n")) >= 0:
            head_end, head = end + 4, bytes(data[:end]).lower()
            status, length = int(head.split(b" ", 2)[1]), 0
            if (at := head.find(b"content-length:")) >= 0:
                length = int(head[at:].split(b"\r\n")[0].split(b":")[1])
    return status, bytes(data[head_end:])


def seconds_until_served(address: Address, limit_s: float) -> tuple[float, str]:
    """Connect repeatedly until a PING is answered.

    Returns:
        Seconds since the first attempt, infinite after `limit_s`, and the reason why the last attempt failed.
    """
    begun, trouble = time.perf_counter(), ""
    while (waited := time.perf_counter() - begun) < limit_s:
        try:
            Client(address, max(limit_s - waited, _PAUSE_S)).socket.close()
        except OSError as error:
            trouble = str(error) or type(error).__name__
            time.sleep(_PAUSE_S)
        else:
            return time.perf_counter() - begun, trouble
    return float("inf"), trouble


def seconds_until_healthy(address: Address, limit_s: float) -> tuple[float, str]:
    """Ask for `/healthz` repeatedly until the status is 200.

    Returns:
        Seconds since the first attempt, infinite after `limit_s`, and the reason why the last attempt failed.
    """
    begun, trouble = time.perf_counter(), ""
    while (waited := time.perf_counter() - begun) < limit_s:
        try:
            status, _ = get(address, "/healthz", max(limit_s - waited, _PAUSE_S))
        except OSError as error:
            trouble = str(error) or type(error).__name__
        else:
            if status == _OK:
                return time.perf_counter() - begun, trouble
            trouble = f"status {status}"
        time.sleep(_PAUSE_S)
    return float("inf"), trouble


def raise_descriptor_limit() -> None:
    """Raise the soft limit on open files to the hard limit, which needs no privilege."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
