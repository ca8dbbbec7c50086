"""What commands that make several runs share: the folder of all, and a screen to tell of them on."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from loadtest.errors import ScenarioError
from loadtest.report import artifacts
from loadtest.report.console import Screen

_PLAIN_WIDTH = 100


def claim_folder(folder: Path, file: str, what: str) -> None:
    """Makes the folder; ScenarioError when it cannot be, or holds a result or the `file` already."""
    artifacts.create_folder(folder)
    if (folder / file).exists():
        raise ScenarioError(f"result folder {folder}: holds {what} already")


def open_screen(*, quiet: bool) -> tuple[Screen, Callable[[str], None]]:
    """Standard error, wide enough for a table, and what tells a line there."""
    screen = Screen(stderr=True, quiet=quiet)
    if not screen.is_terminal:
        screen.width = max(screen.width, _PLAIN_WIDTH)
    return screen, partial(screen.print, highlight=False, markup=False, soft_wrap=True)
