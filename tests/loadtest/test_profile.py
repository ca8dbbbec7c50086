"""Profiles: in scenarios, in the configuration of the engine, and in the load of runs."""

import random
from itertools import pairwise

import pytest

from loadtest import load_scenario
from loadtest.errors import ScenarioError
from loadtest.runner.building.result import build_result
from loadtest.runner.execution import Options, run_scenario
from loadtest.runner.shares import share_broadcast, share_providers, share_requests
from loadtest.scenario.profile import Burst, Constant, Ramp, Spike, Step, segments
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.messages import EngineConfig

RAMP = 'profile={kind="ramp", from=0, to=2}'
ENGINE = EngineConfig(transport="ws", address="127.0.0.1:1", host="h", path="/", driver="auto")


def scenario(*overrides):
    return load_scenario("autocomplete", ["rate=100", "duration_s=10", *overrides])


def test_each_kind_in_segments():
    assert segments(Constant(), 20.0) == [(20, 1, 1)]
    assert segments(Ramp(from_=0.5, to=2), 20.0) == [(20, 0.5, 2)]
    assert segments(Step(from_=1, to=2, steps=3), 30.0) == [(10, 1, 1), (10, 1.5, 1.5), (10, 2, 2)]
    assert segments(Spike(at_s=5, length_s=2, height=4), 20.0) == [(5, 1, 1), (2, 4, 4), (13, 1, 1)]
    assert segments(Spike(at_s=0, length_s=20, height=4), 20.0) == [(20, 4, 4)]
    burst = Burst(every_s=4, length_s=1, height=5, base=0.5)
    assert segments(burst, 8.0) == [(3, 0.5, 0.5), (1, 5, 5)] * 2
    assert segments(burst, 7.5) == [(3, 0.5, 0.5), (1, 5, 5), (3, 0.5, 0.5), (0.5, 5, 5)]
    assert segments(burst, 6.0) == [(3, 0.5, 0.5), (1, 5, 5), (2, 0.5, 0.5)]


def test_segments_last_as_long_as_the_measured_phase():
    for number in range(200):
        dice = random.Random(number)
        duration_s = dice.uniform(1, 1000)
        every_s = duration_s / dice.uniform(1, 500)
        profiles = (
            Step(from_=1, to=2, steps=dice.randint(2, 1000)),
            Spike(at_s=duration_s / 3, length_s=dice.uniform(0, duration_s / 2), height=2),
            Burst(every_s=every_s, length_s=every_s * dice.random(), height=2),
        )
        for profile in profiles:
            parts = segments(profile, duration_s)
            assert sum(length_s for length_s, _, _ in parts) == pytest.approx(duration_s, rel=1e-9)
            assert all(length_s > 0 for length_s, _, _ in parts)


def test_planned_requests_are_the_area_under_the_profile():
    assert scenario().planned(0, 10) == pytest.approx(1000)
    ramp = scenario(RAMP)
    assert ramp.planned(0, 10) == pytest.approx(1000)
    assert ramp.planned(0, 5) == pytest.approx(250)
    assert ramp.planned(9, 10) == pytest.approx(190)
    assert ramp.planned(-5, 50) == pytest.approx(1000)
    assert ramp.planned(12, 15) == 0
    spike = scenario('profile={kind="spike", at_s=4, length_s=1, height=3}')
    assert [spike.planned(second, second + 1) for second in (3, 4, 5)] == pytest.approx([100, 300, 100])
    assert spike.planned(3.5, 4.5) == pytest.approx(200)
    broadcast = load_scenario("broadcast", ["rate=10", "duration_s=10", RAMP])
    assert broadcast.planned(0, 5) == pytest.approx(25)
    assert load_scenario("http-byte").planned(0, 1) == 0


@pytest.mark.parametrize(
    "profile",
    [
        RAMP,
        'profile={kind="step", from=0, to=2, steps=3}',
        'profile={kind="spike", at_s=0, length_s=1, height=3}',
        'profile={kind="burst", every_s=3, length_s=1.5, height=2, base=0}',
    ],
)
def test_the_planned_requests_of_parts_are_those_of_the_whole(profile):
    plan = scenario(profile)
    within = [step / 7 for step in range(71)]
    parts = [plan.planned(start, end) for start, end in pairwise(within)]
    assert sum(parts) == pytest.approx(plan.planned(0, 10))
    for at, part in zip(within, parts, strict=False):
        middle = [plan.planned(at + tenth / 70, at + (tenth + 1) / 70) for tenth in range(10)]
        assert sum(middle) == pytest.approx(part)


def test_every_engine_gets_the_profile():
    expected = ((10.0, 0.0, 2.0),)
    assert share_requests(scenario(RAMP, "requestors=2"), ENGINE, 1).profile == expected
    assert share_requests(scenario(), ENGINE, 0).profile == ()
    broadcast = load_scenario("broadcast", ["duration_s=10", RAMP, "processes=2"])
    assert [share_broadcast(broadcast, ENGINE, index).profile for index in (0, 1)] == [expected] * 2


def test_send_times_of_processes_are_shifted_against_each_other():
    shares = [share_requests(scenario("requestors=4"), ENGINE, index) for index in range(4)]
    assert [share.phase for share in shares] == [0, 0.25, 0.5, 0.75]


