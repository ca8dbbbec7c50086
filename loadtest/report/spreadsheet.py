"""The figures of a run as CSV, to paste into a spreadsheet."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from loadtest.report.comparison import Measure, measures
from loadtest.report.errors import counts
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
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if result.transports is None:
        writer.writerow(["measure", "this run", f"published {result.reference.label}"])
        for row in (*measures(result), *_latencies(result)):
            writer.writerow([row.name, _text(row.run), _text(row.reference)])
        writer.writerows([kind, count, ""] for kind, count, _ in counts(result))
        return file.getvalue()
    rows = [dict(_flatten(msgspec.to_builtins(run))) for run in result.transports]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer.writerow(names)
    writer.writerows([_text(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


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


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
