"""Measurements made up from known values, for tests that check what is computed from them."""

import random
from datetime import UTC, datetime

from msgspec import structs

from loadtest.collect.build import build_result
from loadtest.collect.collected import Collected
from loadtest.engine.messages import EngineInterval, Moments, ProviderResult, RequestorResult, WarmupCounts
from loadtest.plan.scenario import Scenario
from loadtest.result.histogram import Histogram
from loadtest.result.schema import Result


def values_ns(count: int, seed: int = 1) -> list[int]:
    """Latencies as a run has them: most near a millisecond, a few far above."""
    source = random.Random(seed)
    return [int(source.lognormvariate(13.8, 0.9)) for _ in range(count)]


def encode(values: list[int]) -> str:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram.encode()


def moments(values: list[int]) -> Moments:
    return Moments(
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
    """A run that went well, on the own broker."""
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
