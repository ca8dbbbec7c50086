"""What a running broker's monitor listener tells, read over HTTP.

The structs hold what is read here; a broker tells more, and what is not named is passed over.
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
    """Reads the documents of one monitor listener over a connection that is kept.

    One thread at a time may use it; another one may `interrupt` it. It works with every server that has a
    monitor as nats-server's, but for `sample`, which needs this project's broker.
    """

    def __init__(
        self,
        url: str | Endpoint = DEFAULT_URL,
        timeout_s: float = _TIMEOUT_S,
        *,
        max_bytes: int = _MOST_BYTES,
    ) -> None:
        """Check the URL; connect to nothing yet.

        Args:
            url: The listener's, such as `server.monitor_url`.
            timeout_s: How long one document may take in all, from connecting to its last byte.
            max_bytes: The longest document that is read.

        Raises:
            UsageError: The URL cannot be a monitor's.
        """
        self.endpoint = Endpoint.parse(url) if isinstance(url, str) else url
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._connection = _Connection(self.endpoint.host, self.endpoint.port)
        self._is_interrupted = False

    def fetch(self, path: str = "/varz", *, timeout_s: float | None = None, **query: str | int) -> Document:
        """Return the JSON object at a path.

        Args:
            path: That of the document, "/connz" for example.
            timeout_s: How long it may take in all; None takes that of the monitor.
            query: Parameters, `sort="cid"` for example.

        Raises:
            MonitorError: The listener cannot be reached, takes too long, or answers with anything else.
        """
        target = f"{self.endpoint.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._connection.deadline_s = time.monotonic() + limit_s
        self._is_interrupted = False
        try:
            status, reason, body = self._exchange(target)
        except (OSError, HTTPException) as error:
            raise self._error(path, _explain(error, limit_s)) from error
        if status != HTTPStatus.OK:
            text = f"status {status} {reason}".rstrip() + _detail(body)
            # A listener for WebSocket connections wants them.
            is_other = status == HTTPStatus.UPGRADE_REQUIRED
            raise self._error(path, f"{_NO_MONITOR}: {text}" if is_other else text)
        if len(body) > self._max_bytes:
            raise self._error(path, f"the answer is longer than {self._max_bytes} bytes")
        try:
            return msgspec.json.decode(body, type=Document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._error(path, f"{_NO_MONITOR}: the answer is not a JSON object: {error}") from error

    def sample(self, *, sort: str = "cid", limit: int = MOST_CONNECTIONS) -> Sample:
        """Return one look at the broker and some of its connections.

        Args:
            sort: Order of the connections, one of SORTS.
            limit: How many of them, from the first on.

        Raises:
            MonitorError: The listener cannot be reached, or does not answer as a broker's does.
        """
        # First the document that tells another kind of server.
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
        """End a fetch that another thread is in, with a MonitorError there."""
        self._is_interrupted = True
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection; the next fetch makes another one."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, target: str) -> tuple[int, str, bytes]:
        """Return status, reason and body; ask twice if a kept connection was closed for being idle."""
        is_kept = self._connection.sock is not None
        try:
            return self._connection.get(target, self._max_bytes + 1)
        except (ConnectionError, HTTPException):
            self.close()
            if not is_kept or self._is_interrupted:
                raise
        except OSError:
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
    """A connection on which everything ends by one deadline, set anew for each exchange."""

    deadline_s = math.inf
    """By the monotonic clock."""
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
        """Make what another thread waits for fail."""
        # Not `sock`, which http.client lets go of before the end of an answer that is the connection's last.
        if (stream := self._stream) is not None:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)


class _TimedSocket(socket.socket):
    """A socket of which every read and write ends by one deadline: byte after byte in time is not in time."""

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
    if isinstance(error, IncompleteRead):
        return "the connection was closed before the end of the answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, OSError):
        return "the connection was closed without an answer"
    return f"{_NO_MONITOR}: the answer is not HTTP ({type(error).__name__})"


def _unusable(url: str, why: str) -> UsageError:
    return UsageError(
        printable(f'"{url}" is not the URL of a monitor listener, such as {DEFAULT_URL}: {why}')
    )


def _detail(body: bytes) -> str:
    """Return the detail of a problem (RFC 9457), if there is one."""
    try:
        problem = msgspec.json.decode(body, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    detail = problem.get("detail") or problem.get("error")
    return f": {detail}" if isinstance(detail, str) else ""
