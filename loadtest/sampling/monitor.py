"""A server's own counters, read from its monitor once a second while a run goes on.

A thread of its own asks, over one connection that is kept. Nobody waits for it: a monitor that hangs, answers
nonsense or goes away costs readings and nothing else, and what went wrong is counted.
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
    """What /varz said; `at_s` by the monotonic clock, when the answer was complete."""

    at_s: float
    counters: Mapping[str, Any]


class Counters(Protocol):
    """Where counters are read: a `subjectbus.Monitor`, or what stands in for one."""

    def fetch(self, *, timeout_s: float) -> dict[str, Any]:
        """Return the counters; MonitorError if they cannot be had within the time."""

    def interrupt(self) -> None:
        """End a fetch that another thread is in."""

    def close(self) -> None:
        """Close the connection, if there is one."""


def open_monitor(url: str) -> Monitor:
    """Return a reader of a monitor's counters, which no target can make read without end."""
    return Monitor(url, _TIMEOUT_S, max_bytes=_MOST_BYTES)


class CounterSampler:
    """Reads counters once a second in a thread of its own, and out of turn when asked to."""

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
            counters = self._counters.fetch(timeout_s=_TIMEOUT_S)
        except MonitorError as error:
            if not self._ended:
                self.first_failure = self.first_failure or str(error)
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


class JoinedCounters:
    """Counters of several servers as one: numbers added, lists joined, everything else the first server's."""

    def __init__(self, parts: Sequence[Counters]) -> None:
        self._parts = parts

    def fetch(self, *, timeout_s: float) -> dict[str, Any]:
        """See Counters."""
        deadline_s = time.monotonic() + timeout_s
        first, *others = (part.fetch(timeout_s=deadline_s - time.monotonic()) for part in self._parts)
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
