"""What a running broker's monitor listener tells, read over HTTP.

The structs hold what is read here; a broker tells more, and what is not named is passed over.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from subjectbus.errors import MonitorError, UsageError
from subjectbus.printable import printable

DEFAULT_URL = "http://127.0.0.1:8222"
_DEFAULT_PORT = 8222
_TIMEOUT_S = 5.0
_MOST_BYTES = 32 * 1024 * 1024
_NO_MONITOR = "this is not the monitor listener"

SORTS = (
    "cid",
    "start",
    "subs",
    "pending",
    "msgs_to",
    "msgs_from",
    "bytes_to",
    "bytes_from",
    "last",
    "idle",
    "uptime",
)
"""Orders of `/connz`: the first two ascend, the others descend."""
MOST_CONNECTIONS = 1024
"""Connections in one page of `/connz`."""

Document = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)


class Transport(msgspec.Struct, frozen=True):
    """Connections of one kind that are open."""

    connections: int


class Conservation(msgspec.Struct, frozen=True):
    """Messages that will never be delivered, by reason."""

    dropped: dict[str, int]


class Descriptors(msgspec.Struct, frozen=True):
    """Places of a shard's descriptor tables."""

    used: int
    limit: int


class AcceptQueue(msgspec.Struct, frozen=True):
    """Connections that wait to be accepted, by listener."""

    tcp: int
    http: int


class Shard(msgspec.Struct, frozen=True):
    """One thread of the broker; processor time in percent of one core."""

    index: int
    connections: int
    cpu_percent: float
    turns: int
    mailbox: int
    pending_bytes: int
    descriptors: Descriptors
    accept_queue: AcceptQueue


class Varz(msgspec.Struct, frozen=True):
    """`/varz`: counts since the start, `in` what clients sent, `out` what they were sent.

    `cpu` is in percent of one core, `mem` the resident bytes.
    """

    server_id: str
    server_name: str
    version: str
    driver: str
    uptime: str
    uptime_s: float
    cpu: float
    mem: int
    connections: int
    max_connections: int
    subscriptions: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    slow_consumers: int
    pending_bytes: int
    max_pending: int
    conservation: Conservation
    transports: dict[str, Transport]
    shard: tuple[Shard, ...]
    draining: bool = False

    @property
    def dropped(self) -> int:
        """Messages dropped, whatever the reason."""
        return sum(self.conservation.dropped.values())


class Connection(msgspec.Struct, frozen=True):
    """A row of `/connz`: `in` what this client sent, `out` what it was sent."""

    cid: int
    type: str
    ip: str
    port: int
    uptime: str
    idle: str
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int
    shard: int
    name: str = ""
    lang: str = ""
    version: str = ""


class Connz(msgspec.Struct, frozen=True):
    """`/connz`: one page of `total` connections."""

    total: int
    connections: tuple[Connection, ...]


class HotSubject(msgspec.Struct, frozen=True):
    """A subject and how much is published to it; `share` of all messages, 0 to 1."""

    subject: str
    msgs_per_s: float
    bytes_per_s: float
    share: float


class Subjects(msgspec.Struct, frozen=True):
    """`/subjects`: estimates from one in so many messages over the last `seconds`, busiest first."""

    one_in: int
    seconds: float
    subjects: tuple[HotSubject, ...]


@dataclass(frozen=True)
class Sample:
    """One look at a broker, and the documents it was read from, by name."""

    varz: Varz
    connz: Connz
    subjects: Subjects
    sort: str
    at_s: float
    """By the monotonic clock of the reader."""
    documents: dict[str, Document]


