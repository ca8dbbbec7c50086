"""Results of broadcasts: the counts of several broadcasters as one, and their checks.

Message K goes to all users N with N mod S = K mod S, so the number of messages determines the number of
deliveries due. Deliveries that came are counted receipt by receipt. Missing deliveries are counted user by
user, from the gaps in the users' message numbers.
"""

from collections.abc import Iterable, Mapping, Sequence

from loadtest.result.histogram import Histogram
from loadtest.result.schema import Achieved, BroadcastFigures, Check, Latency, Server, Spread
from loadtest.scenario.kinds import BroadcastScenario
from loadtest.workers.messages import BroadcasterResult, LatencySummary, Progress

_NS_PER_US = 1000
_US_PER_S = 1e6


def deliveries_due(messages: int, users: int, subjects: int) -> int:
    """Return the deliveries of the first `messages` messages, one to each user of a message's subject."""
    rounds, last_messages = divmod(messages, subjects)
    users_per_subject, larger_subjects = divmod(users, subjects)
    return rounds * users + last_messages * users_per_subject + min(last_messages, larger_subjects)


def sum_achieved(
    scenario: BroadcastScenario,
    results: Sequence[BroadcasterResult],
    unfinished: Sequence[Progress],
    rate: float,
) -> Achieved:
    """Return the counts of all broadcasters with a result, at `rate` deliveries a second.

    Broadcasters without a result are in `unfinished`, and add only their connections.
    """
    opened: list[BroadcasterResult | Progress] = [*results, *unfinished]
    connections = sum(part.connections for part in opened)
    published = sum(result.sent for result in results)
    received = sum(result.received for result in results)
    duration_s = max((result.duration_s for result in results), default=0.0)
    return Achieved(
        connections=connections,
        subjects=min(scenario.subjects, connections),
        sent=published,
        received=received,
        timed_out=sum(result.expected for result in results) - received,
        errors=sum(result.errors for result in results),
        duplicates=sum(result.duplicates for result in results),
        corrupt=sum(result.corrupt for result in results),
        late=0,
        no_responders=0,
        unmatched=sum(result.misrouted for result in results),
        disconnected=sum(result.disconnected for result in results),
        connect_failures=sum(part.connect_failures for part in opened),
        rate=rate,
        messages_per_s=rate + (published / duration_s if duration_s else 0.0),
        connect_s=max((result.connect_s for result in results), default=0.0),
        max_send_lag_us=max((result.max_send_lag_ns for result in results), default=0) / _NS_PER_US,
        server_errors=sum(result.server_errors for result in results),
        first_server_error=next((r.first_server_error for r in results if r.first_server_error), None),
    )


def check_deliveries(scenario: BroadcastScenario, results: Sequence[BroadcasterResult]) -> list[Check]:
    """Check that each delivery due came or is missing, in the warm-up and the measured phase together."""
    users, subjects = scenario.users, scenario.subjects
    published = sum(result.sent + result.warmup.sent for result in results)
    received = sum(result.received + result.warmup.received for result in results)
    missing = sum(result.missing for result in results)
    planned = sum(result.expected + result.warmup.expected for result in results)
    due = deliveries_due(published, users, subjects)
    return [
        Check(
            name="deliveries",
            detail=(
                f"{published:,} messages to {users:,} users of {subjects:,} subject{'s' * (subjects > 1)}:"
                f" {due:,} = received {received:,} + missing {missing:,}"
            ),
            holds=due == planned == received + missing,
        )
    ]


def compare_with_broker(results: Sequence[BroadcasterResult], counters: Mapping[str, int]) -> list[Check]:
    """Compare the broker's "published", "matched" and "delivered" with the counts of the load.

    If a connection was lost, the broker may have received less than was published, may have matched fewer
    users, and may have sent more than arrived.
    """
    published = sum(r.sent + r.warmup.sent - r.errors - r.warmup.errors for r in results)
    due = sum(result.expected + result.warmup.expected for result in results)
    received = sum(r.received + r.warmup.received + r.duplicates + r.corrupt + r.misrouted for r in results)
    is_exact = not any(result.disconnected for result in results)
    sign = "=" if is_exact else "<="

    def check(name: str, lesser: tuple[str, int], greater: tuple[str, int]) -> Check:
        return Check(
            name=name,
            detail=f"{lesser[0]} {lesser[1]:,} {sign} {greater[0]} {greater[1]:,}",
            holds=lesser[1] == greater[1] if is_exact else lesser[1] <= greater[1],
        )

    return [
        check("broker took in", ("published", counters["published"]), ("messages", published)),
        check("broker matched", ("matched", counters["matched"]), ("deliveries due", due)),
        check("broker gave out", ("received", received), ("delivered", counters["delivered"])),
    ]


def summarise_spread(
    scenario: BroadcastScenario, results: Sequence[BroadcasterResult]
) -> LatencySummary | None:
    """Summarise the time from first to last receipt of the measured messages that all users received.

    A single broadcaster knows that time itself. Several broadcasters list the receipts of their users
    instead. None without any broadcaster.
    """
    if len(results) <= 1:
        return results[0].spread if results else None
    merged: dict[int, tuple[int, int, int]] = {}
    for number, count, first, last in (row for result in results for row in result.messages or ()):
        before = merged.get(number, (0, first, last))
        merged[number] = (before[0] + count, min(before[1], first), max(before[2], last))
    users_per_subject, larger_subjects = divmod(scenario.users, scenario.subjects)
    return _summarise_ns(
        last - first
        for number, (count, first, last) in merged.items()
        if count == users_per_subject + (number % scenario.subjects < larger_subjects)
    )


def _summarise_ns(values_ns: Iterable[int]) -> LatencySummary:
    histogram, values = Histogram(), list(values_ns)
    for value in values:
        histogram.record(max(value, 1))
    return LatencySummary(
        count=len(values),
        sum_ns=sum(values),
        sum_sq_ns2=sum(value * value for value in values),
        min_ns=min(values, default=0),
        max_ns=max(values, default=0),
        hdr=histogram.encode(),
    )


def build_metrics(
    scenario: BroadcastScenario, achieved: Achieved, spread: Latency | None, server: Server, cores: int
) -> BroadcastFigures:
    """Return the metrics of a broadcast; `cores` of the server's machine are 0 if they are not known."""
    cpu_us = server.cpu_us_per_request
    return BroadcastFigures(
        subjects=scenario.subjects,
        published=achieved.sent,
        deliveries=achieved.received,
        missing=achieved.timed_out,
        incomplete=achieved.sent - (spread.count if spread else 0),
        published_per_s=achieved.messages_per_s - achieved.rate,
        deliveries_per_s=achieved.rate,
        deliveries_per_s_per_core=achieved.rate / cores if cores else None,
        deliveries_per_broker_cpu_s=_US_PER_S / cpu_us if cpu_us else None,
        spread_us=Spread(count=spread.count, p50=spread.p50, p99=spread.p99, max=spread.max)
        if spread
        else None,
    )
