"""Live console: takes snapshots of the broker in the background and handles keys, resizing and signals."""

import math
import os
import queue
import re
import select
import signal
import socket
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live

from subjectbus.errors import MonitorError, UsageError
from subjectbus.monitoring import MOST_CONNECTIONS, Monitor, Sample
from subjectbus.top import view
from subjectbus.top.rates import RateMeter
from subjectbus.top.view import HELP_KEYS, KEYS, State

_SIGNALS = (signal.SIGWINCH, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
_END_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SORT_ORDERS = tuple(KEYS.values())
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""Bytes that arrows and function keys send; letters in them are not keys (ECMA-48, section 5.4)."""


def require_terminal() -> Console:
    """Return a console on the terminal.

    Raises:
        UsageError: Input or output is not a terminal, or the terminal cannot move its cursor.
    """
    console = Console(highlight=False, markup=False)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or console.is_dumb_terminal:
        raise UsageError("top: the live console needs a terminal (--once prints one snapshot without one)")
    return console


class Top:
    """Live console of one broker."""

    def __init__(
        self, monitor: Monitor, console: Console, *, sort: str, limit: int | None, interval_s: float
    ) -> None:
        """Take the first snapshot.

        Args:
            monitor: Monitor of the broker.
            console: Console to draw on.
            sort: Order of the connections, one of SORTS.
            limit: Largest number of connections to show. None for as many as fit.
            interval_s: Seconds between two snapshots.

        Raises:
            MonitorError: The broker did not answer.
        """
        self._monitor = monitor
        self._console = console
        self._sort = sort
        self._limit = limit
        self._interval_s = interval_s
        self._paused = False
        self._lost: MonitorError | None = None
        self._samples: queue.SimpleQueue[Sample | Exception] = queue.SimpleQueue()
        self._is_sampling = False
        self._due_s = time.monotonic() + interval_s
        self._state = State(monitor.endpoint, RateMeter(interval_s / 2), self._sample(sort))
        self._state.meter.add(self._state.sample)

    def run(self) -> None:
        """Draw until the key `q`, a signal or the loss of the terminal."""
        with suppress(OSError, termios.error), _signals() as (awake, wake):
            while self._draw(awake, wake):
                # Ctrl-Z: the terminal is restored, so stop. After SIGCONT, drawing continues.
                os.kill(os.getpid(), signal.SIGSTOP)

    def _draw(self, awake: socket.socket, wake: socket.socket) -> bool:
        """Draw until an event ends drawing; return whether the process shall stop, to continue later."""
        with _keys(), Live(console=self._console, screen=True, auto_refresh=False) as live:
            while True:
                self._state.notes = self._notes()
                size = self._console.size
                live.update(view.screen(self._state, size.width, size.height), refresh=True)
                self._start_sample(wake)
                numbers, typed = self._wait(awake)
                self._take_samples()
                if typed is None or "q" in typed or _END_SIGNALS & numbers:
                    return False
                if signal.SIGTSTP in numbers:
                    return True
                for key in typed:
                    self._press(key)

    def _notes(self) -> list[str]:
        notes = ["paused, press space to continue"] if self._paused else []
        if self._lost is not None:
            age_s = time.monotonic() - self._state.sample.at_s
            notes.append(f"no answer for {age_s:.0f} s, still trying: {self._lost}")
        return notes

    def _press(self, key: str) -> None:
        if key == " ":
            self._paused = not self._paused
            self._due_s = math.inf if self._paused else time.monotonic()
        elif key in HELP_KEYS:
            self._state.shows_keys = not self._state.shows_keys
        elif key == "s" or key in KEYS:
            following = (_SORT_ORDERS.index(self._sort) + 1) % len(_SORT_ORDERS)
            self._sort = KEYS.get(key, _SORT_ORDERS[following])
            # Another order may begin with other connections, so a snapshot is due at once, even if paused.
            self._due_s = time.monotonic()

    def _start_sample(self, wake: socket.socket) -> None:
        """Take a snapshot if one is due; in a thread, so that keys do not wait for the broker's answer."""
        now_s = time.monotonic()
        if self._is_sampling or now_s < self._due_s:
            return
        self._is_sampling = True
        self._due_s = math.inf if self._paused else now_s + self._interval_s
        sort = self._sort

        def take() -> None:
            try:
                self._samples.put(self._sample(sort))
            except Exception as error:  # noqa: BLE001 - raised again by _take_samples
                self._samples.put(error)
            # The console may have ended in the meantime, which closes the socket.
            with suppress(OSError):
                wake.send(b"\0")

        threading.Thread(target=take, daemon=True).start()

    def _sample(self, sort: str) -> Sample:
        fitting = min(view.rows_of(self._console.size.height), MOST_CONNECTIONS)
        return self._monitor.sample(sort=sort, limit=min(fitting, self._limit or fitting))

    def _take_samples(self) -> None:
        while not self._samples.empty():
            sample = self._samples.get()
            self._is_sampling = False
            if isinstance(sample, Sample):
                self._state.sample, self._lost = sample, None
                self._state.meter.add(sample)
            elif isinstance(sample, MonitorError):
                self._lost = sample
            else:
                raise sample

    def _wait(self, awake: socket.socket) -> tuple[set[int], str | None]:
        """Wait for signals, keys or the time of a snapshot; return signals and keys.

        The keys are None if the terminal was lost.
        """
        idle = self._is_sampling or self._due_s == math.inf
        timeout_s = None if idle else max(0.0, self._due_s - time.monotonic())
        ready, _, _ = select.select([awake, sys.stdin], [], [], timeout_s)
        numbers = set(awake.recv(4096)) if awake in ready else set()
        if sys.stdin not in ready:
            return numbers, ""
        typed = os.read(sys.stdin.fileno(), 4096)
        if not typed:
            return numbers, None
        return numbers, _ESCAPE_SEQUENCE.sub("", typed.decode("ascii", "ignore"))


@contextmanager
def _signals() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield two ends of a socket pair: signals arrive as bytes at the first, the second wakes its reader."""
    awake, wake = socket.socketpair()
    awake.settimeout(0)
    wake.settimeout(0)
    handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    previous = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    try:
        yield awake, wake
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        awake.close()
        wake.close()


@contextmanager
def _keys() -> Iterator[None]:
    """Switch the terminal to a mode in which keys arrive one by one without echo; restore it on exit."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
