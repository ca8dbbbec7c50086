"""Texts about the failed checks of a result, one line each."""

from collections.abc import Iterator

from loadtest.result.broker_view import Agreement
from loadtest.result.metrics import SEND_LAG
from loadtest.result.repeated import Repeated, RepeatedThreshold
from loadtest.result.schema import Result, ThresholdOutcome, Trend
from loadtest.result.thresholds import parse_threshold

_US_PER_MS = 1e3
_REQUEST_KINDS = {
    "timed_out": ("timed out", "requests without a reply within the scenario's timeout_s"),
    "errors": ("failed", "requests answered with an error, or cut off by the end of their connection"),
    "late": ("late", "replies that came after the timeout"),
    "duplicates": ("duplicate", "replies to requests that were answered already"),
    "corrupt": ("corrupt", "replies whose payload was damaged"),
    "unmatched": ("unmatched", "replies that belong to no request of their user"),
    "no_responders": ("no responders", "requests on a subject without a subscriber"),
}
_BROADCAST_KINDS = {
    "timed_out": ("missing", "deliveries that were due and never came"),
    "errors": ("failed", "messages that could not be published"),
    "late": ("late", "deliveries that came after the timeout"),
    "duplicates": ("duplicate", "deliveries that came twice"),
    "corrupt": ("corrupt", "messages whose payload was damaged"),
    "unmatched": ("unmatched", "messages that went to the wrong user"),
    "no_responders": ("no responders", "messages on a subject without a subscriber"),
}
_CONNECTION_KINDS = {
    "disconnected": ("disconnected", "connections that ended while they were needed"),
    "connect_failures": ("connect failures", "attempts to connect that failed"),
    "reconnect_failures": ("reconnect failures", "attempts to reconnect that failed"),
    "server_errors": ("errors from the server", "-ERR messages, or HTTP responses with an error status"),
}


def failures(result: Result) -> list[str]:
    """Return a line for each failed threshold and check; an empty list if all hold."""
    texts = [
        f"threshold {outcome.expr}: {describe_value(outcome)}"
        for outcome in result.thresholds
        if not outcome.holds
    ]
    return [*texts, *(text for _, text in failed_checks(result))]


def failed_checks(result: Result) -> Iterator[tuple[str, str]]:
    """Yield a kind and a description for each failed check, except thresholds.

    The kind of a check is the same text in every run of a scenario.
    """
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
    """Return the value that a threshold was judged by, as text."""
    if outcome.value is None:
        return "no value"
    return str(outcome.value).lower() if isinstance(outcome.value, bool) else f"{outcome.value:,.12g}"


def describe_lateness(result: Result | Repeated) -> str | None:
    """Return the meaning of a late load generator and a remedy, as text; None if it was not late.

    Late is a load generator that does not hold the threshold on its send lag.
    """
    for outcome in result.thresholds:
        if outcome.holds or parse_threshold(outcome.expr).path != SEND_LAG:
            continue
        late_ms = 0.0 if outcome.value is None else outcome.value / _US_PER_MS
        return (
            f"the load generator was late: a request left {late_ms:,.0f} ms after its planned time, so the "
            "latencies include its own delay. Let nothing else run beside it, give it more processors "
            "(load_cpus, threads, requestors, hosts) or lower rate; max_send_lag_ms sets the limit, 0 none"
        )
    return None


def describe_difference(row: Agreement) -> str:
    """Return a count on which engine and broker differ, with the expected reason if there is one."""
    text = (
        f"{row.name}: engine {row.engine:,}, broker {row.broker:,} {row.unit}, difference {row.difference:+,}"
    )
    return f"{text} ({row.expected})" if row.expected else text


def describe_trend(trend: Trend) -> str:
    """Return the slope of a soak's trend, its limit and its p-value as text."""
    if trend.slope_per_hour is None or trend.p_value is None:
        return f"{trend.name}: not judged (at most {trend.limit:+,.4g} per hour)"
    return (
        f"{trend.name}: {trend.slope_per_hour:+,.4g} per hour (at most {trend.limit:+,.4g}), "
        f"by chance with p = {trend.p_value:.3f}"
    )


def describe_agreement(result: Result) -> str | None:
    """Return a summary of the agreement of engine and broker as text, or None without a monitor."""
    view, rows = result.broker_view, result.agreement
    if view is None:
        return None
    same = sum(row.matches for row in rows)
    text = f"engine and broker match in {same} of {len(rows)} counts" if rows else "nothing to compare"
    shown = {row.name: row.broker for row in rows}
    if "messages in" in shown and "messages out" in shown:
        sessions = f"{shown.get('connected sessions', 0):,} sessions, "
        text += f": {sessions}{shown['messages in']:,} messages in, {shown['messages out']:,} out"
    if view.note:
        text += f": {view.note}"
    if view.failures:
        asked = view.readings + view.failures
        text += f"; {view.failures:,} of {asked:,} readings failed, the first: {view.first_failure}"
    return text


def error_kinds(result: Result) -> dict[str, tuple[str, str]]:
    """Return kind and meaning of each count of failed requests, or failed deliveries, by its field."""
    return _REQUEST_KINDS if result.broadcast is None else _BROADCAST_KINDS


def error_counts(result: Result) -> Iterator[tuple[str, int, str]]:
    """Yield kind, count and meaning of every error count of a result, including counts of 0."""
    achieved = result.achieved
    for field, (kind, meaning) in (error_kinds(result) | _CONNECTION_KINDS).items():
        yield kind, getattr(achieved, field), meaning
    for status, count in achieved.statuses.items():
        yield f"HTTP status {status}", count, "HTTP responses with an error status"
    if result.sweep is not None:
        yield "sweep: timed out", result.sweep.timed_out, "requests of the sweep, without a reply in time"
        yield "sweep: failed", result.sweep.errors, "requests of the sweep, answered with an error or cut off"
    if result.broadcast is not None:
        yield "incomplete", result.broadcast.incomplete, "messages that at least one user did not receive"
    for reason, count in result.conservation.dropped.items():
        yield f"dropped: {reason}", count, "deliveries that were dropped, by reason"
    if result.broker_view is not None:
        failures = result.broker_view.failures
        yield "readings failed", failures, "readings of the broker's counters that failed"
