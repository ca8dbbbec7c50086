"""`report.html`: one file that opens offline."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from loadtest.report import charts, view_charts
from loadtest.report.comparison import (
    PER_THREAD_NOTE,
    compare,
    describe_agreement,
    describe_trend,
    explain_latency,
    is_closed_loop,
    sees_server,
)
from loadtest.report.transports import explain, findings, tables
from loadtest.result.histogram import Histogram
from loadtest.result.schema import Result, Soak

_HEADLINES = (
    "concurrent connections",
    "requests/s",
    "deliveries/s",
    "latency p50, ms",
    "latency p99, ms",
    "latency maximum, ms",
    "spread p50, ms",
)


_S_PER_MINUTE = 60.0
_SOAK_CHARTS = (
    (
        "soak-memory",
        "Resident memory by period",
        "MB",
        (("broker, resident", "broker_rss_bytes", 1e6), ("load, resident", "load_rss_bytes", 1e6)),
    ),
    (
        "soak-latency",
        "Latency by period",
        "milliseconds",
        (("latency p99", "p99_us", 1e3), ("p50", "p50_us", 1e3)),
    ),
    ("soak-highest", "Highest latency by period", "milliseconds", (("latency maximum", "max_us", 1e3),)),
    (
        "soak-cpu",
        "Processor time by period",
        "% of the machine",
        (("broker, CPU", "broker_cpu_percent", 1.0), ("load, CPU", "load_cpu_percent", 1.0)),
    ),
    (
        "soak-connections",
        "The broker's connections and descriptors by period",
        "open at the end of the period",
        (("connections", "broker_connections", 1.0), ("descriptors", "broker_descriptors", 1.0)),
    ),
)


def render_report(result: Result) -> str:
    """The report's HTML, from the result alone."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loadtest.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
    )
    runs = result.transports
    rows = compare(result) if runs is None else []
    words = charts.REQUESTS if result.broadcast is None else charts.BROADCAST
    if is_closed_loop(result):
        words = replace(words, latency=words.unplanned)
    return environment.get_template("report.html.j2").render(
        result=result,
        verdict=_verdict,
        headline=[row for row in rows if row.measure in _HEADLINES],
        comparison=rows,
        sees_server=sees_server(result),
        per_thread_note=PER_THREAD_NOTE,
        scenario=list(_flatten(result.scenario)),
        environment=list(_flatten(result.environment)),
        percentile_chart=_percentile_chart(result, words),
        explain_latency=explain_latency(result),
        describe_trend=describe_trend,
        soak_charts=_soak_charts(result.soak) if result.soak else [],
        transports=None if runs is None else tables(runs),
        findings=None if runs is None else findings(runs),
        explain_transports=None if runs is None else explain(result),
        throughput_chart=_throughput_chart(result, words),
        describe_agreement=describe_agreement,
        # The runs of several transports have a broker each.
        view_charts=view_charts.draw(result.timeline) if runs is None else [],
    )


def write_report(result: Result, folder: Path) -> None:
    """Writes `report.html`."""
    (folder / "report.html").write_text(render_report(result), encoding="utf-8")


def _percentile_chart(result: Result, words: charts.Words) -> Markup | None:
    if result.histograms is None:
        return None
    encoded = result.histograms.service
    latency = Histogram.merged([result.histograms.latency])
    # Where nothing is planned, both are the same, and a broadcast has none.
    if is_closed_loop(result):
        encoded = None
    service = Histogram.merged([encoded]) if encoded is not None else None
    return Markup(charts.percentile_chart(latency, service, result.reference, words))  # noqa: S704 - our own drawing


def _throughput_chart(result: Result, words: charts.Words) -> Markup | None:
    if not result.intervals:
        return None
    each = 1.0
    if result.broadcast is not None:  # deliveries of one message, on average
        each = int(result.scenario["users"]) / result.broadcast.subjects
    return Markup(charts.throughput_chart(result.intervals, words, each))  # noqa: S704 - our own drawing


def _soak_charts(soak: Soak) -> list[Markup]:
    """Memory, latency, processor time and connections by period; what was never visible is left out."""
    if not soak.samples:
        return []
    minutes = [sample.end_s / _S_PER_MINUTE for sample in soak.samples]
    drawings = []
    for name, title, unit, fields in _SOAK_CHARTS:
        lines = []
        for label, field, scale in fields:
            values = [getattr(sample, field) for sample in soak.samples]
            if any(value is not None for value in values):
                scaled = [None if value is None else value / scale for value in values]
                lines.append(charts.Line(label, scaled))
        if lines:
            drawings.append(Markup(charts.lines_chart(name, title, unit, minutes, lines)))  # noqa: S704 - our own drawing
    return drawings


def _verdict(holds: bool) -> Markup:  # noqa: FBT001 - a template passes one value
    return Markup('<span class="{}">{}</span>').format(
        "holds" if holds else "fails", "holds" if holds else "fails"
    )


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and texts of a table's values."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        else:
            yield f"{prefix}{name}", "-" if value is None else str(value)
