"""The report of a run."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomli_w

from loadtest.report import transports
from loadtest.report.charts import over_time
from loadtest.report.charts.distribution import heatmap_chart, percentile_chart
from loadtest.report.document import (
    ABSENT,
    Alert,
    Block,
    Bullets,
    Code,
    Document,
    Fact,
    Headline,
    Mark,
    Outcome,
    Reach,
    Records,
    Section,
    Table,
    Text,
    Verdict,
    Verdicts,
)
from loadtest.result import checks
from loadtest.result.broker_view import Agreement
from loadtest.result.metrics import (
    HEADLINE,
    LATENCY_LABELS,
    LOSS_UNIT,
    Metric,
    catalogue,
    explain_latency,
    is_closed_loop,
    number_text,
)
from loadtest.result.paths import flatten
from loadtest.result.schema import Host, Result, WorkerCounts

SCENARIO_FILE = "scenario.toml"
_US_PER_MS = 1e3
_BYTES_PER_GB = 1e9
_BPS_PER_MBPS = 1e6
_MS_PER_S = 1e3
_PER_THREAD_NOTE = (
    "Per hardware thread, what grows with the machine is divided by its threads; values for one request or "
    "one connection stand as they are."
)
Row = tuple[Metric, float | None, float | None]
"""A metric with the run's value and the published one."""


def to_document(result: Result) -> Document:
    """Return the report of a run, or of the same load over several transports."""
    if result.transports is None:
        sections = list(_load_sections(result))
    else:
        sections = transports.sections(result)
        sections += [_machines(result)] if result.hosts else []
    kind = "Load test" if result.transports is None else "Transports"
    title = f"{kind}: {result.scenario['name']}"
    closing = [_view, _thresholds, _errors, _conservation, _environment, reproduction]
    return Document(title, [*sections, *(section(result) for section in closing)], list(_head(result)))


def to_records(result: Result) -> Records:
    """Return a row for each metric and count, or for each run of a comparison of transports."""
    if result.transports is not None:
        return transports.to_records(result.transports)
    rows = [
        [metric.title, *(None if value is None else metric.scaled(value) for value in (ours, theirs))]
        for metric, ours, theirs in side_by_side(result)
    ]
    counts = [[kind, count, None] for kind, count, _ in checks.error_counts(result)]
    return Records(["measure", "this run", f"published {result.reference.label}"], [*rows, *counts])


def side_by_side(result: Result) -> list[Row]:
    """Return each metric, except losses, that the run or the published reference has."""
    rows = [
        (metric, value, getattr(result.reference, metric.reference) if metric.reference else None)
        for metric, value in catalogue(result)
        if metric.unit != LOSS_UNIT
    ]
    return [row for row in rows if row[1:] != (None, None)]


def reproduction(run: Any) -> Section:  # noqa: ANN401 - a run, a search or repeated runs
    """Return a section on how to repeat a run or an experiment: seed, command and scenario file."""
    blocks: list[Block] = []
    if "seed" in run.scenario:
        seed = run.scenario["seed"]
        blocks.append(Text(f"Seed: {seed}. All random choices of the load follow from the seed."))
    if run.command:
        blocks += [
            Text("The command, without the options for its output:"),
            Code("sh", shlex.join(run.command)),
        ]
    if isinstance(run, Result):
        target = [] if run.target is None else ["--target", run.target]
        command = shlex.join(["subjectbus", "loadtest", "run", SCENARIO_FILE, *target])
        words = f"{'Or save' if run.command else 'Save'} the scenario below as {SCENARIO_FILE} and run it:"
        blocks += [Text(words), Code("sh", command)]
    scenario = tomli_w.dumps(_without_none(run.scenario), multiline_strings=True)
    blocks += [Text("The scenario as it was run, overrides included:"), Code("toml", scenario)]
    return Section("How to reproduce it", blocks)


