"""The console on a terminal: looks at the broker in the background, follows keys, resizing and signals."""

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
from subjectbus.top.rates import Meter
from subjectbus.top.view import HELP_KEYS, KEYS, State

_SIGNALS = (signal.SIGWINCH, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_ORDERS = tuple(KEYS.values())
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""What arrows, function keys and the like send: letters in it are no keys (ECMA-48 section 5.4)."""


def require_terminal() -> Console:
    """The console that is drawn on.

    Raises:
        UsageError: Input or output is no terminal, or one that cannot move its cursor.
    """
    console = Console(highlight=False, markup=False)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or console.is_dumb_terminal:
        raise UsageError("top: the live console needs a terminal; --once prints one look and ends")
    return console


class Top:
    """The live console; `run` goes on until a key or a signal ends it."""

    def __init__(
        self, monitor: Monitor, console: Console, *, sort: str, limit: int | None, interval_s: float
    ) -> None:
        """Shows at most `limit` connections in the order `sort`, else what fits; looks every `interval_s`.

        Raises:
            MonitorError: The broker did not answer the first time.
        """
        self._monitor = monitor
        self._console = console
        self._sort = sort
        self._limit = limit
        self._interval_s = interval_s
        self._paused = False
        self._lost: MonitorError | None = None
        self._looks: queue.SimpleQueue[Sample | Exception] = queue.SimpleQueue()
        self._looking = False
        self._due_s = time.monotonic() + interval_s
        self._state = State(monitor.endpoint, Meter(interval_s / 2), self._sample(sort))
        self._state.meter.look(self._state.sample)

    def run(self) -> None:
        """Draws until `q` or a signal; a terminal that goes away ends it, too."""
        with suppress(OSError, termios.error), _signals() as (awake, wake):
            while self._draw(awake, wake):
                # Asked to stop by the terminal: it is as it was, and this goes on where it was left.
                os.kill(os.getpid(), signal.SIGSTOP)

    def _draw(self, awake: socket.socket, wake: socket.socket) -> bool:
        """Whether to stop and go on later, rather than to end."""
        with _keys(), Live(console=self._console, screen=True, auto_refresh=False) as live:
            while True:
                self._state.notes = self._notes()
                size = self._console.size
                live.update(view.screen(self._state, size.width, size.height), refresh=True)
                self._look(wake)
                numbers, typed = self._wait(awake)
                self._take_looks()
                if typed is None or "q" in typed or _ENDS & numbers:
                    return False
                if signal.SIGTSTP in numbers:
                    return True
                for key in typed:
                    self._press(key)

    def _notes(self) -> list[str]:
        notes = ["paused, space goes on"] if self._paused else []
        if self._lost is not None:
            age_s = time.monotonic() - self._state.sample.at_s
            notes.append(f"no answer for {age_s:.0f} s, trying again: {self._lost}")
        return notes

    def _press(self, key: str) -> None:
        if key == " ":
            self._paused = not self._paused
            self._due_s = math.inf if self._paused else time.monotonic()
        elif key in HELP_KEYS:
            self._state.shows_keys = not self._state.shows_keys
        elif key == "s" or key in KEYS:
            following = (_ORDERS.index(self._sort) + 1) % len(_ORDERS)
            self._sort = KEYS.get(key, _ORDERS[following])
            # At once, and while paused, too: an order shows its first connections, which may be others.
            self._due_s = time.monotonic()

    def _look(self, wake: socket.socket) -> None:
        """Looks at the broker if it is time; in a thread, since keys must not wait for an answer."""
        now_s = time.monotonic()
        if self._looking or now_s < self._due_s:
            return
        self._looking = True
        self._due_s = math.inf if self._paused else now_s + self._interval_s
        sort = self._sort

        def look() -> None:
            try:
                self._looks.put(self._sample(sort))
            except Exception as error:  # noqa: BLE001 - raised again where it is taken
                self._looks.put(error)
            # The console may have ended meanwhile.
            with suppress(OSError):
                wake.send(b"\0")

        threading.Thread(target=look, daemon=True).start()

    def _sample(self, sort: str) -> Sample:
        fitting = min(view.rows_of(self._console.size.height), MOST_CONNECTIONS)
        return self._monitor.sample(sort=sort, limit=min(fitting, self._limit or fitting))

    def _take_looks(self) -> None:
        while not self._looks.empty():
            look = self._looks.get()
            self._looking = False
            if isinstance(look, Sample):
                self._state.sample, self._lost = look, None
                self._state.meter.look(look)
            elif isinstance(look, MonitorError):
                self._lost = look
            else:
                raise look

    def _wait(self, awake: socket.socket) -> tuple[set[int], str | None]:
        """Signals and keys, or none when a look is due; None for the keys once the terminal has gone."""
        idle = self._looking or self._due_s == math.inf
        timeout_s = None if idle else max(0.0, self._due_s - time.monotonic())
        ready, _, _ = select.select([awake, sys.stdin], [], [], timeout_s)
        numbers = set(awake.recv(4096)) if awake in ready else set()
        if sys.stdin not in ready:
            return numbers, ""
        typed = os.read(sys.stdin.fileno(), 4096)
        if not typed:
            return numbers, None
        return numbers, _SEQUENCE.sub("", typed.decode("ascii", "ignore"))


@contextmanager
def _signals() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Signals are bytes to be read from the first socket, whose other end is the second."""
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
    """Keys come one by one and are not shown."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
