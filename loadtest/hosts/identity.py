"""Identity of this build: `python -m loadtest.hosts.identity` prints it as one JSON line.

Builds of two commits may have the same version, so a hash of the files identifies a build.
"""

import functools
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import subjectbus

_DIGITS = 12
_NOT_INSTALLED = {"__pycache__"}


def package_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of both packages, sorted by name, as pairs of the name in a wheel and the path."""
    roots = (Path(__file__).parents[1], Path(subjectbus.__file__).parent)
    found = {
        path.relative_to(root.parent).as_posix(): path
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and not _NOT_INSTALLED & {*path.parts}
    }
    yield from sorted(found.items())


@functools.cache
def build_id() -> str:
    """Return 12 hexadecimal digits: the start of a hash of all files of both packages, extension included."""
    whole = hashlib.sha256()
    for name, path in package_files():
        content = path.read_bytes()
        whole.update(f"{name}\0{len(content)}\0".encode())
        whole.update(content)
    return whole.hexdigest()[:_DIGITS]


def main() -> None:
    """Print build, version and interpreter as the JSON line that `loadtest.hosts.install` reads."""
    identity = {"build": build_id(), "version": subjectbus.__version__, "python": sys.executable}
    print(json.dumps(identity))  # noqa: T201 - the caller reads standard output


if __name__ == "__main__":
    main()
