"""The metrics of a run: one catalogue for reports, tables, CSV, repeated runs and comparisons."""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct, structs

from loadtest.result.paths import value_at
from loadtest.result.schema import Result, TransportRun

Better = Literal["higher", "lower"]
PerThread = Literal["divided", "same", "none"]
Entry = tuple["Metric", float | None]
"""A metric and its value in the metric's unit; None if the run does not have it."""

PERCENTILES = {"p50": "50", "p90": "90", "p95": "95", "p99": "99", "p99_9": "99.9", "p99_99": "99.99"}
"""Percentiles of a latency: names of the fields and percentages."""
LATENCY_LABELS = {
    "mean": "mean",
    "stddev": "standard deviation",
    "min": "minimum",
    **{name: f"p{share}" for name, share in PERCENTILES.items()},
    "max": "maximum",
}
"""Fields of a latency and their labels, in the order of tables."""
LOSS_UNIT = "per million"
"""Unit of losses: of the requests, messages or deliveries that were due, because runs differ in length."""
LOSSES_NOTE = "Kinds of losses that never occurred are left out."
SEND_LAG = "achieved.max_send_lag_us"
HEADLINE = (
    "achieved.connections",
    "achieved.rate",
    "latency_us.p50",
    "latency_us.p99",
    "latency_us.max",
    "broadcast.spread_us.p50",
    SEND_LAG,
)
"""Paths of the metrics at the head of reports. The send lag of the load generator is one of them, because
latencies count from the plan and include the lag."""

_DECIDED_BY_FEW = ("min", "p99_99", "max", "stddev")
"""Fields of a latency that a few replies decide, and so chance."""
_PER_MILLION = 1e6
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
"""Losses that, in a broadcast, count deliveries; each message has many."""
_SCALES = {("us", "ms"): 1e3, ("bytes", "MB"): 1e6, ("bit/s", "Mbit/s"): 1e6}


