"""`report.html`: one file that opens offline."""

from typing import Any

from loadtest.report import (
    achievement,
    charts,
    comparison,
    errors,
    heatmap,
    host_charts,
    machines,
    reproduce,
    soak_charts,
    transport_charts,
    transports,
    verdicts,
    view_charts,
)
from loadtest.report.over_time import clock_of
from loadtest.report.pages import render_page
from loadtest.result.schema import Result

_HEADLINES = (
    "concurrent connections",
    "requests/s",
    "deliveries/s",
    "latency p50, ms",
    "latency p99, ms",
    "latency maximum, ms",
    "spread p50, ms",
)


def render_report(result: Result) -> str:
    """The report's HTML, from the result alone."""
    measured = _transports(result) if result.transports is not None else _one_run(result)
    return render_page(
        "report.html.j2",
        result=result,
        sees_server=comparison.sees_server(result),
        describe_value=verdicts.describe_value,
        failures=verdicts.failures(result),
        missing=machines.missing(result),
        hosts=machines.tabulate(result),
        workers=machines.tabulate_workers(result),
        environments=machines.environments(result),
        command=reproduce.command_line(result.command),
        command_of_file=reproduce.from_file(result),
        scenario_file=reproduce.SCENARIO_FILE,
        scenario_toml=reproduce.to_toml(result),
        errors=errors.tabulate(result),
        describe_agreement=comparison.describe_agreement,
        **measured,
    )


def _one_run(result: Result) -> dict[str, Any]:
    """What a report of one load has, that one of several transports has not."""
    rows = comparison.compare(result)
    clock = clock_of(result)
    return {
        "headline": [row for row in rows if row.measure in _HEADLINES],
        "comparison": rows,
        "per_thread_note": comparison.PER_THREAD_NOTE,
        "is_closed_loop": comparison.is_closed_loop(result),
        "explain_latency": comparison.explain_latency(result),
        "describe_trend": comparison.describe_trend,
        "achievement": achievement.tabulate(result),
        "percentile_chart": charts.percentile_chart(result),
        "latency_chart": charts.latency_chart(result),
        "throughput_chart": charts.throughput_chart(result),
        "slip_chart": charts.lag_chart(result),
        "heatmap_chart": heatmap.draw(result.heatmap, charts.words_of(result).received),
        "host_charts": host_charts.draw(result, clock),
        "has_no_retransmits": host_charts.has_no_retransmits(result.hosts),
        "error_chart": errors.draw(result, clock),
        "soak_charts": soak_charts.draw(result.soak) if result.soak else [],
        "view_charts": view_charts.draw(result.timeline, clock),
    }


def _transports(result: Result) -> dict[str, Any]:
    """What a report of the same load over several transports has; each of these had a broker of its own."""
    runs = result.transports or []
    return {
        "tables": transports.tables(runs),
        "findings": transports.findings(runs),
        "explain_transports": transports.explain(result),
        "transport_chart": transport_charts.draw(runs, result.reference.label),
        "error_chart": None,
        "view_charts": [],
    }
