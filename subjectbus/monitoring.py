"""Client of a running broker's monitor listener, over HTTP.

The structs have the fields that are used here; other fields of an answer are ignored.
"""

import math
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, IncompleteRead
from types import TracebackType
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
    """Document `/varz`: totals since the start; `in` is from clients to the broker, `out` the reverse.

    `cpu` is in percent of one core, `mem` is the resident memory in bytes.
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
        """Number of dropped messages, for all reasons."""
        return sum(self.conservation.dropped.values())


class Connection(msgspec.Struct, frozen=True):
    """Row of `/connz`: `in` is from this client to the broker, `out` the reverse."""

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
    """Document `/connz`: one page of `total` connections."""

    total: int
    connections: tuple[Connection, ...]


class HotSubject(msgspec.Struct, frozen=True):
    """Subject with its rates; `share` is its share of all messages, from 0 to 1."""

    subject: str
    msgs_per_s: float
    bytes_per_s: float
    share: float


class Subjects(msgspec.Struct, frozen=True):
    """Document `/subjects`: the busiest subjects first.

    The rates of the last `seconds` are estimated from one in `one_in` messages.
    """

    one_in: int
    seconds: float
    subjects: tuple[HotSubject, ...]


@dataclass(frozen=True)
class Sample:
    """Snapshot of a broker, with the documents that it was read from, by name."""

    varz: Varz
    connz: Connz
    subjects: Subjects
    sort: str
    at_s: float
    """Time of the snapshot on the reader's monotonic clock, in seconds."""
    documents: dict[str, Document]


