"""The screen of commands that make several runs."""

from collections.abc import Callable
from functools import partial

from loadtest.report.console import Screen

_PLAIN_WIDTH = 100


def open_screen(*, quiet: bool) -> tuple[Screen, Callable[[str], None]]:
    """Standard error, wide enough for a table, and what tells a line there."""
    screen = Screen(stderr=True, quiet=quiet)
    if not screen.is_terminal:
        screen.width = max(screen.width, _PLAIN_WIDTH)
    return screen, partial(screen.print, highlight=False, markup=False, soft_wrap=True)
