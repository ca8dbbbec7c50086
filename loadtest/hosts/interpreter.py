"""The Python of a host: one that is recent enough, and what it runs on."""

import shlex

import msgspec
from msgspec import Struct, structs

from loadtest.hosts.connection import Connection

LEAST_PYTHON = (3, 11)
_TIMEOUT_S = 30.0
_NAMES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
# For any Python that there may be, however old.
_DESCRIBE = """
import json, platform, sys
print(json.dumps({
    "executable": sys.executable,
    "version": list(sys.version_info[:3]),
    "implementation": platform.python_implementation(),
    "machine": platform.machine(),
    "libc": list(platform.libc_ver()),
}))
"""


class Interpreter(Struct, frozen=True):
    """A Python on a host."""

    executable: str
    version: tuple[int, int, int]
    implementation: str
    machine: str
    libc: tuple[str, str]
    """Its name ("glibc", or "" for musl) and version."""

    @property
    def release(self) -> str:
        """Its version as one says it, such as 3.11.7."""
        return ".".join(str(part) for part in self.version)

    @property
    def is_usable(self) -> bool:
        """Whether it is recent enough, and of the kind that wheels are made for."""
        return self.version >= LEAST_PYTHON and self.implementation == "CPython"


def find_python(connection: Connection) -> Interpreter:
    """The host's `python` if it has one, else the first usable one of those that a login finds.

    Raises:
        HostError: There is none, or none that is recent enough; it says what to do.
    """
    least = ".".join(str(part) for part in LEAST_PYTHON)
    named = connection.host.python
    if named:
        # Logins begin at home. What was named may start another one, so it is not asked where it is.
        path = named.removeprefix("~/")
        found = [structs.replace(each, executable=path) for each in _describe(connection, (path,))]
    else:
        found = _describe(connection, _NAMES)
    usable = next((python for python in found if python.is_usable), None)
    if usable is not None:
        return usable
    if found:
        told = f"{found[0].implementation} {found[0].release} ({found[0].executable})"
        raise connection.error(
            f'{told} is too old: CPython {least} or later is needed (python = "PATH" names another one)'
        )
    if named:
        raise connection.error(f"python: {named} is no Python that runs there")
    raise connection.error(
        f"no Python found: install {least} or later (Debian: apt-get install python3), or name one with "
        'python = "PATH"'
    )


def _describe(connection: Connection, names: tuple[str, ...]) -> list[Interpreter]:
    """Those of the names that are a Python, each of which has told of itself."""
    describe = f'"$python" -c {shlex.quote(_DESCRIBE)}'
    script = f'for name; do python=$(command -v "$name") && {describe}; done 2>/dev/null; true'
    told = connection.run(["sh", "-c", script, "sh", *names], _TIMEOUT_S)
    found = []
    for line in told.stdout.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Interpreter))
        except msgspec.DecodeError:
            continue  # something else that bears the name
    return found
