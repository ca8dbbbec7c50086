"""Providers that make replies wait, in whole runs: the settings reach the engines, results show the waits.

What exactly is measured then, to the nanosecond and for each request, is shown in virtual time, by
rust_core/crates/simulation/tests/measurement.rs. Here a busy machine may make any wait longer, but never
shorter than the providers make it, and what is asserted holds either way.
"""

import pytest

from loadtest import load_scenario
from loadtest.runner.building.result import build_result
from loadtest.runner.execution import Options, run_scenario
from loadtest.workers.interrupts import Interrupts

pytestmark = pytest.mark.process

DELAY_US = 50_000
STALLING = "{delay_ms=50, for_s=10, every_s=10}"


class Blind:
    """A view that shows nothing."""

    def show(self, *_):
        """Show no progress."""


def measure(**changes):
    """Run a scenario, and check everything but the latencies."""
    settings = [f"{key}={value}" for key, value in {"timeout_s": 20, "providers": 4, **changes}.items()]
    with Interrupts() as interrupts:
        collected = run_scenario(load_scenario("autocomplete", settings), Options(), Blind(), interrupts)
    result, _ = build_result(collected)
    assert result.error is None, result.error
    assert result.conservation.holds, result.conservation
    achieved = result.achieved
    assert achieved.sent == changes["rate"] * changes["duration_s"]
    assert achieved.received == achieved.sent == result.latency_us.count == result.service_us.count
    assert sum(interval.received for interval in result.intervals) == achieved.received
    lags_us = [interval.max_send_lag_us for interval in result.intervals]
    assert max(lags_us) == pytest.approx(achieved.max_send_lag_us)
    return result


def test_callers_that_wait_for_their_replies():
    """Ten callers whose replies take 50 ms make at most 200 requests a second, and 400 are due."""
    callers, rate, duration_s = 10, 400, 2
    result = measure(
        transport="rest",
        users=callers,
        rate=rate,
        warmup_s=0.5,
        duration_s=duration_s,
        provider_delay=STALLING,
    )
    assert result.service_us.min >= DELAY_US
    # The wait for a free caller is in the latency, and the send lag shows it.
    least_s = result.achieved.sent * DELAY_US / 1e6 / callers - duration_s
    assert result.latency_us.max / 1e6 >= least_s
    assert result.latency_us.mean > result.service_us.mean
    assert result.achieved.max_send_lag_us / 1e6 >= least_s - DELAY_US / 1e6
    assert result.achieved.rate <= (callers / DELAY_US * 1e6 * duration_s + callers) / duration_s


def test_users_that_do_not_wait_for_their_replies():
    result = measure(users=50, rate=500, warmup_s=0.5, duration_s=1, provider_delay=STALLING)
    assert result.latency_us.min >= result.service_us.min >= DELAY_US
    assert result.latency_us.mean >= result.service_us.mean


def test_overloaded_providers():
    """One and a half times as much: their two threads are one server, which takes 5 ms for a request."""
    capacity, duration_s = 200, 2
    result = measure(
        users=50,
        rate=capacity * 1.5,
        provider_threads=2,
        provider_rate=capacity,
        warmup_s=0,
        duration_s=duration_s,
    )
    # They answer no more than that, and everything in the end.
    assert result.latency_us.min >= result.service_us.min >= 5_000
    assert result.achieved.rate <= capacity
    least_s = result.achieved.sent / capacity - duration_s
    assert result.latency_us.max / 1e6 >= least_s == pytest.approx(1)
