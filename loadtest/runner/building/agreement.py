"""The engine's counts compared with the broker's: their agreement, and the timeline of both.

Both sides count from the run's first connection. Sessions, messages and payload bytes are compared at the end
of the drain, when nothing is in flight. Connections opened and closed are compared after the load has closed
its last one.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from loadtest.result.broker_view import UNITS, Agreement, BrokerSample, BrokerView
from loadtest.result.schema import Sample
from loadtest.runner.building.collected import Collected, CountsAt, Observed
from loadtest.sampling.monitor import Reading
from loadtest.scenario.kinds import is_http
from loadtest.workers.messages import Progress

_TOTALS = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "slow_consumers")
_LEVELS = ("connections", "mem", "pending_bytes")
_MOST = 2**62
"""Largest number that is taken for a counter: a result with more than 64 bits cannot be written."""
_MAX_DISTANCE_S = 1.0
_CLIENT_CLOSED_REASONS = ("client_closed", "connection_failed")
"""Close reasons that mean the client closed: the kernel turns a close with unread input into a reset."""
_TARGET_REASON = "a target counts all of its clients"


def compare(collected: Collected) -> list[Agreement]:
    """Return a row for each count that both sides have; empty if the broker's counts are not known."""
    observed = collected.observed
    if observed is None or observed.before is None:
        return []
    rows: list[Agreement] = []
    if observed.drained is not None:
        rows += compare_messages(collected, observed.before, observed.drained)
    if observed.closed is not None:
        rows += compare_connections(collected, observed.before, observed.closed)
    return rows


def compare_messages(collected: Collected, before: Mapping[str, Any], at: CountsAt) -> list[Agreement]:
    """Compare sessions, messages and payload bytes at the end of the drain."""
    engine, reason = at.engine, _message_difference_reason(collected, at.engine)
    counts = (
        ("connected sessions", "connections", engine.connections, "connections", None),
        ("messages in", "messages", engine.published, "in_msgs", reason),
        ("messages out", "messages", engine.delivered, "out_msgs", reason),
        ("payload in", "bytes", engine.published_bytes, "in_bytes", reason),
        ("payload out", "bytes", engine.delivered_bytes, "out_bytes", reason),
    )
    return [
        _row(collected, (name, unit), engine_count, broker_count, reason)
        for name, unit, engine_count, key, reason in counts
        if (broker_count := _growth(key, before, at.counters)) is not None
    ]


def compare_connections(collected: Collected, before: Mapping[str, Any], at: CountsAt) -> list[Agreement]:
    """Compare the connections opened and closed in the whole run.

    Closed connections are compared only if the server reports its close reasons.
    """
    engine = at.engine
    rows = []

    def add(name: str, engine_count: int, broker_count: int | None, reason: str | None) -> None:
        if broker_count is not None:
            rows.append(_row(collected, (name, "connections"), engine_count, broker_count, reason))

    failed = f"{engine.connect_failures:,} attempts to connect failed" if engine.connect_failures else None
    lost = f"{engine.disconnected:,} connections were lost" if engine.disconnected else failed
    opened, left = (_growth(key, before, at.counters) for key in ("total_connections", "connections"))
    add("connections opened", engine.opened, opened, failed)
    reasons = count_closed(before, at.counters)
    if not reasons or left is None:
        return rows
    closed = _as_int(left + sum(reasons.values()))
    add("connections closed for a reason, or left", engine.opened, closed, failed)
    if not is_http(collected.scenario):
        # The server may close idle HTTP connections at any time.
        by_client = sum(reasons.get(reason, 0) for reason in _CLIENT_CLOSED_REASONS)
        add(
            "connections closed by the load",
            engine.churned + engine.connections,
            _as_int(by_client),
            lost,
        )
    elif collected.scenario.transport == "rest-new":
        add("connections closed after an answer", engine.answered, reasons.get("http_answered", 0), lost)
    return rows


def _row(
    collected: Collected, label: tuple[str, str], engine_count: int, broker_count: int, reason: str | None
) -> Agreement:
    name, unit = label
    if collected.target is not None:
        reason = _TARGET_REASON
    return Agreement(
        name=name,
        unit=unit,
        engine=engine_count,
        broker=broker_count,
        difference=broker_count - engine_count,
        matches=broker_count == engine_count,
        expected=None if broker_count == engine_count else reason,
    )


