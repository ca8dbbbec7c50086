"""Attacks on the limited number of connections, by connections that send nothing."""

import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from hostile.client import (
    Address,
    open_socket,
    raise_descriptor_limit,
    seconds_until_healthy,
    seconds_until_served,
    upgrade,
)
from hostile.finding import Finding, with_unit
from hostile.setup import Broker, Setup, repeated

_SERVED_S = 1.0
_LIMIT_S = 5.0
_PAUSE_S = 0.25
_RENEW_S = 0.05
_CONNECT_S = 1.0
_TIMER_SLACK_S = 0.5
"""Seconds by which a broker's timers may be late."""


class _Silent:
    """Connections to one listener that send nothing, each replaced when the broker closes it."""

    def __init__(self, address: Address, count: int) -> None:
        self._address = address
        self._count = count
        self._open: dict[int, socket.socket] = {}
        self._poll = select.poll()

    def keep(self) -> None:
        """Close the connections that the broker has closed, and open new ones in their place."""
        for descriptor, _ in self._poll.poll(0):
            self._poll.unregister(descriptor)
            self._open.pop(descriptor).close()
        while len(self._open) < self._count:
            try:
                one = open_socket(self._address, _CONNECT_S)
            except OSError:
                return
            self._open[one.fileno()] = one
            self._poll.register(one, select.POLLIN | select.POLLHUP)

    def close(self) -> None:
        """Close all connections."""
        for one in self._open.values():
            one.close()


def _newcomers(broker: Broker, who: str, duration_s: float) -> list[Finding]:
    """Measure repeatedly how long a new client and a health probe wait; return the longest wait of each."""
    asks: list[tuple[str, Callable[[Address, float], tuple[float, str]], Address]] = [
        (f"{who}: until a new client is served", seconds_until_served, broker.tcp),
        (f"{who}: until /healthz is answered", seconds_until_healthy, broker.monitor),
    ]
    longest = {what: (0.0, "") for what, _, _ in asks}
    end = time.monotonic() + duration_s
    while time.monotonic() < end:
        for what, ask, address in asks:
            longest[what] = max(longest[what], ask(address, _LIMIT_S))
        time.sleep(_PAUSE_S)
    return [
        Finding(what, waited_s, "s", _SERVED_S, beside=problem)
        for what, (waited_s, problem) in longest.items()
    ]


def idle_sockets(
    setup: Setup, sockets: int = 1400, max_connections: int = 200, duration_s: float = 13.0
) -> list[Finding]:
    """Keep more idle sockets to the HTTP listener for clients than `max_connections`, and renew them."""
    raise_descriptor_limit()
    # With epoll the sockets fill the descriptor table of a shard, so the table is small.
    nofile = 2 * max_connections if setup.driver == "epoll" else None
    with setup.broker({"max_connections": max_connections}, nofile=nofile) as broker:
        silent = _Silent(broker.http, sockets)
        try:
            silent.keep()
            with repeated(silent.keep, _RENEW_S):
                return _newcomers(broker, f"{sockets:,} idle sockets", duration_s)
        finally:
            silent.close()


def idle_monitor(setup: Setup, few: int = 64, many: int = 128, duration_s: float = 6.0) -> list[Finding]:
    """Keep idle connections to the monitor, and renew them."""
    findings = []
    for count in (few, many):
        with setup.broker() as broker:
            silent = _Silent(broker.monitor, count)
            try:
                silent.keep()
                with repeated(silent.keep, _RENEW_S):
                    findings += _newcomers(broker, f"{count} idle callers of the monitor", duration_s)
            finally:
                silent.close()
    return findings


def silent_clients(
    setup: Setup, places: int = 5, deadline_s: float = 2.0, slack_s: float = 6.0
) -> list[Finding]:
    """Fill `max_connections` with clients that never send CONNECT, over TCP and over WebSocket.

    `deadline_s` is the broker's `handshake_timeout_s`. `slack_s` limits the wait for the clients' end after
    the deadline, and then the wait of a new client.
    """
    findings = []
    for kind, connect in (("TCP", _greeted), ("WebSocket", _upgraded)):
        settings = {"max_connections": places, "handshake_timeout_s": deadline_s}
        with setup.broker(settings) as broker, ExitStack() as stack:
            begun = time.perf_counter()
            silent = [stack.enter_context(connect(broker)) for _ in range(places)]
            closed_s = _seconds_until_closed(silent, begun, deadline_s + slack_s)
            served_s, problem = seconds_until_served(broker.tcp, slack_s)
        who = f"{places} silent {kind} clients, deadline {with_unit(deadline_s, 's')}"
        bar_s = deadline_s + _TIMER_SLACK_S
        findings += [
            Finding(f"{who}: until all are closed", closed_s, "s", bar_s),
            Finding(f"{who}: until the next is served", served_s, "s", _SERVED_S, beside=problem),
        ]
    return findings


def _greeted(broker: Broker) -> socket.socket:
    return open_socket(broker.tcp)


def _upgraded(broker: Broker) -> socket.socket:
    return upgrade(broker.http)


def _seconds_until_closed(connections: Iterable[socket.socket], begun: float, limit_s: float) -> float:
    """Return the seconds until the broker has closed all connections; infinite if that takes too long."""
    for connection in connections:
        try:
            while True:
                connection.settimeout(max(begun + limit_s - time.perf_counter(), _RENEW_S))
                if not connection.recv(1 << 16):
                    break
        except TimeoutError:
            return float("inf")
        except OSError:
            continue
    return time.perf_counter() - begun
