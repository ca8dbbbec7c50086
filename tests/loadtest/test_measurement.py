"""The measurement itself: latencies of known size, and what queueing theory makes of them.

Providers stall for 1 s in every 10: replies to requests that reach them in that second leave 50 ms later. Or
they answer a known number of requests per second. Expected values are worked out here, from the model alone.
"""

import heapq
import math

import pytest

from loadtest import load_scenario
from loadtest.collect.build import build_result
from loadtest.processes.interrupts import Interrupts
from loadtest.result.histogram import Histogram
from loadtest.run.execution import Options, run_scenario
from tests.steadiness import on_a_steady_machine

DELAY_S, STALL_S, EVERY_S = 0.050, 1.0, 10.0
WARMUP_S, DURATION_S = 1.5, 10.0
STALLS_AT_S = (-WARMUP_S, EVERY_S - WARMUP_S)
"""In the measured phase's time: the first stall begins with the warm-up, and is over long before that is."""
NOISE_S = DELAY_S / 2
"""What a busy machine may add: on a quiet one all of this is right to a millisecond."""
STALLING = f"{{delay_ms={DELAY_S * 1e3}, for_s={STALL_S}, every_s={EVERY_S}}}"


class Blind:
    """Who looks at nothing."""

    def show(self, *_):
        """Sees no progress."""


def measure(**changes):
    """A run, of which nothing but the latencies may be out of the ordinary."""
    settings = [f"{key}={value}" for key, value in {"timeout_s": 20, "providers": 4, **changes}.items()]
    with Interrupts() as interrupts:
        collected = run_scenario(load_scenario("autocomplete", settings), Options(), Blind(), interrupts)
    result, _ = build_result(collected)
    assert result.error is None, result.error
    assert result.conservation.holds, result.conservation
    achieved = result.achieved
    assert achieved.received == achieved.sent == result.latency_us.count == result.service_us.count
    return result


def quantiles(encoded, ranks, count):
    """The values of these ranks, counted from the highest as 1, in seconds."""
    percentiles = [str(100 * (count - rank + 1) / count) for rank in ranks]
    return [value / 1e9 for value in Histogram.merged([encoded]).values_at(percentiles)]


def both(result, ranks):
    """Latency and service time at these ranks from the top."""
    count, histograms = result.achieved.sent, result.histograms
    return quantiles(histograms.latency, ranks, count), quantiles(histograms.service, ranks, count)


# Callers with one request under way each: what is due waits until one of them is free.

CALLERS, RATE = 10, 400.0


def model(callers, rate, quick_s, stalled_s):
    """Latencies and service times in seconds, as a queue with `callers` servers has them, highest first.

    Requests are due at equal distances and wait in order for the first caller that is free; one that begins
    in a stall takes `stalled_s`, any other one `quick_s`.
    """
    quick, stalled, warmup, stall = (round(s * 1e9) for s in (quick_s, stalled_s, WARMUP_S, STALL_S))
    free_at = [-warmup] * callers
    latencies, services = [], []
    for number in range(round(rate * (WARMUP_S + DURATION_S))):
        due = round(number * 1e9 / rate) - warmup
        begin = max(due, heapq.heappop(free_at))
        in_stall = any(0 <= begin - round(at_s * 1e9) < stall for at_s in STALLS_AT_S)
        end = begin + (stalled if in_stall else quick)
        heapq.heappush(free_at, end)
        if due >= 0:
            latencies.append((end - due) / 1e9)
            services.append((end - begin) / 1e9)
    return sorted(latencies, reverse=True), sorted(services, reverse=True)


def test_the_model_is_what_can_be_worked_out_by_hand():
    """Without any time of their own, callers send a generation of 10 requests every 50 ms of the stall.

    400 requests/s are due, 20 in 50 ms: generation g is due from 25 g ms on and begins from 50 g ms on.
    """
    latencies, services = model(CALLERS, RATE, 0.0, DELAY_S)
    sent_in_stall = round(CALLERS * STALL_S / DELAY_S)
    assert sum(service == DELAY_S for service in services) == sent_in_stall == 200
    wait_s = DELAY_S - CALLERS / RATE
    generations = round(STALL_S / DELAY_S)
    in_stall = [DELAY_S + wait_s * generation for generation in range(generations) for _ in range(CALLERS)]
    # The other half of what was due has waited until the stall was over, and then takes no time.
    due_s = [number / RATE for number in range(round(STALL_S * RATE))]
    after = [STALL_S - due for due in due_s[sent_in_stall:]]
    expected = sorted(in_stall + after, reverse=True)
    assert latencies[0] == pytest.approx(DELAY_S + (generations - 1) * wait_s) == pytest.approx(0.525)
    # The last generation ends after the stall, within which the callers come free one after the other.
    assert latencies[: len(expected)] == pytest.approx(expected, abs=CALLERS / RATE + 1e-9)


