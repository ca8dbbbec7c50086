"""Hold many streams of one subject and compare every received byte with the expected one.

    python streams.py sse|ws HOST PORT COUNT SUBJECT MESSAGES

prints `ready` when all have subscribed, `complete` when each has received all messages and nothing else, and
keeps them open until its standard input ends. Where a stream differs, it says so and ends with status 1.
"""

from __future__ import annotations

import base64
import resource
import select
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.wire import BINARY, connect_line, frame

#: Connections from one source address: the kernel's search for a free port is slow beyond.
PER_ADDRESS = 2000
DEADLINE_S = 500.0
#: <linux/in.h>; Python does not name it.
IP_BIND_ADDRESS_NO_PORT = 24


def payload(number: int) -> bytes:
    """Return the payload of message `number`, counted from 1."""
    return b"message %06d" % number


class Stream:
    """One stream: its own handshake first, then bytes that are the same for all."""

    __slots__ = ("position", "received", "socket")

    def __init__(self, address: tuple[str, int], source: str, request: bytes) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((source, 0))
        self.socket.connect(address)
        self.socket.sendall(request)
        self.socket.setblocking(False)
        #: Kept until there is more of it.
        self.received = b""
        #: Bytes of the expected stream that have come.
        self.position = 0

    def greet(self, data: bytes) -> bool:
        """Take in a part of the handshake; whether it is complete."""
        raise NotImplementedError

    def take(self, data: bytes, expected: bytes) -> None:
        """Compare what came after the handshake."""
        if not expected.startswith(data, self.position):
            sys.exit(f"at {self.position}: {data[:200]!r}, not {expected[self.position :][:200]!r}")
        self.position += len(data)


class Events(Stream):
    """Server-Sent Events."""

    __slots__ = ()

    @staticmethod
    def request(host: str, subject: str) -> bytes:
        return f"GET /v1/subscribe/{subject} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()

    @staticmethod
    def message(_subject: str, number: int) -> bytes:
        return b"id: %d\ndata: %b\n\n" % (number, payload(number))

    def greet(self, data: bytes) -> bool:
        self.received += data
        is_greeted = self.received.endswith(b"\r\n\r\nretry: 2000\n\n")
        if is_greeted:
            self.received = b""
        return is_greeted


class WebSocket(Stream):
    """The NATS client protocol in the frames of a WebSocket."""

    __slots__ = ("left", "subscribed")

    def __init__(self, address: tuple[str, int], source: str, request: bytes) -> None:
        super().__init__(address, source, request)
        self.subscribed = False
        #: Bytes of the open frame that have not come.
        self.left = 0

    @staticmethod
    def request(host: str, _subject: str) -> bytes:
        key = base64.b64encode(bytes(16)).decode()
        return (
            f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    @staticmethod
    def message(subject: str, number: int) -> bytes:
        body = payload(number)
        return b"MSG %b 1 %d\r\n%b\r\n" % (subject.encode(), len(body), body)

    def greet(self, data: bytes) -> bool:
        self.received += data
        if not self.subscribed and b"\r\n\r\n" in self.received:
            self.subscribed = True
            lines = connect_line() + f"SUB {SUBJECT} 1\r\nPING\r\n".encode()
            self.socket.sendall(frame(BINARY, lines))
        is_greeted = self.received.endswith(b"PONG\r\n")
        if is_greeted:
            self.received = b""
        return is_greeted

    def take(self, data: bytes, expected: bytes) -> None:
        if self.received:
            data, self.received = self.received + data, b""
        start, end = 0, len(data)
        while start < end:
            if self.left == 0:
                head = data[start : start + 4]
                size = 4 if head[1:2] == b"\x7e" else 2
                if len(head) < size:
                    self.received = head
                    return
                if head[0] != 0x80 | BINARY or head[1] > 126:
                    sys.exit(f"a frame that begins with {head!r}")
                self.left = int.from_bytes(head[2:]) if size == 4 else head[1]
                start += size
            part = data[start : start + self.left]
            super().take(part, expected)
            self.left -= len(part)
            start += len(part)


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    raise_descriptor_limit()
    kinds: dict[str, type[Events | WebSocket]] = {"sse": Events, "ws": WebSocket}
    kind = kinds[KIND]
    expected = b"".join(kind.message(SUBJECT, number) for number in range(1, MESSAGES + 1))
    request = kind.request(f"{HOST}:{PORT}", SUBJECT)
    poll = select.epoll()
    streams: dict[int, Stream] = {}
    for number in range(COUNT):
        source = f"127.0.{PORT % 199 + 1}.{number // PER_ADDRESS + 1}"
        stream = kind((HOST, PORT), source, request)
        streams[stream.socket.fileno()] = stream
        poll.register(stream.socket, select.EPOLLIN)

    deadline = time.monotonic() + DEADLINE_S

    def received() -> list[tuple[Stream, bytes]]:
        if time.monotonic() > deadline:
            short = sum(stream.position < len(expected) for stream in streams.values())
            sys.exit(f"{short} of {COUNT} streams are incomplete")
        ready = [streams[fd] for fd, _ in poll.poll(1.0, 4096)]
        return [(stream, stream.socket.recv(1 << 18)) for stream in ready]

    waiting = COUNT
    while waiting:
        for stream, data in received():
            if not data:
                sys.exit(f"closed after {stream.received!r}")
            waiting -= stream.greet(data)
    print("ready", flush=True)
    incomplete = COUNT
    while incomplete:
        for stream, data in received():
            if not data:
                sys.exit(f"closed at {stream.position}")
            stream.take(data, expected)
            incomplete -= stream.position == len(expected)
    print("complete", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    KIND, HOST, SUBJECT = sys.argv[1], sys.argv[2], sys.argv[5]
    PORT, COUNT, MESSAGES = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[6])
    main()
