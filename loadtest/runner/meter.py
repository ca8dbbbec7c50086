"""Usage of server and load, second by second and over the measured phase."""

from collections.abc import Callable, Sequence

import psutil

from loadtest.errors import ArgumentError
from loadtest.result.schema import Load, Server
from loadtest.sampling.usage import Processes, Traffic, Usage
from loadtest.workers.processes import ManagedProcess, measure_usages

_MIN_INTERVAL_S = 0.3
"""Shortest time over which processor time is given in percent."""


class UsageMeter:
    """Meter of the processor time and the memory of server and load."""

    def __init__(self, server_pid: int | None) -> None:
        """Measure the target's process `server_pid`; None if the server is not such a process.

        Raises:
            ArgumentError: The process does not exist.
        """
        try:
            self._server = Processes([server_pid]) if server_pid is not None else None
        except (psutil.NoSuchProcess, ValueError) as error:  # psutil refuses negative numbers
            raise ArgumentError("server_pid", f"process {server_pid} does not exist") from error
        self._brokers: Sequence[ManagedProcess] = ()
        self._load: Sequence[ManagedProcess] = ()
        self._requestors: Sequence[ManagedProcess] = ()
        self._requestor_usages: list[Usage | None] = []
        self._idle: Usage | None = None
        self._last: tuple[Usage | None, Usage | None] = (None, None)
        self._bases: list[Usage | None] = [None, None]
        self._window: list[tuple[Usage | None, Usage | None]] = []
        self._closed = False
        self._peak_rss = 0
        self._read_traffic: Callable[[], Traffic | None] | None = None
        self._traffic: list[Traffic | None] = []

    def watch_server(self, brokers: Sequence[ManagedProcess]) -> None:
        """Measure the run's brokers as the server."""
        self._brokers = brokers

    def watch_traffic(self, read: Callable[[], Traffic | None]) -> None:
        """Read the server's traffic by `read`, which returns None if it is not known."""
        self._read_traffic = read

    def watch_load(self, load: Sequence[ManagedProcess], requestors: Sequence[ManagedProcess]) -> None:
        """Measure the processes `load`, and separately the `requestors` among them."""
        self._load, self._requestors = load, requestors

    def sample_idle(self) -> None:
        """Measure the server before its first connection."""
        self._idle = self._read()[0]

    def _read(self) -> tuple[Usage | None, Usage | None]:
        """Return the usage of server and load so far; None if it is not known."""
        count = len(self._brokers)
        usages = measure_usages([*self._brokers, *self._load])
        load = _sum_usages(usages[count:], self._load)
        if count:
            return _sum_usages(usages[:count], self._brokers), load
        return self._server.usage() if self._server else None, load

    def sample(self, *, measuring: bool) -> tuple[float | None, int | None, float | None]:
        """Return the server's CPU percent, its resident bytes, and the load's CPU percent.

        A percentage covers the time since the last known one. It is None until 0.3 s have passed, because the
        system counts processor time in steps of 10 ms. The window of the measured phase opens with the first
        sample in the phase and closes with the first sample after it.
        """
        now = self._read()
        if measuring and not self._window:
            self._window = [now, now]
            self._sample_window_edge()
        elif self._window and not self._closed:
            self._window[1] = now
            self._closed = not measuring
            if self._closed:
                self._sample_window_edge()
        if measuring and now[0] is not None:
            self._peak_rss = max(self._peak_rss, now[0].rss_bytes)
        self._last = now
        server, load = self._percent(0), self._percent(1)
        return server, now[0].rss_bytes if now[0] else None, load

    def _percent(self, index: int) -> float | None:
        """Return the CPU percent of server (0) or load (1) since it was last known."""
        now, base = self._last[index], self._bases[index]
        if now and base and now.at_s - base.at_s < _MIN_INTERVAL_S:
            return None
        self._bases[index] = now
        return now.cpu_percent_since(base) if now and base else None

    def _sample_window_edge(self) -> None:
        """Take the measurements that are needed only at the start and the end of the measured phase."""
        self._requestor_usages.append(_sum_usages(measure_usages(self._requestors), self._requestors))
        if self._read_traffic is not None:
            self._traffic.append(self._read_traffic())

    def _net_bps(self) -> tuple[float | None, float | None]:
        """Return bits per second received and sent over the window; None if one end of it is not known."""
        match self._traffic:
            case [Traffic() as begin, Traffic() as end]:
                return end.bps_since(begin) or (None, None)
        return None, None

    def _requestor_cpu_us(self, rate: float) -> float | None:
        match self._requestor_usages:
            case [Usage() as begin, Usage() as end]:
                return end.cpu_us_per(rate, begin)
        return None

    @property
    def last(self) -> tuple[Usage | None, Usage | None]:
        """Usage of server and load at the last sample."""
        return self._last

    def summary(self, rate: float, connections: int) -> tuple[Server, Load]:
        """Return the usage over the measured phase, at `rate` replies a second."""
        if not self._window:
            return Server(), Load()
        (server_from, load_from), (server_to, load_to) = self._window
        server, load = Server(), Load()
        if server_from and server_to:
            net_in_bps, net_out_bps = self._net_bps()
            grown = self._peak_rss - self._idle.rss_bytes if self._idle and connections else None
            server = Server(
                cpu_percent=server_to.cpu_percent_since(server_from),
                cpu_us_per_request=server_to.cpu_us_per(rate, server_from),
                rss_bytes=self._peak_rss,
                rss_bytes_per_connection=self._peak_rss / connections if connections else None,
                rss_growth_bytes_per_connection=grown / connections if grown is not None else None,
                net_in_bps=net_in_bps,
                net_out_bps=net_out_bps,
            )
        if load_from and load_to:
            load = Load(
                cpu_percent=load_to.cpu_percent_since(load_from),
                cpu_us_per_request=load_to.cpu_us_per(rate, load_from),
                requestor_cpu_us_per_request=self._requestor_cpu_us(rate),
            )
        return server, load


def _sum_usages(usages: Sequence[Usage | None], processes: Sequence[ManagedProcess]) -> Usage | None:
    """Return the sum of all usages, with the cores of all machines; None if one usage is not known."""
    known = [usage for usage in usages if usage is not None]
    if not known or len(known) < len(usages):
        return None
    cores = {id(process.machine): usage.cores for process, usage in zip(processes, known, strict=True)}
    return Usage(
        at_s=sum(usage.at_s for usage in known) / len(known),
        cpu_s=sum(usage.cpu_s for usage in known),
        rss_bytes=sum(usage.rss_bytes for usage in known),
        cores=sum(cores.values()),
    )
