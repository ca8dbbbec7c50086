"""Measurements made from known values, for tests of the results computed from them."""

import random
from bisect import bisect_right
from datetime import UTC, datetime

from msgspec import structs

from loadtest.result.histogram import Histogram
from loadtest.result.schema import Heatmap, Host, HostSample, Interval, Result, Sample, ThresholdOutcome
from loadtest.runner.building.collected import Collected
from loadtest.runner.building.result import build_result
from loadtest.scenario.kinds import Scenario
from loadtest.workers.messages import (
    EngineInterval,
    LatencySummary,
    ProviderResult,
    RequestorResult,
    WarmupCounts,
)


def values_ns(count: int, seed: int = 1) -> list[int]:
    """Latencies as a run has them: most near a millisecond, a few far above."""
    source = random.Random(seed)
    return [int(source.lognormvariate(13.8, 0.9)) for _ in range(count)]


def encode(values: list[int]) -> str:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram.encode()


def moments(values: list[int]) -> LatencySummary:
    return LatencySummary(
        count=len(values),
        sum_ns=sum(values),
        sum_sq_ns2=sum(value * value for value in values),
        min_ns=min(values, default=0),
        max_ns=max(values, default=0),
        hdr=encode(values),
    )


def requestor_result(values: list[int], seconds: int = 2, **changes) -> RequestorResult:
    """A requestor that had one reply for each value, spread over the seconds."""
    intervals = [
        EngineInterval(
            start_s=float(second),
            end_s=second + 1.0,
            sent=len(values[second::seconds]),
            received=len(values[second::seconds]),
            hdr=encode(values[second::seconds]),
        )
        for second in range(seconds)
    ]
    result = RequestorResult(
        connect_s=0.5,
        connections=100,
        connect_failures=0,
        duration_s=float(seconds),
        sent=len(values),
        received=len(values),
        timed_out=0,
        errors=0,
        duplicates=0,
        late=0,
        corrupt=0,
        no_responders=0,
        unmatched=0,
        disconnected=0,
        warmup=WarmupCounts(sent=50, received=50, timed_out=0),
        latency=moments(values),
        service=moments([value // 2 + 1 for value in values]),
        intervals=intervals,
    )
    return structs.replace(result, **changes)


def scenario(**changes) -> Scenario:
    return structs.replace(
        Scenario(name="sample", users=100, rate=1000.0, thresholds=("latency_us.p99 < 100000",)), **changes
    )


def collected(values: list[int], **changes) -> Collected:
    """Return the data of a successful run on its own broker."""
    answered = len(values) + 50
    run = Collected(
        scenario=scenario(),
        target=None,
        environment={"cores": 2, "cpu_model": "a processor", "limits": {"nofile_soft": 20_000}},
        started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        requestors=[requestor_result(values)],
        providers=[ProviderResult(connections=16, received=answered, sent=answered)],
        counters={
            "conservation": {
                "published": 2 * answered,
                "matched": 2 * answered,
                "delivered": 2 * answered,
                "dropped": {"slow_consumer": 0},
                "pending": 0,
            }
        },
    )
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def result(count: int = 2000, **changes) -> Result:
    return structs.replace(build_result(collected(values_ns(count)))[0], **changes)


CONNECTING_S = 12
"""Seconds of the runs of `four_hosts` before the measured phase."""
STALL = (0.4, 0.43)
"""The share of their measured phase in which the provider stands still."""


def four_hosts(seconds: int = 120, rate: int = 200, *, lost: bool = False, **changes) -> Result:
    """A run over four machines with a stall in it, made up second by second; `lost`: one of them goes."""
    source = random.Random(7)
    plan = scenario(users=2000, providers=16, requestors=2, rate=float(rate), duration_s=float(seconds))
    by_second = [[_slow_ns(source, at, seconds) for _ in range(rate)] for at in range(seconds)]
    values = [value for second in by_second for value in second]
    run = collected(values, scenario=plan, requestors=[requestor_result(values, seconds, connections=2000)])
    built = build_result(run)[0]
    hosts = [_host(number, seconds, lost=lost and number == 2) for number in range(4)]
    return structs.replace(
        built,
        intervals=[_interval(at, second, seconds) for at, second in enumerate(by_second)],
        heatmap=heatmap(by_second),
        timeline=[_look(at, seconds, rate) for at in range(CONNECTING_S + seconds + 2)],
        hosts=hosts,
        environment=hosts[0].environment,
        thresholds=[
            *built.thresholds,
            ThresholdOutcome(expr="latency_us.p99_9 < 50000", value=51234.5, holds=False),
        ],
        achieved=structs.replace(
            built.achieved, max_send_lag_us=2300.0, timed_out=37, late=5, statuses={"503": 12}
        ),
        command=[
            "subjectbus",
            "loadtest",
            "run",
            "sample",
            "--hosts",
            "my hosts.toml",
            "--set",
            f"rate={rate}",
        ],
        **changes,
    )


def heatmap(by_second: list[list[int]], width: int = 1) -> Heatmap:
    """Latencies on a grid of eight rows a decade, from 10 us on, and `width` seconds a column."""
    edges = [10.0 * 10 ** (row / 8) for row in range(45)]
    counts = []
    for first in range(0, len(by_second), width):
        column = [0] * len(edges)
        for value in (value for second in by_second[first : first + width] for value in second):
            column[max(0, bisect_right(edges, value / 1000) - 1)] += 1
        counts.append(column)
    starts = [float(at) for at in range(0, len(by_second), width)]
    return Heatmap(starts_s=starts, end_s=float(len(by_second)), edges_us=edges, counts=counts)


def _stalls(at: float, seconds: int) -> bool:
    return STALL[0] * seconds <= at < STALL[1] * seconds


def _slow_ns(source: random.Random, at: int, seconds: int) -> int:
    """Near a millisecond; in the stall what is left of it; now and then 30 ms, as a collector's pause."""
    value = int(source.lognormvariate(13.8, 0.5))
    if _stalls(at, seconds):
        value += int(1e9 * source.random() * (STALL[1] * seconds - at))
    return value + 30_000_000 if at % 17 == 0 and source.random() < 0.02 else value


def _interval(at: int, values: list[int], seconds: int) -> Interval:
    ordered = sorted(values)
    return Interval(
        start_s=float(at),
        end_s=at + 1.0,
        sent=len(values),
        received=len(values) // 3 if _stalls(at, seconds) else len(values),
        p50_us=ordered[len(values) // 2] / 1000,
        p99_us=ordered[len(values) * 99 // 100] / 1000,
        max_us=ordered[-1] / 1000,
        max_send_lag_us=2300.0 if at % 31 == 5 else 120.0 + at % 7,
    )


def _look(at: int, seconds: int, rate: int) -> Sample:
    measured = min(max(0, at - CONNECTING_S), seconds)
    is_connecting = at < CONNECTING_S
    phase = "connecting" if is_connecting else "measuring" if measured < seconds else "draining"
    return Sample(
        t_s=float(at),
        phase=phase,
        connections=2000 * min(at, CONNECTING_S) // CONNECTING_S,
        sent=measured * rate,
        received=measured * rate,
        outstanding=0 if is_connecting else 3,
        timed_out=37 if measured > STALL[1] * seconds else 0,
        errors=0,
        mean_us=1100.0,
        max_us=30_000.0,
        server_cpu_percent=8.0 + 50.0 * (not is_connecting) + at % 5,
        server_rss_bytes=80_000_000 + 4_000_000 * min(at, CONNECTING_S),
        load_cpu_percent=15.0 + at % 3,
    )


def _host(number: int, seconds: int, *, lost: bool) -> Host:
    name, role = (("a", "broker"), ("b", "requestor"), ("c", "requestor"), ("d", "provider"))[number]
    until = CONNECTING_S + seconds // 2 if lost else CONNECTING_S + seconds + 2
    processes = {"broker": ["broker"], "requestor": [f"requestor {number}"], "provider": ["provider"]}[role]
    return Host(
        name=name,
        address=f"192.0.2.{number + 1}",
        roles=[role],
        processes=processes,
        clock_offset_s=1234.5 + number / 1000,
        clock_error_s=0.00008,
        lost="no answer for 5 s" if lost else None,
        environment={
            "cores": 4 * (number + 1),
            "cpu_model": "a processor",
            "kernel": "6.1.0",
            "limits": {"nofile_soft": 1_048_576},
            **({"sysctl": {"net.core.somaxconn": 4096}} if number else {}),
        },
        samples=[_host_sample(at, number) for at in range(until)],
    )


def _host_sample(at: int, number: int) -> HostSample:
    is_busy = at >= CONNECTING_S
    return HostSample(
        t_s=at + 0.1 * number,
        cpu_percent=5.0 + is_busy * (60.0 - 13.0 * number) + at % 4,
        memory_used_bytes=(2 + number) * 1_000_000_000 + 10_000_000 * min(at, CONNECTING_S),
        net_in_bps=is_busy * 1e6 * (40 - 8 * number) + at % 3,
        net_out_bps=is_busy * 1e6 * (44 - 7 * number) + at % 3,
        context_switches_per_s=900.0 + is_busy * 9000.0 * (4 - number),
        retransmits_per_s=float(at % 41 == 0) * number,
    )
