"""Result folders: their names, and that each is there, writable and free before anything is started."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

from loadtest.errors import ScenarioError
from loadtest.result import capacity, repeated

_TAKEN = {
    "result.json": "a result",
    capacity.FILE: "a search for the capacity",
    repeated.FILE: "repeated runs",
}
"""Files that a folder is not free with, and their contents."""


def default_folder(scenario: str) -> Path:
    """Return `results/<scenario>-<UTC time>` under the current folder."""
    return Path("results") / f"{scenario}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder and those around it; at the end remove those of them that are empty.

    So what is run inside never ends without a place for its result, and leaves nothing if it does not begin.

    Raises:
        ScenarioError: The folder cannot be made or written to, or holds a result already.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        _make(folder)
        yield
    finally:
        with suppress(OSError):  # the first one that is not empty stays, and those around it
            for path in new:
                path.rmdir()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(b"?")
            file.flush()
    except OSError as error:
        raise ScenarioError(f"result folder {folder}: {error.strerror}") from error
    for name, content in _TAKEN.items():
        if (folder / name).exists():
            raise ScenarioError(f"result folder {folder}: holds {content} already")
