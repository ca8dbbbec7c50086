"""`report.md`: the figures and verdicts of a run as text, to paste into an issue, a wiki or a mail."""

from collections.abc import Iterator

from loadtest.report import errors, machines, transports
from loadtest.report.canvas import Table
from loadtest.report.comparison import (
    PER_THREAD_NOTE,
    compare,
    describe_agreement,
    describe_difference,
    describe_trend,
    explain_latency,
)
from loadtest.report.markdown_parts import bullets, document, fence, paragraph, plain, table
from loadtest.report.reproduce import SCENARIO_FILE, command_line, from_file, to_toml
from loadtest.result.schema import Host, Result

_ABSENT = "-"
_US_PER_MS = 1e3
_BYTES_PER_GB = 1e9
_BPS_PER_MBPS = 1e6
_PERCENTILES = {
    "min": "minimum", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p99_9": "p99.9",
    "p99_99": "p99.99", "max": "maximum",
}  # fmt: skip


def to_markdown(result: Result) -> str:
    """The whole text; it ends with a newline."""
    figures = [_summary, _percentiles] if result.transports is None else [_transports]
    sections = [_head, *figures, _checks, _mishaps, _hosts, _workers, _environment, _again]
    return document(section(result) for section in sections)


def _head(result: Result) -> Iterator[str]:
    title = "Load test" if result.transports is None else "Transports"
    yield f"# {title}: {plain(result.scenario.get('name', ''))}"
    yield ""
    description = str(result.scenario.get("description") or "")
    if description:
        yield paragraph(description)
        yield ""
    where = f"against {result.target}" if result.target is not None else "on its own broker"
    yield f"{result.duration_s:,.0f} s from {plain(result.started)}, {plain(where)}. {_asked(result)}"
    yield ""
    if result.error is not None:
        yield f"**The run failed:** {plain(result.error)}"
    elif result.holds:
        yield "**Everything holds:** thresholds and accounts."
    else:
        yield "**Not everything holds:** see the checks."
    if missing := machines.missing(result):
        yield ""
        yield "**Missing, and in none of the figures:**"
        yield ""
        yield from bullets(missing)


def _asked(result: Result) -> str:
    requested = result.requested
    what = "requests" if result.broadcast is None else "deliveries"
    load = "a closed loop" if requested.rate is None else f"{requested.rate:,.0f} {what}/s"
    return f"Asked for: {requested.connections:,} connections, {load}, {requested.duration_s:,.0f} s."


def _summary(result: Result) -> Iterator[str]:
    rows = [
        [row.measure, row.run, row.reference, row.run_per_core, row.reference_per_core]
        for row in compare(result)
        if (row.run, row.reference) != (_ABSENT, _ABSENT)
    ]
    label = f"published {result.reference.label}"
    yield "## Summary"
    yield ""
    columns = ["measure", "this run", label, "this run, per thread", f"{label}, per thread"]
    yield from table(Table(columns, rows))
    yield ""
    yield f"{PER_THREAD_NOTE} {_published(result)}"


def _transports(result: Result) -> Iterator[str]:
    runs = result.transports or []
    for title, columns, rows in transports.tables(runs):
        yield f"## {title}"
        yield ""
        yield from table(Table(columns, rows))
        yield ""
    if said := transports.findings(runs):
        yield from bullets(said)
        yield ""
    yield f"{plain(transports.explain(result))} {_published(result)}"


def _published(result: Result) -> str:
    return plain(f"Published: {result.reference.name}; {result.reference.hardware}.")


def _percentiles(result: Result) -> Iterator[str]:
    latency, service = result.latency_us, result.service_us
    if latency is None:
        return
    columns = [("latency, ms", latency)] + ([("service time, ms", service)] if service else [])
    yield "## Percentiles"
    yield ""
    rows = [
        [label, *(f"{getattr(figures, name) / _US_PER_MS:,.3f}" for _, figures in columns)]
        for name, label in _PERCENTILES.items()
    ]
    yield from table(Table(["", *(title for title, _ in columns)], rows))
    yield ""
    yield f"Over {latency.count:,} values. {explain_latency(result)}"


