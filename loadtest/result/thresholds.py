"""Objectives of a scenario: `PATH OP NUMBER` over the values of result.json."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from loadtest.errors import ThresholdError
from loadtest.result.paths import is_value_path, value_at, value_paths
from loadtest.result.schema import Result, ThresholdOutcome
from subjectbus import settings

_OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}
_FORM = re.compile(
    r"\s*(?P<path>[A-Za-z_]\w*(?:\.\w+)*)\s*(?P<op><=|>=|==|<|>)\s*(?P<limit>\S+)\s*", re.ASCII
)


@dataclass(frozen=True)
class Threshold:
    """A parsed objective."""

    expr: str
    path: str
    op: str
    limit: float | bool

    def judge(self, result: Result) -> ThresholdOutcome:
        """Whether the result holds it; a value that the run does not have never does."""
        value = value_at(result, self.path)
        if not isinstance(value, (int, float)):
            return ThresholdOutcome(expr=self.expr, value=None, holds=False)
        return ThresholdOutcome(expr=self.expr, value=value, holds=self.allows(value))

    def allows(self, value: float) -> bool:
        """Whether the value, or truth value, holds it."""
        return bool(_OPERATORS[self.op](value, self.limit))


def parse_threshold(expr: str) -> Threshold:
    """The objective in a text such as "latency_us.p99 < 100000" or "conservation.holds == true".

    Raises:
        ThresholdError: Another form, or a path that leads to no number of a result.
    """
    match = _FORM.fullmatch(expr)
    if match is None:
        raise ThresholdError(f'threshold "{expr}": expected PATH OP NUMBER, OP one of {" ".join(_OPERATORS)}')
    path = match["path"]
    if not is_value_path(path):
        hint = settings.suggestion(path, value_paths())
        raise ThresholdError(f'threshold "{expr}": no value "{path}" in a result{hint}')
    return Threshold(expr, path, match["op"], _limit(expr, match["limit"]))


def parse_thresholds(exprs: Iterable[str]) -> list[Threshold]:
    """All of them, or the first one's ThresholdError."""
    return [parse_threshold(expr) for expr in exprs]


def _limit(expr: str, text: str) -> float | bool:
    if text in ("true", "false"):
        return text == "true"
    try:
        limit = float(text)
    except ValueError as error:
        raise ThresholdError(f'threshold "{expr}": "{text}" is no number') from error
    if not math.isfinite(limit):
        raise ThresholdError(f'threshold "{expr}": "{text}" is no number')
    return limit
