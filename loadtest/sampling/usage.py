"""Resources that processes use: processor time, memory, descriptors, and a broker's traffic."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any

import psutil

_HIGHEST_TRIED = 16
_CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Usage:
    """Processor seconds since the start of some processes and their resident bytes, as sums."""

    at_s: float
    cpu_s: float
    rss_bytes: int
    cores: int = _CORES
    """Hardware threads of the machine, or of all machines together."""

    def cpu_percent_since(self, earlier: "Usage") -> float:
        """Return the busy share of the machine, or of all machines together, since `earlier`, in percent."""
        elapsed = self.at_s - earlier.at_s
        return 100.0 * (self.cpu_s - earlier.cpu_s) / (elapsed * self.cores) if elapsed > 0 else 0.0

    def cpu_us_per(self, events_per_s: float, earlier: "Usage") -> float | None:
        """Return processor microseconds per event since `earlier`, at a steady rate; None without events."""
        elapsed = self.at_s - earlier.at_s
        if elapsed <= 0 or events_per_s <= 0:
            return None
        return (self.cpu_s - earlier.cpu_s) / elapsed / events_per_s * 1e6


@dataclass(frozen=True)
class Traffic:
    """Bytes that a broker has received and sent since its start, protocol and frames included."""

    at_s: float
    received: int
    sent: int

    def bps_since(self, earlier: "Traffic") -> tuple[float, float] | None:
        """Return the bits per second received and sent since `earlier`; None if no time has passed."""
        elapsed = self.at_s - earlier.at_s
        if elapsed <= 0:
            return None
        return 8 * (self.received - earlier.received) / elapsed, 8 * (self.sent - earlier.sent) / elapsed


def parse_traffic(counters: Mapping[str, Any], at_s: float) -> Traffic | None:
    """Return the traffic in a broker's counters at the time `at_s`; None if the counters do not have it."""
    try:
        return Traffic(at_s, int(counters["wire_bytes_in"]), int(counters["wire_bytes_out"]))
    except (ValueError, KeyError, TypeError):
        return None


class Processes:
    """Some processes of this machine, measured together."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Look up the processes.

        Raises:
            psutil.NoSuchProcess: A process does not exist.
        """
        self._processes = [psutil.Process(pid) for pid in pids]

    def usage(self) -> Usage | None:
        """Return the current usage of all processes; None if one has exited or may not be inspected."""
        cpu_s, rss_bytes = 0.0, 0
        try:
            for process in self._processes:
                with process.oneshot():
                    times = process.cpu_times()
                    cpu_s += times.user + times.system
                    rss_bytes += process.memory_info().rss
        except psutil.Error:
            return None
        return Usage(time.monotonic(), cpu_s, rss_bytes)


@dataclass(frozen=True)
class _Table:
    """Descriptor table of a thread: the number of open descriptors, and the file of the highest one."""

    folder: Path
    size: int
    highest: str
    file: str

    def is_same_as(self, larger: "_Table") -> bool:
        try:
            return str((larger.folder / self.highest).readlink()) == self.file
        except OSError:
            return False


def count_descriptors(pid: int) -> int | None:
    """Return the number of open descriptors in all tables of a process; None if it cannot be inspected.

    /proc/PID/fd shows the first thread's table only, and threads may have tables of their own. Threads that
    share a table are recognised by its highest descriptor, which is the same file for all of them.
    """
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        tables = [table for task in tasks if (table := _read_table(task / "fd")) is not None]
    except OSError:
        return None
    counted: list[_Table] = []
    for table in sorted(tables, key=lambda table: table.size, reverse=True):
        if not any(table.is_same_as(other) for other in counted):
            counted.append(table)
    return sum(table.size for table in counted)


def _read_table(folder: Path) -> _Table | None:
    """Return the descriptor table in `folder`; None if the thread has exited or has no descriptors."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - a hundred thousand names, no paths
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The highest descriptor may be closed by now; in this process it may be the one that listed the folder.
    for highest in nlargest(_HIGHEST_TRIED, names, key=int):
        with suppress(FileNotFoundError, ProcessLookupError):
            return _Table(folder, len(names), highest, str((folder / highest).readlink()))
    return None
