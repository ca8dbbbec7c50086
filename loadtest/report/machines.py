"""The machines of a run: what they are, what is missing of them, and their environments side by side."""

from collections.abc import Mapping
from typing import Any

from loadtest.report.canvas import Table
from loadtest.result.paths import flatten
from loadtest.result.schema import Host, Result, WorkerCounts

_ABSENT = "-"
_MS_PER_S = 1e3
_US_PER_MS = 1e3


def missing(result: Result) -> list[str]:
    """What the run should have told and did not: hosts that were lost, workers without a result."""
    lost = [f"host {host.name} was lost: {host.lost}" for host in result.hosts if host.lost]
    return [*lost, *result.missing]


def tabulate(result: Result) -> Table:
    """A row for each host."""
    columns = ["host", "address", "roles", "processes", "clock offset", "state"]
    return Table(columns, [_row(host) for host in result.hosts])


def _row(host: Host) -> list[str]:
    return [
        host.name,
        host.address or "where the command ran",
        ", ".join(host.roles) or _ABSENT,
        ", ".join(host.processes) or _ABSENT,
        _offset(host),
        f"lost: {host.lost}" if host.lost else "complete",
    ]


def tabulate_workers(result: Result) -> Table:
    """A row for each process of the load."""
    columns = ["process", "host", "connections", "sent", "received", "errors", "timed out"]
    columns += ["p50, ms", "p99, ms", "maximum, ms", "slip at worst, ms"]
    return Table(columns, [_worker_row(worker) for worker in result.workers])


def _worker_row(worker: WorkerCounts) -> list[str]:
    counts = (worker.connections, worker.sent, worker.received, worker.errors, worker.timed_out)
    latency = worker.latency_us
    times = [None] * 3 if latency is None else [latency.p50, latency.p99, latency.max]
    return [
        worker.name,
        worker.host,
        *(f"{count:,}" for count in counts),
        *(_ABSENT if us is None else f"{us / _US_PER_MS:,.2f}" for us in (*times, worker.max_send_lag_us)),
    ]


def _offset(host: Host) -> str:
    if host.clock_offset_s is None:
        return "same clock"
    error = "" if host.clock_error_s is None else f" ± {host.clock_error_s * _MS_PER_S:.3f} ms"
    return f"{host.clock_offset_s:+,.6f} s{error}"


def environments(result: Result) -> Table:
    """A column for each machine, a row for each fact."""
    columns = [(host.name, _facts(host.environment)) for host in result.hosts if host.environment]
    run = _facts(result.environment)
    if run not in [facts for _, facts in columns]:
        columns.insert(0, ("this run", run))
    names = list(dict.fromkeys(name for _, facts in columns for name in facts))
    rows = [[name, *(facts.get(name, _ABSENT) for _, facts in columns)] for name in names]
    return Table(["", *(title for title, _ in columns)], rows)


def _facts(environment: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in flatten(environment)}


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return _ABSENT if value is None else str(value)
