"""A run beside the published one: the rows that console and report both show."""

from dataclasses import dataclass

from loadtest.reference import Reference
from loadtest.results import Latency, Result

_ABSENT = "-"
_LATENCIES = {
    "mean": "mean",
    "stddev": "standard deviation",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "max": "maximum",
}


@dataclass(frozen=True)
class Row:
    """One measure; texts are ready to show, "-" where there is no figure."""

    measure: str
    run: str
    reference: str
    run_per_core: str = _ABSENT
    reference_per_core: str = _ABSENT


def sees_server(result: Result) -> bool:
    """Whether the machine that the environment describes is the server's, too."""
    return result.target is None or result.server.cpu_percent is not None


def compare(result: Result) -> list[Row]:
    """The rows, throughput first. Per core means per hardware thread of the server's machine."""
    achieved, reference = result.achieved, result.reference
    cores = int(result.environment.get("cores", 0)) if sees_server(result) else 0
    extensive: list[tuple[str, float, float]] = [
        ("concurrent connections", achieved.connections, reference.connections),
        ("subjects", achieved.subjects, reference.subjects),
        ("requests/s", achieved.rate, reference.rate),
        ("messages/s", achieved.messages_per_s, reference.messages_per_s),
    ]
    rows = [
        Row(
            measure,
            _whole(ours),
            _whole(theirs),
            _whole(ours / cores if cores else None),
            _whole(theirs / reference.cores),
        )
        for measure, ours, theirs in extensive
    ]
    rows += _latency_rows(result.latency_us, reference)
    rows.append(Row("requests total", _whole(achieved.received), _whole(reference.requests)))
    server = result.server
    rows.append(
        Row("broker CPU, % of machine", _one_decimal(server.cpu_percent), _one_decimal(reference.cpu_percent))
    )
    rows.append(
        Row(
            "broker CPU, us/request",
            _one_decimal(server.cpu_us_per_request),
            _one_decimal(reference.cpu_us_per_request),
        )
    )
    memory = reference.rss_bytes_per_connection
    rows.append(
        Row("resident memory, bytes/connection", _whole(server.rss_bytes_per_connection), _whole(memory))
    )
    growth = _whole(server.rss_growth_bytes_per_connection)
    rows.append(Row("memory growth, bytes/connection", growth, _ABSENT))
    return rows


def _latency_rows(latency: Latency | None, reference: Reference) -> list[Row]:
    ours: tuple[float | None, ...] = (None,) * len(_LATENCIES)
    if latency is not None:
        ours = tuple(getattr(latency, name) for name in _LATENCIES)
    theirs = [getattr(reference, f"{name}_us") for name in _LATENCIES]
    return [
        Row(f"latency {label}, ms", _milliseconds(run), _milliseconds(published))
        for label, run, published in zip(_LATENCIES.values(), ours, theirs, strict=True)
    ]


def _whole(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:,.0f}"


def _one_decimal(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:,.1f}"


def _milliseconds(us: float | None) -> str:
    return _ABSENT if us is None else f"{us / 1000:,.2f}"
