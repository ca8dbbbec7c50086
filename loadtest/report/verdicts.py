"""What made a run fail, a line for each."""

from collections.abc import Iterator

from loadtest.report.comparison import describe_difference, describe_trend
from loadtest.result.repeated import RepeatedThreshold
from loadtest.result.schema import Result, ThresholdOutcome


def failures(result: Result) -> list[str]:
    """Objectives, accounts, counts that broker and engine do not share, and trends; none if all hold."""
    texts = [
        f"objective {outcome.expr}: {describe_value(outcome)}"
        for outcome in result.thresholds
        if not outcome.holds
    ]
    return [*texts, *(text for _, text in complaints(result))]


def complaints(result: Result) -> Iterator[tuple[str, str]]:
    """What does not hold, thresholds aside: its kind, which other runs of the scenario share, and a text."""
    if not result.conservation.holds:
        broken = [check for check in result.conservation.checks if not check.holds]
        for check in broken:
            yield f"conservation, {check.name}", f"conservation, {check.name}: {check.detail}"
        if not broken:
            yield "conservation", "conservation"
    for row in result.agreement:
        if not row.holds:
            yield f"agreement, {row.name}", f"agreement, {describe_difference(row)}"
    if result.soak is not None:
        if result.soak.note:
            yield "soak", f"soak: {result.soak.note}"
        for trend in result.soak.trends:
            if not trend.holds:
                yield f"soak, {trend.name}", f"soak, {describe_trend(trend)}"


def describe_value(outcome: ThresholdOutcome | RepeatedThreshold) -> str:
    """What an objective was judged by."""
    if outcome.value is None:
        return "no value"
    return str(outcome.value).lower() if isinstance(outcome.value, bool) else f"{outcome.value:,.12g}"
