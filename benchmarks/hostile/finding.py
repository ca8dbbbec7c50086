"""Results of an attack, each with the bar that it must hold."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_WHOLE_FROM = 100


@dataclass(frozen=True)
class Finding:
    """One measured value of an attack on one broker."""

    what: str
    """Phase of the attack and measured quantity, as text for the table."""
    value: float
    """Value in `unit`; infinite if the wait reached its limit, NaN if the attack itself failed."""
    unit: str
    bar: float | None = None
    """Limit of the value, in `unit`. None for a value that is only shown."""
    kind: Literal["at most", "at least"] = "at most"
    """Side of the bar on which the value must be."""
    beside: str = ""
    """Other values and remarks that explain the value."""

    @property
    def holds(self) -> bool:
        """Whether the value is on the right side of the bar; always true without a bar."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.kind == "at most" else self.value >= self.bar

    @property
    def text(self) -> str:
        """The value with its unit."""
        if math.isnan(self.value):
            return "failed"
        return "not in time" if math.isinf(self.value) else with_unit(self.value, self.unit)

    @property
    def bar_text(self) -> str:
        """The bar with its unit, empty without one."""
        return "" if self.bar is None else f"{self.kind} {with_unit(self.bar, self.unit)}"

    def is_worse_than(self, other: "Finding") -> bool:
        """Return whether this value is worse than the value of `other`; a failure is worst."""
        if math.isnan(self.value) or math.isnan(other.value):
            return math.isnan(self.value)
        return self.value > other.value if self.kind == "at most" else self.value < other.value


def worst(rounds: Iterable[Iterable[Finding]]) -> list[Finding]:
    """Return the worst finding of each quantity over several rounds, in the order of first appearance."""
    found: dict[str, Finding] = {}
    for findings in rounds:
        for one in findings:
            if one.what not in found or one.is_worse_than(found[one.what]):
                found[one.what] = one
    return list(found.values())


def failure(error: Exception) -> Finding:
    """Return the finding of an attack that could not be carried out."""
    return Finding("the attack was carried out", math.nan, "", 0, beside=f"{type(error).__name__}: {error}")


def with_unit(value: float, unit: str) -> str:
    """Return a number and its unit: three digits, or all digits of a whole number."""
    number = f"{value:,.0f}" if value == int(value) or abs(value) >= _WHOLE_FROM else f"{value:,.3g}"
    return f"{number} {unit}".strip()
