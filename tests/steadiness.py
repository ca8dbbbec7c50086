"""Whether the machine itself stood still while something was measured on it."""

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Self

ATTEMPTS = 3
STILL_S = 0.010
"""A machine that is left alone wakes a sleeper sooner than that."""
_NAP_S = 0.001


class Watch:
    """Looks at the clock as often as it can, and notes the longest time in which it could not."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_NAP_S):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - before)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def on_a_steady_machine(test: Callable[..., None]) -> Callable[..., None]:
    """A test of measured times is made again, twice at most, if it failed while the machine stood still."""

    @functools.wraps(test)
    def attempted(*args: Any, **kwargs: Any) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            with Watch() as watch:
                try:
                    test(*args, **kwargs)
                except AssertionError:
                    if attempt == ATTEMPTS or watch.longest_s < STILL_S:
                        raise
                else:
                    return

    return attempted
