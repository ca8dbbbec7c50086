"""The other client of a broker under attack, seen from the attacker's process."""

import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hostile.finding import Finding, with_unit
from hostile.setup import Broker, Child, Setup

LONGEST_WAIT_MS = 50.0
"""The bar of most attacks."""
_TAIL = 0.01
"""Share of the time of which the 99th percentile leaves out the worst moments."""


@dataclass
class Window:
    """A stretch of time in which something was done to the witness."""

    what: str
    begin: float
    end: float = 0.0
    remarks: list[str] = field(default_factory=list)
    """Words of the attacker about it, such as the broker's refusal."""


@dataclass(frozen=True)
class Waits:
    """The waits of round trips in a window, in seconds."""

    longest: float
    p99: float
    """Wait of a message sent at a random moment of the window. A client that is kept waiting sends nothing
    meanwhile, so a percentile of round trips would count the longest wait once."""

    @classmethod
    def of(cls, lengths: Sequence[float]) -> "Waits":
        """Work them out from the lengths of consecutive round trips."""
        if not lengths:
            return cls(0.0, 0.0)
        ordered = sorted(lengths, reverse=True)
        allowed, total = _TAIL * sum(ordered), 0.0
        for count, length in enumerate(ordered, start=1):
            total += length
            # Moments that wait longer than x are those in the first length - x of each trip.
            p99 = (total - allowed) / count
            if count == len(ordered) or p99 >= ordered[count]:
                return cls(ordered[0], p99)
        raise AssertionError


class Witness:
    """A client in a process of its own that always waits for a message which it has sent to itself."""

    def __init__(self, child: Child, settle_s: float) -> None:
        self._child = child
        self._settle_s = settle_s
        self._windows: list[Window] = []
        self._begins = array("d")
        self._lengths = array("d")
        self.was_closed = False
        """Whether the broker has ended the connection; known at the end."""

    @contextmanager
    def during(self, what: str) -> Iterator[Window]:
        """Note the beginning and the end of what the attacker does."""
        window = Window(what, time.perf_counter())
        self._windows.append(window)
        yield window
        window.end = time.perf_counter()
        time.sleep(self._settle_s)

    def finish(self) -> None:
        """Take over all round trips, the last one included."""
        numbers = array("d")
        numbers.frombytes(self._child.finish())
        self.was_closed = bool(numbers[0])
        self._begins, self._lengths = numbers[1::2], numbers[2::2]

    @property
    def last(self) -> float:
        """When the last round trip ended, by time.perf_counter()."""
        return self._begins[-1] + self._lengths[-1]

    def waits(self, window: Window) -> Waits:
        """Return the waits of the round trips that were under way in a window."""
        trips = zip(self._begins, self._lengths, strict=True)
        return Waits.of([long for begin, long in trips if begin < window.end and begin + long > window.begin])

    def findings(self, bar_ms: float = LONGEST_WAIT_MS, *, may_be_closed: bool = False) -> list[Finding]:
        """Return the longest wait of each window, beside that of the quiet time before.

        Args:
            bar_ms: The bar, in milliseconds.
            may_be_closed: Whether the connection's end was due; otherwise it is a wait without end.
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
    """Start a witness, watch it undisturbed for a while, and finish it when the attack is over.

    Args:
        setup: Where it runs.
        broker: Whose client it is.
        is_urgent: Whether it runs before all others of the load's core, for attackers who fill that.
    """
    host, port = broker.tcp
    with setup.child("witness_client", f"{host}:{port}", *(["urgent"] if is_urgent else [])) as child:
        witness = Witness(child, setup.settle_s)
        with witness.during("quiet"):
            time.sleep(setup.quiet_s)
        yield witness
        witness.finish()
