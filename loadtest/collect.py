"""Makes one result out of what the workers, the samples and the broker's counters say.

Several requestors are one: counts and integer sums are added, histograms are added, and every mean,
deviation and percentile is computed once, from the total.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from loadtest import broadcast
from loadtest.histogram import Histogram, LoggedInterval
from loadtest.messages import (
    BroadcasterResult,
    EngineInterval,
    Moments,
    Progress,
    ProviderResult,
    RequestorResult,
    SweepCounts,
    WarmupCounts,
)
from loadtest.reference import PUBLISHED_2016, PUBLISHED_2025
from loadtest.results import (
    Achieved,
    BroadcastFigures,
    Check,
    Conservation,
    Histograms,
    Interval,
    Latency,
    Load,
    Requested,
    Result,
    Sample,
    Server,
    Sweep,
)
from loadtest.scenario import AnyScenario, BroadcastScenario, Scenario
from loadtest.soak import Look, build_soak
from loadtest.thresholds import parse_thresholds

_PERCENTILES = {"p50": "50", "p90": "90", "p95": "95", "p99": "99", "p99_9": "99.9", "p99_99": "99.99"}
_CHURN_SHARE = 0.9  # where too many are away at once, turns wait
_MESSAGES_PER_REQUEST = 4  # request in, request out, reply in, reply out
_NS_PER_US = 1000


@dataclass(kw_only=True)
class Collected:
    """Everything that a run has gathered so far; a run that failed has less."""

    scenario: AnyScenario
    target: str | None
    environment: dict[str, Any]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    error: str | None = None
    requestors: list[RequestorResult] = field(default_factory=list)
    provider: ProviderResult | None = None
    broadcasters: list[BroadcasterResult] = field(default_factory=list)
    last_progress: list[Progress] = field(default_factory=list)
    """Of the requestors or broadcasters whose results never came."""
    server: Server = field(default_factory=Server)
    load: Load = field(default_factory=Load)
    counters: Mapping[str, Any] | None = None
    """The own broker's /varz after the drain."""
    timeline: list[Sample] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    """Of a soak."""

    @property
    def results(self) -> Sequence[RequestorResult] | Sequence[BroadcasterResult]:
        """Of whoever measured."""
        return self.requestors or self.broadcasters


class _BrokerCounts(msgspec.Struct):
    """The "conservation" object of /varz."""

    published: int = 0
    matched: int = 0
    delivered: int = 0
    dropped: dict[str, int] = {}
    pending: int = 0


def summarise(parts: Sequence[Moments]) -> tuple[Latency, str] | None:
    """Statistics over all values of all parts, in microseconds, and the merged histogram.

    None without any value; ValueError when a histogram and its sums disagree.
    """
    parts = [part for part in parts if part.count]
    if not parts:
        return None
    histogram = Histogram.merged(part.hdr for part in parts)
    count = sum(part.count for part in parts)
    if histogram.count != count:
        raise ValueError(f"histogram has {histogram.count} values, the sums have {count}")
    total = sum(part.sum_ns for part in parts)
    squares = sum(part.sum_sq_ns2 for part in parts)
    lowest, highest = min(part.min_ns for part in parts), max(part.max_ns for part in parts)
    at = histogram.values_at(list(_PERCENTILES.values()))
    percentiles = {
        name: min(max(value, lowest), highest) / _NS_PER_US
        for name, value in zip(_PERCENTILES, at, strict=True)
    }
    latency = Latency(
        count=count,
        mean=total / count / _NS_PER_US,
        stddev=math.sqrt(count * squares - total * total) / count / _NS_PER_US,
        min=lowest / _NS_PER_US,
        max=highest / _NS_PER_US,
        **percentiles,
    )
    return latency, histogram.encode()


def merge_intervals(
    results: Sequence[RequestorResult] | Sequence[BroadcasterResult],
) -> tuple[list[Interval], list[LoggedInterval]]:
    """The workers' intervals added second by second, with their percentiles and with their histograms."""
    by_second: dict[int, list[tuple[float, float, int, int, str]]] = {}
    for result in results:
        for part in result.intervals:
            row = (part.start_s, part.end_s, part.sent, part.received, part.hdr)
            by_second.setdefault(round(part.start_s), []).append(row)
    intervals, logged = [], []
    for _, rows in sorted(by_second.items()):
        starts, ends, sent, received, encoded = zip(*rows, strict=True)
        histogram = Histogram.merged(encoded)
        p50, p99, highest = histogram.values_at(["50", "99", "100"])
        start, end = min(starts), max(ends)
        logged.append(
            LoggedInterval(start, end, encoded[0] if len(rows) == 1 else histogram.encode(), highest)
        )
        intervals.append(
            Interval(
                start_s=start,
                end_s=end,
                sent=sum(sent),
                received=sum(received),
                p50_us=p50 / _NS_PER_US,
                p99_us=p99 / _NS_PER_US,
                max_us=highest / _NS_PER_US,
            )
        )
    return intervals, logged


