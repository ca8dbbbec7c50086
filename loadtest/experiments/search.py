"""Choice of the next rate in a search for the capacity: growth, then bisection, then confirmation."""

import math
from collections import Counter
from dataclasses import dataclass, field

from loadtest.result.capacity import Purpose

_GROWTH = 2.0
_FAILURES_TO_CONFIRM = 2


@dataclass
class Search:
    """Search that brings the highest rate that holds and the lowest rate that fails close together.

    The search assumes that a server that holds a rate also holds all lower rates. Most failures only decide
    which rate is tried next. A failure that would end the search has to occur twice. If the second attempt
    holds, the failure was chance, and the search continues above that rate.
    """

    lowest: float
    highest: float | None
    """Highest rate to try. None for no limit."""
    precision: float
    held: float | None = field(default=None, init=False)
    """Highest rate that held. None before a rate has held."""
    _failures: Counter[float] = field(default_factory=Counter, init=False)

    @property
    def failed(self) -> float | None:
        """Lowest rate that failed above the highest rate that held. None if there is none."""
        above = (rate for rate in self._failures if self.held is None or rate > self.held)
        return min(above, default=None)

    def next_rate(self) -> tuple[float, Purpose] | None:
        """Return the rate to try next and its purpose; None when the search is over."""
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
        """Record the outcome of a probe; a rate that has held counts as holding, even if it failed before."""
        if holds:
            self.held = rate if self.held is None else max(self.held, rate)
        else:
            self._failures[rate] += 1

    def _is_confirmed(self, rate: float) -> bool:
        return self._failures[rate] >= _FAILURES_TO_CONFIRM

    def _grown(self, rate: float) -> float:
        grown = rounded(rate * _GROWTH, self.precision)
        return grown if self.highest is None else min(grown, self.highest)

    def _between(self, held: float, failed: float) -> float | None:
        """Return the middle on a logarithmic scale; None if both rates are as close as the precision asks."""
        if failed <= held * (1 + self.precision):
            return None
        middle = rounded(math.sqrt(held * failed), self.precision)
        return middle if held < middle < failed else None


def rounded(rate: float, precision: float) -> float:
    """Return the rate rounded to as few digits as change it by less than a tenth of the precision."""
    digits = math.ceil(-math.log10(precision / 10)) + 1
    return float(f"{rate:.{digits}g}")
