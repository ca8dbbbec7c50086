"""What went wrong, by kind: in all, and over time."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from loadtest.report.canvas import Chart, Table
from loadtest.report.over_time import Clock, Series, time_chart
from loadtest.result.schema import Result

_REQUEST_KINDS = {
    "timed_out": ("timed out", "no reply within the scenario's timeout_s"),
    "errors": ("failed", "answered with an error, or ended with their connection"),
    "late": ("late", "replies that came after the timeout"),
    "duplicates": ("duplicate", "replies to requests that were answered already"),
    "corrupt": ("corrupt", "replies that are not as they were sent"),
    "unmatched": ("unmatched", "replies to no request of this user"),
    "no_responders": ("no responders", "requests that the server had nobody to give to"),
}
_BROADCAST_KINDS = {
    "timed_out": ("missing", "deliveries that were due and never came"),
    "errors": ("failed", "messages that could not be published"),
    "late": ("late", "deliveries that came after the timeout"),
    "duplicates": ("duplicate", "deliveries that came twice"),
    "corrupt": ("corrupt", "messages that are not as they were sent"),
    "unmatched": ("unmatched", "messages that went to the wrong user"),
    "no_responders": ("no responders", "messages that the server had nobody to give to"),
}
_CONNECTION_KINDS = {
    "disconnected": ("disconnected", "connections that ended while they were needed"),
    "connect_failures": ("connect failures", "attempts to connect that failed"),
    "reconnect_failures": ("reconnect failures", "attempts to connect again that failed"),
    "server_errors": ("errors from the server", "-ERR, or HTTP answers that are errors"),
}


def tabulate(result: Result) -> Table:
    """A row for each counter that is not zero: kind, count, meaning."""
    rows = [[kind, f"{count:,}", meaning] for kind, count, meaning in counts(result) if count]
    return Table(["kind", "count", "meaning"], rows)


def draw(result: Result, clock: Clock) -> Chart | None:
    """Each kind that the time line has, per second; None where there is nothing of any."""
    broker = [sample.broker for sample in result.timeline if sample.broker is not None]
    words = _kinds(result)
    counters: list[tuple[str, Sequence[tuple[float, int | None]]]] = [
        (words["timed_out"][0], [(look.t_s, look.timed_out) for look in result.timeline]),
        (words["errors"][0], [(look.t_s, look.errors) for look in result.timeline]),
        ("dropped by the broker", [(look.t_s, look.dropped) for look in broker]),
        ("slow consumers closed", [(look.t_s, look.slow_consumers) for look in broker]),
    ]
    rates = [(label, list(_increases(counts))) for label, counts in counters]
    series = [
        Series(label, clock.points(points)) for label, points in rates if any(rate for _, rate in points)
    ]
    if not series:
        return None
    return time_chart("errors", "Errors by kind over time", "per second", series, clock=clock)


def _kinds(result: Result) -> dict[str, tuple[str, str]]:
    return _REQUEST_KINDS if result.broadcast is None else _BROADCAST_KINDS


def counts(result: Result) -> Iterator[tuple[str, int, str]]:
    """Every counter of what should not happen, also those that are 0: kind, count, meaning."""
    achieved = result.achieved
    for field, (kind, meaning) in (_kinds(result) | _CONNECTION_KINDS).items():
        yield kind, getattr(achieved, field), meaning
    for status, count in achieved.statuses.items():
        yield f"HTTP status {status}", count, "answers of HTTP that are errors"
    if result.sweep is not None:
        yield "sweep: timed out", result.sweep.timed_out, "of one request of every user, before the warm-up"
        yield "sweep: failed", result.sweep.errors, "of one request of every user, before the warm-up"
    if result.broadcast is not None:
        yield "incomplete", result.broadcast.incomplete, "messages that not everybody received"
    for reason, count in result.conservation.dropped.items():
        yield f"dropped: {reason}", count, "messages that were to be delivered and never will be"
    if result.broker_view is not None:
        failures = result.broker_view.failures
        yield "readings failed", failures, "of the broker's counters; the run went on without"


def _increases(counts: Sequence[tuple[float, int | None]]) -> Iterator[tuple[float, float]]:
    """Per second between two looks; none where a counter falls, because a process is gone."""
    for (earlier_s, before), (later_s, after) in pairwise(counts):
        if before is not None and after is not None and after >= before and later_s > earlier_s:
            yield later_s, (after - before) / (later_s - earlier_s)
