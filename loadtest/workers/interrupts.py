"""Signals that end a run: raised while the run goes on, held back while its results are made and written."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

_Handler = Callable[[int, FrameType | None], Any] | int | None
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Context in which the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; later ones are counted.

    Only the first signal raises, so that the code that handles it is not interrupted. A signal that was
    ignored before, such as SIGHUP under nohup, stays ignored. Signal handlers are used instead of a signal
    mask: another thread would take a signal that this thread blocks, and Python would still run the handler
    in this thread.

    Python runs signal handlers in the main thread alone: in another thread nothing raises.
    """

    def __init__(self) -> None:
        self.count = 0
        self._held = False
        self._first: int | None = None
        self._previous: dict[signal.Signals, _Handler] = {}

    def hold(self) -> None:
        """Hold signals back: from now on they are counted and do not raise."""
        self._held = True

    def release(self) -> None:
        """Let the first signal raise again.

        Raises:
            KeyboardInterrupt: A signal has arrived already.
        """
        self._held = False
        if self.count:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold signals back in the block.

        Raises:
            KeyboardInterrupt: At the end of the block, if the first signal arrived in it and signals were not
                held before.
        """
        before, count = self._held, self.count
        self._held = True
        try:
            yield
        finally:
            self._held = before
        if self.count and not count and not before:
            raise KeyboardInterrupt

    def pass_on(self) -> None:
        """Give the first signal, if one came, to the handler of before; to be called outside."""
        if self._first is not None:
            signal.raise_signal(self._first)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._first = self._first or number
        if self.count == 1 and not self._held:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in _SIGNALS:
            # A handler that was not installed from Python (None) could not be put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
