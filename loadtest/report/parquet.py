"""`timeline.parquet`: all data of a run over time, as one table for other programs to read.

A row is one sample of one source. Columns that do not apply to a source are null in its rows. The file also
has the unit and the meaning of every column, as metadata of its field.
"""

import io
from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from loadtest.result.schema import Result

TIMELINE_VERSION = "1"
_COUNT, _LEVEL = pa.int64(), pa.float64()
COLUMNS: dict[str, tuple[Any, str, str]] = {
    "time_s": (_LEVEL, "s", "time of the row, since the run began"),
    "at_utc": (
        pa.timestamp("ms", tz="UTC"),
        "UTC",
        "time of the row, on the clock of the machine that started the run",
    ),
    "measured_s": (_LEVEL, "s", "time since the measured phase began, negative before; null without one"),
    "source": (pa.dictionary(pa.int32(), pa.string()), "", "source of the row: load, server, ..."),
    "phase": (pa.dictionary(pa.int32(), pa.string()), "", "phase of the load at that time"),
    "length_s": (_LEVEL, "s", "length of the interval, which begins at time_s"),
    "connections": (_COUNT, "connections", "open at that time"),
    "outstanding": (_COUNT, "requests", "sent and not yet answered"),
    "sent": (_COUNT, "requests", "planned in the interval; in a broadcast, messages"),
    "received": (_COUNT, "replies", "received in the interval; in a broadcast, deliveries"),
    "sent_total": (_COUNT, "requests", "sent since the load began to send; in a broadcast, messages"),
    "received_total": (
        _COUNT,
        "replies",
        "received since the load began to send; in a broadcast, deliveries",
    ),
    "timed_out_total": (_COUNT, "requests", "not answered in time, since the load began to send"),
    "errors_total": (_COUNT, "requests", "failed otherwise, since the load began to send"),
    "mean_us": (_LEVEL, "us", "mean latency of the last second"),
    "p50_us": (_LEVEL, "us", "median latency in the interval"),
    "p99_us": (_LEVEL, "us", "99th percentile of the latency in the interval"),
    "max_us": (_LEVEL, "us", "highest latency of the interval, or of the last second"),
    "max_send_lag_us": (_LEVEL, "us", "longest time from the planned time of a request to its sending"),
    "in_messages_total": (_COUNT, "messages", "published by clients, since before the first connection"),
    "in_messages_per_s": (_LEVEL, "1/s", "published by clients"),
    "in_bytes_total": (_COUNT, "bytes", "payloads and headers published, since before the first connection"),
    "out_messages_total": (_COUNT, "messages", "sent to clients, since before the first connection"),
    "out_messages_per_s": (_LEVEL, "1/s", "sent to clients"),
    "out_bytes_total": (_COUNT, "bytes", "payloads and headers sent, since before the first connection"),
    "pending_bytes": (_COUNT, "bytes", "output that waits until clients read it"),
    "slow_consumers_total": (_COUNT, "connections", "closed because they did not read their output"),
    "dropped_messages_total": (_COUNT, "messages", "dropped, so that they will never be delivered"),
    "cpu_percent": (_LEVEL, "%", "processor use, of the whole machine"),
    "cpu_of_one_percent": (_LEVEL, "%", "processor use, of one processor"),
    "memory_bytes": (
        _COUNT,
        "bytes",
        "resident; for a host, all memory that is not available to new processes",
    ),
    "net_in_bps": (_LEVEL, "bit/s", "received by the network interfaces, except loopback"),
    "net_out_bps": (_LEVEL, "bit/s", "sent by the network interfaces, except loopback"),
    "context_switches_per_s": (_LEVEL, "1/s", "context switches of all processes"),
    "retransmits_per_s": (_LEVEL, "1/s", "TCP segments sent again"),
}
"""Type, unit and meaning of each column of the time line."""

