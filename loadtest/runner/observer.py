"""Counts of a run from both sides at the same times: from its workers, and from the server's monitor.

The run's own broker has to return its counters. A target's monitor has to answer before the first connection;
if it does not answer later, the run goes on without its counters.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from loadtest.result.broker_view import Agreement
from loadtest.runner.building.agreement import compare_connections, compare_messages
from loadtest.runner.building.collected import Collected, CountsAt, Observed
from loadtest.sampling.monitor import Counters, CounterSampler, Reading
from loadtest.sampling.usage import Traffic, parse_traffic
from loadtest.workers.messages import Progress, Reported
from loadtest.workers.processes import WorkerProcess

_POLL_S = 0.05
_BROKER_TIMEOUT_S = 5.0
_TARGET_TIMEOUT_S = 3.0  # other clients of a target may change its counters for ever
_FIRST_TIMEOUT_S = 5.0  # longer than one request to the monitor may take
_S_PER_CONNECTION = 50e-6  # time in which a server notices a closed connection
_SETTLED_AFTER_S = 1.0
_MIN_INTERVAL_S = 0.3
_SUMMED_COUNTS = (
    "connections",
    "connect_failures",
    "timed_out",
    "opened",
    "disconnected",
    "churned",
    "answered",
    "published",
    "published_bytes",
    "delivered",
    "delivered_bytes",
)
_Compare = Callable[[Collected, Mapping[str, Any], CountsAt], list[Agreement]]


def add_progress(parts: Sequence[Progress]) -> Progress:
    """Return the sum of all workers' counts; the other fields have no meaning."""
    added = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED_COUNTS}
    return structs.replace(Progress(phase="idle"), **added)


class RateEstimator:
    """Estimator of the messages per second that the workers publish and receive.

    Each worker's rate is based on the times of its own snapshots.
    """

    def __init__(self) -> None:
        self._last_reports: dict[str, Reported] = {}

    def update(self, workers: Sequence[WorkerProcess]) -> tuple[float | None, float | None]:
        """Return messages published and delivered per second since the last update that returned rates.

        Return None for both until each worker has sent another snapshot.
        """
        reports = {worker.name: worker.report for worker in workers}
        known = {name: report for name, report in reports.items() if name in self._last_reports}
        self._last_reports.update({name: report for name, report in reports.items() if name not in known})
        elapsed = {name: report.at_s - self._last_reports[name].at_s for name, report in known.items()}
        if not known or min(elapsed.values()) < _MIN_INTERVAL_S:
            return None, None
        published, delivered = (
            sum(
                (getattr(report.progress, count) - getattr(self._last_reports[name].progress, count))
                / elapsed[name]
                for name, report in known.items()
            )
            for count in ("published", "delivered")
        )
        self._last_reports.update(known)
        return published, delivered


class Observer:
    """Reader of a server's monitor, from before the first connection until after the last one."""

    def __init__(self, collected: Collected, began_s: float, load_cpus: frozenset[int] | None) -> None:
        """Write the data to `collected.observed`; the run began at `began_s` on the monotonic clock."""
        self._collected = collected
        self._began_s = began_s
        self._load_cpus = load_cpus
        self._monitor: CounterSampler | None = None
        self._is_run_broker = collected.target is None

    def begin(self, counters: Counters, url: str) -> bool:
        """Start reading the monitor at `url`; return whether it answers.

        A target's monitor is asked once, a broker of the run until it answers or 5 s have passed.
        """
        self._monitor = CounterSampler(counters, self._load_cpus)
        self._monitor.start()
        self._collected.observed = Observed(monitor=url, began_s=self._began_s)
        if self._is_run_broker:
            reading = next(self._readings(_BROKER_TIMEOUT_S), None)
        else:
            reading = self._monitor.fresh(_FIRST_TIMEOUT_S)
        self._collected.observed.before = reading.counters if reading else None
        return reading is not None

    def read_counters(self) -> Mapping[str, Any] | None:
        """Return the server's current counters; None if they are not known."""
        reading = self._monitor.fresh() if self._monitor else None
        return reading.counters if reading else None

    def read_traffic(self) -> Traffic | None:
        """Return the bytes that the server has received and sent so far; None if they are not known."""
        reading = self._monitor.fresh() if self._monitor else None
        return parse_traffic(reading.counters, reading.at_s) if reading else None

    @property
    def failure(self) -> str:
        """Reason why the monitor did not answer."""
        return (self._monitor.first_failure if self._monitor else None) or "no answer in time"

    def record_drained(self, workers: Sequence[WorkerProcess]) -> None:
        """Record the counts of both sides when nothing is in flight and the connections are still open."""
        observed = self._collected.observed
        if observed is None or observed.before is None:
            return
        began_s = time.monotonic()

        def engine() -> tuple[Progress, bool]:
            reports = [worker.report for worker in workers]
            is_current = all(report.at_s > began_s for report in reports)
            return add_progress([report.progress for report in reports]), is_current

        observed.drained = self._settled_counts(engine, compare_messages)

    def record_closed(self) -> None:
        """Record the counts of both sides after the load has closed all of its connections."""
        observed = self._collected.observed
        if observed is None or observed.drained is None:
            return
        last = observed.drained.engine
        observed.closed = self._settled_counts(lambda: (last, True), compare_connections, last.connections)

    def settled_counters(self, is_settled: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        """Return the first settled counters, or the last ones; None if the monitor does not answer."""
        counters = None
        for reading in self._readings(_BROKER_TIMEOUT_S):
            counters = reading.counters
            if is_settled(counters):
                break
        return counters

    def _settled_counts(
        self, engine: Callable[[], tuple[Progress, bool]], compare: _Compare, connections: int = 0
    ) -> CountsAt | None:
        """Return both sides' counts once they agree or have not changed for 1 s, or the last ones.

        Args:
            engine: Returns the engine's counts, and whether all workers have reported them since the drain.
            compare: Compares the counts.
            connections: Connections that the server has to notice as closed; more of them get more time.

        Returns:
            The counts; None if the monitor does not answer.
        """
        observed, counts = self._collected.observed, None
        if observed is None or observed.before is None:
            return None
        timeout_s = _BROKER_TIMEOUT_S if self._is_run_broker else _TARGET_TIMEOUT_S
        before: list[Agreement] | None = None
        changed_s = 0.0
        for reading in self._readings(timeout_s + connections * _S_PER_CONNECTION):
            engine_counts, is_current = engine()
            counts = CountsAt(engine=engine_counts, counters=reading.counters)
            rows = compare(self._collected, observed.before, counts)
            if rows != before or not is_current:
                before, changed_s = rows, reading.at_s
            if all(row.matches for row in rows) or reading.at_s - changed_s > _SETTLED_AFTER_S:
                break
        return counts

    def _readings(self, timeout_s: float) -> Iterator[Reading]:
        """Yield fresh snapshots of the monitor, one after the other, for `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self._monitor is not None and (left_s := deadline - time.monotonic()) > 0:
            reading = self._monitor.fresh(left_s)
            if reading is not None:
                yield reading
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Stop reading the monitor, and record its snapshots."""
        monitor, observed = self._monitor, self._collected.observed
        if monitor is None or observed is None:
            return
        monitor.close()
        observed.readings = tuple(monitor.readings)
        observed.failures, observed.first_failure = monitor.failures, monitor.first_failure
        observed.slowest_s = monitor.slowest_s
