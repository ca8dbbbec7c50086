"""A long run, looked at period by period: what the broker and the load hold, and whether anything grows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from loadtest.collect.trend import LEAST_VALUES, judge_trend
from loadtest.engine.messages import BroadcasterResult, RequestorResult
from loadtest.plan.scenario import SoakPlan
from loadtest.result.histogram import Histogram
from loadtest.result.schema import Soak, SoakSample
from loadtest.sampling.usage import Usage

_UNJUDGED_SHARE = 3  # the first third: buffers, tables and caches find their size
_NS_PER_US = 1000
_Results = Sequence[RequestorResult] | Sequence[BroadcasterResult]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is in use at the end of a period; `period` 0 is the beginning of the measured phase."""

    period: int
    broker: Usage | None
    load: Usage | None
    descriptors: int | None
    connections: int | None


class Watch:
    """Takes a look whenever a period of the measured phase is over."""

    def __init__(self, plan: SoakPlan, duration_s: float, looks: list[Look]) -> None:
        """`looks` is where they are added."""
        self._looks = looks
        self._period_s = plan.period_s
        self._last = int(duration_s / plan.period_s)
        self._next = 0

    def look(
        self,
        elapsed_s: float,
        usage: tuple[Usage | None, Usage | None],
        descriptors: Callable[[], int | None],
        counters: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        """To be called often.

        Args:
            elapsed_s: Time since the measured phase began.
            usage: What broker and load have used by now.
            descriptors: Counts the broker's open ones.
            counters: Reads the broker's counters.
        """
        period = min(int(elapsed_s / self._period_s), self._last)
        if period < self._next:
            return
        self._next = period + 1
        broker, load = usage
        self._looks.append(
            Look(
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


def build_soak(plan: SoakPlan, looks: Sequence[Look], results: _Results) -> Soak:
    """The samples of all periods that were seen to their end, and the verdict over them."""
    samples = [
        _sample(plan.period_s, before, after, results)
        for before, after in pairwise(looks)
        # One that was missed, because this process was kept from looking, leaves a gap.
        if after.period == before.period + 1
    ]
    judged = samples[len(samples) // _UNJUDGED_SHARE :]
    limits = plan.growth_percent_per_hour
    trends = []
    for name in limits.__struct_fields__:
        series = [
            (sample.end_s, float(value)) for sample in judged if (value := getattr(sample, name)) is not None
        ]
        if judged and not series:
            continue  # not visible, as a target's memory
        times, values = [at for at, _ in series], [value for _, value in series]
        trends.append(judge_trend(name, times, values, getattr(limits, name)))
    note = None
    if len(judged) < LEAST_VALUES:
        note = (
            f"too short to judge: {len(judged)} periods of {plan.period_s:g} s after the first third, "
            f"{LEAST_VALUES} are needed"
        )
    return Soak(period_s=plan.period_s, samples=samples, trends=trends, note=note)


def _sample(period_s: float, before: Look, after: Look, results: _Results) -> SoakSample:
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
