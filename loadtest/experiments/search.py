"""Which rate a search for the capacity tries next: growth, then bisection, and a second look at the edge."""

import math
from collections import Counter
from dataclasses import dataclass, field

from loadtest.result.capacity import Purpose

_GROWTH = 2.0
_LOOKS = 2


@dataclass
class Search:
    """Brings a rate that holds and one that fails together.

    It takes for granted that a server which holds a rate holds all lower ones. Most failures only say where
    to look next; the one that would end the search decides the outcome, and so has to happen twice. If it was
    chance, the search goes on above it.
    """

    lowest: float
    highest: float | None
    """No rate above it is tried; None: as high as it goes."""
    precision: float
    held: float | None = field(default=None, init=False)
    """The highest rate that held."""
    _failures: Counter[float] = field(default_factory=Counter, init=False)

    @property
    def failed(self) -> float | None:
        """The lowest rate that failed above the highest that held."""
        above = (rate for rate in self._failures if self.held is None or rate > self.held)
        return min(above, default=None)

    def next_rate(self) -> tuple[float, Purpose] | None:
        """What to try now; None once there is nothing left to learn."""
        held, failed = self.held, self.failed
        if held is None:
            if failed is None:
                return self.lowest, "growth"
            return None if self._is_confirmed(failed) else (failed, "confirmation")
        if failed is None:
            return None if held == self.highest else (self._grown(held), "growth")
        middle = self._between(held, failed)
        if middle is not None:
            return middle, "bisection"
        return None if self._is_confirmed(failed) else (failed, "confirmation")

    def note(self, rate: float, *, holds: bool) -> None:
        """The outcome of a probe; one that holds overrules a failure of the same rate."""
        if holds:
            self.held = rate if self.held is None else max(self.held, rate)
        else:
            self._failures[rate] += 1

    def _is_confirmed(self, rate: float) -> bool:
        return self._failures[rate] >= _LOOKS

    def _grown(self, rate: float) -> float:
        grown = rounded(rate * _GROWTH, self.precision)
        return grown if self.highest is None else min(grown, self.highest)

    def _between(self, held: float, failed: float) -> float | None:
        """The middle on a logarithmic scale; None where they are as close as was asked for."""
        if failed <= held * (1 + self.precision):
            return None
        middle = rounded(math.sqrt(held * failed), self.precision)
        return middle if held < middle < failed else None


def rounded(rate: float, precision: float) -> float:
    """The rate in as few digits as change it by less than a tenth of the precision."""
    digits = math.ceil(-math.log10(precision / 10)) + 1
    return float(f"{rate:.{digits}g}")