def _head(result: Result) -> Iterator[Block]:
    if description := result.scenario.get("description"):
        yield Text(str(description))
    transport = result.scenario.get("transport", "")
    facts = [
        result.started,
        result.target or "own broker",
        transport if result.transports is None else ", ".join(result.scenario.get("transports", ())),
        f"{result.duration_s:g} s measured",
        f"{len(result.hosts)} hosts" if len(result.hosts) > 1 else "",
        f"seed {result.scenario['seed']}" if "seed" in result.scenario else "",
    ]
    yield Text(" · ".join(filter(None, facts)), is_note=True)
    if result.error is not None:
        yield Outcome("The run failed", result.error, holds=False)
    elif result.holds:
        yield Outcome("Everything holds", "thresholds and accounts.", holds=True)
    else:
        yield Outcome("Not everything holds", "see below.", holds=False)
    if failures := checks.failures(result):
        yield Bullets(failures, are_failures=True)
    lost = [f"host {host.name} was lost: {host.lost}" for host in result.hosts if host.lost]
    if missing := [*lost, *result.missing]:
        yield Alert(
            "Not everything is here: the run should have told and did not",
            missing,
            "The counts, the percentiles and the charts are of the rest.",
        )


def _load_sections(result: Result) -> Iterator[Section]:
    yield _summary(result)
    yield _throughput(result)
    yield _latency(result)
    yield _send_lag(result)
    if result.soak is not None:
        yield _soak(result)
    yield _machines(result)
    yield _reference(result)


def _summary(result: Result) -> Section:
    facts = [
        Fact(
            metric.title,
            metric.text(ours),
            [] if theirs is None else [f"{result.reference.label}: {metric.text(theirs)}"],
        )
        for metric, ours, theirs in side_by_side(result)
        if metric.path in HEADLINE and ours is not None
    ]
    blocks: list[Block] = [Headline(facts)]
    if result.achieved.statuses:
        statuses = ", ".join(f"{status}: {count:,}" for status, count in result.achieved.statuses.items())
        blocks.append(Text(f"Answers that are errors, by status: {statuses}."))
    if result.broadcast is not None:
        spread = result.broadcast.spread_us
        count = spread.count if spread else 0
        what = f"of the {count:,} messages received by all their users"
        blocks.append(
            Text(f"Spread: the time from a message's first receipt to its last, {what}.", is_note=True)
        )
    return Section("Summary", blocks)


def _reference(result: Result) -> Section:
    """Return every measure beside the published run's."""
    reference = result.reference
    sees_server = result.target is None or result.server.cpu_percent is not None
    cores = int(result.environment.get("cores", 0)) if sees_server else 0
    model, threads = (result.environment.get(name, ABSENT) for name in ("cpu_model", "cores"))
    machine = f"{model}, {threads} hardware threads"
    note = (
        f"Published: {reference.name}; {reference.hardware}. "
        f"{'This run' if sees_server else 'Load machine'}: {machine}. {_PER_THREAD_NOTE}"
    )
    table = Table(
        ["measure", "this run", reference.label, "this run, per hardware thread",
         f"{reference.label}, per hardware thread"],
        [
            [metric.title, metric.text(ours), metric.text(theirs),
             metric.text(_of_a_thread(metric, ours, cores)),
             metric.text(_of_a_thread(metric, theirs, reference.cores))]
            for metric, ours, theirs in side_by_side(result) if not metric.minor
        ],
        reach=Reach.TERMINAL,
    )  # fmt: skip
    return Section("Beside the published run", [Text(note, is_note=True), table])


def _of_a_thread(metric: Metric, value: float | None, cores: int) -> float | None:
    """Return the value per hardware thread; None if it has no meaning or the machine is not known."""
    if value is None or not cores or metric.per_thread == "none":
        return None
    return value / cores if metric.per_thread == "divided" else value


