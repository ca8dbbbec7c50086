"""Targets: the address of a server that speaks the NATS client protocol, or HTTP; and of its monitor."""

import socket
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from loadtest.errors import RunError, TargetError

_SCHEMES: dict[str, tuple[Literal["tcp", "ws", "rest"], int]] = {
    "nats": ("tcp", 4222),
    "ws": ("ws", 80),
    "http": ("rest", 80),
}
_CONNECT_TIMEOUT_S = 5.0
_MONITOR_PORT = 8222


@dataclass(frozen=True)
class Target:
    """A server, by name and by the address that its name resolves to."""

    url: str
    transport: Literal["tcp", "ws", "rest"]
    host: str
    """Name and port, as a Host header has them."""
    address: str
    """Numeric address and port, "127.0.0.1:4222" or "[::1]:4222"."""
    path: str

    def require_reachable(self) -> None:
        """One connection, opened and closed; RunError when that fails."""
        name, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((name.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise RunError(f"target {self.url} is unreachable: {error.strerror or error}") from error


def parse_target(url: str) -> Target:
    """The target of `nats://H[:4222]`, `ws://H[:80]/path` or `http://H[:80]/path`.

    Raises:
        TargetError: Another scheme, no host, a bad port, parts that have no meaning, or an unknown host.
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
        raise TargetError(f'target "{url}": only host, port and path are understood')
    if transport == "tcp" and (parts.path.strip("/") or parts.query):
        raise TargetError(f'target "{url}": nats:// takes no path')
    if port == 0:
        raise TargetError(f'target "{url}": port 0 cannot be connected to')
    port = port or default_port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Target(url, transport, f"{name}:{port}", _resolve(url, parts.hostname, port), path)


@dataclass(frozen=True)
class MonitorAddress:
    """Where a server tells its counters, by HTTP."""

    url: str
    host: str
    """Name and port, as a Host header has them."""
    endpoint: tuple[str, int]
    path: str

    @property
    def asked(self) -> str:
        """The URL of what it is asked for."""
        return f"http://{self.host}{self.path}"


def parse_monitor(url: str) -> MonitorAddress:
    """The /varz of `[http://]H[:8222]`, or another path that the URL names.

    Raises:
        TargetError: Another scheme, no host, a bad port, or parts that have no meaning.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = _MONITOR_PORT if parts.port is None else parts.port
    except ValueError as error:
        raise TargetError(f'monitor "{url}": {error}') from error
    if parts.scheme != "http" or not parts.hostname:
        raise TargetError(f'monitor "{url}": expected http://HOST:PORT')
    if parts.username is not None or parts.fragment:
        raise TargetError(f'monitor "{url}": only host, port and path are understood')
    if port == 0:
        raise TargetError(f'monitor "{url}": port 0 cannot be connected to')
    path = (parts.path if parts.path.strip("/") else "/varz") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or any(letter.isspace() for letter in path + parts.hostname):
        raise TargetError(f'monitor "{url}": a path of ASCII characters without spaces is needed')
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return MonitorAddress(url, f"{name}:{port}", (parts.hostname, port), path)


def _resolve(url: str, host: str, port: int) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TargetError(f'target "{url}": {host}: {error.strerror}') from error
    family, _, _, _, sockaddr = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    numeric = cast("str", sockaddr[0])
    return f"[{numeric}]:{port}" if family == socket.AF_INET6 else f"{numeric}:{port}"
