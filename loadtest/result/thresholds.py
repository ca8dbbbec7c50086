"""Thresholds of a scenario: expressions `PATH OP NUMBER` over the values of result.json."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from loadtest.errors import ThresholdError
from loadtest.result.metrics import SEND_LAG
from loadtest.result.paths import is_value_path, value_at, value_paths
from loadtest.result.schema import Result, ThresholdOutcome
from loadtest.scenario.kinds import Plan, TransportsScenario, is_http
from subjectbus import settings

_US_PER_MS = 1e3
_OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}
_FORM = re.compile(
    r"\s*(?P<path>[A-Za-z_]\w*(?:\.\w+)*)\s*(?P<op><=|>=|==|<|>)\s*(?P<limit>\S+)\s*", re.ASCII
)


@dataclass(frozen=True)
class Threshold:
    """A parsed threshold."""

    expr: str
    """Text that was parsed."""
    path: str
    """Dotted path of a value in result.json."""
    op: str
    """Operator: <, <=, >, >= or ==."""
    limit: float | bool

    def judge(self, result: Result) -> ThresholdOutcome:
        """Compare the result's value with the limit; a threshold on a value that the run lacks fails."""
        value = value_at(result, self.path)
        if not isinstance(value, (int, float)):
            return ThresholdOutcome(expr=self.expr, value=None, holds=False)
        return ThresholdOutcome(expr=self.expr, value=value, holds=self.allows(value))

    def allows(self, value: float) -> bool:
        """Return whether a number or truth value holds the threshold."""
        return bool(_OPERATORS[self.op](value, self.limit))


def parse_threshold(expr: str) -> Threshold:
    """Parse a text such as "latency_us.p99 < 100000" or "conservation.holds == true".

    Raises:
        ThresholdError: The text has another form, or its path does not lead to a number of a result.
    """
    match = _FORM.fullmatch(expr)
    if match is None:
        raise ThresholdError(
            f'threshold "{expr}": expected PATH OP NUMBER, where OP is one of {" ".join(_OPERATORS)}'
        )
    path = match["path"]
    if not is_value_path(path):
        hint = settings.suggestion(path, value_paths())
        raise ThresholdError(f'threshold "{expr}": results have no number "{path}"{hint}')
    return Threshold(expr, path, match["op"], _limit(expr, match["limit"]))


def parse_thresholds(exprs: Iterable[str]) -> list[Threshold]:
    """Parse several thresholds.

    Raises:
        ThresholdError: One of them cannot be parsed, see `parse_threshold`.
    """
    return [parse_threshold(expr) for expr in exprs]


def thresholds_of(plan: Plan) -> list[Threshold]:
    """Return the thresholds that a run of the scenario is judged by.

    They are those of the scenario, and in an open loop one on the lateness of the load generator, unless the
    scenario has its own. HTTP has none: a request also waits for a caller that is free, which is up to the
    server.

    Raises:
        ThresholdError: One of them cannot be parsed, see `parse_threshold`.
    """
    thresholds = parse_thresholds(plan.thresholds)
    is_late_itself = not (isinstance(plan, TransportsScenario) or plan.outstanding or is_http(plan))
    if not is_late_itself or not plan.max_send_lag_ms or any(one.path == SEND_LAG for one in thresholds):
        return thresholds
    return [*thresholds, parse_threshold(f"{SEND_LAG} <= {_US_PER_MS * plan.max_send_lag_ms:.15g}")]


def _limit(expr: str, text: str) -> float | bool:
    if text in ("true", "false"):
        return text == "true"
    try:
        limit = float(text)
    except ValueError as error:
        raise ThresholdError(f'threshold "{expr}": "{text}" is not a finite number') from error
    if not math.isfinite(limit):
        raise ThresholdError(f'threshold "{expr}": "{text}" is not a finite number')
    return limit