@dataclass(frozen=True)
class Endpoint:
    """Where a monitor listener is."""

    host: str
    port: int
    prefix: str = ""
    """Path before that of each document, where a proxy stands in between."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """The endpoint of a URL `[http://]HOST[:PORT][/PREFIX]`; without a port it is 8222.

        That of `/varz` itself will do, too.

        Raises:
            UsageError: It is no such URL; the text says why.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _unusable(url, str(error)) from error
        if parts.scheme != "http":
            raise _unusable(url, "the scheme must be http")
        if not host:
            raise _unusable(url, "it names no host")
        if port == 0:
            raise _unusable(url, "port 0 is no place to connect to")
        if parts.username is not None or parts.query or parts.fragment:
            raise _unusable(url, "user, query and fragment have no meaning here")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise _unusable(url, "it has characters that must be percent-encoded")
        return cls(host, port or _DEFAULT_PORT, parts.path.rstrip("/").removesuffix("/varz"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.prefix}"


class Monitor:
    """Reads the documents of one monitor listener; may be used from one thread at a time."""

    def __init__(self, url: str | Endpoint = DEFAULT_URL, timeout_s: float = _TIMEOUT_S) -> None:
        """Take the listener's URL, such as `server.monitor_url`; UsageError if it cannot be one."""
        self.endpoint = Endpoint.parse(url) if isinstance(url, str) else url
        self._timeout_s = timeout_s

    def sample(self, *, sort: str = "cid", limit: int = MOST_CONNECTIONS) -> Sample:
        """One look at the broker, with the first `limit` connections in the order `sort`, one of SORTS.

        Raises:
            MonitorError: The listener cannot be reached, or does not answer as a broker's does.
        """
        connection = HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=self._timeout_s)
        documents: dict[str, Document] = {}
        try:
            # First what tells another kind of server.
            documents["varz"] = self._read(connection, "/varz")
            varz = self._convert("/varz", documents["varz"], Varz)
            documents["connz"] = self._read(connection, "/connz", sort=sort, limit=limit)
            documents["subjects"] = self._read(connection, "/subjects")
        finally:
            connection.close()
        return Sample(
            varz=varz,
            connz=self._convert("/connz", documents["connz"], Connz),
            subjects=self._convert("/subjects", documents["subjects"], Subjects),
            sort=sort,
            at_s=time.monotonic(),
            documents=documents,
        )

    def _read(self, connection: HTTPConnection, path: str, **query: str | int) -> Document:
        target = f"{self.endpoint.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            with _deadline(connection, self._timeout_s):
                connection.request("GET", target, headers={"Accept": "application/json"})
                response = connection.getresponse()
                body = response.read(_MOST_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise self._error(path, self._explain(error)) from error
        if response.status != HTTPStatus.OK:
            status = f"status {response.status} {response.reason}".rstrip() + _detail(body)
            # A listener for WebSocket connections wants them.
            is_other = response.status == HTTPStatus.UPGRADE_REQUIRED
            raise self._error(path, f"{_NO_MONITOR}: {status}" if is_other else status)
        if len(body) > _MOST_BYTES:
            raise self._error(path, f"the answer is longer than {_MOST_BYTES} bytes")
        try:
            return msgspec.json.decode(body, type=Document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._error(path, f"{_NO_MONITOR}: the answer is no JSON object: {error}") from error

    def _convert(self, path: str, document: Document, cls: type[T]) -> T:
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise self._error(path, f"not what a subjectbus of this version says: {error}") from error

    def _explain(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror[0].lower() + error.strerror[1:]
        if isinstance(error, OSError):
            return "the connection was closed without an answer"
        return f"{_NO_MONITOR}: the answer is no HTTP ({type(error).__name__})"

    def _error(self, path: str, what: str) -> MonitorError:
        return MonitorError(printable(f"{self.endpoint}{path}: {what}"))


@contextmanager
def _deadline(connection: HTTPConnection, timeout_s: float) -> Iterator[None]:
    """Raise TimeoutError if what is done within takes longer in all, even if bytes keep coming."""
    if connection.sock is None:
        connection.connect()
    stream: socket.socket = connection.sock  # the connection lets go of it before the end of an answer
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException) as error:
        if is_over.is_set():
            raise TimeoutError from error
        raise
    else:
        if is_over.is_set():  # the end of the stream was the end of an answer without a length
            raise TimeoutError
    finally:
        timer.cancel()


def _unusable(url: str, why: str) -> UsageError:
    return UsageError(printable(f'"{url}" is no URL of a monitor listener, such as {DEFAULT_URL}: {why}'))


def _detail(body: bytes) -> str:
    """The detail of a problem (RFC 9457), where there is one."""
    try:
        problem = msgspec.json.decode(body, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    detail = problem.get("detail") or problem.get("error")
    return f": {detail}" if isinstance(detail, str) else ""
