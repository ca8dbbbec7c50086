"""Result folders: default names, and a check that a folder is writable and has no result yet."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

from loadtest.errors import ResultError
from loadtest.result import capacity, repeated

_RESULT_FILES = {
    "result.json": "a result",
    capacity.FILE: "a search for the capacity",
    repeated.FILE: "repeated runs",
}
"""Files that mark a folder as used, and their contents in words."""


def default_folder(scenario: str) -> Path:
    """Return `results/<scenario>-<UTC time>` under the current folder."""
    return Path("results") / f"{scenario}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Create the folder with its parents before a run; after it remove those created that are empty.

    A run inside the block can write its result at its end, and leaves no folder behind if it does not start.

    Raises:
        ResultError: The folder cannot be created or written to, or already has a result.
    """
    new: list[Path] = []
    try:
        with _as_result_error(folder):
            new += (path for path in (folder, *folder.parents) if not path.exists())
            _make(folder)
        yield
    finally:
        with suppress(OSError):  # the first folder that is not empty stays, and with it its parents
            for path in new:
                path.rmdir()


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as file:
        file.write(b"?")
        file.flush()
    for name, content in _RESULT_FILES.items():
        if (folder / name).exists():
            raise ResultError(f"result folder {folder}: already has {content} (choose another folder)")


@contextmanager
def _as_result_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResultError(f"result folder {folder}: {error.strerror}") from error
