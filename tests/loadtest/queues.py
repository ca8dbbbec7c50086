"""Simulated server with a D/1 queue, which gives results of runs with an overload of known size."""

from functools import cache
from pathlib import Path

import msgspec
from msgspec import structs

from loadtest.result.schema import Latency, Result
from tests.loadtest import samples

IDLE_US = 200.0


def queue_result(scenario, limit: float, *, idle_us: float = IDLE_US) -> Result:
    """A run of `scenario` against a server that answers `limit` requests/s, one after the other.

    Requests come evenly; the backlog, and with it the latency, grows by (rate - limit) / limit seconds each
    second, from the beginning of the warm-up on.
    """
    rate, duration_s = scenario.rate, scenario.duration_s
    growth = max(rate / limit - 1, 0.0)
    begin_us, end_us = (
        idle_us + 1e6 * growth * second for second in (scenario.warmup_s, scenario.warmup_s + duration_s)
    )

    def at(share: float) -> float:
        return begin_us + share * (end_us - begin_us)

    # Answered by the end are those that were planned early enough.
    answered_s = max(scenario.warmup_s + duration_s - idle_us / 1e6, 0.0) / (1 + growth) - scenario.warmup_s
    made = _sample()
    sent = round(rate * duration_s)
    return structs.replace(
        made,
        scenario=msgspec.to_builtins(scenario),
        duration_s=duration_s,
        requested=structs.replace(made.requested, rate=rate, duration_s=duration_s),
        achieved=structs.replace(
            made.achieved,
            rate=rate * max(answered_s, 0.0) / duration_s,
            sent=sent,
            received=sent,
            max_send_lag_us=900.0,
        ),
        latency_us=Latency(
            count=sent,
            mean=at(0.5),
            stddev=0.0,
            min=begin_us,
            p50=at(0.5),
            p90=at(0.9),
            p95=at(0.95),
            p99=at(0.99),
            p99_9=at(0.999),
            p99_99=at(0.9999),
            max=end_us,
        ),
        thresholds=[],
    )


@cache
def _sample() -> Result:
    return samples.result(200)


class Queue:
    """Simulated server that runs scenarios, counts them, and records their folders."""

    def __init__(self, limit: float, **options: float) -> None:
        self.limit = limit
        self.options = options
        self.folders: list[Path] = []

    def run_into(self, scenario, folder: Path) -> Result:
        self.folders.append(folder)
        return queue_result(scenario, self.limit, **self.options)