def _message_difference_reason(collected: Collected, engine: Progress) -> str | None:
    """Return the reason why message counts may differ; None if they have to be equal."""
    if engine.disconnected:
        return f"{engine.disconnected:,} connections were lost, with the messages in flight on them"
    # After a timeout, an HTTP connection is closed. A churning connection may close before a late reply.
    if engine.timed_out and (engine.churned or is_http(collected.scenario)):
        return f"{engine.timed_out:,} requests timed out, and their connections were closed"
    return None


def count_closed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Return the connections that ended between two snapshots, by reason; empty without reasons."""
    first, last = before.get("closed"), after.get("closed")
    if not isinstance(first, Mapping) or not isinstance(last, Mapping):
        return {}
    return {str(reason): _growth(reason, {reason: 0, **first}, last) or 0 for reason in last}


def _growth(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """Return the growth of a counter between two snapshots; None if the server does not have the counter."""
    first, last = _as_int(before.get(key)), _as_int(after.get(key))
    return None if first is None or last is None else _as_int(last - first)


def _as_number(value: object) -> float | None:
    """Return a counter of the server; None for anything else, such as 1e30."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) <= _MOST else None


def _as_int(value: object) -> int | None:
    number = _as_number(value)
    return None if number is None else int(number)


def summarise_monitor(collected: Collected) -> BrokerView | None:
    """Return how the monitor was read during the run; None without a monitor."""
    observed = collected.observed
    if observed is None:
        return None
    last = observed.closed or observed.drained
    note = None
    if observed.before is None:
        note = "the monitor did not answer before the first connection"
    elif observed.drained is None:
        note = "the run failed" if collected.error else "the monitor did not answer at the end of the drain"
    closed = count_closed(observed.before, last.counters) if observed.before and last else {}
    return BrokerView(
        monitor=observed.monitor,
        readings=len(observed.readings),
        failures=observed.failures,
        first_failure=observed.first_failure,
        slowest_s=round(observed.slowest_s, 6),
        closed={reason: count for reason, count in closed.items() if count},
        units=UNITS,
        note=note,
    )


def join_counters(timeline: Sequence[Sample], observed: Observed | None) -> list[Sample]:
    """Return the timeline with the broker's counters added to each sample.

    A sample gets the nearest snapshot of the monitor, at most 1 s away; each snapshot belongs to one sample.
    """
    if observed is None:
        return list(timeline)
    times = [sample.t_s for sample in timeline]
    nearest: dict[int, BrokerSample] = {}
    for reading in observed.readings:
        sample = _broker_sample(reading, observed)
        after = bisect_left(times, sample.t_s)
        around = [index for index in (after - 1, after) if 0 <= index < len(times) and index not in nearest]
        index = min(around, key=lambda index: abs(times[index] - sample.t_s), default=None)
        if index is not None and abs(times[index] - sample.t_s) <= _MAX_DISTANCE_S:
            nearest[index] = sample
    return [structs.replace(sample, broker=nearest.get(index)) for index, sample in enumerate(timeline)]


def _broker_sample(reading: Reading, observed: Observed) -> BrokerSample:
    before, counters = observed.before or {}, reading.counters
    dropped = [_sum_dropped(snapshot) for snapshot in (before, counters)]
    return BrokerSample(
        t_s=round(reading.at_s - observed.began_s, 3),
        cpu=_as_number(counters.get("cpu")),
        dropped=None if dropped[1] is None else _as_int(dropped[1] - (dropped[0] or 0)),
        **{key: _growth(key, before, counters) for key in _TOTALS},
        **{key: _as_int(counters.get(key)) for key in _LEVELS},
    )


def _sum_dropped(counters: Mapping[str, Any]) -> int | None:
    conservation = counters.get("conservation")
    reasons = conservation.get("dropped") if isinstance(conservation, Mapping) else None
    if not isinstance(reasons, Mapping):
        return None
    return _as_int(sum(_as_int(count) or 0 for count in reasons.values()))
