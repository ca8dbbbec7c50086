"""Building of a run's result from the results of the workers, the samples and the broker's counters.

Several requestors count as one: their counts, integer sums and histograms are added. Every mean, deviation
and percentile is computed once, from the total.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from loadtest.result.histogram import HIGHEST_NS, Histogram, LoggedInterval
from loadtest.result.metrics import PERCENTILES
from loadtest.result.reference import PUBLISHED_2014_BYTE, PUBLISHED_2016, PUBLISHED_2025, Reference
from loadtest.result.schema import (
    Achieved,
    BroadcastFigures,
    Histograms,
    Interval,
    Latency,
    Requested,
    Result,
    Wire,
    WorkerCounts,
)
from loadtest.result.thresholds import thresholds_of
from loadtest.runner.building import agreement, broadcast
from loadtest.runner.building.collected import Collected, WorkerReport
from loadtest.runner.building.conservation import add_sweeps, check_conservation, counts_before_measuring
from loadtest.runner.building.heatmap import build_heatmap
from loadtest.runner.building.soak import build_soak
from loadtest.scenario.kinds import AnyScenario, BroadcastScenario, FetchScenario, Scenario, is_http
from loadtest.workers.messages import (
    BroadcasterResult,
    EngineInterval,
    LatencySummary,
    Progress,
    ProviderResult,
    RequestorResult,
)

_MESSAGES_PER_REQUEST = 4  # request in, request out, reply in, reply out
_MESSAGES_PER_FETCH = 2
_REFERENCES: dict[type[AnyScenario], Reference] = {
    Scenario: PUBLISHED_2016,
    BroadcastScenario: PUBLISHED_2025,
    FetchScenario: PUBLISHED_2014_BYTE,
}
_NS_PER_US = 1000


def summarise(parts: Sequence[LatencySummary]) -> tuple[Latency, str] | None:
    """Return statistics over all values of all parts in microseconds, and the merged histogram.

    None without any value.

    Raises:
        ValueError: A histogram and its sums disagree.
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
    at = histogram.values_at(list(PERCENTILES.values()))
    percentiles = {
        name: min(max(value, lowest), highest) / _NS_PER_US
        for name, value in zip(PERCENTILES, at, strict=True)
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
    """Add the workers' intervals second by second; return them with percentiles, and with histograms.

    The values of a histogram are upper ends of its ranges, so they are limited to the workers' exact maximum.
    """
    by_second: dict[int, list[EngineInterval]] = {}
    highest_ns = max(
        (result.latency.max_ns for result in results if result.latency.count), default=HIGHEST_NS
    )
    for result in results:
        for part in result.intervals:
            by_second.setdefault(round(part.start_s), []).append(part)
    intervals, logged = [], []
    for _, parts in sorted(by_second.items()):
        histogram = Histogram.merged(part.hdr for part in parts)
        p50, p99, highest = (min(value, highest_ns) for value in histogram.values_at(["50", "99", "100"]))
        start, end = min(part.start_s for part in parts), max(part.end_s for part in parts)
        encoded = parts[0].hdr if len(parts) == 1 else histogram.encode()
        logged.append(LoggedInterval(start, end, encoded, highest))
        intervals.append(
            Interval(
                start_s=start,
                end_s=end,
                sent=sum(part.sent for part in parts),
                received=sum(part.received for part in parts),
                p50_us=p50 / _NS_PER_US,
                p99_us=p99 / _NS_PER_US,
                max_us=highest / _NS_PER_US,
                max_send_lag_us=max(part.max_send_lag_ns for part in parts) / _NS_PER_US,
            )
        )
    return intervals, logged


def measured_rate(results: Sequence[RequestorResult] | Sequence[BroadcasterResult]) -> float:
    """Return replies or deliveries per second in the measured phase, summed over the workers."""
    return sum(
        _received_within(result.intervals, result.duration_s) / result.duration_s
        for result in results
        if result.duration_s
    )


def _received_within(intervals: Sequence[EngineInterval], duration_s: float) -> float:
    """Return the replies or deliveries received before `duration_s`, in seconds of the measured phase.

    The engine's intervals are whole seconds, except for the last, which ends with the drain. So the number is
    exact if the phase has whole seconds. Otherwise the interval that contains the end of the phase counts in
    part.
    """
    received = 0.0
    for part in intervals:
        if part.end_s <= duration_s:
            received += part.received
        elif part.start_s < duration_s:
            received += part.received * (duration_s - part.start_s) / (part.end_s - part.start_s)
    return received


def sum_achieved(collected: Collected) -> Achieved:
    """Return the counts of all workers with a result; workers without one add only their connections."""
    if isinstance(collected.scenario, BroadcastScenario):
        rate = measured_rate(collected.broadcasters)
        return broadcast.sum_achieved(
            collected.scenario, collected.broadcasters, collected.last_progress, rate
        )
    results, providers = collected.requestors, collected.providers
    opened: list[RequestorResult | Progress] = [*results, *collected.last_progress]
    provider_connections = sum(provider.connections for provider in providers)
    connections = sum(part.connections for part in opened) + provider_connections
    rate = measured_rate(results)
    workers: list[RequestorResult | ProviderResult] = [*results, *providers]
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
        "connections_opened",
    )
    is_fetch = isinstance(collected.scenario, FetchScenario)
    subjects = connections
    if is_http(collected.scenario):
        # HTTP connections come and go: at the end there may be none. Only providers have subjects.
        connections = max([connections, *(sample.connections for sample in collected.timeline)])
        subjects = provider_connections
    return Achieved(
        connections=connections,
        subjects=subjects,
        rate=rate,
        messages_per_s=rate * (_MESSAGES_PER_FETCH if is_fetch else _MESSAGES_PER_REQUEST),
        connect_s=max((result.connect_s for result in results), default=0.0),
        connect_failures=sum(part.connect_failures for part in opened),
        max_send_lag_us=max((result.max_send_lag_ns for result in results), default=0) / _NS_PER_US,
        server_errors=sum(worker.server_errors for worker in workers),
        first_server_error=next((w.first_server_error for w in workers if w.first_server_error), None),
        statuses=add_statuses(result.statuses for result in results),
        **{name: sum(getattr(result, name) for result in results) for name in counts},
    )


