"""Counters of a server, read from its monitor once a second during a run.

A separate thread reads them over one kept connection, and the run does not wait for that thread. If a monitor
hangs, sends an invalid answer or ends, only readings are missing; failed readings are counted.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from subjectbus import Monitor, MonitorError

_EVERY_S = 1.0
_TIMEOUT_S = 2.0
_JOIN_S = 1.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Reading:
    """Answer of /varz."""

    at_s: float
    """Time at which the answer was complete, on the monotonic clock, in seconds."""
    counters: Mapping[str, Any]


class Counters(Protocol):
    """Reader of counters: a `subjectbus.Monitor`, or an object with the same methods."""

    def fetch(self, *, timeout_s: float) -> dict[str, Any]:
        """Return the counters.

        Raises:
            MonitorError: The counters could not be read within `timeout_s` seconds.
        """

    def interrupt(self) -> None:
        """End a call of `fetch` that is running in another thread."""

    def close(self) -> None:
        """Close the connection, if there is one."""


def open_monitor(url: str) -> Monitor:
    """Return a reader of a monitor's counters, with a limit on the time and the size of an answer."""
    return Monitor(url, _TIMEOUT_S, max_bytes=_MOST_BYTES)


class CounterSampler:
    """Reader of counters in a thread of its own: once a second, and additionally on request."""

    def __init__(self, counters: Counters, load_cpus: frozenset[int] | None = None) -> None:
        """Take a reader; its thread avoids the load's processors `load_cpus` if there are others."""
        self.readings: list[Reading] = []
        """Readings, one a second, oldest first; the thread adds to them."""
        self.failures = 0
        """Number of readings that failed."""
        self.first_failure: str | None = None
        self.slowest_s = 0.0
        """Duration of the slowest answer, in seconds."""
        self._load_cpus = load_cpus or frozenset()
        self._counters = counters
        self._changed = threading.Condition()
        self._ended = False
        self._asked = 0
        """Number of additional readings that were requested."""
        self._tried = 0
        """Number of requested readings that were tried."""
        self._fresh: Reading | None = None
        self._thread = threading.Thread(target=self._read_on, name="monitor", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def fresh(self, timeout_s: float = _TIMEOUT_S) -> Reading | None:
        """Return a reading that begins after this call; None if it fails or takes longer than `timeout_s`."""
        with self._changed:
            self._asked += 1
            number = self._asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._tried >= number, timeout_s)
            return self._fresh if self._tried >= number else None

    def close(self) -> None:
        """Stop reading, without waiting for a monitor that does not answer."""
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
                # After a reading that took longer than a second, the next one is due at once.
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
            counters = self._counters.fetch(timeout_s=_TIMEOUT_S)
        except MonitorError as error:
            if not self._ended:
                self.first_failure = self.first_failure or str(error)
            return None
        at_s = time.monotonic()
        self.slowest_s = max(self.slowest_s, at_s - began_s)
        return Reading(at_s, counters)

    def _keep_away_from_load(self) -> None:
        """Move the calling thread off the load's processors; on Linux this changes only that thread."""
        others = os.sched_getaffinity(0) - self._load_cpus
        if self._load_cpus and others:
            with suppress(OSError):
                os.sched_setaffinity(0, others)


class JoinedCounters:
    """Counters of several servers as one: numbers are added, lists joined, others are the first server's."""

    def __init__(self, parts: Sequence[Counters]) -> None:
        self._parts = parts

    def fetch(self, *, timeout_s: float) -> dict[str, Any]:
        """Return the counters of all servers; `timeout_s` limits all reads together."""
        deadline_s = time.monotonic() + timeout_s
        first, *others = (part.fetch(timeout_s=deadline_s - time.monotonic()) for part in self._parts)
        for other in others:
            first = _join(first, other)
        return first

    def interrupt(self) -> None:
        """Interrupt the reader of each server."""
        for part in self._parts:
            part.interrupt()

    def close(self) -> None:
        """Close the reader of each server."""
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
