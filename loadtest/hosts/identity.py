"""Which build this is: `python -m loadtest.hosts.identity` prints it, as one JSON line.

A version says too little where a host may have it from another commit, so a build is told by its files.
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
    """The files of both packages, as name within a wheel and path here, in the order of their names."""
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
    """The first 12 hexadecimal digits of a hash of the files of both packages, the extension among them."""
    whole = hashlib.sha256()
    for name, path in package_files():
        content = path.read_bytes()
        whole.update(f"{name}\0{len(content)}\0".encode())
        whole.update(content)
    return whole.hexdigest()[:_DIGITS]


def main() -> None:
    """Prints what `loadtest.hosts.install` looks for."""
    identity = {"build": build_id(), "version": subjectbus.__version__, "python": sys.executable}
    print(json.dumps(identity))  # noqa: T201 - the whole point


if __name__ == "__main__":
    main()
