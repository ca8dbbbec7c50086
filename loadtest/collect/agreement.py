"""The broker's own view beside the engine's: their timelines, and whether their counts agree.

Both count from the run's first connection on. Sessions, messages and payload bytes are compared at the end of
the drain, when nothing is under way; connections opened and closed once the load has closed its last one.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from loadtest.collect.collected import Collected, Moment, Observed
from loadtest.engine.messages import Progress
from loadtest.plan.scenario import is_http
from loadtest.result.broker_view import UNITS, Agreement, BrokerSample, BrokerView
from loadtest.result.schema import Sample
from loadtest.sampling.monitor import Reading

_TOTALS = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "slow_consumers")
_LEVELS = ("connections", "mem", "pending_bytes")
_APART_S = 1.0
_CLIENTS_OWN = ("client_closed", "connection_failed")
"""Reasons of connections that the client closed: a close with unread input is a reset for the kernel."""
_OTHERS = "a target counts all of its clients"


def compare(collected: Collected) -> list[Agreement]:
    """Every count that both sides have; empty where the broker's are not known."""
    observed = collected.observed
    if observed is None or observed.before is None:
        return []
    rows: list[Agreement] = []
    if observed.drained is not None:
        rows += compare_messages(collected, observed.before, observed.drained)
    if observed.closed is not None:
        rows += compare_connections(collected, observed.before, observed.closed)
    return rows


def compare_messages(collected: Collected, before: Mapping[str, Any], at: Moment) -> list[Agreement]:
    """Sessions, messages and payload bytes, at the end of the drain."""
    engine, excuse = at.engine, _excuse_messages(collected, at.engine)
    counts = (
        ("connected sessions", "connections", engine.connections, "connections", None),
        ("messages in", "messages", engine.published, "in_msgs", excuse),
        ("messages out", "messages", engine.delivered, "out_msgs", excuse),
        ("payload in", "bytes", engine.published_bytes, "in_bytes", excuse),
        ("payload out", "bytes", engine.delivered_bytes, "out_bytes", excuse),
    )
    return [
        _row(collected, (name, unit), ours, theirs, excused)
        for name, unit, ours, key, excused in counts
        if (theirs := _added(key, before, at.counters)) is not None
    ]


def compare_connections(collected: Collected, before: Mapping[str, Any], at: Moment) -> list[Agreement]:
    """Connections opened and closed in the whole run; the latter where the server gives its reasons."""
    engine = at.engine
    rows = []

    def add(name: str, ours: int, theirs: int, excuse: str | None) -> None:
        rows.append(_row(collected, (name, "connections"), ours, theirs, excuse))

    failed = f"{engine.connect_failures:,} attempts to connect failed" if engine.connect_failures else None
    lost = f"{engine.disconnected:,} connections were lost" if engine.disconnected else failed
    opened, left = (_added(key, before, at.counters) for key in ("total_connections", "connections"))
    if opened is not None:
        add("connections opened", engine.opened, opened, failed)
    reasons = count_closed(before, at.counters)
    if not reasons or left is None:
        return rows
    add("connections closed for a reason, or left", engine.opened, left + sum(reasons.values()), failed)
    if not is_http(collected.scenario):
        # Those of HTTP may be closed by the server at any time while they are idle.
        by_client = sum(reasons.get(reason, 0) for reason in _CLIENTS_OWN)
        add(
            "connections closed by the load",
            engine.churned + engine.connections,
            by_client,
            lost,
        )
    elif collected.scenario.transport == "rest-new":
        add("connections closed after an answer", engine.answered, reasons.get("http_answered", 0), lost)
    return rows


def _row(
    collected: Collected, what: tuple[str, str], ours: int, theirs: int, excuse: str | None
) -> Agreement:
    name, unit = what
    if collected.target is not None:
        excuse = _OTHERS
    return Agreement(
        name=name,
        unit=unit,
        engine=ours,
        broker=theirs,
        difference=theirs - ours,
        matches=theirs == ours,
        expected=None if theirs == ours else excuse,
    )


def _excuse_messages(collected: Collected, engine: Progress) -> str | None:
    """Why one side may have counted what the other one never saw."""
    if engine.disconnected:
        return f"{engine.disconnected:,} connections were lost, with what was under way on them"
    # Without a reply in time, a connection of HTTP is closed; one that churns may be, before a late reply.
    if engine.timed_out and (engine.churned or is_http(collected.scenario)):
        return f"{engine.timed_out:,} requests timed out, and their connections were closed"
    return None


def count_closed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Connections that ended between two readings, by reason; empty where the server does not tell."""
    first, last = before.get("closed"), after.get("closed")
    if not isinstance(first, Mapping) or not isinstance(last, Mapping):
        return {}
    return {str(reason): _whole(count) - _whole(first.get(reason)) for reason, count in last.items()}


def _added(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """What a counter has grown by; None where the server has none."""
    first, last = before.get(key), after.get(key)
    return None if _number(first) is None or _number(last) is None else _whole(last) - _whole(first)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int:
    return int(_number(value) or 0)


def summarise(collected: Collected) -> BrokerView | None:
    """How the counters were read; None where there was no monitor."""
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


def join(timeline: Sequence[Sample], observed: Observed | None) -> list[Sample]:
    """The timeline, each sample with a reading of the same second; a reading belongs to one sample alone."""
    if observed is None:
        return list(timeline)
    times = [sample.t_s for sample in timeline]
    nearest: dict[int, BrokerSample] = {}
    for reading in observed.readings:
        sample = _sample(reading, observed)
        after = bisect_left(times, sample.t_s)
        around = [index for index in (after - 1, after) if 0 <= index < len(times) and index not in nearest]
        index = min(around, key=lambda index: abs(times[index] - sample.t_s), default=None)
        if index is not None and abs(times[index] - sample.t_s) <= _APART_S:
            nearest[index] = sample
    return [structs.replace(sample, broker=nearest.get(index)) for index, sample in enumerate(timeline)]


def _sample(reading: Reading, observed: Observed) -> BrokerSample:
    before, counters = observed.before or {}, reading.counters
    dropped = [_dropped(one) for one in (before, counters)]
    return BrokerSample(
        t_s=round(reading.at_s - observed.began_s, 3),
        cpu=_number(counters.get("cpu")),
        dropped=None if dropped[1] is None else dropped[1] - (dropped[0] or 0),
        **{key: _added(key, before, counters) for key in _TOTALS},
        **{key: None if _number(counters.get(key)) is None else _whole(counters[key]) for key in _LEVELS},
    )


def _dropped(counters: Mapping[str, Any]) -> int | None:
    conservation = counters.get("conservation")
    reasons = conservation.get("dropped") if isinstance(conservation, Mapping) else None
    return sum(_whole(count) for count in reasons.values()) if isinstance(reasons, Mapping) else None
