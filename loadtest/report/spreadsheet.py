"""The figures of a run as CSV, to paste into a spreadsheet."""

from collections.abc import Iterator

import msgspec

from loadtest.report.comparison import Measure, measures
from loadtest.report.errors import counts
from loadtest.report.pages import csv_text
from loadtest.result.paths import flatten
from loadtest.result.schema import Result

_US_PER_MS = 1e3
_FINER = {"min": "minimum", "p99_9": "p99.9", "p99_99": "p99.99"}
"""Of the latency, besides what a reference has."""
_SERVICE = {
    "mean": "mean",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    **_FINER,
    "max": "maximum",
}


def to_csv(result: Result) -> str:
    """A row for each figure, or for each run of a comparison of transports; nothing where there is none."""
    if result.transports is None:
        columns = ["measure", "this run", f"published {result.reference.label}"]
        figures = (*measures(result), *_latencies(result))
        return csv_text(
            columns,
            [
                *([row.name, _text(row.run), _text(row.reference)] for row in figures),
                *([kind, count, ""] for kind, count, _ in counts(result)),
            ],
        )
    runs = [dict(flatten(msgspec.to_builtins(run))) for run in result.transports]
    names = list(dict.fromkeys(name for run in runs for name in run))
    return csv_text(names, ([_text(run.get(name)) for name in names] for run in runs))


def _latencies(result: Result) -> Iterator[Measure]:
    for latency, what, names in (
        (result.latency_us, "latency", _FINER),
        (result.service_us, "service time", _SERVICE),
    ):
        for name, label in names.items() if latency is not None else ():
            yield Measure(f"{what} {label}, ms", getattr(latency, name) / _US_PER_MS, None, decimals=2)


def _text(value: object) -> str:
    """Without a thousands separator, and with a point, whatever the locale."""
    if value is None:
        return ""
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
