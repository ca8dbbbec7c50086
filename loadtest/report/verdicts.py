"""What made a run fail, a line for each."""

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
    if not result.conservation.holds:
        broken = [check for check in result.conservation.checks if not check.holds]
        texts += [f"conservation, {check.name}: {check.detail}" for check in broken] or ["conservation"]
    texts += [f"agreement, {describe_difference(row)}" for row in result.agreement if not row.holds]
    if result.soak is not None and not result.soak.holds:
        texts += [f"soak: {result.soak.note}"] if result.soak.note else []
        texts += [f"soak, {describe_trend(trend)}" for trend in result.soak.trends if not trend.holds]
    return texts


def describe_value(outcome: ThresholdOutcome | RepeatedThreshold) -> str:
    """What an objective was judged by."""
    if outcome.value is None:
        return "no value"
    return str(outcome.value).lower() if isinstance(outcome.value, bool) else f"{outcome.value:,.12g}"
