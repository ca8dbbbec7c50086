"""Installation of this build on a host, into a virtual environment of its own, unless it is found there."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from loadtest.errors import HostError, RunError
from loadtest.hosts.connection import Connection
from loadtest.hosts.identity import build_id
from loadtest.hosts.interpreter import Interpreter, find_python
from loadtest.hosts.wheels import wheels_for

_IDENTITY_TIMEOUT_S = 30.0
_INSTALL_TIMEOUT_S = 300.0
_UNPACKED_FACTOR = 6  # the wheels, their contents and the byte code of these
_UNPACKED_BYTES = 32 << 20
_UNSAFE_STATUS = 77
# A user who may write to these folders could replace the programs that run here. A sticky parent is safe.
_RUN_BUILD = f"""
parent=${{XDG_CACHE_HOME:-$HOME/.cache}}
folder=$parent/subjectbus
[ -e "$folder/$1" ] || exit 1
unsafe=$(
    find "$parent/" -prune -perm -002 ! -perm -1000 &&
    find "$folder/" "$folder/$1/" -prune \\( ! -user "$(id -u)" -o -perm -020 -o -perm -002 \\)
) || exit 1
[ -z "$unsafe" ] || {{ echo "$unsafe" | head -n 1 >&2; exit {_UNSAFE_STATUS}; }}
exec "$folder/$1/bin/python" -P -m loadtest.hosts.identity
"""


class Identity(Struct, frozen=True):
    """Build of subjectbus that an interpreter on a host has installed."""

    build: str
    """Build id, see `loadtest.hosts.identity`."""
    version: str
    python: str
    """Path of the interpreter on the host."""


def find_installed(connection: Connection) -> Identity | None:
    """Return this build as it is installed on the host, or None if it is not installed.

    Raises:
        HostError: The host's key `python` names an interpreter without subjectbus or with another build;
            other users may write to the folder of builds; or the connection was lost.
    """
    if connection.host.python is None:
        return _identity(connection, ("sh", "-c", _RUN_BUILD, "sh", build_id()))
    python = find_python(connection)
    named = connection.host.python
    found = _identity(connection, (python.executable, "-P", "-m", "loadtest.hosts.identity"))
    if found is None:
        raise connection.error(
            f"{named} has no subjectbus installed: install it on the host, or remove python = from the hosts "
            "file"
        )
    if found.build != build_id():
        raise connection.error(
            f"{named} has build {found.build} of subjectbus {found.version}, but this machine has build "
            f"{build_id()}: install the same build on the host, or remove python = from the hosts file"
        )
    return structs.replace(found, python=python.executable)


def ensure_installed(connection: Connection, on_progress: Callable[[str], None]) -> str:
    """Install this build if it is missing; return the path, on the host, of an interpreter that runs it.

    Args:
        connection: An open connection.
        on_progress: Called with one line before an installation, which takes some seconds.

    Raises:
        HostError: The build cannot be installed; the text says what to do.
    """
    found = find_installed(connection)
    if found is not None:
        return found.python
    return install(connection, find_python(connection), on_progress)


def install(connection: Connection, python: Interpreter, on_progress: Callable[[str], None]) -> str:
    """Install this build into a virtual environment made by `python`; return the path of its interpreter.

    Raises:
        HostError: The build cannot be installed; the text says what to do.
    """
    on_progress(f"host {connection.host.name}: installing build {build_id()} for Python {python.release}")
    try:
        wheels = wheels_for(python)
    except HostError:
        raise
    except RunError as error:
        raise connection.error(str(error)) from error
    size = sum(wheel.stat().st_size for wheel in wheels)
    needed = size * _UNPACKED_FACTOR + _UNPACKED_BYTES
    text = (files("loadtest.hosts") / "remote_install.py").read_text(encoding="utf-8")
    command = [python.executable, "-c", text, build_id(), str(needed)]
    done = connection.run_attached(command, _INSTALL_TIMEOUT_S, _stream(wheels))
    if done.status != 0:
        raise connection.error(f"cannot install: {done.last_line}")
    return done.last_output


def _stream(wheels: Sequence[Path]) -> Iterator[bytes]:
    """Yield the wheels as the bytes that `remote_install` reads."""
    for wheel in wheels:
        content = wheel.read_bytes()
        yield f"{wheel.name} {len(content)} {hashlib.sha256(content).hexdigest()}\n".encode()
        yield content
    yield b"\n"


def _identity(connection: Connection, command: tuple[str, ...]) -> Identity | None:
    done = connection.run(command, _IDENTITY_TIMEOUT_S)
    if done.status == _UNSAFE_STATUS:
        raise connection.error(
            f"{done.last_line.rstrip('/')} belongs to another user, or other users may write to it: "
            "check its contents, then chmod go-w, or set XDG_CACHE_HOME to a folder of your own"
        )
    if done.status != 0:
        return None
    try:
        return msgspec.json.decode(done.last_output, type=Identity)
    except msgspec.DecodeError:
        return None
