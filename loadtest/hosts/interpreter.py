"""Search for a Python on a host that is recent enough to run the build."""

import shlex

import msgspec
from msgspec import Struct, structs

from loadtest.hosts.connection import Connection

MINIMUM_PYTHON = (3, 11)
_TIMEOUT_S = 30.0
_NAMES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
# This text has to run on any version of Python, however old.
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
    """Python interpreter on a host."""

    executable: str
    """Path of the interpreter on the host."""
    version: tuple[int, int, int]
    implementation: str
    """Name of the implementation, such as "CPython"."""
    machine: str
    """Machine type of the host, such as "x86_64"."""
    libc: tuple[str, str]
    """Name ("glibc", or "" for musl) and version of the C library."""

    @property
    def release(self) -> str:
        """Version as text, such as "3.11.7"."""
        return ".".join(str(part) for part in self.version)

    @property
    def is_usable(self) -> bool:
        """Whether the interpreter is a CPython that is recent enough."""
        return self.version >= MINIMUM_PYTHON and self.implementation == "CPython"


def find_python(connection: Connection) -> Interpreter:
    """Return the interpreter that the host's key `python` names, or else the first usable one on its PATH.

    Raises:
        HostError: No interpreter is recent enough; the text says what to do.
    """
    minimum = ".".join(str(part) for part in MINIMUM_PYTHON)
    named = connection.host.python
    if named:
        # Logins begin in the home folder. The named file may be a wrapper that starts another interpreter, so
        # its own path is kept.
        path = named.removeprefix("~/")
        found = [structs.replace(each, executable=path) for each in _describe(connection, (path,))]
    else:
        found = _describe(connection, _NAMES)
    usable = next((python for python in found if python.is_usable), None)
    if usable is not None:
        return usable
    if found:
        unusable = f"{found[0].implementation} {found[0].release} ({found[0].executable})"
        raise connection.error(
            f"{unusable} cannot be used: CPython {minimum} or later is needed "
            '(name another one with python = "PATH" in the hosts file)'
        )
    if named:
        raise connection.error(f"python: {named} is not a Python that runs on the host")
    raise connection.error(
        f"no Python found: install CPython {minimum} or later (Debian: apt-get install python3), or name one "
        'with python = "PATH" in the hosts file'
    )


def _describe(connection: Connection, names: tuple[str, ...]) -> list[Interpreter]:
    """Return a description of each of the named commands that is a Python."""
    describe = f'"$python" -c {shlex.quote(_DESCRIBE)}'
    script = f'for name; do python=$(command -v "$name") && {describe}; done 2>/dev/null; true'
    done = connection.run(["sh", "-c", script, "sh", *names], _TIMEOUT_S)
    found = []
    for line in done.stdout.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Interpreter))
        except msgspec.DecodeError:
            continue  # a command of this name that is not a Python
    return found
