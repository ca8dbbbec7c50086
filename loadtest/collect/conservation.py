"""Whether every request, message and connection of a run is accounted for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from loadtest.collect import broadcast
from loadtest.collect.collected import Collected
from loadtest.engine.messages import ProviderResult, RequestorResult, SweepCounts, WarmupCounts
from loadtest.plan.scenario import BroadcastScenario, Scenario
from loadtest.result.schema import Check, Conservation, Sweep

_ASTRAY = ("unanswerable", "misrouted", "corrupt")
"""What a provider receives besides requests to it."""
_CHURN_SHARE = 0.9  # where too many are away at once, turns wait
_PUBLISHED = ("503", "504")
"""What the gateway answers to a request that it has published: nobody is there, and no reply in time."""


class _BrokerCounts(msgspec.Struct):
    """The "conservation" object of /varz."""

    published: int = 0
    matched: int = 0
    delivered: int = 0
    dropped: dict[str, int] = {}
    pending: int = 0


def conserve(collected: Collected) -> Conservation:
    """Checks that nothing is unaccounted for: by the load's own counts, and by the own broker's."""
    checks = [*_check_load(collected), *check_broker(collected)]
    if collected.counters is not None:
        counts = _BrokerCounts()
        with suppress(msgspec.ValidationError):  # which a check says already
            counts = _broker_counts(collected.counters)
        return Conservation(
            published=counts.published,
            delivered=counts.delivered,
            dropped=counts.dropped,
            pending=counts.pending,
            checks=checks,
            holds=all(check.holds for check in checks),
        )
    published, delivered, dropped = _seen_by_load(collected)
    return Conservation(
        published=published,
        delivered=delivered,
        dropped=dropped,
        pending=0,
        checks=checks,
        holds=all(check.holds for check in checks),
    )


def _check_load(collected: Collected) -> list[Check]:
    """What the workers counted, and that all of them did."""
    results, providers = collected.requestors, collected.providers
    lacking = collected.error or "; ".join(collected.missing)
    failed = Check(name="the run", detail=lacking or "no result", holds=False)
    if isinstance(collected.scenario, BroadcastScenario):
        checks = broadcast.check_deliveries(collected.scenario, collected.broadcasters)
        return [*checks, failed] if lacking or not collected.broadcasters else checks
    checks = [
        _outcomes("measured requests", results),
        _outcomes("warm-up requests", [r.warmup for r in results]),
    ]
    scenario = collected.scenario
    if scenario.calls:
        checks.append(_calls_outcome(scenario.calls, results))
    has_all = bool(results)
    if isinstance(scenario, Scenario):
        if scenario.sweep:
            checks.append(_sweep_outcome(collected))
        if scenario.churn_rate:
            checks.append(_churn_outcome(scenario, results))
        if providers:
            checks.append(_answers(providers))
        has_all = has_all and bool(providers)
    return checks if has_all and not lacking else [*checks, failed]


def _seen_by_load(collected: Collected) -> tuple[int, int, dict[str, int]]:
    """Messages that went in and came out, and those that did not."""
    if isinstance(collected.scenario, BroadcastScenario):
        casts = collected.broadcasters
        return (
            sum(result.sent + result.warmup.sent for result in casts),
            sum(result.received + result.warmup.received for result in casts),
            {"missing": sum(result.missing for result in casts)},
        )
    results, providers = collected.requestors, collected.providers
    phases: list[RequestorResult | WarmupCounts | SweepCounts] = [*results, *before_measuring(results)]
    return (
        sum(phase.sent for phase in phases) + sum(provider.sent for provider in providers),
        sum(phase.received for phase in phases) + sum(provider.received for provider in providers),
        {
            "timed_out": sum(phase.timed_out for phase in phases),
            "errors": sum(phase.errors for phase in phases),
        },
    )


def _outcomes(name: str, counts: Sequence[RequestorResult] | Sequence[WarmupCounts]) -> Check:
    """Each request got its reply, timed out or failed: one of the three, and only one."""
    sent, received = sum(c.sent for c in counts), sum(c.received for c in counts)
    timed_out, errors = sum(c.timed_out for c in counts), sum(c.errors for c in counts)
    return Check(
        name=name,
        detail=f"sent {sent:,} = received {received:,} + timed out {timed_out:,} + errors {errors:,}",
        holds=sent == received + timed_out + errors,
    )


def _calls_outcome(calls: int, results: Sequence[RequestorResult]) -> Check:
    """As many requests were sent as the scenario asks for."""
    sent = sum(result.sent for result in results)
    return Check(name="calls", detail=f"sent {sent:,} = asked for {calls:,}", holds=sent == calls)


def add_sweeps(results: Sequence[RequestorResult]) -> Sweep | None:
    """The requestors' sweeps as one; None where there was none."""
    sweeps = [result.sweep for result in results if result.sweep is not None]
    if not sweeps:
        return None
    return Sweep(
        sent=sum(sweep.sent for sweep in sweeps),
        received=sum(sweep.received for sweep in sweeps),
        timed_out=sum(sweep.timed_out for sweep in sweeps),
        errors=sum(sweep.errors for sweep in sweeps),
        duration_s=max(sweep.duration_s for sweep in sweeps),
    )


def _sweep_outcome(collected: Collected) -> Check:
    """Each user made one request, and got its reply."""
    users, sweep = collected.scenario.users, add_sweeps(collected.requestors)
    if sweep is None:
        return Check(name="sweep", detail="no result", holds=False)
    lost = f", timed out {sweep.timed_out:,}, errors {sweep.errors:,}"
    return Check(
        name="sweep",
        detail=f"users {users:,} = sent {sweep.sent:,} = received {sweep.received:,}{lost}",
        holds=users == sweep.sent == sweep.received and not sweep.timed_out and not sweep.errors,
    )