def _checks(result: Result) -> Iterator[str]:
    yield "## Checks"
    yield ""
    for check in result.conservation.checks:
        yield f"- {_verdict(holds=check.holds)} {plain(check.name)}: {plain(check.detail)}"
    agreement = describe_agreement(result)
    if agreement is not None:
        mark = (
            "" if not result.agreement else _verdict(holds=all(row.holds for row in result.agreement)) + " "
        )
        yield f"- {mark}agreement: {plain(agreement)}"
    for row in result.agreement:
        if not row.matches:
            yield f"- {_verdict(holds=row.holds)} {plain(describe_difference(row))}"
    for outcome in result.thresholds:
        value = "no value" if outcome.value is None else f"{outcome.value:,}"
        yield f"- {_verdict(holds=outcome.holds)} threshold {plain(outcome.expr)}: is {value}"
    if result.soak is not None:
        for trend in result.soak.trends:
            yield f"- {_verdict(holds=trend.holds)} trend {plain(describe_trend(trend))}"
        if result.soak.note:
            yield f"- {_verdict(holds=False)} soak: {plain(result.soak.note)}"


def _mishaps(result: Result) -> Iterator[str]:
    mishaps = errors.tabulate(result)
    if not mishaps.rows:
        return
    yield "## What went wrong"
    yield ""
    yield from table(mishaps)
    if result.achieved.first_server_error:
        yield ""
        yield f"The server's first error: {plain(result.achieved.first_server_error)}"


def _hosts(result: Result) -> Iterator[str]:
    if not result.hosts:
        return
    columns = ["host", "roles", "CPU mean, %", "CPU highest, %", "memory, GB", "in, Mbit/s", "out, Mbit/s"]
    yield "## Hosts"
    yield ""
    yield from table(Table(columns, [_describe_host(host) for host in result.hosts]))
    yield ""
    yield "Means over the whole run, connecting included; memory is the most that was in use."


def _describe_host(host: Host) -> list[str]:
    samples = host.samples
    texts = [f"{host.name} ({host.address})" if host.address else host.name, ", ".join(host.roles) or _ABSENT]
    if not samples:
        return [*texts, *[_ABSENT] * 5]

    def mean(name: str, unit: float = 1.0) -> str:
        return f"{sum(getattr(sample, name) for sample in samples) / len(samples) / unit:,.1f}"

    return [
        *texts,
        mean("cpu_percent"),
        f"{max(sample.cpu_percent for sample in samples):,.1f}",
        f"{max(sample.memory_used_bytes for sample in samples) / _BYTES_PER_GB:,.2f}",
        mean("net_in_bps", _BPS_PER_MBPS),
        mean("net_out_bps", _BPS_PER_MBPS),
    ]


def _workers(result: Result) -> Iterator[str]:
    """Nothing where the run is that of one."""
    if len(result.workers) <= 1:
        return
    yield "## Processes"
    yield ""
    yield from table(machines.tabulate_workers(result))


def _environment(result: Result) -> Iterator[str]:
    described = [(host.name, host.environment) for host in result.hosts if host.environment]
    yield "## Environment"
    yield ""
    for name, facts in described or [("this machine", result.environment)]:
        shown = [f"{key} {value}" for key, value in facts.items() if isinstance(value, (str, int, float))]
        yield from bullets([f"{name}: {', '.join(shown)}"])


def _again(result: Result) -> Iterator[str]:
    yield "## To do it again"
    yield ""
    yield f"The scenario as it was run, `{SCENARIO_FILE}`, and the command:"
    yield ""
    yield from fence("sh", command_line(result.command) or from_file(result))
    yield ""
    yield from fence("toml", to_toml(result))


def _verdict(*, holds: bool) -> str:
    return "holds:" if holds else "**fails:**"
