"""The figures that runs are compared by: which they are, what is better, and how they are written."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from loadtest.result.paths import value_at
from loadtest.result.schema import Result, TransportRun

Better = Literal["higher", "lower"]
_PER_MILLION = 1e6
_LATENCIES = {
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p99_9": "p99.9",
    "p99_99": "p99.99",
    "max": "maximum",
    "mean": "mean",
    "stddev": "standard deviation",
}
_ONE_REPLY = ("p99_99", "max", "stddev")
"""A few replies decide these, so chance does."""
LOSS_UNIT = "per million"
"""Of the requests, messages or deliveries that there were to be, since runs differ in length."""
_LOSSES = {
    "timed_out": "timed out",
    "errors": "errors",
    "duplicates": "duplicates",
    "corrupt": "corrupt",
    "unmatched": "unmatched",
    "no_responders": "no responders",
    "server_errors": "errors from the server",
    "disconnected": "disconnected",
}
_OF_DELIVERIES = ("timed_out", "duplicates", "corrupt", "unmatched")
"""Of a broadcast, those that count deliveries, of which each message has many."""


class Figure(Struct, frozen=True, kw_only=True):
    """One figure of a run."""

    name: str
    """Its path in result.json where it is there as it is."""
    label: str
    unit: str
    """Unit of the values; empty for plain counts."""
    shown: str
    """Unit of the text."""
    better: Better | None
    """None where neither is."""
    judged: bool
    """Whether a change for the worse is a regression; the others are there to be seen."""

    @property
    def title(self) -> str:
        """Label and the unit that `text` writes it in."""
        return f"{self.label}, {self.shown}" if self.shown else self.label

    def text(self, value: float | None) -> str:
        """The value in the title's unit, in three digits or more; "-" for none."""
        if value is None:
            return "-"
        value /= {"ms": 1e3, "MB": 1e6}.get(self.shown, 1.0)
        if value == int(value) or abs(value) >= 100:  # noqa: PLR2004
            return f"{value:,.0f}"
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def measure(result: Result) -> dict[Figure, float]:
    """Every figure that the run has, in the order in which they are shown."""
    return {figure: value for figure, value in _all(result) if value is not None}


def _all(result: Result) -> Iterator[tuple[Figure, float | None]]:
    if result.transports is not None:
        for run in result.transports:
            yield from _of_transport(run)
    else:
        yield from _throughput(result)
        yield from _latencies(result)
    yield from _losses(result)
    if result.transports is None:
        yield from _resources(result)


def _figure(
    name: str, label: str, unit: str, better: Better | None, *, judged: bool = True, shown: str = ""
) -> Figure:
    """A figure whose text is in its unit, unless that is too small: bytes are shown as MB."""
    shown = shown or {"bytes": "MB"}.get(unit, unit)
    return Figure(name=name, label=label, unit=unit, shown=shown, better=better, judged=judged)


def _time(name: str, label: str, *, judged: bool = True) -> Figure:
    """A time in microseconds, which is shown in milliseconds."""
    return _figure(name, label, "us", "lower", judged=judged, shown="ms")


def _processor_time(name: str, label: str, *, judged: bool = True) -> Figure:
    return _figure(name, label, "us", "lower", judged=judged, shown="µs")


def _at(result: Result, figure: Figure) -> tuple[Figure, float | None]:
    value = value_at(result, figure.name)
    return figure, float(value) if isinstance(value, (int, float)) else None


def _throughput(result: Result) -> Iterator[tuple[Figure, float | None]]:
    events = "requests" if result.broadcast is None else "deliveries"
    yield _at(result, _figure("requested.rate", f"{events}/s requested", "", None, judged=False))
    yield _at(result, _figure("achieved.rate", f"{events}/s", "", "higher"))
    yield _at(result, _figure("achieved.connections", "connections", "", None, judged=False))
    yield _at(result, _figure("achieved.connect_s", "connecting", "s", "lower", judged=False))


def _latencies(result: Result) -> Iterator[tuple[Figure, float | None]]:
    for name, label in _LATENCIES.items():
        judged = name not in _ONE_REPLY
        yield _at(result, _time(f"latency_us.{name}", f"latency {label}", judged=judged))
    for name in ("p50", "p99"):
        yield _at(result, _time(f"service_us.{name}", f"service time {name}", judged=False))
    if result.broadcast is not None:
        for name in ("p50", "p99"):
            yield _at(result, _time(f"broadcast.spread_us.{name}", f"spread {name}"))
        # A count, which runs of other lengths do not share; as a share it is among the losses.
        yield _at(result, _figure("broadcast.missing", "deliveries missing", "", "lower", judged=False))
    yield _at(result, _time("achieved.max_send_lag_us", "schedule slip, maximum", judged=False))


def _losses(result: Result) -> Iterator[tuple[Figure, float | None]]:
    achieved = result.achieved
    for name, label in _LOSSES.items():
        figure = _figure(f"achieved.{name}", label, LOSS_UNIT, "lower")
        is_delivery = result.broadcast is not None and name in _OF_DELIVERIES
        chances = achieved.received + achieved.timed_out if is_delivery else achieved.sent
        yield figure, getattr(achieved, name) / chances * _PER_MILLION if chances else None


def _resources(result: Result) -> Iterator[tuple[Figure, float | None]]:
    each = "request" if result.broadcast is None else "delivery"
    yield _at(result, _processor_time("server.cpu_us_per_request", f"broker CPU per {each}"))
    yield _at(result, _figure("server.cpu_percent", "broker CPU", "% of machine", "lower", judged=False))
    per_cpu = "broadcast.deliveries_per_broker_cpu_s"
    if result.broadcast is not None:
        yield _at(result, _figure(per_cpu, "deliveries per broker CPU second", "", "higher"))
    yield _at(result, _figure("server.rss_bytes", "broker memory", "bytes", "lower", judged=False))
    per_connection = "server.rss_bytes_per_connection"
    yield _at(result, _figure(per_connection, "broker memory", "bytes/connection", "lower"))
    growth = "server.rss_growth_bytes_per_connection"
    yield _at(result, _figure(growth, "memory growth", "bytes/connection", "lower", judged=False))
    yield _at(result, _processor_time("load.cpu_us_per_request", f"load CPU per {each}", judged=False))
    if result.wire is not None:
        yield _figure("wire.total", "on the wire", "bytes/call", "lower"), result.wire.total


def _of_transport(run: TransportRun) -> Iterator[tuple[Figure, float | None]]:
    where = f"{run.transport}, {run.outstanding} caller{'s' if run.outstanding > 1 else ''}"
    path = f"transports.{run.transport}.{run.outstanding}"
    latency = run.latency_us
    yield _figure(f"{path}.calls_per_s", f"{where}: calls/s", "", "higher"), run.calls_per_s
    for name in ("p50", "p99"):
        figure = _time(f"{path}.latency_us.{name}", f"{where}: latency {name}")
        yield figure, getattr(latency, name) if latency else None
    cpu = _processor_time(f"{path}.server_cpu_us_per_call", f"{where}: broker CPU per call")
    yield cpu, run.server_cpu_us_per_call
    wire = _figure(f"{path}.wire", f"{where}: on the wire", "bytes/call", "lower")
    yield wire, run.wire.total if run.wire else None
