"""What processes use: processor time and memory, and a broker's own counters."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.request import ProxyHandler, build_opener

import psutil

_TIMEOUT_S = 2.0
_CORES = os.cpu_count() or 1
# The monitor is on this machine: a proxy of the environment has no say in it.
_OPENER = build_opener(ProxyHandler({}))


@dataclass(frozen=True)
class Usage:
    """Processor seconds since the processes began and resident bytes, all processes together."""

    at_s: float
    cpu_s: float
    rss_bytes: int

    def cpu_percent_since(self, earlier: "Usage") -> float:
        """Busy share of the whole machine between two looks, percent."""
        elapsed = self.at_s - earlier.at_s
        return 100.0 * (self.cpu_s - earlier.cpu_s) / (elapsed * _CORES) if elapsed > 0 else 0.0

    def cpu_us_per(self, events_per_s: float, earlier: "Usage") -> float | None:
        """Processor microseconds per event at a steady rate; None without events."""
        elapsed = self.at_s - earlier.at_s
        if elapsed <= 0 or events_per_s <= 0:
            return None
        return (self.cpu_s - earlier.cpu_s) / elapsed / events_per_s * 1e6


class Processes:
    """Some processes of this machine, looked at together."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Raises psutil.NoSuchProcess when one of them does not exist."""
        self._processes = [psutil.Process(pid) for pid in pids]

    def usage(self) -> Usage | None:
        """What they use now; None when one of them has gone or may not be looked at."""
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


def fetch_counters(monitor: str) -> dict[str, Any]:
    """A broker's /varz; OSError or ValueError when it cannot be had."""
    with _OPENER.open(f"http://{monitor}/varz", timeout=_TIMEOUT_S) as response:
        counters = json.load(response)
    return dict(counters)