def add_statuses(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of counts by status, in the order of the statuses."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def measure_wire(scenario: Scenario | FetchScenario, results: Sequence[RequestorResult]) -> Wire | None:
    """Return the bytes per call; None if no request was answered.

    The traffic is that of everything after the connect phase. So it is divided by all answered requests,
    including those of the sweep and the warm-up. The bytes of requests without an answer are included.
    """
    answered = sum(result.received for result in results)
    calls = answered + sum(part.received for part in counts_before_measuring(results))
    if not calls:
        return None

    def per_call(name: str) -> float:
        return float(sum(getattr(result.traffic, name) for result in results)) / calls

    return Wire(
        calls=calls,
        payload_out=float(scenario.request_bytes) if isinstance(scenario, Scenario) else 0.0,
        payload_in=float(scenario.reply_bytes),
        out=per_call("wire_bytes_out"),
        in_=per_call("wire_bytes_in"),
        head_out=per_call("head_bytes_out"),
        head_in=per_call("head_bytes_in"),
    )


def count_worker(report: WorkerReport) -> WorkerCounts:
    """Return the counts of one worker."""
    result = report.result
    if isinstance(result, ProviderResult):
        return WorkerCounts(
            name=report.name,
            host=report.host,
            connections=result.connections,
            sent=result.sent,
            received=result.received,
            errors=result.dropped,
        )
    latency = summarise([result.latency])
    return WorkerCounts(
        name=report.name,
        host=report.host,
        connections=result.connections,
        sent=result.sent,
        received=result.received,
        errors=result.errors,
        timed_out=result.timed_out if isinstance(result, RequestorResult) else result.missing,
        latency_us=latency[0] if latency else None,
        max_send_lag_us=result.max_send_lag_ns / _NS_PER_US,
    )


def build_result(collected: Collected) -> tuple[Result, list[LoggedInterval]]:
    """Return the result of a run, and the intervals of its histogram log."""
    scenario = collected.scenario
    latency = summarise([result.latency for result in collected.results])
    service = summarise([result.service for result in collected.requestors])
    intervals, logged = merge_intervals(collected.results)
    achieved = sum_achieved(collected)
    result = Result(
        scenario=msgspec.to_builtins(scenario),
        target=collected.target,
        started=collected.started.isoformat(timespec="milliseconds"),
        duration_s=max((result.duration_s for result in collected.results), default=0.0),
        error=collected.error,
        requested=_requested_load(scenario, collected.servers),
        achieved=achieved,
        sweep=add_sweeps(collected.requestors),
        latency_us=latency[0] if latency else None,
        service_us=service[0] if service else None,
        server=collected.server,
        load=collected.load,
        conservation=check_conservation(collected),
        thresholds=[],
        reference=_REFERENCES[type(scenario)],
        environment=collected.environment,
        intervals=intervals,
        timeline=agreement.join_counters(collected.timeline, collected.observed),
        agreement=agreement.compare(collected),
        broker_view=agreement.summarise_monitor(collected),
        histograms=Histograms(latency=latency[1], service=service[1] if service else None)
        if latency
        else None,
        broadcast=_broadcast_metrics(collected, achieved),
        wire=None
        if isinstance(scenario, BroadcastScenario)
        else measure_wire(scenario, collected.requestors),
        hosts=collected.hosts,
        command=collected.command,
        workers=[count_worker(report) for report in collected.workers],
        missing=collected.missing,
        measured_from_s=collected.measured_from_s,
        heatmap=build_heatmap(logged),
    )
    if scenario.soak is not None:
        soak = build_soak(scenario.soak, collected.snapshots, collected.results)
        result = msgspec.structs.replace(result, soak=soak)
    outcomes = [threshold.judge(result) for threshold in thresholds_of(scenario)]
    return msgspec.structs.replace(result, thresholds=outcomes), logged


def _requested_load(scenario: AnyScenario, servers: int) -> Requested:
    connections = scenario.connections
    if isinstance(scenario, Scenario):
        connections += scenario.providers * (servers - 1)
    subjects = connections
    rate = scenario.planned(0, scenario.duration_s) / scenario.duration_s
    if is_http(scenario):
        subjects = scenario.providers * servers if isinstance(scenario, Scenario) else 0
    if isinstance(scenario, BroadcastScenario):
        subjects = scenario.subjects
        rate *= scenario.users / subjects
    return Requested(
        connections=connections,
        subjects=subjects,
        rate=None if scenario.outstanding else rate,
        duration_s=scenario.duration_s,
    )


def _broadcast_metrics(collected: Collected, achieved: Achieved) -> BroadcastFigures | None:
    if not isinstance(collected.scenario, BroadcastScenario):
        return None
    summary = broadcast.summarise_spread(collected.scenario, collected.broadcasters)
    spread = summarise([summary]) if summary else None
    sees_server = collected.target is None or collected.server.cpu_percent is not None
    cores = int(collected.environment.get("cores", 0)) if sees_server else 0
    return broadcast.build_metrics(
        collected.scenario, achieved, spread[0] if spread else None, collected.server, cores
    )