@dataclass(frozen=True)
class Endpoint:
    """Address of a monitor listener."""

    host: str
    port: int
    prefix: str = ""
    """Path before the path of each document, for a listener behind a proxy."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return the endpoint of a URL `[http://]HOST[:PORT][/PREFIX][/varz]`; the default port is 8222.

        Raises:
            UsageError: The text is not such a URL; the error says why.
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
            raise _unusable(url, "port 0 cannot be connected to")
        if parts.username is not None or parts.query or parts.fragment:
            raise _unusable(url, "user, query and fragment have no meaning here")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise _unusable(url, "it has characters that must be percent-encoded")
        return cls(host, port or _DEFAULT_PORT, parts.path.rstrip("/").removesuffix("/varz"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.prefix}"


class Monitor:
    """Reader of the documents of one monitor listener, over a kept connection.

    One thread at a time may use it; another thread may call `interrupt`. It works with every server whose
    monitor is like nats-server's, except for `sample`, which needs this project's broker.
    """

    def __init__(
        self,
        url: str | Endpoint = DEFAULT_URL,
        timeout_s: float = _TIMEOUT_S,
        *,
        max_bytes: int = _MOST_BYTES,
    ) -> None:
        """Check the URL; the first fetch connects.

        Args:
            url: URL of the listener, such as `server.monitor_url`.
            timeout_s: Longest time for one document in seconds, from connecting to the last byte.
            max_bytes: Size of the largest document that is accepted, in bytes.

        Raises:
            UsageError: The URL cannot be the URL of a monitor.
        """
        self.endpoint = Endpoint.parse(url) if isinstance(url, str) else url
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._connection = _Connection(self.endpoint.host, self.endpoint.port)
        self._is_interrupted = False

    def fetch(self, path: str = "/varz", *, timeout_s: float | None = None, **query: str | int) -> Document:
        """Return the JSON object at a path.

        Args:
            path: Path of the document, such as "/connz".
            timeout_s: Longest time in seconds. None takes the `timeout_s` of the constructor.
            query: Parameters of the query, such as `sort="cid"`.

        Raises:
            MonitorError: The listener cannot be reached, takes too long, or answers with anything else.
        """
        target = f"{self.endpoint.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._connection.deadline_s = time.monotonic() + limit_s
        self._is_interrupted = False
        try:
            status, reason, body = self._exchange(target)
        except (OSError, HTTPException, UnicodeError) as error:
            raise self._error(path, _explain(error, limit_s)) from error
        if status != HTTPStatus.OK:
            text = f"status {status} {reason}".rstrip() + _detail(body)
            # A listener for WebSocket connections answers that it needs an upgrade.
            is_other = status == HTTPStatus.UPGRADE_REQUIRED
            raise self._error(path, f"{_NO_MONITOR}: {text}" if is_other else text)
        if len(body) > self._max_bytes:
            raise self._error(path, f"the answer is longer than {self._max_bytes} bytes")
        try:
            return _decode(body)
        except ValueError as error:
            raise self._error(path, f"{_NO_MONITOR}: the answer is not a JSON object: {error}") from error

    def sample(self, *, sort: str = "cid", limit: int = MOST_CONNECTIONS) -> Sample:
        """Return a snapshot of the broker and of some of its connections.

        Args:
            sort: Order of the connections, one of SORTS.
            limit: Number of connections, from the first in that order.

        Raises:
            MonitorError: The listener cannot be reached, or does not answer as a broker's does.
        """
        # /varz comes first, because its answer shows whether the server is of another kind.
        documents = {"varz": self.fetch("/varz")}
        varz = self._convert("/varz", documents["varz"], Varz)
        documents["connz"] = self.fetch("/connz", sort=sort, limit=limit)
        documents["subjects"] = self.fetch("/subjects")
        return Sample(
            varz=varz,
            connz=self._convert("/connz", documents["connz"], Connz),
            subjects=self._convert("/subjects", documents["subjects"], Subjects),
            sort=sort,
            at_s=time.monotonic(),
            documents=documents,
        )

    def interrupt(self) -> None:
        """Make a `fetch` that is running in another thread raise a MonitorError."""
        self._is_interrupted = True
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection; the next fetch opens a new one."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, target: str) -> tuple[int, str, bytes]:
        """Return status, reason and body; ask again if the server had closed an idle kept connection."""
        is_kept = self._connection.sock is not None
        try:
            return self._connection.get(target, self._max_bytes + 1)
        except (ConnectionError, HTTPException):
            self.close()
            if not is_kept or self._is_interrupted:
                raise
        except (OSError, UnicodeError):
            self.close()
            raise
        try:
            return self._connection.get(target, self._max_bytes + 1)
        except (OSError, HTTPException):
            self.close()
            raise

    def _convert(self, path: str, document: Document, cls: type[T]) -> T:
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise self._error(path, f"not what a subjectbus of this version says: {error}") from error

    def _error(self, path: str, what: str) -> MonitorError:
        return MonitorError(printable(f"{self.endpoint}{path}: {what}"))


class _Connection(HTTPConnection):
    """Connection on which all operations end by one deadline, which each exchange sets."""

    deadline_s = math.inf
    """Deadline of the exchange on the monotonic clock, in seconds."""
    _stream: "_TimedSocket | None" = None

    def connect(self) -> None:
        self.timeout = _left_s(self.deadline_s)
        super().connect()
        self.sock = self._stream = _TimedSocket(self.sock)

    def get(self, target: str, most_bytes: int) -> tuple[int, str, bytes]:
        """Return status, reason and the first bytes of the body."""
        if self.sock is None:
            self.connect()
        if self._stream is not None:
            self._stream.deadline_s = self.deadline_s
        self.request("GET", target, headers={"Accept": "application/json"})
        response = self.getresponse()
        body = response.read(most_bytes)
        if not response.isclosed():  # more than is wanted, or a message cut short
            self.close()
        return response.status, response.reason, body

    def interrupt(self) -> None:
        """Make the operation that another thread waits for fail."""
        # Not `sock`: for the last answer of a connection, http.client releases it before the answer ends.
        if (stream := self._stream) is not None:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)


class _TimedSocket(socket.socket):
    """Socket on which all reads and writes together end by one deadline."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream.family, stream.type, stream.proto, stream.detach())
        self.deadline_s = math.inf

    def recv_into(self, *arguments: Any) -> int:  # noqa: ANN401 - socket's
        self.settimeout(_left_s(self.deadline_s))
        return super().recv_into(*arguments)

    def sendall(self, *arguments: Any) -> None:  # noqa: ANN401 - socket's
        self.settimeout(_left_s(self.deadline_s))
        super().sendall(*arguments)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _explain(error: Exception, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {limit_s:g} s"
    if isinstance(error, UnicodeError):
        return f"the host's name or the path is not valid ({error})"
    if isinstance(error, IncompleteRead):
        return "the connection was closed before the end of the answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, OSError):
        return "the connection was closed without an answer"
    return f"{_NO_MONITOR}: the answer is not HTTP ({type(error).__name__})"


def _decode(body: bytes) -> Document:
    """Return the JSON object that an answer is.

    Raises:
        ValueError: The answer is not a JSON object.
    """
    try:
        return msgspec.json.decode(body, type=Document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _unusable(url: str, why: str) -> UsageError:
    return UsageError(
        printable(f'"{url}" is not the URL of a monitor listener, such as {DEFAULT_URL}: {why}')
    )


def _detail(body: bytes) -> str:
    """Return the detail of a problem (RFC 9457), if there is one."""
    try:
        problem = _decode(body)
    except ValueError:
        return ""
    detail = problem.get("detail") or problem.get("error")
    return f": {detail}" if isinstance(detail, str) else ""
