"""What server and load use, second by second and over the measured phase."""

from collections.abc import Callable, Sequence

import psutil

from loadtest.processes.launch import Child, ask_usages
from loadtest.result.schema import Load, Server
from loadtest.sampling.usage import Processes, Traffic, Usage
from subjectbus import UsageError

_SHORTEST_S = 0.3
"""Shortest time over which processor time is told in percent."""


class Meter:
    """Processor time and memory of server and load, and what they used in the measured phase."""

    def __init__(self, server_pid: int | None) -> None:
        """`server_pid`: a target's process; UsageError when there is none."""
        try:
            self._server = Processes([server_pid]) if server_pid is not None else None
        except psutil.NoSuchProcess as error:
            raise UsageError(f"--server-pid: no process {server_pid}") from error
        self._brokers: Sequence[Child] = ()
        self._load: Sequence[Child] = ()
        self._requestors: Sequence[Child] = ()
        self._asked: list[Usage | None] = []
        self._idle: Usage | None = None
        self._last: tuple[Usage | None, Usage | None] = (None, None)
        self._bases: list[Usage | None] = [None, None]
        self._window: list[tuple[Usage | None, Usage | None]] = []
        self._closed = False
        self._peak_rss = 0
        self._read_traffic: Callable[[], Traffic | None] | None = None
        self._traffic: list[Traffic | None] = []

    def watch_server(self, brokers: Sequence[Child]) -> None:
        """The run's own brokers."""
        self._brokers = brokers

    def watch_traffic(self, read: Callable[[], Traffic | None]) -> None:
        """Where the server tells its traffic."""
        self._read_traffic = read

    def watch_load(self, load: Sequence[Child], requestors: Sequence[Child]) -> None:
        """Requestors and providers, and the former again."""
        self._load, self._requestors = load, requestors

    def look_idle(self) -> None:
        """The server before its first connection."""
        self._idle = self._look()[0]

    def _look(self) -> tuple[Usage | None, Usage | None]:
        """What server and load have used so far."""
        count = len(self._brokers)
        usages = ask_usages([*self._brokers, *self._load])
        load = _add(usages[count:], self._load)
        if count:
            return _add(usages[:count], self._brokers), load
        return self._server.usage() if self._server else None, load

    def look(self, *, measuring: bool) -> tuple[float | None, int | None, float | None]:
        """Server's CPU percent, its resident bytes, the load's CPU percent.

        The percentages are those since they were last known: None until 0.3 s have passed, since the system
        counts processor time in steps of 10 ms.

        The window of the measured phase opens at the first look of it and closes at the first look after it.
        """
        now = self._look()
        if measuring and not self._window:
            self._window = [now, now]
            self._look_at_edge()
        elif self._window and not self._closed:
            self._window[1] = now
            self._closed = not measuring
            if self._closed:
                self._look_at_edge()
        if measuring and now[0] is not None:
            self._peak_rss = max(self._peak_rss, now[0].rss_bytes)
        self._last = now
        server, load = self._percent(0), self._percent(1)
        return server, now[0].rss_bytes if now[0] else None, load

    def _percent(self, index: int) -> float | None:
        """Return the CPU percent of server (0) or load (1) since it was last known."""
        now, base = self._last[index], self._bases[index]
        if now and base and now.at_s - base.at_s < _SHORTEST_S:
            return None
        self._bases[index] = now
        return now.cpu_percent_since(base) if now and base else None

    def _look_at_edge(self) -> None:
        """What only matters at both ends of the measured phase."""
        self._asked.append(_add(ask_usages(self._requestors), self._requestors))
        if self._read_traffic is not None:
            self._traffic.append(self._read_traffic())

    def _net_bps(self) -> tuple[float | None, float | None]:
        """Bits per second in and out over the window; None where they were not seen at both ends."""
        match self._traffic:
            case [Traffic() as begin, Traffic() as end]:
                return end.bps_since(begin) or (None, None)
        return None, None

    def _requestor_cpu_us(self, rate: float) -> float | None:
        match self._asked:
            case [Usage() as begin, Usage() as end]:
                return end.cpu_us_per(rate, begin)
        return None

    @property
    def last(self) -> tuple[Usage | None, Usage | None]:
        """What server and load had used at the last look."""
        return self._last

    def summary(self, rate: float, connections: int) -> tuple[Server, Load]:
        """The measured phase at `rate` replies a second."""
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


def _add(usages: Sequence[Usage | None], children: Sequence[Child]) -> Usage | None:
    """What all of them have used, on as many cores as their machines have; None when one is not known."""
    known = [usage for usage in usages if usage is not None]
    if not known or len(known) < len(usages):
        return None
    cores = {id(child.machine): usage.cores for child, usage in zip(children, known, strict=True)}
    return Usage(
        at_s=sum(usage.at_s for usage in known) / len(known),
        cpu_s=sum(usage.cpu_s for usage in known),
        rss_bytes=sum(usage.rss_bytes for usage in known),
        cores=sum(cores.values()),
    )
