"""The periods of a soak: resources that the broker and the load use, and whether their use grows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from loadtest.result.histogram import Histogram
from loadtest.result.schema import Soak, SoakSample
from loadtest.runner.building.trend import MIN_VALUES, judge_trend
from loadtest.sampling.usage import Usage
from loadtest.scenario.kinds import SoakPlan
from loadtest.workers.messages import BroadcasterResult, RequestorResult

_UNJUDGED_DIVISOR = 3  # the first third: buffers, tables and caches find their size
_NS_PER_US = 1000
_Results = Sequence[RequestorResult] | Sequence[BroadcasterResult]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Resources in use at the end of a period; period 0 ends where the measured phase begins."""

    period: int
    broker: Usage | None
    load: Usage | None
    descriptors: int | None
    connections: int | None


class PeriodSampler:
    """Sampler that takes a snapshot at the end of each period of the measured phase."""

    def __init__(self, plan: SoakPlan, duration_s: float, snapshots: list[Snapshot]) -> None:
        """Sample the periods of `plan`, and append the snapshots to `snapshots`."""
        self._snapshots = snapshots
        self._period_s = plan.period_s
        self._last = int(duration_s / plan.period_s)
        self._next = 0

    def sample(
        self,
        elapsed_s: float,
        usage: tuple[Usage | None, Usage | None],
        descriptors: Callable[[], int | None],
        counters: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        """Take a snapshot if a period has ended since the last call; call it several times a second.

        Args:
            elapsed_s: Seconds since the measured phase began.
            usage: Usage of the broker and of the load now; None if it is not known.
            descriptors: Counts the broker's open descriptors.
            counters: Reads the broker's counters.
        """
        period = min(int(elapsed_s / self._period_s), self._last)
        if period < self._next:
            return
        self._next = period + 1
        broker, load = usage
        self._snapshots.append(
            Snapshot(
                period=period,
                broker=broker,
                load=load,
                descriptors=descriptors(),
                connections=_count_connections(counters()),
            )
        )


def _count_connections(counters: Mapping[str, Any] | None) -> int | None:
    connections = (counters or {}).get("connections")
    return connections if isinstance(connections, int) else None


def build_soak(plan: SoakPlan, snapshots: Sequence[Snapshot], results: _Results) -> Soak:
    """Return the samples of all complete periods, and the trends over them."""
    samples = [
        _sample(plan.period_s, before, after, results)
        for before, after in pairwise(snapshots)
        # A period whose end this process missed, because the machine was busy, leaves a gap.
        if after.period == before.period + 1
    ]
    judged = samples[len(samples) // _UNJUDGED_DIVISOR :]
    limits = plan.growth_percent_per_hour
    trends = []
    for name in limits.__struct_fields__:
        series = [
            (sample.end_s, float(value)) for sample in judged if (value := getattr(sample, name)) is not None
        ]
        if judged and not series:
            continue  # not known, such as the memory of a target
        times, values = [at for at, _ in series], [value for _, value in series]
        trends.append(judge_trend(name, times, values, getattr(limits, name)))
    note = None
    if len(judged) < MIN_VALUES:
        note = (
            f"too short to judge: {len(judged)} periods of {plan.period_s:g} s after the first third, "
            f"{MIN_VALUES} are needed"
        )
    return Soak(period_s=plan.period_s, samples=samples, trends=trends, note=note)


def _sample(period_s: float, before: Snapshot, after: Snapshot, results: _Results) -> SoakSample:
    start_s, end_s = before.period * period_s, after.period * period_s
    replies = Histogram.merged(
        interval.hdr
        for result in results
        for interval in result.intervals
        if start_s <= interval.start_s < end_s
    )
    p50, p99, highest = replies.values_at(["50", "99", "100"])
    return SoakSample(
        start_s=start_s,
        end_s=end_s,
        broker_rss_bytes=after.broker.rss_bytes if after.broker else None,
        broker_descriptors=after.descriptors,
        broker_connections=after.connections,
        broker_cpu_percent=_cpu_percent(before.broker, after.broker),
        load_rss_bytes=after.load.rss_bytes if after.load else None,
        load_cpu_percent=_cpu_percent(before.load, after.load),
        received=replies.count,
        p50_us=p50 / _NS_PER_US,
        p99_us=p99 / _NS_PER_US,
        max_us=highest / _NS_PER_US,
    )


def _cpu_percent(before: Usage | None, after: Usage | None) -> float | None:
    return after.cpu_percent_since(before) if before and after else None
