"""The runs of a comparison of transports, one after the other, and their combined result."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import accumulate

import msgspec

from loadtest.result.broker_view import Agreement, BrokerView
from loadtest.result.reference import PUBLISHED_2014_TRANSPORTS
from loadtest.result.schema import (
    Achieved,
    Check,
    Conservation,
    Host,
    Load,
    Requested,
    Result,
    Sample,
    Server,
    TransportRun,
)
from loadtest.result.thresholds import thresholds_of
from loadtest.runner.building.collected import Collected
from loadtest.runner.building.result import add_statuses, build_result
from loadtest.runner.execution import Options, run_scenario
from loadtest.runner.view import View
from loadtest.sampling.environment import describe_environment
from loadtest.scenario.kinds import Scenario, TransportsScenario
from loadtest.workers.interrupts import Interrupts

OpenView = Callable[[Scenario], AbstractContextManager[View]]
"""Function that makes the view of one run."""


def run_transports(
    plan: TransportsScenario, options: Options, open_view: OpenView, interrupts: Interrupts
) -> list[Collected]:
    """Run the scenarios of the plan in their order, until one fails.

    `interrupts` are held back on return.
    """
    finished: list[Collected] = []
    for scenario in plan.runs():
        interrupts.release()
        with open_view(scenario) as view:
            finished.append(run_scenario(scenario, options, view, interrupts))
        if interrupts.count:
            finished[-1].error = finished[-1].error or "interrupted"
        if finished[-1].error:
            break
    return finished


def build_comparison(plan: TransportsScenario, runs: Sequence[Collected]) -> Result:
    """Return one result for all runs: a row for each, sums of their counts, and all of their checks."""
    parts = [(run, build_result(run)[0]) for run in runs]
    results = [part for _, part in parts]
    result = Result(
        scenario=msgspec.to_builtins(plan),
        target=None,
        started=min((run.started for run in runs), default=datetime.now(UTC)).isoformat(
            timespec="milliseconds"
        ),
        duration_s=sum(part.duration_s for part in results),
        error=next((f"{run.scenario.name}: {run.error}" for run in runs if run.error), None),
        requested=Requested(
            connections=plan.connections, subjects=plan.connections, rate=None, duration_s=plan.duration_s
        ),
        achieved=_add_achieved([part.achieved for part in results]),
        latency_us=None,
        service_us=None,
        server=Server(),
        load=Load(),
        conservation=_join_conservation(parts),
        thresholds=[],
        reference=PUBLISHED_2014_TRANSPORTS,
        environment=results[0].environment if results else describe_environment(),
        intervals=[],
        timeline=_join_timelines(results),
        agreement=_join_agreements(parts),
        broker_view=_join_views(results),
        hosts=_join_hosts(results),
        command=runs[0].command if runs else [],
        workers=[
            msgspec.structs.replace(worker, name=f"{run.scenario.name}: {worker.name}")
            for run, part in parts
            for worker in part.workers
        ],
        missing=[f"{run.scenario.name}: {text}" for run, part in parts for text in part.missing],
        histograms=None,
        transports=[
            _transport_row(run.scenario, part) for run, part in parts if isinstance(run.scenario, Scenario)
        ],
    )
    outcomes = [threshold.judge(result) for threshold in thresholds_of(plan)]
    return msgspec.structs.replace(result, thresholds=outcomes)


def _transport_row(scenario: Scenario, part: Result) -> TransportRun:
    achieved = part.achieved
    total_s = max((interval.end_s for interval in part.intervals), default=part.duration_s)
    return TransportRun(
        transport=scenario.transport,
        outstanding=scenario.outstanding,
        calls=achieved.received,
        errors=achieved.errors,
        timed_out=achieved.timed_out,
        statuses=achieved.statuses,
        total_s=total_s,
        calls_per_s=achieved.received / total_s if total_s else 0.0,
        latency_us=part.latency_us,
        wire=part.wire,
        server_cpu_us_per_call=part.server.cpu_us_per_request,
        client_cpu_us_per_call=part.load.requestor_cpu_us_per_request,
        connections_opened=achieved.connections_opened,
    )


def _add_achieved(parts: Sequence[Achieved]) -> Achieved:
    """Return the sums of the counts; connections and delays are the largest of any run, and rates are 0."""
    counts = (
        "sent", "received", "timed_out", "errors", "duplicates", "corrupt", "late", "no_responders",
        "unmatched", "disconnected", "connect_failures", "server_errors", "connections_opened",
    )  # fmt: skip
    maxima = ("connections", "subjects", "connect_s", "max_send_lag_us")
    return Achieved(
        rate=0.0,
        messages_per_s=0.0,
        statuses=add_statuses(part.statuses for part in parts),
        first_server_error=next((p.first_server_error for p in parts if p.first_server_error), None),
        **{name: sum(getattr(part, name) for part in parts) for name in counts},
        **{name: max((getattr(part, name) for part in parts), default=0) for name in maxima},
    )


def _join_conservation(parts: Sequence[tuple[Collected, Result]]) -> Conservation:
    accounts = [(run.scenario.name, part.conservation) for run, part in parts]
    return Conservation(
        published=sum(account.published for _, account in accounts),
        delivered=sum(account.delivered for _, account in accounts),
        dropped=add_statuses(account.dropped for _, account in accounts),
        pending=sum(account.pending for _, account in accounts),
        checks=[
            Check(name=f"{name}: {check.name}", detail=check.detail, holds=check.holds)
            for name, account in accounts
            for check in account.checks
        ],
        holds=bool(accounts) and all(account.holds for _, account in accounts),
    )


def _join_timelines(results: Sequence[Result]) -> list[Sample]:
    """Return the timelines one after the other, in the order of the runs."""
    return [
        _shift_sample(sample, begin_s)
        for begin_s, result in zip(_start_times(results), results, strict=True)
        for sample in result.timeline
    ]


def _start_times(results: Sequence[Result]) -> list[float]:
    """Return the start of each run in seconds since the first one, without the time between runs."""
    lengths = [result.timeline[-1].t_s if result.timeline else 0.0 for result in results]
    return [0.0, *accumulate(lengths)][: len(results)]


def _join_hosts(results: Sequence[Result]) -> list[Host]:
    """Return each machine once, with its samples of all runs."""
    joined: dict[str, Host] = {}
    for begin_s, result in zip(_start_times(results), results, strict=True):
        for host in result.hosts:
            samples = [
                msgspec.structs.replace(sample, t_s=round(begin_s + sample.t_s, 3)) for sample in host.samples
            ]
            before = joined.get(host.name, msgspec.structs.replace(host, samples=[]))
            joined[host.name] = msgspec.structs.replace(
                before,
                roles=list(dict.fromkeys([*before.roles, *host.roles])),
                processes=list(dict.fromkeys([*before.processes, *host.processes])),
                lost=before.lost or host.lost,
                samples=[*before.samples, *samples],
            )
    return list(joined.values())


def _shift_sample(sample: Sample, begin_s: float) -> Sample:
    broker = sample.broker
    if broker is not None:
        broker = msgspec.structs.replace(broker, t_s=round(begin_s + broker.t_s, 3))
    return msgspec.structs.replace(sample, t_s=begin_s + sample.t_s, broker=broker)


def _join_agreements(parts: Sequence[tuple[Collected, Result]]) -> list[Agreement]:
    return [
        msgspec.structs.replace(row, name=f"{run.scenario.name}: {row.name}")
        for run, part in parts
        for row in part.agreement
    ]


def _join_views(results: Sequence[Result]) -> BrokerView | None:
    """Return the monitor data of all runs as one; each run has a monitor of its own. None without any."""
    views = [result.broker_view for result in results if result.broker_view is not None]
    if not views:
        return None
    return BrokerView(
        monitor=", ".join(view.monitor for view in views),
        readings=sum(view.readings for view in views),
        failures=sum(view.failures for view in views),
        first_failure=next((view.first_failure for view in views if view.first_failure), None),
        slowest_s=max(view.slowest_s for view in views),
        closed=add_statuses(view.closed for view in views),
        units=views[0].units,
        note=next((view.note for view in views if view.note), None),
    )
