"""Checks that every request, message and connection of a run is accounted for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from loadtest.result.schema import Check, Conservation, Sweep
from loadtest.runner.building import broadcast
from loadtest.runner.building.collected import Collected
from loadtest.scenario.kinds import BroadcastScenario, Scenario
from loadtest.workers.messages import ProviderResult, RequestorResult, SweepCounts, WarmupCounts

_UNEXPECTED_COUNTS = ("unanswerable", "misrouted", "corrupt")
"""Counts of messages that a provider received and that are not requests to it."""
_MIN_CHURN_SHARE = 0.9  # turns to close wait while too many connections are away at the same time
_STATUSES_AFTER_PUBLISHING = ("503", "504")
"""HTTP statuses of requests that the gateway has published: no responders, and no reply in time."""


class _BrokerCounts(msgspec.Struct):
    """The "conservation" object of /varz."""

    published: int = 0
    matched: int = 0
    delivered: int = 0
    dropped: dict[str, int] = {}
    pending: int = 0


def check_conservation(collected: Collected) -> Conservation:
    """Check that nothing is unaccounted for, by the counts of the load and of the run's broker."""
    checks = [*_check_load(collected), *check_broker(collected)]
    if collected.counters is not None:
        counts = _BrokerCounts()
        with suppress(msgspec.ValidationError):  # a check reports it
            counts = _broker_counts(collected.counters)
        return Conservation(
            published=counts.published,
            delivered=counts.delivered,
            dropped=counts.dropped,
            pending=counts.pending,
            checks=checks,
            holds=all(check.holds for check in checks),
        )
    published, delivered, dropped = _count_by_load(collected)
    return Conservation(
        published=published,
        delivered=delivered,
        dropped=dropped,
        pending=0,
        checks=checks,
        holds=all(check.holds for check in checks),
    )


def _check_load(collected: Collected) -> list[Check]:
    """Check the counts of the workers, and that no worker is without a result."""
    results, providers = collected.requestors, collected.providers
    problem = collected.error or "; ".join(collected.missing)
    failed = Check(name="the run", detail=problem or "no result", holds=False)
    if isinstance(collected.scenario, BroadcastScenario):
        checks = broadcast.check_deliveries(collected.scenario, collected.broadcasters)
        return [*checks, failed] if problem or not collected.broadcasters else checks
    checks = [
        _check_outcomes("measured requests", results),
        _check_outcomes("warm-up requests", [r.warmup for r in results]),
    ]
    scenario = collected.scenario
    if scenario.calls:
        checks.append(_check_calls(scenario.calls, results))
    has_all = bool(results)
    if isinstance(scenario, Scenario):
        if scenario.sweep:
            checks.append(_check_sweep(collected))
        if scenario.churn_rate:
            checks.append(_check_churn(scenario, results))
        if providers:
            checks.append(_check_providers(providers))
        has_all = has_all and bool(providers)
    return checks if has_all and not problem else [*checks, failed]


def _count_by_load(collected: Collected) -> tuple[int, int, dict[str, int]]:
    """Return the messages published, delivered and dropped, as the load has counted them."""
    if isinstance(collected.scenario, BroadcastScenario):
        broadcasters = collected.broadcasters
        return (
            sum(result.sent + result.warmup.sent for result in broadcasters),
            sum(result.received + result.warmup.received for result in broadcasters),
            {"missing": sum(result.missing for result in broadcasters)},
        )
    results, providers = collected.requestors, collected.providers
    phases: list[RequestorResult | WarmupCounts | SweepCounts] = [*results, *counts_before_measuring(results)]
    return (
        sum(phase.sent for phase in phases) + sum(provider.sent for provider in providers),
        sum(phase.received for phase in phases) + sum(provider.received for provider in providers),
        {
            "timed_out": sum(phase.timed_out for phase in phases),
            "errors": sum(phase.errors for phase in phases),
        },
    )


def _check_outcomes(name: str, counts: Sequence[RequestorResult] | Sequence[WarmupCounts]) -> Check:
    """Check that each request has exactly one outcome: a reply, a timeout or an error."""
    sent, received = sum(c.sent for c in counts), sum(c.received for c in counts)
    timed_out, errors = sum(c.timed_out for c in counts), sum(c.errors for c in counts)
    return Check(
        name=name,
        detail=f"sent {sent:,} = received {received:,} + timed out {timed_out:,} + errors {errors:,}",
        holds=sent == received + timed_out + errors,
    )


def _check_calls(calls: int, results: Sequence[RequestorResult]) -> Check:
    """Check that exactly as many requests were sent as the scenario asks for."""
    sent = sum(result.sent for result in results)
    return Check(name="calls", detail=f"sent {sent:,} = asked for {calls:,}", holds=sent == calls)


def add_sweeps(results: Sequence[RequestorResult]) -> Sweep | None:
    """Return the sum of all requestors' sweeps; None if there was no sweep."""
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


