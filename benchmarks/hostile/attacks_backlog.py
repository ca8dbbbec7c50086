"""Attacks by clients that do not read their backlog: on the broker's memory and on the rate of publishers."""

import math
import time
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from hostile.client import Client, EndedError, seconds_until_served
from hostile.finding import Finding, with_unit
from hostile.setup import Broker, Setup, repeated, wait_until

_MEGABYTE = 1_000_000
_MIB = 1 << 20
_RECEIVE_BUFFER = 65_536
"""Size of a slow reader's receive buffer, small so that the backlog is in the broker."""
_TICK_S = 0.05
_NEWCOMER_LIMIT_S = 5.0
_MOST_GROWTH_MB = 150.0
_NEWCOMER_S = 1.0
_RATE_KEPT = 90.0
_STALLS_FROM = 48 * _MIB
"""Backlog from which the broker stalls publishers: three quarters of the default `max_pending`."""
_BACKLOG = 54 * _MIB
_FILL_LIMIT_S = 15.0
_FILLER = 65_536
"""Size of the messages with which the helper fills the backlog."""
_WARMUP_S = 1.0


def _limit_of_memory(size: int) -> dict[str, object]:
    """Return the setting that limits the memory of all clients."""
    return {"max_memory": size}


class _SlowReader:
    """Subscriber that reads a limited number of bytes per second."""

    def __init__(self, broker: Broker, subject: str, rate: float) -> None:
        self.client = Client(broker.tcp, receive_buffer=_RECEIVE_BUFFER)
        self.client.carry_out(f"SUB {subject} 1\r\n".encode())
        self.client.socket.settimeout(0.0)
        self._rate = rate
        self._begun = time.perf_counter()
        self._read = 0

    def read(self) -> None:
        """Read the bytes that are due.

        Raises:
            ConnectionError: The broker has closed the connection.
        """
        due = int((time.perf_counter() - self._begun) * self._rate) - self._read
        with suppress(BlockingIOError):
            while due > 0:
                if not (count := len(self.client.socket.recv(due))):
                    raise EndedError
                self._read += count
                due -= count


def memory(
    setup: Setup,
    receivers: int = 12,
    messages: int = 60,
    read_rate: float = 300_000.0,
    limit: int = 100_000_000,
    duration_s: float = 15.0,
) -> list[Finding]:
    """Publish 60 MB once to receivers that read slowly, under a memory limit of 100 MB."""
    peak, slowest, trouble = 0, 0.0, ""
    with ExitStack() as stack:
        broker = stack.enter_context(setup.broker(_limit_of_memory(limit)))
        readers = [_SlowReader(broker, "flood", read_rate) for _ in range(receivers)]
        for reader in readers:
            stack.enter_context(reader.client)
        publisher = stack.enter_context(Client(broker.tcp))
        before = broker.resident_bytes()

        def trickle() -> None:
            for reader in list(readers):
                try:
                    reader.read()
                except ConnectionError:
                    readers.remove(reader)

        def sample() -> None:
            nonlocal peak
            peak = max(peak, broker.resident_bytes())

        def arrive() -> None:
            nonlocal slowest, trouble
            waited_s, problem = seconds_until_served(broker.tcp, _NEWCOMER_LIMIT_S)
            if waited_s > slowest:
                slowest, trouble = waited_s, problem

        for work, every_s in ((trickle, _TICK_S), (sample, _TICK_S), (arrive, 10 * _TICK_S)):
            stack.enter_context(repeated(work, every_s))
        problem = publisher.carry_out(b"PUB flood %d\r\n%s\r\n" % (_MEGABYTE, bytes(_MEGABYTE)) * messages)
        time.sleep(duration_s)
    what = f"{messages} MB to {receivers} slow readers: "
    left = f"{len(readers)} of them left" + (f", publisher: {problem}" if problem else "")
    growth = (peak - before) / _MEGABYTE
    return [
        Finding(what + "growth of resident memory", growth, "MB", _MOST_GROWTH_MB, beside=left),
        Finding(what + "until a new client is served", slowest, "s", _NEWCOMER_S, beside=trouble),
    ]