def measured_rate(results: Sequence[RequestorResult] | Sequence[BroadcasterResult]) -> float:
    """Replies or deliveries per second within the measured phase: every worker's, over its own duration."""
    return sum(
        _received_within(result.intervals, result.duration_s) / result.duration_s
        for result in results
        if result.duration_s
    )


def _received_within(intervals: Sequence[EngineInterval], duration_s: float) -> float:
    """Replies or deliveries received before `duration_s`.

    The engine's intervals are whole seconds, but for the last, which ends with the drain. So this is exact
    for a phase of whole seconds; of an interval that lies across its end, the share of its time counts.
    """
    received = 0.0
    for part in intervals:
        if part.end_s <= duration_s:
            received += part.received
        elif part.start_s < duration_s:
            received += part.received * (duration_s - part.start_s) / (part.end_s - part.start_s)
    return received


def achieve(collected: Collected) -> Achieved:
    """The counts of all workers that have a result; of the others only the connections."""
    if isinstance(collected.scenario, BroadcastScenario):
        rate = measured_rate(collected.broadcasters)
        return broadcast.achieve(collected.scenario, collected.broadcasters, collected.last_progress, rate)
    results, provider = collected.requestors, collected.provider
    opened: list[RequestorResult | Progress] = [*results, *collected.last_progress]
    providers = provider.connections if provider else 0
    connections = sum(part.connections for part in opened) + providers
    rate = measured_rate(results)
    talkers: list[RequestorResult | ProviderResult] = [*results, *([provider] if provider else [])]
    counts = (
        "sent",
        "received",
        "timed_out",
        "errors",
        "duplicates",
        "corrupt",
        "late",
        "no_responders",
        "unmatched",
        "disconnected",
        "churned",
        "reconnected",
        "reconnect_failures",
    )
    return Achieved(
        connections=connections,
        subjects=connections,
        rate=rate,
        messages_per_s=rate * _MESSAGES_PER_REQUEST,
        connect_s=max((result.connect_s for result in results), default=0.0),
        connect_failures=sum(part.connect_failures for part in opened),
        max_send_lag_us=max((result.max_send_lag_ns for result in results), default=0) / _NS_PER_US,
        server_errors=sum(talker.server_errors for talker in talkers),
        first_server_error=next((t.first_server_error for t in talkers if t.first_server_error), None),
        **{name: sum(getattr(result, name) for result in results) for name in counts},
    )


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
    results, provider = collected.requestors, collected.provider
    failed = Check(name="the run", detail=collected.error or "no result", holds=False)
    if isinstance(collected.scenario, BroadcastScenario):
        checks = broadcast.check_deliveries(collected.scenario, collected.broadcasters)
        return [*checks, failed] if collected.error or not collected.broadcasters else checks
    checks = [
        _outcomes("measured requests", results),
        _outcomes("warm-up requests", [r.warmup for r in results]),
    ]
    if collected.scenario.sweep:
        checks.append(_sweep_outcome(collected))
    if collected.scenario.churn_rate:
        checks.append(_churn_outcome(collected.scenario, results))
    if provider is not None:
        checks.append(_answers(provider))
    return [*checks, failed] if collected.error or not results or provider is None else checks


