"""A server's own counters, read from its monitor once a second while a run goes on.

A thread of its own asks, over one connection that is kept. Nobody waits for it: a monitor that hangs, answers
nonsense or goes away costs readings and nothing else, and what went wrong is counted.
"""

import io
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, Protocol, cast

from loadtest.plan.target import MonitorAddress

_EVERY_S = 1.0
_TIMEOUT_S = 2.0
_JOIN_S = 1.0
_OK = 200
_LONGEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Reading:
    """What /varz said; `at_s` by the monotonic clock, when the answer was complete."""

    at_s: float
    counters: Mapping[str, Any]


class Counters(Protocol):
    """Where counters are read."""

    def fetch(self, deadline_s: float) -> dict[str, Any]:
        """The counters; OSError, HTTPException or ValueError when they cannot be had by then."""

    def interrupt(self) -> None:
        """Ends a fetch that another thread is in."""

    def close(self) -> None:
        """Holds no connection any more."""


class Monitor:
    """See the module."""

    def __init__(self, counters: Counters, load_cpus: frozenset[int] | None = None) -> None:
        """`load_cpus` are the load's processors, which the readings keep away from if there are others."""
        self.readings: list[Reading] = []
        """One a second, oldest first; the monitor's thread adds to them."""
        self.failures = 0
        """Of those, how many did not come."""
        self.first_failure: str | None = None
        self.slowest_s = 0.0
        """How long the slowest answer took."""
        self._load_cpus = load_cpus or frozenset()
        self._counters = counters
        self._changed = threading.Condition()
        self._ended = False
        self._asked = 0
        """Readings that were asked for out of turn, and below how many of them have been tried."""
        self._tried = 0
        self._fresh: Reading | None = None
        self._thread = threading.Thread(target=self._read_on, name="monitor", daemon=True)

    def start(self) -> None:
        """Reads from now on."""
        self._thread.start()

    def fresh(self, timeout_s: float = _TIMEOUT_S) -> Reading | None:
        """A reading that begins after this call; None when none comes in time."""
        with self._changed:
            self._asked += 1
            number = self._asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._tried >= number, timeout_s)
            return self._fresh if self._tried >= number else None

    def close(self) -> None:
        """Reads no more; does not wait for a monitor that does not answer."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._counters.interrupt()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _read_on(self) -> None:
        self._keep_away_from_load()
        due_s = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait_for(self._is_wanted, max(0.0, due_s - time.monotonic()))
                if self._ended:
                    break
                asked = self._asked
            now_s = time.monotonic()
            reading = self._read(now_s)
            if now_s >= due_s:
                # One that took longer than a second has cost the next one.
                due_s = max(due_s + _EVERY_S, time.monotonic())
                self._note(reading)
            with self._changed:
                self._fresh, self._tried = reading, asked
                self._changed.notify_all()
        self._counters.close()

    def _note(self, reading: Reading | None) -> None:
        if reading is not None:
            self.readings.append(reading)
        elif not self._ended:
            self.failures += 1

    def _is_wanted(self) -> bool:
        return self._ended or self._asked > self._tried

    def _read(self, began_s: float) -> Reading | None:
        try:
            counters = self._counters.fetch(began_s + _TIMEOUT_S)
        except (OSError, HTTPException, ValueError) as error:
            if not self._ended:
                self.first_failure = self.first_failure or describe_failure(error)
            return None
        at_s = time.monotonic()
        self.slowest_s = max(self.slowest_s, at_s - began_s)
        return Reading(at_s, counters)

    def _keep_away_from_load(self) -> None:
        """Of the calling thread alone, as on Linux threads have processors of their own."""
        others = os.sched_getaffinity(0) - self._load_cpus
        if self._load_cpus and others:
            with suppress(OSError):
                os.sched_setaffinity(0, others)


class HttpCounters:
    """Counters over a connection that is kept, and established again when the server has closed it."""

    def __init__(self, address: MonitorAddress) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._request = (
            f"GET {address.path} HTTP/1.1\r\nHost: {address.host}\r\nAccept: application/json\r\n\r\n"
        ).encode()

    def fetch(self, deadline_s: float) -> dict[str, Any]:
        """See Counters."""
        is_kept = self._socket is not None
        try:
            return self._exchange(deadline_s)
        except (ConnectionError, HTTPException):
            self.close()
            if not is_kept:
                raise
        except BaseException:
            self.close()
            raise
        # It may have been closed for being idle.
        try:
            return self._exchange(deadline_s)
        except BaseException:
            self.close()
            raise

    def _exchange(self, deadline_s: float) -> dict[str, Any]:
        if self._socket is None:
            self._socket = socket.create_connection(self._address.endpoint, _left_s(deadline_s))
        self._socket.settimeout(_left_s(deadline_s))
        self._socket.sendall(self._request)
        response = HTTPResponse(cast("socket.socket", _Incoming(self._socket, deadline_s)))
        response.begin()
        body = response.read(_LONGEST_BYTES + 1)
        if response.status != _OK:
            raise ValueError(f"status {response.status} {response.reason}".rstrip())
        if len(body) > _LONGEST_BYTES:
            raise ValueError(f"an answer of more than {_LONGEST_BYTES} bytes")
        if response.will_close:
            self.close()
        counters = json.loads(body)
        if not isinstance(counters, dict):
            raise ValueError("an answer that is no JSON object")  # noqa: TRY004 - of the wrong value
        return counters

    def interrupt(self) -> None:
        """See Counters."""
        if (open_socket := self._socket) is not None:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """The next fetch has a connection of its own."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class JoinedCounters:
    """Those of several servers as one: numbers added, lists one after the other, of all else the first's."""

    def __init__(self, parts: Sequence[Counters]) -> None:
        self._parts = parts

    def fetch(self, deadline_s: float) -> dict[str, Any]:
        """See Counters."""
        first, *others = (part.fetch(deadline_s) for part in self._parts)
        for other in others:
            first = _join(first, other)
        return first

    def interrupt(self) -> None:
        """See Counters."""
        for part in self._parts:
            part.interrupt()

    def close(self) -> None:
        """See Counters."""
        for part in self._parts:
            part.close()


def _join(one: Any, other: Any) -> Any:  # noqa: ANN401 - any JSON
    match one, other:
        case bool(), _:
            return one
        case int() | float(), int() | float():
            return one + other
        case list(), list():
            return [*one, *other]
        case dict(), dict():
            return {**other, **{key: _join(value, other.get(key)) for key, value in one.items()}}
    return one


class _Incoming(io.RawIOBase):
    """A socket's bytes, all of which must come before a deadline: one by one in time is not in time."""

    def __init__(self, source: socket.socket, deadline_s: float) -> None:
        self._source = source
        self._deadline_s = deadline_s

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What HTTPResponse asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """As io asks."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """As io asks."""
        self._source.settimeout(_left_s(self._deadline_s))
        return self._source.recv_into(buffer)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def describe_failure(error: Exception) -> str:
    """Why counters could not be had, in one line."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "an answer that is no JSON"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
