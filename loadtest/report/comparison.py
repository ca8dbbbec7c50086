"""A run beside the published one: the rows that console and report both show."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from loadtest.result.broker_view import Agreement
from loadtest.result.schema import Result, Trend

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
_SPREADS = {"p50": "p50", "p99": "p99", "max": "maximum"}
PER_THREAD_NOTE = (
    "Per hardware thread, what grows with the machine is divided by its threads; figures for one request or "
    "one connection stand as they are."
)


@dataclass(frozen=True)
class Row:
    """One measure; texts are ready to show, "-" where there is no figure."""

    measure: str
    run: str
    reference: str
    run_per_core: str = _ABSENT
    reference_per_core: str = _ABSENT


@dataclass(frozen=True)
class Measure:
    """One figure of a run beside the reference's; None where there is none."""

    name: str
    run: float | None
    reference: float | None
    decimals: int = 0
    per_thread: Literal["divided", "same", "none"] = "none"
    """Divided by the threads; the same, because it is for one request or connection; or without meaning."""

    def row(self, cores: int, reference_cores: int) -> Row:
        """Without `cores` the run's machine is not known."""
        return Row(
            self.name,
            self._text(self.run),
            self._text(self.reference),
            self._text(self._of_a_thread(self.run, cores)),
            self._text(self._of_a_thread(self.reference, reference_cores)),
        )

    def _of_a_thread(self, value: float | None, cores: int) -> float | None:
        if value is None or not cores or self.per_thread == "none":
            return None
        return value / cores if self.per_thread == "divided" else value

    def _text(self, value: float | None) -> str:
        return _ABSENT if value is None else f"{value:,.{self.decimals}f}"


def sees_server(result: Result) -> bool:
    """Whether the machine that the environment describes is the server's, too."""
    return result.target is None or result.server.cpu_percent is not None


def is_closed_loop(result: Result) -> bool:
    """Whether replies let the requests out, and not a plan."""
    return result.requested.rate is None


def explain_latency(result: Result) -> str:
    """What latency means in this run, as a sentence."""
    if result.broadcast is not None:
        return _explain_delivery(result)
    if is_closed_loop(result):
        return (
            f"Closed loop with {result.scenario.get('outstanding', 0):,} requests outstanding: nothing has a "
            "planned time, latency is service time, and a stall delays requests that are never counted as "
            "slow (coordinated omission)."
        )
    return (
        "Round-trip time runs from the planned send time, so a stall counts for every request that it "
        "delayed; service time runs from the actual send."
    )


def _explain_delivery(result: Result) -> str:
    if is_closed_loop(result):
        return (
            f"Closed loop with {result.scenario.get('outstanding', 0):,} messages under way: nothing has a "
            "planned time, latency runs from the actual publishing to each single receipt, and a stall "
            "delays messages that are never counted as slow (coordinated omission)."
        )
    return (
        "Latency runs from the planned publishing time to each single receipt, so a stall counts for every "
        "delivery that it delayed."
    )


def describe_trend(trend: Trend) -> str:
    """A soak's trend in figures."""
    if trend.slope_per_hour is None or trend.p_value is None:
        return f"{trend.name}: not judged (at most {trend.limit:+,.4g} per hour)"
    return (
        f"{trend.name}: {trend.slope_per_hour:+,.4g} per hour (at most {trend.limit:+,.4g}), "
        f"by chance with p = {trend.p_value:.3f}"
    )


def describe_difference(row: Agreement) -> str:
    """A count that engine and broker do not agree in, and why that may be."""
    text = (
        f"{row.name}: engine {row.engine:,}, broker {row.broker:,} {row.unit}, difference {row.difference:+,}"
    )
    return f"{text} ({row.expected})" if row.expected else text


def describe_agreement(result: Result) -> str | None:
    """In how many counts engine and broker agree, and which these are; None without a monitor."""
    view, rows = result.broker_view, result.agreement
    if view is None:
        return None
    same = sum(row.matches for row in rows)
    text = f"engine and broker match in {same} of {len(rows)} counts" if rows else "nothing to compare"
    shown = {row.name: row.broker for row in rows}
    if "messages in" in shown and "messages out" in shown:
        sessions = f"{shown.get('connected sessions', 0):,} sessions, "
        text += f": {sessions}{shown['messages in']:,} messages in, {shown['messages out']:,} out"
    if view.note:
        text += f": {view.note}"
    if view.failures:
        asked = view.readings + view.failures
        text += f"; {view.failures:,} of {asked:,} readings failed, the first: {view.first_failure}"
    return text


