"""Witness of an attack: another client of the broker, which measures how long it waits for its messages."""

import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hostile.finding import Finding, with_unit
from hostile.setup import Broker, Child, Setup

LONGEST_WAIT_MS = 50.0
"""Bar of most attacks, in milliseconds."""
_TAIL = 0.01
"""Share of the time, the worst, that the 99th percentile leaves out."""


@dataclass
class Window:
    """Period in which the attacker did one thing."""

    what: str
    begin: float
    end: float = 0.0
    remarks: list[str] = field(default_factory=list)
    """Remarks of the attacker, such as a refusal by the broker."""


@dataclass(frozen=True)
class Waits:
    """Waits of the round trips in a window, in seconds."""

    longest: float
    p99: float
    """99th percentile of the wait of a message sent at a random time of the window.

    It is not a percentile of the round trips: the witness sends nothing while it waits, so that would count
    the longest wait only once.
    """

    @classmethod
    def of(cls, lengths: Sequence[float]) -> "Waits":
        """Compute the waits from the lengths of consecutive round trips."""
        if not lengths:
            return cls(0.0, 0.0)
        ordered = sorted(lengths, reverse=True)
        allowed, total = _TAIL * sum(ordered), 0.0
        for count, length in enumerate(ordered, start=1):
            total += length
            # A message waits longer than x if it is sent in the first (length - x) seconds of a round trip.
            p99 = (total - allowed) / count
            if count == len(ordered) or p99 >= ordered[count]:
                return cls(ordered[0], p99)
        raise AssertionError


class Witness:
    """Client in a process of its own that repeatedly sends a message to itself and waits for it."""

    def __init__(self, child: Child, settle_s: float) -> None:
        self._child = child
        self._settle_s = settle_s
        self._windows: list[Window] = []
        self._begins = array("d")
        self._lengths = array("d")
        self.was_closed = False
        """Whether the broker closed the connection; known after `finish`."""

    @contextmanager
    def during(self, what: str) -> Iterator[Window]:
        """Record the beginning and the end of the block as a window."""
        window = Window(what, time.perf_counter())
        self._windows.append(window)
        yield window
        window.end = time.perf_counter()
        time.sleep(self._settle_s)

    def finish(self) -> None:
        """End the witness and read its round trips."""
        numbers = array("d")
        numbers.frombytes(self._child.finish())
        self.was_closed = bool(numbers[0])
        self._begins, self._lengths = numbers[1::2], numbers[2::2]

    @property
    def last(self) -> float:
        """End of the last round trip, by time.perf_counter()."""
        return self._begins[-1] + self._lengths[-1]

    def waits(self, window: Window) -> Waits:
        """Return the waits of the round trips that overlap a window."""
        trips = zip(self._begins, self._lengths, strict=True)
        return Waits.of([long for begin, long in trips if begin < window.end and begin + long > window.begin])

    def findings(self, bar_ms: float = LONGEST_WAIT_MS, *, may_be_closed: bool = False) -> list[Finding]:
        """Return the longest wait of each window, beside the longest wait before the attack.

        Args:
            bar_ms: Bar of the waits, in milliseconds.
            may_be_closed: Whether the broker may close the connection; if not, a close is an infinite wait.
        """
        quiet, *windows = self._windows
        quiet_ms = self.waits(quiet).longest * 1e3
        findings = []
        for window in windows:
            waits = self.waits(window)
            beside = [f"p99 {with_unit(waits.p99 * 1e3, 'ms')}", f"quiet {with_unit(quiet_ms, 'ms')}"]
            beside += window.remarks
            longest_ms = waits.longest * 1e3
            if self.was_closed and not may_be_closed:
                longest_ms = float("inf")
                beside.append("the witness was disconnected")
            what = f"{window.what}: longest wait"
            findings.append(Finding(what, longest_ms, "ms", bar_ms, beside=", ".join(beside)))
        return findings


@contextmanager
def watch(setup: Setup, broker: Broker, *, is_urgent: bool = False) -> Iterator[Witness]:
    """Start a witness, measure it undisturbed for a while, and finish it when the block ends.

    Args:
        setup: Setup of the attack.
        broker: Broker that the witness connects to.
        is_urgent: Whether the witness has priority on its core, for attackers that keep the core busy.
    """
    host, port = broker.tcp
    with setup.child("witness_client", f"{host}:{port}", *(["urgent"] if is_urgent else [])) as child:
        witness = Witness(child, setup.settle_s)
        with witness.during("quiet"):
            time.sleep(setup.quiet_s)
        yield witness
        witness.finish()
