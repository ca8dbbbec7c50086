"""`report.html`: one file that opens offline."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from loadtest import charts
from loadtest.comparison import compare, sees_server
from loadtest.histogram import Histogram
from loadtest.results import Result

_HEADLINES = (
    "concurrent connections",
    "requests/s",
    "latency p50, ms",
    "latency p99, ms",
    "latency maximum, ms",
)


def render_report(result: Result) -> str:
    """The report's HTML, from the result alone."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loadtest", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
    )
    rows = compare(result)
    return environment.get_template("report.html.j2").render(
        result=result,
        verdict=_verdict,
        headline=[row for row in rows if row.measure in _HEADLINES],
        comparison=rows,
        sees_server=sees_server(result),
        scenario=list(_flatten(result.scenario)),
        environment=list(_flatten(result.environment)),
        percentile_chart=_percentile_chart(result),
        throughput_chart=Markup(charts.throughput_chart(result.intervals)) if result.intervals else None,  # noqa: S704 - our own drawing
    )


def write_report(result: Result, folder: Path) -> None:
    """Writes `report.html`."""
    (folder / "report.html").write_text(render_report(result), encoding="utf-8")


def _percentile_chart(result: Result) -> Markup | None:
    if result.histograms is None:
        return None
    latency = Histogram.merged([result.histograms.latency])
    service = Histogram.merged([result.histograms.service])
    return Markup(charts.percentile_chart(latency, service, result.reference))  # noqa: S704 - our own drawing


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