def _check_sweep(collected: Collected) -> Check:
    """Check that each user sent one request and received its reply."""
    users, sweep = collected.scenario.users, add_sweeps(collected.requestors)
    if sweep is None:
        return Check(name="sweep", detail="no result", holds=False)
    lost = f", timed out {sweep.timed_out:,}, errors {sweep.errors:,}"
    return Check(
        name="sweep",
        detail=f"users {users:,} = sent {sweep.sent:,} = received {sweep.received:,}{lost}",
        holds=users == sweep.sent == sweep.received and not sweep.timed_out and not sweep.errors,
    )


def _check_churn(scenario: Scenario, results: Sequence[RequestorResult]) -> Check:
    """Check that each connection closed on purpose came back, and that their number is about as planned."""
    planned = round(scenario.churn_rate * (scenario.warmup_s + scenario.duration_s))
    closed, reconnected = (
        sum(getattr(result, name) for result in results) for name in ("churned", "reconnected")
    )
    failures = sum(result.reconnect_failures for result in results)
    return Check(
        name="churn",
        detail=(
            f"closed {closed:,} of {planned:,} planned = reconnected {reconnected:,},"
            f" failed attempts {failures:,}"
        ),
        holds=closed == reconnected and closed >= planned * _MIN_CHURN_SHARE - 1,
    )


def counts_before_measuring(results: Sequence[RequestorResult]) -> list[WarmupCounts | SweepCounts]:
    """Return the counts of all sweeps and warm-ups."""
    sweeps = [result.sweep for result in results if result.sweep is not None]
    return [*sweeps, *(result.warmup for result in results)]


def _check_providers(providers: Sequence[ProviderResult]) -> Check:
    """Check that each provider answered the requests that it received, and received nothing else."""
    received, sent = (sum(getattr(part, name) for part in providers) for name in ("received", "sent"))
    unexpected = {name: sum(getattr(part, name) for part in providers) for name in _UNEXPECTED_COUNTS}
    found = [f"{name} {count:,}" for name, count in unexpected.items() if count]
    lost = sum(part.dropped for part in providers)
    dropped = f" + dropped {lost:,}" if lost else ""
    return Check(
        name="providers",
        detail=", ".join([f"received {received:,} = sent {sent:,}{dropped}", *found]),
        holds=all(part.received == part.sent + part.dropped for part in providers) and not found,
    )


def check_broker(collected: Collected) -> list[Check]:
    """Check the conservation rule of the run's broker after the drain, and its counts against the load's."""
    if collected.counters is None:
        return []
    try:
        counts = _broker_counts(collected.counters)
    except msgspec.ValidationError as error:
        return [Check(name="broker", detail=f"counters unreadable: {error}", holds=False)]
    dropped = sum(counts.dropped.values())
    # The broker counts each term on its own, so a difference is a message lost or counted twice.
    # After the drain no message may be pending either.
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
    """Check that the broker received and sent what the load sent and received, if the load knows it."""
    results, providers = collected.requestors, collected.providers
    if collected.missing or collected.last_progress:
        return []
    if collected.broadcasters:
        return broadcast.compare_with_broker(collected.broadcasters, msgspec.structs.asdict(counts))
    if not _knows_all_outcomes(results, providers):
        return []
    before = counts_before_measuring(results)
    statuses = [result.statuses for result in results]
    sent = sum(result.sent for result in results) + sum(part.sent for part in before)
    sent -= sum(
        count
        for part in statuses
        for status, count in part.items()
        if status not in _STATUSES_AFTER_PUBLISHING
    )
    answers = sum(provider.sent for provider in providers)
    checks = [
        Check(
            name="broker took in",
            detail=f"published {counts.published:,} = requests {sent:,} + replies {answers:,}",
            holds=counts.published == sent + answers,
        )
    ]
    if dropped or any(result.unmatched for result in results) or any(part.errors for part in before):
        # An unmatched message may be a status of the broker, which is not a delivery. Errors of the sweep and
        # the warm-up are one count for all causes, so they do not show whether there was a delivery.
        return checks
    replies = sum(r.received + r.late + r.duplicates + r.corrupt for r in results)
    replies += sum(part.received for part in before)
    requests = sum(getattr(part, name) for part in providers for name in ("received", *_UNEXPECTED_COUNTS))
    checks.append(
        Check(
            name="broker gave out",
            detail=f"delivered {counts.delivered:,} = requests {requests:,} + replies {replies:,}",
            holds=counts.delivered == requests + replies,
        )
    )
    return checks


def _knows_all_outcomes(results: Sequence[RequestorResult], providers: Sequence[ProviderResult]) -> bool:
    """Return whether the load knows the outcome of every message."""
    if not providers or not results:
        return False
    if any(part.disconnected for part in providers) or any(part.disconnected for part in results):
        # Messages in flight on a lost connection were counted by one side only. Requests that were due while
        # a user had no connection count as sent, and the warm-up does not count them separately.
        return False
    before = counts_before_measuring(results)
    # A request without any reply may be in flight, or its reply may have come after the end. The sweep and
    # the warm-up report neither late replies nor requests that the gateway refused.
    return not (
        any(part.timed_out for part in before)
        or any(result.timed_out != result.late for result in results)
        or (any(result.statuses for result in results) and any(part.errors for part in before))
    )