def _throughput(result: Result) -> Section:
    asked, got = result.requested, result.achieved
    events = "requests/s" if result.broadcast is None else "deliveries/s"
    measures: list[tuple[str, float | None, float]] = [
        ("connections", asked.connections, got.connections),
        ("subjects", asked.subjects, got.subjects),
        # A broadcast that runs as fast as possible has no requested rate.
        (f"{events}, mean", asked.rate or None, got.rate),
        ("measured time, s", asked.duration_s, result.duration_s),
    ]
    chart = over_time.throughput_chart(result)
    rows = [
        [name, number_text(wanted), number_text(got), f"{100 * got / wanted:.2f} %" if wanted else ABSENT]
        for name, wanted, got in measures
    ]
    blocks: list[Block] = [Table(["measure", "requested", "achieved", "share"], rows)]
    blocks.append(chart or Text("Nothing was measured."))
    return Section("Requested against achieved", blocks)


def _latency(result: Result) -> Section:
    latency, service = result.latency_us, result.service_us
    if latency is None:
        return Section("Latency", [Text(f"No {_event(result)[1]} was measured.")])
    columns = [("latency, ms", latency)]
    if service is not None and not is_closed_loop(result):
        columns.append(("service time, ms", service))
    rows = [
        [label, *(number_text(getattr(times, name) / _US_PER_MS) for _, times in columns)]
        for name, label in LATENCY_LABELS.items()
    ]
    table = Table([f"of {latency.count:,} values", *(title for title, _ in columns)], rows)
    drawn = (
        percentile_chart(result),
        over_time.latency_chart(result),
        heatmap_chart(result.heatmap, over_time.terms_of(result).received),
    )
    reach = Reach.TERMINAL if is_closed_loop(result) else Reach.TEXT
    return Section("Latency", [Text(explain_latency(result), reach=reach), table, *filter(None, drawn)])


def _event(result: Result) -> tuple[str, str]:
    """Return the terms for the sent and the received events, one word each."""
    return ("request", "reply") if result.broadcast is None else ("message", "delivery")


def _send_lag(result: Result) -> Section:
    if is_closed_loop(result):
        return Section("Send lag", [Text("A closed loop has no schedule that it could miss.")])
    lag = number_text(result.achieved.max_send_lag_us / _US_PER_MS)
    blocks: list[Block] = [
        Text(
            f"At worst, {_event(result)[0]}s were sent {lag} ms after their planned time. Latency counts "
            "from the plan, so it includes the lag of the load generator, which is not the server's doing."
        )
    ]
    if chart := over_time.send_lag_chart(result):
        blocks.append(chart)
    elif result.intervals:
        blocks.append(Text("By the second it is not known.", is_note=True))
    return Section("Send lag", blocks)


def _soak(result: Result) -> Section:
    soak = result.soak
    if soak is None:
        raise ValueError("the run is not a soak")
    note = [Verdict("", soak.note, holds=False)] if soak.note else []
    trends = [
        Verdict(trend.name, checks.describe_trend(trend).removeprefix(f"{trend.name}: "), trend.holds)
        for trend in soak.trends
    ]
    blocks: list[Block] = [
        Text(
            "Nothing may grow after the first third of the periods. A trend fails when growth is significant "
            "by Mann-Kendall's test and, by Theil and Sen's slope, faster than its limit."
        ),
        Verdicts("soak", ("trend", "slope"), [*note, *trends], reach=Reach.TERMINAL),
        *over_time.soak_charts(soak),
    ]
    return Section("Soak", blocks)


