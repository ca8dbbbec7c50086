"""Checks for keys of a scenario that are valid alone but contradict each other."""

import math

from loadtest.scenario.kinds import (
    AnyScenario,
    BroadcastScenario,
    FetchScenario,
    Plan,
    Scenario,
    TransportsScenario,
    is_http,
)
from loadtest.scenario.profile import Constant, find_fault

# Each process lists the messages that its users received, so that the lists of all processes can be merged.
_LISTED_MESSAGES = 1_000_000
# The trends compare all pairs of periods.
_MAX_PERIODS = 2_000


def find_contradiction(scenario: Plan) -> str | None:
    """Return the first contradiction between keys as text that names them, or None."""
    if isinstance(scenario, TransportsScenario):
        return None
    fault = (
        _find_loop_contradiction(scenario)
        or find_fault(scenario.profile, scenario.duration_s)
        or _find_soak_contradiction(scenario)
    )
    if fault is not None:
        return fault
    if isinstance(scenario, BroadcastScenario):
        return _find_broadcast_contradiction(scenario)
    return _find_request_contradiction(scenario)


def _find_loop_contradiction(scenario: AnyScenario) -> str | None:
    if (scenario.rate > 0) == (scenario.outstanding > 0):
        how_many = "both are given" if scenario.rate else "neither is given"
        return f"rate, outstanding: {how_many}; set rate for an open loop or outstanding for a closed loop"
    if scenario.outstanding and scenario.arrivals != "uniform":
        return (
            f"arrivals: {scenario.arrivals} is not possible in a closed loop, which has no planned send "
            "times; set rate instead of outstanding"
        )
    if scenario.outstanding and not isinstance(scenario.profile, Constant):
        return "profile: not possible in a closed loop, which has no rate; set rate instead of outstanding"
    return None


def _find_soak_contradiction(scenario: AnyScenario) -> str | None:
    if scenario.soak is None or scenario.duration_s / scenario.soak.period_s <= _MAX_PERIODS:
        return None
    periods = math.ceil(scenario.duration_s / scenario.soak.period_s)
    least = math.ceil(scenario.duration_s / _MAX_PERIODS)
    return (
        f"soak.period_s: {scenario.soak.period_s:g} makes {periods:,} periods of duration_s, but at most "
        f"{_MAX_PERIODS:,} can be judged; set it to {least} or more"
    )


def _find_request_contradiction(scenario: Scenario | FetchScenario) -> str | None:
    if scenario.requestors > scenario.users:
        return f"requestors: {scenario.requestors} processes are more than the {scenario.users} users"
    threads = scenario.requestors * scenario.threads
    users, outstanding, calls = scenario.users, scenario.outstanding, scenario.calls
    churns = isinstance(scenario, Scenario) and scenario.churn_rate > 0
    over_http = is_http(scenario)
    delay = scenario.provider_delay if isinstance(scenario, Scenario) else None
    faults = (
        (
            delay is not None and delay.for_s > delay.every_s,
            f"provider_delay.for_s: {delay.for_s:g} is longer than every_s, {delay.every_s:g}"
            if delay
            else "",
        ),
        (
            calls > 0 and not outstanding,
            "calls: only a closed loop ends after a number of requests; set outstanding instead of rate",
        ),
        (
            0 < calls < threads,
            f"calls: {calls} are fewer than the {threads} requestor threads; each needs one",
        ),
        (
            over_http and outstanding > users,
            f"outstanding: {outstanding} are more than the {users} users; over HTTP each has one request",
        ),
        (churns and over_http, "churn_rate: churn is not possible over HTTP; set transport to ws or tcp"),
        (
            churns and users < 2 * threads,
            f"churn_rate: {users} users are too few for {threads} requestor threads; each needs at least two",
        ),
        (
            0 < outstanding < threads,
            f"outstanding: {outstanding} are fewer than the {threads} requestor threads; each needs one",
        ),
    )
    return next((text for is_fault, text in faults if is_fault), None)


def _find_broadcast_contradiction(scenario: BroadcastScenario) -> str | None:
    users, subjects, processes = scenario.users, scenario.subjects, scenario.processes
    messages = scenario.planned(0, scenario.duration_s)
    faults = (
        (processes > users, f"processes: {processes} processes are more than the {users} users"),
        (subjects > users, f"subjects: {subjects} subjects are more than the {users} users"),
        (
            scenario.publishers > subjects,
            f"publishers: {scenario.publishers} are more than the subjects ({subjects}); each needs one",
        ),
        (
            processes > 1 and scenario.outstanding > 0,
            "outstanding: a closed loop needs all users in one process; set threads instead of processes",
        ),
        (
            processes > 1 and messages > _LISTED_MESSAGES,
            (
                f"processes: {processes} processes can follow at most {_LISTED_MESSAGES:,} messages, but "
                f"{messages:,.0f} are planned; set threads instead of processes"
            ),
        ),
    )
    return next((text for is_fault, text in faults if is_fault), None)
