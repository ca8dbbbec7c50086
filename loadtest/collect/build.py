"""Makes one result out of what the workers, the samples and the broker's counters say.

Several requestors are one: counts and integer sums are added, histograms are added, and every mean,
deviation and percentile is computed once, from the total.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from loadtest.collect import agreement, broadcast
from loadtest.collect.collected import Collected, WorkerReport
from loadtest.collect.conservation import add_sweeps, before_measuring, conserve
from loadtest.collect.heatmap import draw_heatmap
from loadtest.collect.soak import build_soak
from loadtest.engine.messages import (
    BroadcasterResult,
    EngineInterval,
    Moments,
    Progress,
    ProviderResult,
    RequestorResult,
)
from loadtest.plan.scenario import AnyScenario, BroadcastScenario, FetchScenario, Scenario, is_http
from loadtest.result.histogram import HIGHEST_NS, Histogram, LoggedInterval
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
from loadtest.result.thresholds import parse_thresholds

_PERCENTILES = {"p50": "50", "p90": "90", "p95": "95", "p99": "99", "p99_9": "99.9", "p99_99": "99.99"}
_MESSAGES_PER_REQUEST = 4  # request in, request out, reply in, reply out
_MESSAGES_PER_FETCH = 2
_REFERENCES: dict[type[AnyScenario], Reference] = {
    Scenario: PUBLISHED_2016,
    BroadcastScenario: PUBLISHED_2025,
    FetchScenario: PUBLISHED_2014_BYTE,
}
_NS_PER_US = 1000


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
    """The workers' intervals added second by second, with their percentiles and with their histograms.

    A histogram's values are the ends of its ranges; none is told to be above the workers' exact maximum.
    """
    by_second: dict[int, list[EngineInterval]] = {}
    most_ns = max((result.latency.max_ns for result in results if result.latency.count), default=HIGHEST_NS)
    for result in results:
        for part in result.intervals:
            by_second.setdefault(round(part.start_s), []).append(part)
    intervals, logged = [], []
    for _, parts in sorted(by_second.items()):
        histogram = Histogram.merged(part.hdr for part in parts)
        p50, p99, highest = (min(value, most_ns) for value in histogram.values_at(["50", "99", "100"]))
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
    results, providers = collected.requestors, collected.providers
    opened: list[RequestorResult | Progress] = [*results, *collected.last_progress]
    providing = sum(provider.connections for provider in providers)
    connections = sum(part.connections for part in opened) + providing
    rate = measured_rate(results)
    talkers: list[RequestorResult | ProviderResult] = [*results, *providers]
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
        # They come and go: at the end there may be none. Nobody but a provider has a subject.
        connections = max([connections, *(sample.connections for sample in collected.timeline)])
        subjects = providing
    return Achieved(
        connections=connections,
        subjects=subjects,
        rate=rate,
        messages_per_s=rate * (_MESSAGES_PER_FETCH if is_fetch else _MESSAGES_PER_REQUEST),
        connect_s=max((result.connect_s for result in results), default=0.0),
        connect_failures=sum(part.connect_failures for part in opened),
        max_send_lag_us=max((result.max_send_lag_ns for result in results), default=0) / _NS_PER_US,
        server_errors=sum(talker.server_errors for talker in talkers),
        first_server_error=next((t.first_server_error for t in talkers if t.first_server_error), None),
        statuses=add_statuses(result.statuses for result in results),
        **{name: sum(getattr(result, name) for result in results) for name in counts},
    )


def add_statuses(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by status, added and in order."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def weigh_wire(scenario: Scenario | FetchScenario, results: Sequence[RequestorResult]) -> Wire | None:
    """Bytes per call; None where no request was answered.

    Traffic is that of everything after the connect phase, so it is divided by all answers, those of sweep
    and warm-up included. Requests that ended otherwise are weighed with them.
    """
    answered = sum(result.received for result in results)
    calls = answered + sum(part.received for part in before_measuring(results))
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
    """What one process did."""
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
    """The result, and the intervals of its histogram log."""
    scenario = collected.scenario
    latency = summarise([result.latency for result in collected.results])
    service = summarise([result.service for result in collected.requestors])
    intervals, logged = merge_intervals(collected.results)
    achieved = achieve(collected)
    result = Result(
        scenario=msgspec.to_builtins(scenario),
        target=collected.target,
        started=collected.started.isoformat(timespec="milliseconds"),
        duration_s=max((result.duration_s for result in collected.results), default=0.0),
        error=collected.error,
        requested=_request(scenario, collected.servers),
        achieved=achieved,
        sweep=add_sweeps(collected.requestors),
        latency_us=latency[0] if latency else None,
        service_us=service[0] if service else None,
        server=collected.server,
        load=collected.load,
        conservation=conserve(collected),
        thresholds=[],
        reference=_REFERENCES[type(scenario)],
        environment=collected.environment,
        intervals=intervals,
        timeline=agreement.join(collected.timeline, collected.observed),
        agreement=agreement.compare(collected),
        broker_view=agreement.summarise(collected),
        histograms=Histograms(latency=latency[1], service=service[1] if service else None)
        if latency
        else None,
        broadcast=_figure_broadcast(collected, achieved),
        wire=None if isinstance(scenario, BroadcastScenario) else weigh_wire(scenario, collected.requestors),
        hosts=collected.hosts,
        command=collected.command,
        workers=[count_worker(report) for report in collected.workers],
        missing=collected.missing,
        measured_from_s=collected.measured_from_s,
        heatmap=draw_heatmap(logged),
    )
    if scenario.soak is not None:
        soak = build_soak(scenario.soak, collected.looks, collected.results)
        result = msgspec.structs.replace(result, soak=soak)
    outcomes = [threshold.judge(result) for threshold in parse_thresholds(scenario.thresholds)]
    return msgspec.structs.replace(result, thresholds=outcomes), logged


def _request(scenario: AnyScenario, servers: int) -> Requested:
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