def compare(result: Result) -> list[Row]:
    """The rows, throughput first. Per core means per hardware thread of the server's machine."""
    cores = int(result.environment.get("cores", 0)) if sees_server(result) else 0
    return [measure.row(cores, result.reference.cores) for measure in measures(result)]


def measures(result: Result) -> list[Measure]:
    """The same as numbers."""
    load = [*_throughput(result), *_latencies(result), *_spread(result), *_totals(result)]
    return [*load, *_resources(result), *_wire(result)]


def _events(result: Result) -> tuple[str, str]:
    """What is counted, one and many."""
    return ("request", "requests") if result.broadcast is None else ("delivery", "deliveries")


def _throughput(result: Result) -> Iterator[Measure]:
    achieved, reference = result.achieved, result.reference
    yield Measure("concurrent connections", achieved.connections, reference.connections, per_thread="divided")
    if result.scenario.get("workload") == "http-byte":
        yield Measure("requests/s", achieved.rate, reference.rate, per_thread="divided")
        return
    is_each_ones = result.broadcast is None  # which makes subjects grow with the connections
    subjects_of_a_thread: Literal["divided", "none"] = "divided" if is_each_ones else "none"
    yield Measure("subjects", achieved.subjects, reference.subjects, per_thread=subjects_of_a_thread)
    yield Measure(f"{_events(result)[1]}/s", achieved.rate, reference.rate, per_thread="divided")
    if result.broadcast is None:
        yield Measure("messages/s", achieved.messages_per_s, reference.messages_per_s, per_thread="divided")
    else:
        both, delivered = reference.messages_per_s, reference.rate
        published = both - delivered if both is not None and delivered is not None else None
        yield Measure("messages published/s", result.broadcast.published_per_s, published)


def _latencies(result: Result) -> Iterator[Measure]:
    for name, label in _LATENCIES.items():
        ours = getattr(result.latency_us, name) if result.latency_us is not None else None
        published = getattr(result.reference, f"{name}_us")
        yield Measure(f"latency {label}, ms", _scaled(ours, 1e3), _scaled(published, 1e3), decimals=2)


def _spread(result: Result) -> Iterator[Measure]:
    """From first to last receiver; such figures have not been published."""
    if result.broadcast is None:
        return
    spread = result.broadcast.spread_us
    for name, label in _SPREADS.items():
        ours = getattr(spread, name) if spread is not None else None
        yield Measure(f"spread {label}, ms", _scaled(ours, 1e3), None, decimals=2)
    yield Measure("deliveries missing", result.broadcast.missing, None)


def _totals(result: Result) -> Iterator[Measure]:
    yield Measure(f"{_events(result)[1]} total", result.achieved.received, result.reference.requests)
    yield Measure("measured time, s", result.duration_s, result.reference.duration_s)


def _resources(result: Result) -> Iterator[Measure]:
    ours, theirs = result.server, result.reference
    yield Measure("broker CPU, % of machine", ours.cpu_percent, theirs.cpu_percent, decimals=1)
    yield Measure(
        f"broker CPU, us/{_events(result)[0]}",
        ours.cpu_us_per_request,
        theirs.cpu_us_per_request,
        # A delivery may take a fraction of what a request does.
        decimals=1 if result.broadcast is None else 2,
        per_thread="same",
    )
    if result.broadcast is not None:
        per_cpu = result.broadcast.deliveries_per_broker_cpu_s
        yield Measure("deliveries/broker CPU second", per_cpu, None, per_thread="same")
    yield Measure(
        "resident memory, MB",
        _scaled(ours.rss_bytes, 1e6),
        _scaled(theirs.rss_bytes, 1e6),
        per_thread="divided",
    )
    yield Measure(
        "resident memory, bytes/connection",
        ours.rss_bytes_per_connection,
        theirs.rss_bytes_per_connection,
        per_thread="same",
    )
    yield Measure(
        "memory growth, bytes/connection", ours.rss_growth_bytes_per_connection, None, per_thread="same"
    )
    for way in ("in", "out"):
        yield Measure(
            f"broker network {way}, Mbit/s",
            _scaled(getattr(ours, f"net_{way}_bps"), 1e6),
            _scaled(getattr(theirs, f"net_{way}_bps"), 1e6),
            decimals=1,
            per_thread="divided",
        )


def _wire(result: Result) -> Iterator[Measure]:
    """Bytes on the requestors' connections; such figures have not been published."""
    wire = result.wire
    if wire is None:
        return
    for name, value in (("payload", wire.payload), ("on the wire", wire.total), ("HTTP heads", wire.heads)):
        if value:
            yield Measure(f"bytes/call, {name}", value, None, decimals=1)
    yield Measure("connections opened", result.achieved.connections_opened, None)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