_LOAD = {
    "connections": "connections",
    "outstanding": "outstanding",
    "sent": "sent_total",
    "received": "received_total",
    "timed_out": "timed_out_total",
    "errors": "errors_total",
    "mean_us": "mean_us",
    "max_us": "max_us",
    "published": "in_messages_total",
    "published_per_s": "in_messages_per_s",
    "delivered": "out_messages_total",
    "delivered_per_s": "out_messages_per_s",
    "load_cpu_percent": "cpu_percent",
}
"""Columns of the fields of a sample; the tables below do the same for the other sources."""
_SERVER = {"server_cpu_percent": "cpu_percent", "server_rss_bytes": "memory_bytes"}
_BROKER = {
    "connections": "connections",
    "in_msgs": "in_messages_total",
    "out_msgs": "out_messages_total",
    "in_bytes": "in_bytes_total",
    "out_bytes": "out_bytes_total",
    "cpu": "cpu_of_one_percent",
    "mem": "memory_bytes",
    "pending_bytes": "pending_bytes",
    "slow_consumers": "slow_consumers_total",
    "dropped": "dropped_messages_total",
}
_INTERVAL = {name: name for name in ("sent", "received", "p50_us", "p99_us", "max_us", "max_send_lag_us")}
_HOST = {
    "cpu_percent": "cpu_percent",
    "memory_used_bytes": "memory_bytes",
    "net_in_bps": "net_in_bps",
    "net_out_bps": "net_out_bps",
    "context_switches_per_s": "context_switches_per_s",
    "retransmits_per_s": "retransmits_per_s",
}


def tabulate(result: Result) -> pa.Table:
    """Return the time line of a run with the columns `COLUMNS`, in the order of time."""
    begin_s = result.began_measuring_s
    zero = datetime.fromisoformat(result.started) - timedelta(seconds=begin_s or 0.0)
    changes = _changes(result)
    rows = sorted(_rows(result, begin_s or 0.0), key=lambda row: row["time_s"])
    for row in rows:
        time_s = row["time_s"]
        row["at_utc"] = zero + timedelta(seconds=time_s)
        row["phase"] = _phase_at(changes, time_s)
        # In a comparison of transports, each run has a measured phase of its own.
        if begin_s is not None and result.transports is None:
            row["measured_s"] = round(time_s - begin_s, 6)
    return pa.Table.from_pylist(rows, schema=_schema(result))


def encode_timeline(result: Result) -> bytes:
    """Return the time line as the content of a Parquet file."""
    file = io.BytesIO()
    pq.write_table(tabulate(result), file, compression="zstd")
    return file.getvalue()


def _schema(result: Result) -> pa.Schema:
    fields = [
        pa.field(name, kind, metadata={"unit": unit, "description": meaning})
        for name, (kind, unit, meaning) in COLUMNS.items()
    ]
    about = {"subjectbus.timeline": TIMELINE_VERSION, "subjectbus.scenario": str(result.scenario.get("name"))}
    return pa.schema(fields, metadata=about)


def _rows(result: Result, begin_s: float) -> Iterator[dict[str, Any]]:
    for sample in result.timeline:
        yield _row("load", sample.t_s, sample, _LOAD)
        if sample.server_cpu_percent is not None or sample.server_rss_bytes is not None:
            yield _row("server", sample.t_s, sample, _SERVER)
        if sample.broker is not None:
            yield _row("broker", sample.broker.t_s, sample.broker, _BROKER)
    for interval in result.intervals:
        row = _row("interval", round(begin_s + interval.start_s, 6), interval, _INTERVAL)
        yield row | {"length_s": round(interval.end_s - interval.start_s, 6)}
    for host in result.hosts:
        for seen in host.samples:
            yield _row(f"host {host.name}", seen.t_s, seen, _HOST)


def _row(source: str, time_s: float, part: Struct, columns: dict[str, str]) -> dict[str, Any]:
    values = {column: getattr(part, field) for field, column in columns.items()}
    return {"time_s": time_s, "source": source, **values}


def _changes(result: Result) -> tuple[list[float], list[str]]:
    """Return the times at which the phases of the load began, and the phases.

    A phase begins with its first sample. Only the measured phase has a more exact start, if that is known.
    """
    times: list[float] = []
    phases: list[str] = []
    for sample in result.timeline:
        if not phases or sample.phase != phases[-1]:
            at_s = sample.t_s
            if sample.phase == "measuring" and result.measured_from_s is not None:
                at_s = max([result.measured_from_s, *times[-1:]])
            times.append(at_s)
            phases.append(sample.phase)
    return times, phases


def _phase_at(changes: tuple[list[float], list[str]], time_s: float) -> str | None:
    times, phases = changes
    return phases[max(bisect_right(times, time_s) - 1, 0)] if phases else None
