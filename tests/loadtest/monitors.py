"""Fake monitors: with correct answers, and with faults."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Serve = "Callable[[socket.socket, threading.Event], None]"


class FakeMonitor:
    """A listener whose connections are each served by `serve` until it returns or the monitor is closed."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.accepted = 0
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._run, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._serve(connection, self._ended)
            except OSError:
                return

    def close(self) -> None:
        """Disappears: nobody is served or accepted any more."""
        self._ended.set()
        # Wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_request(connection: socket.socket) -> bytes:
    """The head of the next request; nothing at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = connection.recv(4096)
        if not part:
            return b""
        head += part
    return head


def answer(body: bytes, status: str = "200 OK", *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def telling(counters: Callable[[], Mapping[str, object]]) -> Serve:
    """Answer with the result of `counters`, over kept connections."""

    def serve(connection: socket.socket, _: threading.Event) -> None:
        while read_request(connection):
            connection.sendall(answer(json.dumps(counters()).encode()))

    return serve


def saying(response: bytes) -> Serve:
    """Answer each request with these bytes."""

    def serve(connection: socket.socket, _: threading.Event) -> None:
        while read_request(connection):
            connection.sendall(response)

    return serve


def hanging(connection: socket.socket, ended: threading.Event) -> None:
    """Read the request and never answer."""
    read_request(connection)
    ended.wait()


def trickling(connection: socket.socket, ended: threading.Event) -> None:
    """Send an answer slowly and without end."""
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not ended.wait(0.01):
        connection.sendall(b"x")
