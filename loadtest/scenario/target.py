"""Targets: addresses of servers that speak the NATS client protocol or HTTP."""

import socket
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from loadtest.errors import RunError, TargetError
from loadtest.scenario.names import resolve

_SCHEMES: dict[str, tuple[Literal["tcp", "ws", "rest"], int]] = {
    "nats": ("tcp", 4222),
    "ws": ("ws", 80),
    "http": ("rest", 80),
}
_CONNECT_TIMEOUT_S = 5.0
_INFO = b"INFO"


@dataclass(frozen=True)
class Target:
    """Address of a server to test."""

    url: str
    transport: Literal["tcp", "ws", "rest"]
    host: str
    """Name and port, in the form of a Host header."""
    address: str
    """Numeric address and port that the name resolves to, such as "127.0.0.1:4222" or "[::1]:4222"."""
    path: str
    """Path and query; "/" for nats://."""

    def require_reachable(self) -> None:
        """Open a connection to the server and close it; for nats:// wait for the server's first words.

        Raises:
            RunError: No connection was possible within 5 s, or the server speaks another protocol.
        """
        name, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((name.strip("[]"), int(port)), _CONNECT_TIMEOUT_S) as connection:
                # A NATS server speaks first, an HTTP server waits for its client.
                if self.transport == "tcp" and not _begins_with_info(connection):
                    raise RunError(
                        f"target {self.url} does not speak the NATS protocol over TCP; for WebSocket "
                        "and HTTP the URL begins with ws:// or http://"
                    )
        except OSError as error:
            raise RunError(f"target {self.url} is unreachable: {error.strerror or error}") from error


def _begins_with_info(connection: socket.socket) -> bool:
    try:
        return connection.recv(len(_INFO), socket.MSG_WAITALL) == _INFO
    except TimeoutError:
        return False


def parse_target(url: str) -> Target:
    """Parse `nats://HOST[:4222]`, `ws://HOST[:80]/PATH` or `http://HOST[:80]/PATH`, and resolve the host.

    Raises:
        TargetError: The URL has another scheme, no host, a bad port, or a user, fragment or path that cannot
            be used; or the host is unknown.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise TargetError(f'target "{url}": {error}') from error
    if parts.scheme not in _SCHEMES or not parts.hostname:
        known = ", ".join(f"{scheme}://HOST:PORT" for scheme in _SCHEMES)
        raise TargetError(f'target "{url}": expected {known}')
    transport, default_port = _SCHEMES[parts.scheme]
    if parts.username is not None or parts.fragment:
        raise TargetError(f'target "{url}": only host, port and path are supported')
    if transport == "tcp" and (parts.path.strip("/") or parts.query):
        raise TargetError(f'target "{url}": nats:// does not support a path')
    if port == 0:
        raise TargetError(f'target "{url}": port 0 is not a port to connect to')
    port = port or default_port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Target(url, transport, f"{name}:{port}", _resolve(url, parts.hostname, port), path)


def _resolve(url: str, host: str, port: int) -> str:
    try:
        family, numeric = resolve(host, port)
    except OSError as error:
        raise TargetError(f'target "{url}": {host}: {error.strerror}') from error
    return f"[{numeric}]:{port}" if family == socket.AF_INET6 else f"{numeric}:{port}"