def _seen_by_load(collected: Collected) -> tuple[int, int, dict[str, int]]:
    """Messages that went in and came out, and those that did not."""
    if isinstance(collected.scenario, BroadcastScenario):
        casts = collected.broadcasters
        return (
            sum(result.sent + result.warmup.sent for result in casts),
            sum(result.received + result.warmup.received for result in casts),
            {"missing": sum(result.missing for result in casts)},
        )
    results, provider = collected.requestors, collected.provider
    phases: list[RequestorResult | WarmupCounts | SweepCounts] = [*results, *_before_measuring(results)]
    return (
        sum(phase.sent for phase in phases) + (provider.sent if provider else 0),
        sum(phase.received for phase in phases) + (provider.received if provider else 0),
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


def _before_measuring(results: Sequence[RequestorResult]) -> list[WarmupCounts | SweepCounts]:
    """The counts of all sweeps and warm-ups."""
    sweeps = [result.sweep for result in results if result.sweep is not None]
    return [*sweeps, *(result.warmup for result in results)]


def _answers(provider: ProviderResult) -> Check:
    """Each request was answered, and nothing came that is no request to that provider."""
    astray = {name: getattr(provider, name) for name in ("unanswerable", "misrouted", "corrupt")}
    found = [f"{name} {count:,}" for name, count in astray.items() if count]
    return Check(
        name="providers",
        detail=", ".join([f"received {provider.received:,} = sent {provider.sent:,}", *found]),
        holds=provider.received == provider.sent and not found,
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
    # The broker computes what is pending from the other three, so the sum says nothing unless it is zero.
    rule = Check(
        name="broker",
        detail=(
            f"matched {counts.matched:,} = delivered {counts.delivered:,}"
            f" + dropped {dropped:,} + pending {counts.pending:,}, pending = 0"
        ),
        holds=counts.matched == counts.delivered + dropped and counts.pending == 0,
    )
    return [rule, *_compare_with_load(collected, counts, dropped)]


def _broker_counts(counters: Mapping[str, Any]) -> _BrokerCounts:
    return msgspec.convert(counters.get("conservation"), _BrokerCounts)


def _compare_with_load(collected: Collected, counts: _BrokerCounts, dropped: int) -> list[Check]:
    """What the broker took in and gave out is what the load sent and received, where that is known."""
    results, provider = collected.requestors, collected.provider
    if collected.broadcasters and not collected.last_progress:
        return broadcast.compare_with_broker(collected.broadcasters, msgspec.structs.asdict(counts))
    if provider is None or not results or collected.last_progress:
        return []
    if provider.disconnected or any(result.disconnected for result in results):
        # What a lost connection still held was sent by one side and never seen by the other, and requests
        # without a connection count as sent, of the warm-up without saying how many they were.
        return []
    before = _before_measuring(results)
    if any(part.timed_out for part in before) or any(r.timed_out != r.late for r in results):
        # A request without any reply may still be under way, or its reply may have come after the end. Late
        # replies of sweep and warm-up are not reported.
        return []
    sent = sum(result.sent for result in results) + sum(part.sent for part in before)
    checks = [
        Check(
            name="broker took in",
            detail=f"published {counts.published:,} = requests {sent:,} + replies {provider.sent:,}",
            holds=counts.published == sent + provider.sent,
        )
    ]
    if dropped or any(result.unmatched for result in results) or any(part.errors for part in before):
        # A status of the broker's own that fits no request is unmatched as a foreign message is, and errors
        # of sweep and warm-up are not told apart: neither says whether there was a delivery.
        return checks
    replies = sum(r.received + r.late + r.duplicates + r.corrupt for r in results)
    replies += sum(part.received for part in before)
    requests = provider.received + provider.unanswerable + provider.misrouted + provider.corrupt
    checks.append(
        Check(
            name="broker gave out",
            detail=f"delivered {counts.delivered:,} = requests {requests:,} + replies {replies:,}",
            holds=counts.delivered == requests + replies,
        )
    )
    return checks


def build_result(collected: Collected) -> tuple[Result, list[LoggedInterval]]:
    """The result, and the intervals of its histogram log."""
    scenario = collected.scenario
    latency = summarise([result.latency for result in collected.results])
    service = summarise([result.service for result in collected.requestors])
    intervals, logged = merge_intervals(collected.results)
    achieved = achieve(collected)
    is_broadcast = isinstance(scenario, BroadcastScenario)
    result = Result(
        scenario=msgspec.to_builtins(scenario),
        target=collected.target,
        started=collected.started.isoformat(timespec="milliseconds"),
        duration_s=max((result.duration_s for result in collected.results), default=0.0),
        error=collected.error,
        requested=_request(scenario),
        achieved=achieved,
        sweep=add_sweeps(collected.requestors),
        latency_us=latency[0] if latency else None,
        service_us=service[0] if service else None,
        server=collected.server,
        load=collected.load,
        conservation=conserve(collected),
        thresholds=[],
        reference=PUBLISHED_2025 if is_broadcast else PUBLISHED_2016,
        environment=collected.environment,
        intervals=intervals,
        timeline=collected.timeline,
        histograms=Histograms(latency=latency[1], service=service[1] if service else None)
        if latency
        else None,
        broadcast=_figure_broadcast(collected, achieved),
    )
    if scenario.soak is not None:
        soak = build_soak(scenario.soak, collected.looks, collected.results)
        result = msgspec.structs.replace(result, soak=soak)
    outcomes = [threshold.judge(result) for threshold in parse_thresholds(scenario.thresholds)]
    return msgspec.structs.replace(result, thresholds=outcomes), logged


def _request(scenario: AnyScenario) -> Requested:
    connections, rate, subjects = scenario.connections, scenario.rate, scenario.connections
    if isinstance(scenario, BroadcastScenario):
        subjects = scenario.subjects
        rate *= scenario.users / subjects
    return Requested(
        connections=connections,
        subjects=subjects,
        rate=None if scenario.outstanding else rate,
        duration_s=scenario.duration_s,
    )


def _figure_broadcast(collected: Collected, achieved: Achieved) -> BroadcastFigures | None:
    if not isinstance(collected.scenario, BroadcastScenario):
        return None
    moments = broadcast.spreads(collected.scenario, collected.broadcasters)
    spread = summarise([moments]) if moments else None
    sees_server = collected.target is None or collected.server.cpu_percent is not None
    cores = int(collected.environment.get("cores", 0)) if sees_server else 0
    return broadcast.figures(
        collected.scenario, achieved, spread[0] if spread else None, collected.server, cores
    )