def _churn_outcome(scenario: Scenario, results: Sequence[RequestorResult]) -> Check:
    """Every connection that was closed came back, and about as many were as planned."""
    planned = round(scenario.churn_rate * (scenario.warmup_s + scenario.duration_s))
    closed, back = (sum(getattr(result, name) for result in results) for name in ("churned", "reconnected"))
    failures = sum(result.reconnect_failures for result in results)
    return Check(
        name="churn",
        detail=f"closed {closed:,} of {planned:,} planned = back {back:,}, failed attempts {failures:,}",
        holds=closed == back and closed >= planned * _CHURN_SHARE - 1,
    )


def before_measuring(results: Sequence[RequestorResult]) -> list[WarmupCounts | SweepCounts]:
    """The counts of all sweeps and warm-ups."""
    sweeps = [result.sweep for result in results if result.sweep is not None]
    return [*sweeps, *(result.warmup for result in results)]


def _answers(providers: Sequence[ProviderResult]) -> Check:
    """Each request was answered by who received it, and nothing came that is no request to that provider."""
    received, sent = (sum(getattr(part, name) for part in providers) for name in ("received", "sent"))
    astray = {name: sum(getattr(part, name) for part in providers) for name in _ASTRAY}
    found = [f"{name} {count:,}" for name, count in astray.items() if count]
    lost = sum(part.dropped for part in providers)
    dropped = f" + dropped {lost:,}" if lost else ""
    return Check(
        name="providers",
        detail=", ".join([f"received {received:,} = sent {sent:,}{dropped}", *found]),
        holds=all(part.received == part.sent + part.dropped for part in providers) and not found,
    )


def check_broker(collected: Collected) -> list[Check]:
    """The own broker's rule after the drain, and its counts beside those of the load."""
    if collected.counters is None:
        return []
    try:
        counts = _broker_counts(collected.counters)
    except msgspec.ValidationError as error:
        return [Check(name="broker", detail=f"counters unreadable: {error}", holds=False)]
    dropped = sum(counts.dropped.values())
    # The broker counts each term where it happens, so a difference is a message lost or counted twice.
    # After the drain none may wait either.
    unaccounted = counts.matched - counts.delivered - dropped - counts.pending
    rule = Check(
        name="broker",
        detail=(
            f"matched {counts.matched:,} = delivered {counts.delivered:,}"
            f" + dropped {dropped:,} + pending {counts.pending:,}, pending = 0"
            + (f"; unaccounted for: {unaccounted:,}" if unaccounted else "")
        ),
        holds=unaccounted == 0 and counts.pending == 0,
    )
    return [rule, *_compare_with_load(collected, counts, dropped)]


def _broker_counts(counters: Mapping[str, Any]) -> _BrokerCounts:
    return msgspec.convert(counters.get("conservation"), _BrokerCounts)


def _compare_with_load(collected: Collected, counts: _BrokerCounts, dropped: int) -> list[Check]:
    """What the broker took in and gave out is what the load sent and received, where that is known."""
    results, providers = collected.requestors, collected.providers
    if collected.missing or collected.last_progress:
        return []
    if collected.broadcasters:
        return broadcast.compare_with_broker(collected.broadcasters, msgspec.structs.asdict(counts))
    if not _is_known_in_full(results, providers):
        return []
    before = before_measuring(results)
    statuses = [result.statuses for result in results]
    sent = sum(result.sent for result in results) + sum(part.sent for part in before)
    sent -= sum(count for part in statuses for status, count in part.items() if status not in _PUBLISHED)
    answers = sum(provider.sent for provider in providers)
    checks = [
        Check(
            name="broker took in",
            detail=f"published {counts.published:,} = requests {sent:,} + replies {answers:,}",
            holds=counts.published == sent + answers,
        )
    ]
    if dropped or any(result.unmatched for result in results) or any(part.errors for part in before):
        # A status of the broker's own that fits no request is unmatched as a foreign message is, and errors
        # of sweep and warm-up are not told apart: neither says whether there was a delivery.
        return checks
    replies = sum(r.received + r.late + r.duplicates + r.corrupt for r in results)
    replies += sum(part.received for part in before)
    requests = sum(getattr(part, name) for part in providers for name in ("received", *_ASTRAY))
    checks.append(
        Check(
            name="broker gave out",
            detail=f"delivered {counts.delivered:,} = requests {requests:,} + replies {replies:,}",
            holds=counts.delivered == requests + replies,
        )
    )
    return checks


def _is_known_in_full(results: Sequence[RequestorResult], providers: Sequence[ProviderResult]) -> bool:
    """Whether the load knows what became of every message."""
    if not providers or not results:
        return False
    if any(part.disconnected for part in providers) or any(part.disconnected for part in results):
        # What a lost connection still held was sent by one side and never seen by the other, and requests
        # without a connection count as sent, of the warm-up without saying how many they were.
        return False
    before = before_measuring(results)
    # A request without any reply may still be under way, or its reply may have come after the end. Late
    # replies of sweep and warm-up are not reported, nor which of their requests the gateway refused.
    return not (
        any(part.timed_out for part in before)
        or any(result.timed_out != result.late for result in results)
        or (any(result.statuses for result in results) and any(part.errors for part in before))
    )
