"""Signals that end a run: obeyed while it goes, held back while its results are made and written."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_Handler = Callable[[int, FrameType | None], Any] | int | None
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Inside it the first of SIGINT, SIGTERM and SIGHUP raises KeyboardInterrupt; later ones are counted.

    Only the first raises, so that whoever handles it is never interrupted itself. A signal that is ignored,
    as SIGHUP under nohup, stays ignored. Handlers and no signal mask: a signal that this thread blocks is
    taken by another one, and Python still runs the handler in this one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._held = False
        self._previous: dict[signal.Signals, _Handler] = {}

    def hold(self) -> None:
        """From now on none raises."""
        self._held = True

    def release(self) -> None:
        """From now on the first one raises again; KeyboardInterrupt when it has come already."""
        self._held = False
        if self.count:
            raise KeyboardInterrupt

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1 and not self._held:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