def _machines(result: Result) -> Section:
    blocks: list[Block] = []
    if result.hosts:
        columns = ["host", "address", "roles", "processes", "clock offset", "state"]
        blocks.append(Table(columns, [_host_row(host) for host in result.hosts], numbers=False))
        columns = ["host", "CPU mean, %", "CPU highest, %", "memory, GB", "in, Mbit/s", "out, Mbit/s"]
        blocks += [
            Table(columns, [_usage_row(host) for host in result.hosts], title="Use of the hosts"),
            Text(
                "Means over the whole run, connecting included; memory is the most that was in use.",
                is_note=True,
            ),
        ]
    if result.workers:
        columns = ["process", "host", "connections", "sent", "received", "errors", "timed out"]
        columns += ["p50, ms", "p99, ms", "maximum, ms", "send lag maximum, ms"]
        rows = [_worker_row(worker) for worker in result.workers]
        blocks.append(Table(columns, rows, title="Processes of the load"))
    if result.transports is not None:  # successive runs, which have no common time line
        return Section("Machines", blocks)
    drawn = over_time.machine_charts(result)
    if over_time.has_no_retransmits(result.hosts):
        blocks.append(Text("No host had to send a TCP segment again."))
    blocks.append(
        Text("The measured phase is shaded." if drawn else "No machine was sampled.", reach=Reach.PAGE)
    )
    return Section("Machines", [*blocks, *drawn])


def _host_row(host: Host) -> list[str]:
    offset = "same clock"
    if host.clock_offset_s is not None:
        error = "" if host.clock_error_s is None else f" ± {host.clock_error_s * _MS_PER_S:.3f} ms"
        offset = f"{host.clock_offset_s:+,.6f} s{error}"
    return [
        host.name,
        host.address or "where the command ran",
        ", ".join(host.roles) or ABSENT,
        ", ".join(host.processes) or ABSENT,
        offset,
        f"lost: {host.lost}" if host.lost else "complete",
    ]


def _usage_row(host: Host) -> list[str]:
    samples = host.samples
    if not samples:
        return [host.name, *[ABSENT] * 5]

    def mean(name: str, unit: float = 1.0) -> str:
        return number_text(sum(getattr(sample, name) for sample in samples) / len(samples) / unit, 1)

    return [
        host.name,
        mean("cpu_percent"),
        number_text(max(sample.cpu_percent for sample in samples), 1),
        number_text(max(sample.memory_used_bytes for sample in samples) / _BYTES_PER_GB, 2),
        mean("net_in_bps", _BPS_PER_MBPS),
        mean("net_out_bps", _BPS_PER_MBPS),
    ]


def _worker_row(worker: WorkerCounts) -> list[str]:
    counts = (worker.connections, worker.sent, worker.received, worker.errors, worker.timed_out)
    latency = worker.latency_us
    times = [None] * 3 if latency is None else [latency.p50, latency.p99, latency.max]
    texts = [number_text(None if us is None else us / _US_PER_MS) for us in (*times, worker.max_send_lag_us)]
    return [worker.name, worker.host, *(f"{count:,}" for count in counts), *texts]


def _view(result: Result) -> Section:
    """Return the section that compares the broker's counters with the engine's."""
    title, view, rows = "The broker's own view", result.broker_view, result.agreement
    if view is None:
        return Section(title, [])
    text = checks.describe_agreement(result) or ""
    blocks: list[Block] = []
    if rows:
        holds, is_same = all(row.holds for row in rows), all(row.matches for row in rows)
        word = "differs" if holds and not is_same else ""
        differing = [
            Verdict("", checks.describe_difference(row), row.holds, "differs" if row.holds else "")
            for row in rows
            if not row.matches
        ]
        verdicts = [Verdict("", text, holds, word), *differing]
        blocks.append(Verdicts("agreement", ("", "engine and broker"), verdicts, reach=Reach.TERMINAL))
        columns = ["count", "engine", "broker", "difference", "verdict"]
        blocks.append(Table(columns, [_agreement_row(row) for row in rows]))
        note = (
            "Sessions, messages and payload bytes at the end of the drain; connections once the load has "
            "closed its last one."
        )
        if view.closed:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in view.closed.items())
            note += f" Connections that ended, by the broker's reason: {reasons}."
        blocks.append(Text(note, is_note=True))
    else:
        blocks.append(Text(f"Agreement: {text}.", reach=Reach.TERMINAL))
    blocks += over_time.broker_charts(result)
    reading = f"Read from {view.monitor} once a second, {view.readings:,} times"
    slowest = f"the slowest answer took {number_text(_MS_PER_S * view.slowest_s, 1)} ms."
    blocks.append(Text(f"{reading}; {slowest}", is_note=True))
    return Section(title, blocks)