@on_a_steady_machine
def test_callers_who_wait_for_their_replies():
    result = measure(
        transport="rest",
        users=CALLERS,
        rate=RATE,
        warmup_s=WARMUP_S,
        duration_s=DURATION_S,
        provider_delay=STALLING,
    )
    count = result.achieved.sent
    assert count == RATE * DURATION_S

    # Service time is as injected: the 10 callers send 10 requests in each 50 ms of the stall and a bit, and
    # those alone take 50 ms. Noise of the machine may make others slow, but never a stalled one quick.
    ranks = [1, 50, 100, 150]
    _, stalled_s = both(result, ranks)
    assert min(stalled_s) >= DELAY_S
    _, (median_s, quick_s) = both(result, [100, count // 2])
    assert median_s < DELAY_S + NOISE_S
    sent_in_stall = CALLERS * STALL_S / median_s
    ranks = [sent_in_stall - 2 * CALLERS, sent_in_stall + count / 50]
    _, (barely_stalled_s, not_stalled_s) = both(result, ranks)
    assert not_stalled_s < DELAY_S <= barely_stalled_s

    # Latency is what the queue makes of that, with the callers' own times as they were measured. Where the
    # machine holds a caller up, those behind are held up too: a tenth is allowed besides.
    latencies, _ = model(CALLERS, RATE, quick_s, median_s)
    ranks = [1, 4, 40, 80, 120, 160, 200, 240, 280, 320]
    found, _ = both(result, ranks)
    assert found == pytest.approx([latencies[rank - 1] for rank in ranks], rel=0.1, abs=NOISE_S)
    assert found[0] > 10 * DELAY_S
    # All else is as quick as ever, by both times: what was due in the stall is a tenth.
    (latency_s, late_s), (service_s, _) = both(result, [count // 2, count // 5])
    assert max(latency_s, service_s, late_s) < NOISE_S

    # What was not sent in time is the schedule's slip, in the second of the stall and nowhere else.
    slips = [interval.max_send_lag_us / 1e6 for interval in result.intervals[: round(DURATION_S)]]
    worst = max(slips)
    assert worst == pytest.approx(result.achieved.max_send_lag_us / 1e6)
    assert worst == pytest.approx(max(latencies) - median_s, rel=0.1, abs=NOISE_S)
    first = int(STALLS_AT_S[1])
    assert max(slips[:first]) < worst / 2
    assert worst in slips[first : first + 2]


@on_a_steady_machine
def test_users_who_do_not_wait_for_their_replies():
    rate = 500.0
    result = measure(
        users=50,
        rate=rate,
        warmup_s=WARMUP_S,
        duration_s=DURATION_S,
        provider_delay=STALLING,
    )
    count = result.achieved.sent
    assert count == rate * DURATION_S
    # Nothing waits for anything: exactly what reached the providers in the stall is 50 ms late, by both
    # times. What is under way when it begins or ends may be on either side of it: 2 % of all are allowed.
    stalled, some = count * STALL_S / DURATION_S, count / 50
    for latest_s, within_s, outside_s, usual_s in both(
        result, [some, stalled - some, stalled + some, count / 2]
    ):
        assert DELAY_S <= within_s <= latest_s < DELAY_S + NOISE_S
        assert outside_s < DELAY_S
        assert usual_s < NOISE_S
    # So the mean is 5 ms more than without the stall, give or take half of that.
    for moments, (usual_s,) in zip(
        (result.latency_us, result.service_us), both(result, [count / 2]), strict=True
    ):
        more_s = DELAY_S * STALL_S / DURATION_S
        assert moments.mean / 1e6 == pytest.approx(more_s + usual_s, abs=0.0025)


# Providers that answer so many requests per second, one after the other.

CAPACITY = 200.0


@on_a_steady_machine
def test_providers_that_could_answer_more():
    """Half of what they could: an M/D/1 queue with the load 1/2."""
    rate, service_s = CAPACITY / 2, 1 / CAPACITY
    result = measure(
        users=50,
        rate=rate,
        arrivals="poisson",
        provider_rate=CAPACITY,
        warmup_s=0.5,
        duration_s=6,
    )
    load = rate / CAPACITY
    assert result.achieved.rate == pytest.approx(result.achieved.sent / 6, rel=0.02)
    assert result.latency_us.min / 1e6 >= service_s
    # Pollaczek and Khinchine: the mean wait is 2.5 ms. Waits deviate by 3.4 ms, and about three in a row are
    # alike: the mean of 600 has an error of 0.25 ms, of which four are allowed, and the machine's own 3 ms.
    wait_s = load / (2 * (1 - load)) * service_s
    deviation_s = math.sqrt(wait_s**2 + load * service_s**2 / (3 * (1 - load)))
    assert (wait_s, deviation_s) == pytest.approx((0.0025, 0.0038), abs=1e-4)
    error_s = 4 * deviation_s / math.sqrt(result.achieved.sent / 3)
    mean_s = result.latency_us.mean / 1e6
    assert service_s + wait_s - error_s < mean_s < service_s + wait_s + error_s + 0.003


@on_a_steady_machine
def test_providers_that_are_asked_for_more_than_they_can_answer():
    """One and a half times as much: what is due t seconds after the start waits for t / 2."""
    rate, duration_s = 1.5 * CAPACITY, 3.0
    result = measure(users=50, rate=rate, provider_rate=CAPACITY, warmup_s=0, duration_s=duration_s)
    assert result.achieved.sent == rate * duration_s
    # They are never idle, and nothing is lost: what they cannot answer in time they answer in the drain.
    assert result.achieved.rate == pytest.approx(CAPACITY, rel=0.02)
    seconds = [interval.received for interval in result.intervals[: round(duration_s)]]
    assert seconds == pytest.approx([CAPACITY] * len(seconds), abs=CAPACITY / 20)
    latency_us = result.latency_us
    for share, found_us in ((0.5, latency_us.p50), (0.9, latency_us.p90), (1.0, latency_us.max)):
        wait_s = share * duration_s * (rate / CAPACITY - 1)
        assert found_us / 1e6 == pytest.approx(wait_s, rel=0.02, abs=0.03)
    # It is the providers that are slow, not the sending.
    assert result.service_us.max == pytest.approx(latency_us.max, rel=0.02)
    assert result.achieved.max_send_lag_us < 0.1 * latency_us.max