class _Laggard:
    """Subscriber to all subjects that stays just below the limit of a slow consumer.

    A helper publishes to fill its backlog. If the broker disconnects the subscriber, it connects again.
    """

    def __init__(self, broker: Broker, rate: float) -> None:
        self._broker = broker
        self._rate = rate
        self._reader: _SlowReader | None = None
        self._helper: Client | None = None
        self._filler = b"PUB fill %d\r\n%s\r\n" % (_FILLER, bytes(_FILLER))
        self.pending = 0
        """Backlog of the subscriber, in bytes."""
        self.ends = 0
        """Number of times that the broker disconnected or refused one of the two."""

    def work(self) -> None:
        """Read the bytes that are due, then let the helper fill the backlog up."""
        try:
            if self._reader is None or self._helper is None:
                self._helper = Client(self._broker.tcp)
                self._reader = _SlowReader(self._broker, ">", self._rate)
            self._reader.read()
            self.pending = int(self._broker.connection(self._reader.client.cid)["pending_bytes"])
            missing = min(_BACKLOG - self.pending, _MEGABYTE) // len(self._filler)
            if missing > 0:
                # Wait until the broker has taken the messages; more in flight would exceed the limit.
                self._helper.carry_out(self._filler * missing)
        except ConnectionError:
            self.ends += 1
            self.close()

    def is_established(self) -> bool:
        """Return whether the broker may stall publishers by now, or has disconnected the subscriber."""
        return self.ends > 0 or self.pending > _STALLS_FROM

    def close(self) -> None:
        """Close both connections."""
        if self._reader is not None:
            self._reader.client.socket.close()
        if self._helper is not None:
            self._helper.socket.close()
        self._reader = self._helper = None


def stall(
    setup: Setup,
    read_rate: float = 1_000_000.0,
    low_rate: int = 20_000,
    high_rate: int = 200_000,
    quiet_s: float = 5.0,
    attack_s: float = 10.0,
) -> list[Finding]:
    """Subscribe to all subjects and stay just below `max_pending`, while others publish."""
    findings = []
    # The highest rate has no bar, since a subscriber to all subjects adds a delivery to each message.
    for rate, bar in ((low_rate, _RATE_KEPT), (high_rate, _RATE_KEPT), (0, None)):
        with setup.broker() as broker:
            host, port = broker.tcp
            with setup.child("publisher", f"{host}:{port}", "victim", 2, rate) as child:
                time.sleep(_WARMUP_S)
                quiet = time.perf_counter()
                time.sleep(quiet_s)
                end_of_quiet = time.perf_counter()
                laggard = _Laggard(broker, read_rate)
                with repeated(laggard.work, _TICK_S):
                    with suppress(TimeoutError):
                        wait_until(laggard.is_established, _FILL_LIMIT_S, "a backlog")
                    attacked = time.perf_counter()
                    time.sleep(attack_s)
                    end_of_attack = time.perf_counter()
                taken = array("d")
                taken.frombytes(child.finish())
                laggard.close()
        usual = _rate_between(taken, quiet, end_of_quiet)
        kept = _rate_between(taken, attacked, end_of_attack)
        plan = f"at {rate:,}/s" if rate else "as fast as they can"
        backlog = f"backlog {laggard.pending / _MIB:.0f} MiB, ended {laggard.ends} times"
        findings.append(
            Finding(
                f"publishers {plan}: rate kept",
                100 * kept / usual if usual else math.nan,
                "%",
                bar,
                "at least",
                f"{with_unit(usual, '/s')} before, {with_unit(kept, '/s')} during, {backlog}",
            )
        )
    return findings


def _rate_between(taken: Sequence[float], begin: float, end: float) -> float:
    """Return messages per second from pairs of a time and the messages acknowledged then."""
    counts = (count for at, count in zip(taken[::2], taken[1::2], strict=True) if begin <= at < end)
    return sum(counts) / (end - begin)
