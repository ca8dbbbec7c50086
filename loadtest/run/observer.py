"""Both views of a run at the same times: what its processes have counted, and what the server says.

The run's own broker must tell. A target may: its monitor answers before the first connection, and where it
does not later on the run goes on without.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from loadtest.collect.agreement import compare_connections, compare_messages
from loadtest.collect.collected import Collected, Moment, Observed
from loadtest.engine.messages import Progress, Reported
from loadtest.processes.launch import Worker
from loadtest.result.broker_view import Agreement
from loadtest.sampling.monitor import Counters, Monitor, Reading
from loadtest.sampling.usage import Traffic, traffic_of

_POLL_S = 0.05
_OWN_TIMEOUT_S = 5.0
_TARGET_TIMEOUT_S = 3.0  # where others go on, it never comes to rest
_FIRST_TIMEOUT_S = 5.0  # longer than one reading may take
_S_PER_CONNECTION = 50e-6  # until a server has seen that a million connections were closed
_UNCHANGED_S = 1.0
_SHORTEST_S = 0.3
_ADDED = (
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
_Compare = Callable[[Collected, Mapping[str, Any], Moment], list[Agreement]]


def add_progress(parts: Sequence[Progress]) -> Progress:
    """What all processes have counted, as one; other fields have no meaning."""
    added = {name: sum(getattr(part, name) for part in parts) for name in _ADDED}
    return structs.replace(Progress(phase="idle"), **added)


class Pace:
    """How many messages a second the processes publish and receive, each by the times of its reports."""

    def __init__(self) -> None:
        self._before: dict[str, Reported] = {}

    def look(self, workers: Sequence[Worker]) -> tuple[float | None, float | None]:
        """Of all together since the last look that had rates; None without a new report of each."""
        reports = {worker.name: worker.report for worker in workers}
        known = {name: report for name, report in reports.items() if name in self._before}
        self._before.update({name: report for name, report in reports.items() if name not in known})
        elapsed = {name: report.at_s - self._before[name].at_s for name, report in known.items()}
        if not known or min(elapsed.values()) < _SHORTEST_S:
            return None, None
        published, delivered = (
            sum(
                (getattr(report.progress, count) - getattr(self._before[name].progress, count))
                / elapsed[name]
                for name, report in known.items()
            )
            for count in ("published", "delivered")
        )
        self._before.update(known)
        return published, delivered


class Observer:
    """Reads a server's monitor from before the first connection until after the last one."""

    def __init__(self, collected: Collected, began_s: float, load_cpus: frozenset[int] | None) -> None:
        """What is read goes to `collected.observed`; the run began at `began_s` by the monotonic clock."""
        self._collected = collected
        self._began_s = began_s
        self._load_cpus = load_cpus
        self._monitor: Monitor | None = None
        self._is_own = collected.target is None

    def begin(self, counters: Counters, url: str) -> bool:
        """Begins to read `url`; whether the monitor answers, of which a target's is asked once."""
        self._monitor = Monitor(counters, self._load_cpus)
        self._monitor.start()
        self._collected.observed = Observed(monitor=url, began_s=self._began_s)
        if self._is_own:
            reading = next(self._readings(_OWN_TIMEOUT_S), None)
        else:
            reading = self._monitor.fresh(_FIRST_TIMEOUT_S)
        self._collected.observed.before = reading.counters if reading else None
        return reading is not None

    def read_counters(self) -> Mapping[str, Any] | None:
        """The server's counters now; None where it does not tell."""
        reading = self._monitor.fresh() if self._monitor else None
        return reading.counters if reading else None

    def read_traffic(self) -> Traffic | None:
        """What the server has received and sent by now; None where it does not tell."""
        reading = self._monitor.fresh() if self._monitor else None
        return traffic_of(reading.counters, reading.at_s) if reading else None

    @property
    def failure(self) -> str:
        """Why the monitor did not answer."""
        return (self._monitor.first_failure if self._monitor else None) or "no answer in time"

    def note_drained(self, workers: Sequence[Worker]) -> None:
        """Both counts when nothing is under way any more, and all connections are still there."""
        observed = self._collected.observed
        if observed is None or observed.before is None:
            return
        began_s = time.monotonic()

        def engine() -> tuple[Progress, bool]:
            reports = [worker.report for worker in workers]
            is_current = all(report.at_s > began_s for report in reports)
            return add_progress([report.progress for report in reports]), is_current

        observed.drained = self._settle(engine, compare_messages)

    def note_closed(self) -> None:
        """Both counts once the load has closed all of its connections."""
        observed = self._collected.observed
        if observed is None or observed.drained is None:
            return
        last = observed.drained.engine
        observed.closed = self._settle(lambda: (last, True), compare_connections, last.connections)

    def settled_counters(self, is_settled: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        """The counters as soon as they are settled, else the last ones; None when the monitor is silent."""
        counters = None
        for reading in self._readings(_OWN_TIMEOUT_S):
            counters = reading.counters
            if is_settled(counters):
                break
        return counters

    def _settle(
        self, engine: Callable[[], tuple[Progress, bool]], compare: _Compare, connections: int = 0
    ) -> Moment | None:
        """Both counts as soon as they agree, or have not changed for a while; else the last ones.

        `engine` tells its count, and whether all processes have reported since. None when the monitor
        tells nothing.
        """
        observed, moment = self._collected.observed, None
        if observed is None or observed.before is None:
            return None
        timeout_s = _OWN_TIMEOUT_S if self._is_own else _TARGET_TIMEOUT_S
        before: list[Agreement] | None = None
        changed_s = 0.0
        for reading in self._readings(timeout_s + connections * _S_PER_CONNECTION):
            ours, is_current = engine()
            moment = Moment(engine=ours, counters=reading.counters)
            rows = compare(self._collected, observed.before, moment)
            if rows != before or not is_current:
                before, changed_s = rows, reading.at_s
            if all(row.matches for row in rows) or reading.at_s - changed_s > _UNCHANGED_S:
                break
        return moment

    def _readings(self, timeout_s: float) -> Iterator[Reading]:
        """Fresh ones, one after the other, for so long."""
        deadline = time.monotonic() + timeout_s
        while self._monitor is not None and (left_s := deadline - time.monotonic()) > 0:
            reading = self._monitor.fresh(left_s)
            if reading is not None:
                yield reading
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Reads no more."""
        monitor, observed = self._monitor, self._collected.observed
        if monitor is None or observed is None:
            return
        monitor.close()
        observed.readings = tuple(monitor.readings)
        observed.failures, observed.first_failure = monitor.failures, monitor.first_failure
        observed.slowest_s = monitor.slowest_s