class Metric(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric of a run. Values are in `unit`, texts in `display`."""

    path: str
    """Path in result.json if the value is there as it is, otherwise a name of the same form."""
    label: str
    unit: str = ""
    """Unit of values; empty for plain counts and for rates that the label names."""
    display: str = ""
    """Unit of texts; empty if it is `unit`."""
    decimals: int | None = None
    """Digits of texts after the point; None for three significant digits or more."""
    better: Better | None = None
    """Direction of a change for the better; None if there is no such direction."""
    judged: bool = False
    """Whether a change for the worse is a regression unless other metrics were chosen."""
    per_thread: PerThread = "none"
    """Meaning per hardware thread: divided by their number, the same as in all, or none."""
    reference: str = ""
    """Field of the published reference that has the value to compare with; empty if none has."""
    minor: bool = False
    """Whether tables leave the metric out; CSV and `--judge` have it."""

    @property
    def title(self) -> str:
        """Label and unit of the texts."""
        unit = self.display or self.unit
        return f"{self.label}, {unit}" if unit else self.label

    def scaled(self, value: float) -> float:
        """Return the value in the unit of the texts."""
        return value / _SCALES.get((self.unit, self.display), 1.0)

    def text(self, value: float | None) -> str:
        """Return the value in the title's unit; "-" for None."""
        return number_text(None if value is None else self.scaled(value), self.decimals)


def number_text(value: float | None, decimals: int | None = None) -> str:
    """Return a number as all tables and texts show it; "-" for None.

    Without `decimals` a whole number has none, and any other one has three significant digits or more.
    """
    if value is None:
        return "-"
    if decimals is None:
        if value and abs(value) < 1:
            return f"{value:.3g}"
        decimals = 0 if float(value).is_integer() or abs(value) >= 100 else 2  # noqa: PLR2004
    return f"{value:,.{decimals}f}"


def measure(result: Result) -> dict[Metric, float]:
    """Return every metric that the run has with its value, in the order of tables."""
    return {metric: value for metric, value in catalogue(result) if value is not None}


def catalogue(result: Result) -> list[Entry]:
    """Return every metric of this kind of run, whether the run has a value or not, in the order of tables."""
    if result.transports is not None:
        runs = [entry for run in result.transports for entry in _named(run)]
        return [*runs, *_losses(result)]
    load = [*_throughput(result), *_latencies(result), *_totals(result)]
    return [*_entries(result, load), *_losses(result), *_entries(result, _resources(result))]


def transport_metrics(run: TransportRun) -> list[Entry]:
    """Return the metrics of one transport; their paths begin at the run."""
    latency, wire = run.latency_us, run.wire
    metrics: list[Entry] = [
        (Metric(path="calls", label="calls"), run.calls),
        (Metric(path="total_s", label="total time", unit="s"), run.total_s),
        (Metric(path="calls_per_s", label="calls/s", better="higher", judged=True), run.calls_per_s),
    ]
    for name in ("mean", "p50", "p99", "p99_9", "max"):
        label, judged = f"latency {LATENCY_LABELS[name]}", name in ("p50", "p99")
        metric = _time(f"latency_us.{name}", label, judged=judged, display="µs")
        metrics.append((metric, getattr(latency, name) if latency else None))
    for name, label in (
        ("payload", "payload"),
        ("total", "on the wire"),
        ("out", "of these out"),
        ("in_", "of these in"),
        ("head_out", "request heads"),
        ("head_in", "response heads"),
    ):
        path = f"wire.{name.rstrip('_')}"
        metric = Metric(
            path=path, label=label, unit="bytes/call", decimals=1, better="lower", judged=name == "total"
        )
        metrics.append((metric, getattr(wire, name) if wire else None))
    for who, label in (("server", "broker"), ("client", "load")):
        path = f"{who}_cpu_us_per_call"
        metric = _time(path, f"{label} CPU per call", judged=who == "server", display="µs")
        metrics.append((metric, getattr(run, path)))
    opened = Metric(path="connections_opened", label="connections opened, warm-up included")
    failed = Metric(path="failed", label="errors, timeouts", better="lower")
    return [*metrics, (opened, run.connections_opened), (failed, run.errors + run.timed_out)]


def is_closed_loop(result: Result) -> bool:
    """Return whether replies, and not a plan, trigger the requests."""
    return result.requested.rate is None


def explain_latency(result: Result) -> str:
    """Return the meaning of latency in this run, as a sentence."""
    is_broadcast = result.broadcast is not None
    if is_closed_loop(result):
        what, under_way = ("messages", "under way") if is_broadcast else ("requests", "outstanding")
        clock = (
            "runs from the actual publishing to each single receipt" if is_broadcast else "is service time"
        )
        return (
            f"Closed loop with {result.scenario.get('outstanding', 0):,} {what} {under_way}: nothing has a "
            f"planned time, latency {clock}, and a stall delays {what} that are never counted as slow "
            "(coordinated omission)."
        )
    if is_broadcast:
        return (
            "Latency runs from the planned publishing time to each single receipt, so a stall counts for "
            "every delivery that it delayed."
        )
    return (
        "Round-trip time runs from the planned send time, so a stall counts for every request that it "
        "delayed; service time runs from the actual send."
    )


def _named(run: TransportRun) -> Iterator[Entry]:
    """Yield the metrics of a transport with its name in paths and labels."""
    where = f"{run.transport}, {run.outstanding} caller{'s' if run.outstanding > 1 else ''}"
    for metric, value in transport_metrics(run):
        path = f"transports.{run.transport}.{run.outstanding}.{metric.path}"
        # Comparisons show the judged metrics only, since each transport has many metrics.
        yield (
            structs.replace(
                metric, path=path, label=f"{where}: {metric.label}", minor=metric.minor or not metric.judged
            ),
            value,
        )


def _entries(result: Result, metrics: Iterable[Metric]) -> Iterator[Entry]:
    for metric in metrics:
        value = value_at(result, metric.path)
        if metric.path == SEND_LAG and is_closed_loop(result):
            value = None  # nothing was planned that it could lag behind
        yield metric, float(value) if isinstance(value, (int, float)) else None


def _time(path: str, label: str, *, judged: bool = True, display: str = "ms", reference: str = "") -> Metric:
    """Return the metric of a time in microseconds, of which less is better."""
    return Metric(
        path=path, label=label, unit="us", display=display, better="lower", judged=judged, reference=reference
    )


def _events(result: Result) -> tuple[str, str]:
    """Return the term for the events that the run counts, in singular and plural."""
    return ("request", "requests") if result.broadcast is None else ("delivery", "deliveries")


def _throughput(result: Result) -> Iterator[Metric]:
    events = _events(result)[1]
    yield Metric(
        path="achieved.connections", label="connections", per_thread="divided", reference="connections"
    )
    is_fetched = result.scenario.get("workload") == "http-byte"
    if not is_fetched:
        # In a broadcast subjects do not grow with the connections.
        each: PerThread = "divided" if result.broadcast is None else "none"
        yield Metric(path="achieved.subjects", label="subjects", per_thread=each, reference="subjects")
    yield Metric(path="requested.rate", label=f"{events}/s requested")
    yield Metric(
        path="achieved.rate",
        label=f"{events}/s",
        better="higher",
        judged=True,
        per_thread="divided",
        reference="rate",
    )
    if result.broadcast is not None:
        published = "published_per_s"
        yield Metric(path=f"broadcast.{published}", label="messages published/s", reference=published)
    elif not is_fetched:
        rate = "messages_per_s"
        yield Metric(path=f"achieved.{rate}", label="messages/s", per_thread="divided", reference=rate)
    yield Metric(path="achieved.connect_s", label="connecting", unit="s", better="lower")


def _latencies(result: Result) -> Iterator[Metric]:
    for name, label in LATENCY_LABELS.items():
        judged = name not in _DECIDED_BY_FEW
        field = f"{name}_us" if hasattr(result.reference, f"{name}_us") else ""
        metric = _time(f"latency_us.{name}", f"latency {label}", judged=judged, reference=field)
        yield structs.replace(metric, minor=name == "min")
    for name, label in LATENCY_LABELS.items() if result.broadcast is None else ():
        metric = _time(f"service_us.{name}", f"service time {label}", judged=False)
        yield structs.replace(metric, minor=name not in ("p50", "p99"))
    if result.broadcast is not None:
        for name in ("p50", "p99", "max"):
            judged = name not in _DECIDED_BY_FEW
            yield _time(f"broadcast.spread_us.{name}", f"spread {LATENCY_LABELS[name]}", judged=judged)
        # This is a count, which depends on the length of the run; the losses have it as a share.
        yield Metric(path="broadcast.missing", label="deliveries missing", better="lower")
    yield _time(SEND_LAG, "send lag maximum", judged=False)


def _totals(result: Result) -> Iterator[Metric]:
    yield Metric(path="achieved.received", label=f"{_events(result)[1]} total", reference="requests")
    yield Metric(path="duration_s", label="measured time", unit="s", reference="duration_s")


def _losses(result: Result) -> Iterator[Entry]:
    achieved = result.achieved
    for name, label in _LOSSES.items():
        metric = Metric(path=f"achieved.{name}", label=label, unit=LOSS_UNIT, better="lower", judged=True)
        is_delivery = result.broadcast is not None and name in _OF_DELIVERIES
        chances = achieved.received + achieved.timed_out if is_delivery else achieved.sent
        yield metric, getattr(achieved, name) / chances * _PER_MILLION if chances else None


def _resources(result: Result) -> Iterator[Metric]:
    each = _events(result)[0]
    cpu, memory = "cpu_us_per_request", "rss_bytes_per_connection"
    yield Metric(
        path="server.cpu_percent",
        label="broker CPU",
        unit="% of machine",
        decimals=1,
        better="lower",
        reference="cpu_percent",
    )
    metric = _time(f"server.{cpu}", f"broker CPU per {each}", display="µs", reference=cpu)
    yield structs.replace(metric, per_thread="same")
    if result.broadcast is not None:
        yield Metric(
            path="broadcast.deliveries_per_broker_cpu_s",
            label="deliveries per broker CPU second",
            better="higher",
            judged=True,
            per_thread="same",
        )
    yield Metric(
        path="server.rss_bytes",
        label="broker memory",
        unit="bytes",
        display="MB",
        better="lower",
        per_thread="divided",
        reference="rss_bytes",
    )
    yield Metric(
        path=f"server.{memory}",
        label="broker memory",
        unit="bytes/connection",
        better="lower",
        judged=True,
        per_thread="same",
        reference=memory,
    )
    yield Metric(
        path="server.rss_growth_bytes_per_connection",
        label="broker memory growth",
        unit="bytes/connection",
        better="lower",
        per_thread="same",
    )
    for way in ("in", "out"):
        field = f"net_{way}_bps"
        yield Metric(
            path=f"server.{field}",
            label=f"broker network {way}",
            unit="bit/s",
            display="Mbit/s",
            decimals=1,
            per_thread="divided",
            reference=field,
        )
    yield structs.replace(
        _time("load.cpu_us_per_request", f"load CPU per {each}", judged=False, display="µs"),
        per_thread="same",
    )
    if result.wire is not None:
        for name, label in (("payload", "payload"), ("total", "on the wire"), ("heads", "HTTP heads")):
            if name == "heads" and not result.wire.heads:
                continue
            yield Metric(
                path=f"wire.{name}",
                label=label,
                unit="bytes/call",
                decimals=1,
                better="lower",
                judged=name == "total",
            )
        yield Metric(path="achieved.connections_opened", label="connections opened")