def test_providers_share_the_limit_of_answers():
    told = scenario("providers=3", "provider_threads=2", "provider_rate=900")
    shares = [share_providers(told, ENGINE, index, 2) for index in (0, 1)]
    assert [(share.first_provider, share.providers, share.threads) for share in shares] == [
        (0, 1, 1),
        (1, 2, 2),
    ]
    assert [share.rate for share in shares] == [300, 600]
    assert [share.delay_s for share in shares] == [0, 0]
    delayed = share_providers(scenario("provider_delay={delay_ms=50, for_s=1, every_s=10}"), ENGINE)
    assert (delayed.delay_s, delayed.delay_for_s, delayed.delay_every_s) == (0.05, 1, 10)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            'profile={kind="sine"}',
            "profile.kind: invalid value 'sine' (choose from constant, ramp, step, spike, burst)",
        ),
        (
            "profile={from=0, to=1}",
            "profile.kind: is missing (choose from constant, ramp, step, spike, burst)",
        ),
        ("profile=3", "profile: expected object, got int"),
        ('profile={kind="ramp", form=0, to=1}', 'unknown key "profile.form" (did you mean "from"?)'),
        ('profile={kind="spike", at_s=1, length_s=1, steps=3}', 'unknown key "profile.steps"'),
        ('profile={kind="ramp", from=0}', "profile: object missing required field to"),
        ('profile={kind="ramp", from=-1, to=1}', "profile.from: expected float >= 0.0"),
        ('profile={kind="ramp", from="1/s", to=1}', "profile.from: expected float, got str"),
        ('profile={kind="ramp", from=0, to=inf}', "profile.to: expected float <= 1000000.0"),
        ('profile={kind="burst", every_s=inf, length_s=1, height=2}', "profile.every_s: expected a finite"),
        ('profile={kind="ramp", from=0, to=0}', "profile: all levels are 0"),
        (
            'profile={kind="spike", at_s=9.5, length_s=1, height=2}',
            "profile.at_s: the spike ends at 10.5 s, but duration_s is 10",
        ),
        (
            'profile={kind="burst", every_s=5, length_s=5, height=2}',
            "profile.length_s: 5 is not shorter than every_s, 5",
        ),
        (
            'profile={kind="burst", every_s=11, length_s=5, height=2}',
            "profile.every_s: 11 is longer than duration_s, 10",
        ),
        (
            'profile={kind="burst", every_s=0.0001, length_s=0.00005, height=2}',
            "profile.every_s: makes 100,000 bursts, but at most 10,000",
        ),
        (
            "provider_delay={delay_ms=50, for_s=2, every_s=1}",
            "provider_delay.for_s: 2 is longer than every_s, 1",
        ),
        ("provider_delay={delay_s=50, for_s=1, every_s=1}", 'unknown key "provider_delay.delay_s"'),
        ("provider_delay={delay_ms=50, for_s=1}", "provider_delay: object missing required field every_s"),
        ("provider_rate=-1", "provider_rate: expected float >= 0.0"),
    ],
)
def test_an_unusable_profile_gives_one_line(override, message):
    with pytest.raises(ScenarioError) as caught:
        scenario(override)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_closed_loop_has_no_profile():
    with pytest.raises(ScenarioError, match="profile: not possible in a closed loop, which has no rate"):
        scenario(RAMP, "rate=0", "outstanding=5")
    assert scenario('profile={kind="constant"}', "rate=0", "outstanding=5").profile == Constant()


class Blind:
    """A view that shows nothing."""

    def show(self, *_):
        """Sees no progress."""


def run(name, **changes):
    told = load_scenario(name, [f"{key}={value}" for key, value in changes.items()])
    with Interrupts() as interrupts:
        result, _ = build_result(run_scenario(told, Options(), Blind(), interrupts))
    assert result.error is None, result.error
    return result


SPIKE = '{kind="spike", at_s=1, length_s=1, height=5}'
SHORT = {"warmup_s": 0.5, "duration_s": 3, "timeout_s": 5, "profile": SPIKE}


def sent_by_second(result):
    return [interval.sent for interval in result.intervals if interval.sent]


@pytest.mark.process
def test_requests_follow_the_profile():
    changes = {"users": 20, "requestors": 2, "rate": 200, **SHORT}
    result = run("autocomplete", **changes)
    assert result.requested.rate == pytest.approx((200 + 1000 + 200) / 3)
    # A busy machine sends late. In virtual time each second has its own: crates/simulation/tests/load.rs.
    assert result.achieved.sent == sum(sent_by_second(result)) == 1400
    assert result.conservation.holds, result.conservation
    lags = [interval.max_send_lag_us for interval in result.intervals]
    assert max(lags) == pytest.approx(result.achieved.max_send_lag_us)
    assert all(lag > 0 for lag in lags[:3])


@pytest.mark.process
def test_broadcasts_follow_the_profile():
    changes = {"users": 20, "processes": 2, "rate": 20, **SHORT}
    result = run("broadcast", **changes)
    assert result.requested.rate == pytest.approx(20 * (20 + 100 + 20) / 3)
    assert result.broadcast.published == 140
    assert result.achieved.received == 140 * 20
    assert result.conservation.holds, result.conservation
