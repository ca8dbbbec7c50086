"""Judgement of a probe: whether its rate held, and if not, why."""

from collections.abc import Iterator, Sequence

from loadtest.result.capacity import Probe, Purpose
from loadtest.result.checks import describe_value, failed_checks
from loadtest.result.schema import Result, ThresholdOutcome
from loadtest.result.thresholds import Threshold

LEAST_SHARE = 0.99
"""Share of the planned requests that must be answered within the measured phase."""
_US_PER_S = 1e6
_LATE_US = 50_000.0
"""Largest send lag, in microseconds, that the reasons of a failed probe do not mention."""


def judge_probe(
    result: Result,
    objectives: Sequence[Threshold],
    *,
    number: int,
    folder: str,
    purpose: Purpose,
    interrupted: bool = False,
) -> Probe:
    """Judge a run as a probe of its scenario's `rate`.

    A run that was interrupted, or failed before anything was measured, says nothing about the rate.
    """
    unfinished = result.error is not None and (interrupted or result.latency_us is None)
    outcomes = [objective.judge(result) for objective in objectives]
    share = achieved_share(result)
    reasons = [result.error or ""] if unfinished else list(_reasons(result, outcomes, share))
    if reasons and not unfinished and (late := _describe_lateness(result)):
        reasons.append(late)
    achieved = result.achieved
    return Probe(
        number=number,
        folder=folder,
        purpose=purpose,
        rate=float(result.scenario["rate"]),
        verdict="unfinished" if unfinished else "fails" if reasons else "holds",
        reasons=reasons,
        requested_rate=result.requested.rate,
        achieved_rate=achieved.rate,
        achieved_share=share,
        objectives=outcomes,
        latency_us=result.latency_us,
        server_cpu_percent=result.server.cpu_percent,
        load_cpu_percent=result.load.cpu_percent,
        **{
            name: getattr(achieved, name)
            for name in ("sent", "received", "timed_out", "errors", "max_send_lag_us")
        },
    )


def achieved_share(result: Result) -> float:
    """Return the share of the planned requests that were answered within the measured phase; 0.0 if none was.

    If arrivals are random, the number of planned requests differs from the rate times the duration. The share
    counts from the actual number.
    """
    each = 1.0
    if result.broadcast is not None:  # deliveries of one message
        each = int(result.scenario["users"]) / result.broadcast.subjects
    planned = result.achieved.sent * each
    return result.achieved.rate * result.duration_s / planned if planned else 0.0


def _reasons(result: Result, outcomes: Sequence[ThresholdOutcome], share: float) -> Iterator[str]:
    if result.error:
        yield f"the run failed: {result.error}"
    for outcome in outcomes:
        if not outcome.holds:
            value = describe_value(outcome)
            yield f"{outcome.expr}: {'has' if outcome.value is None else 'is'} {value}"
    if share < LEAST_SHARE:
        yield _explain_share(result, share)
    yield from (text for _, text in failed_checks(result))


def _explain_share(result: Result, share: float) -> str:
    text = (
        f"achieved {result.achieved.rate:,.0f}/s of {result.requested.rate or 0:,.0f}/s requested, "
        f"{100 * share:.1f} % of what was planned; at least {100 * LEAST_SHARE:g} % are needed"
    )
    # Even if the server is idle, the last replies arrive after the end of the phase.
    quickest_s = result.latency_us.min / _US_PER_S if result.latency_us else 0.0
    if share * result.duration_s + quickest_s < LEAST_SHARE * result.duration_s:
        return text
    quickest = f"the quickest reply took {quickest_s * 1000:,.0f} ms"
    return f"{text} ({quickest}: longer probes show whether the server falls behind)"


def _describe_lateness(result: Result) -> str | None:
    """Return a sentence about a late load generator, which may cause a failure; None if it was in time."""
    late_us, used = result.achieved.max_send_lag_us, result.load.cpu_percent
    if late_us < _LATE_US:
        return None
    by = "" if used is None else f", which used {used:.0f} % of its machine"
    return f"requests left up to {late_us / 1000:,.0f} ms late: the limit may be the load's{by}"