def _agreement_row(row: Agreement) -> list[str | Mark]:
    verdict = Mark("exact", holds=True) if row.matches else Mark("differs", holds=False)
    if row.expected and not row.matches:
        verdict = Mark(f"differs, as expected: {row.expected}", holds=None)
    difference = f"{row.difference:+,}" if row.difference else "0"
    name = f"{row.name}, bytes" if row.unit == "bytes" else row.name
    return [name, f"{row.engine:,}", f"{row.broker:,}", difference, verdict]


def _thresholds(result: Result) -> Section:
    if not result.thresholds:
        return Section("Thresholds", [Text("The scenario has none.")])
    verdicts = [
        Verdict(outcome.expr, f"is {checks.describe_value(outcome)}", outcome.holds)
        for outcome in result.thresholds
    ]
    return Section(
        "Thresholds", [Verdicts("threshold", ("objective", "value"), verdicts, reach=Reach.TERMINAL)]
    )


def _errors(result: Result) -> Section:
    rows = [[kind, f"{count:,}", meaning] for kind, count, meaning in checks.error_counts(result) if count]
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(["kind", "count", "meaning"], rows, numbers=False))
    else:
        blocks.append(Text("There were none of any kind."))
    achieved = result.achieved
    if achieved.server_errors:
        count, first = f"{achieved.server_errors:,}", achieved.first_server_error or ABSENT
        blocks.append(
            Bullets(
                [f"Errors from the server: {count}, first: {first}"], are_failures=True, reach=Reach.TERMINAL
            )
        )
    chart = over_time.error_chart(result) if result.transports is None else None
    return Section("Errors by kind", [*blocks, chart] if chart else blocks)


def _conservation(result: Result) -> Section:
    account, achieved = result.conservation, result.achieved
    verdicts = [Verdict(check.name, check.detail, check.holds) for check in account.checks]
    if not account.holds and all(verdict.holds for verdict in verdicts):
        verdicts.append(Verdict("all messages", "not accounted for", holds=False))
    dropped = "".join(f", dropped {reason} {count:,}" for reason, count in account.dropped.items())
    counts = f"Published {account.published:,}, delivered {account.delivered:,}, pending {account.pending:,}"
    late = f"{achieved.late:,} late, " if result.broadcast is None else ""
    beyond = (
        f"Beyond the plain outcomes: {late}{achieved.duplicates:,} duplicate, {achieved.corrupt:,} corrupt, "
        f"{achieved.unmatched:,} unmatched"
    )
    if result.broadcast is not None:
        missing, incomplete = result.broadcast.missing, result.broadcast.incomplete
        beyond += f"; {missing:,} deliveries missing, {incomplete:,} messages not received by all their users"
    return Section(
        "Conservation",
        [
            Text("Every message is accounted for by one of these equations."),
            Verdicts("conservation", ("account", "equation"), verdicts, reach=Reach.TERMINAL),
            Text(f"{counts}{dropped}. {beyond}.", is_note=True),
        ],
    )


def _environment(result: Result) -> Section:
    """Return a column for each machine, a row for each fact."""
    columns = [(host.name, _facts(host.environment)) for host in result.hosts if host.environment]
    run = _facts(result.environment)
    if run not in [facts for _, facts in columns]:
        columns.insert(0, ("this run", run))
    names = list(dict.fromkeys(name for _, facts in columns for name in facts))
    rows = [[name, *(facts.get(name, ABSENT) for _, facts in columns)] for name in names]
    return Section("Environment", [Table(["", *(title for title, _ in columns)], rows, numbers=False)])


def _facts(environment: Mapping[str, Any]) -> dict[str, str]:
    return {name: _fact_text(value) for name, value in flatten(environment)}


def _fact_text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return ABSENT if value is None else str(value)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
