"""The same build on every host: found there, or installed into a virtual environment of its own."""

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

_LOOK_TIMEOUT_S = 30.0
_INSTALL_TIMEOUT_S = 300.0
_UNPACKED_FACTOR = 6  # wheels, what is in them, and its byte code
_UNPACKED_BYTES = 32 << 20
_OF_BUILD = (
    "sh",
    "-c",
    'exec "${XDG_CACHE_HOME:-$HOME/.cache}/subjectbus/$1/bin/python" -P -m loadtest.hosts.identity',
    "sh",
)


class Identity(Struct, frozen=True):
    """The build that an interpreter has installed."""

    build: str
    version: str
    python: str
    """Path of the interpreter."""


def find_installed(connection: Connection) -> Identity | None:
    """Our build as the host has it; None where it has not.

    Raises:
        HostError: The host's `python` has none of subjectbus, or another build; or the connection was lost.
    """
    if connection.host.python is None:
        return _identity(connection, (*_OF_BUILD, build_id()))
    python = find_python(connection)
    named = connection.host.python
    found = _identity(connection, (python.executable, "-P", "-m", "loadtest.hosts.identity"))
    if found is None:
        raise connection.error(
            f"{named} has no subjectbus installed: install it there, or leave out python ="
        )
    if found.build != build_id():
        raise connection.error(
            f"{named} has build {found.build} of subjectbus {found.version}, here is {build_id()}: "
            "install this one there, or leave out python ="
        )
    return structs.replace(found, python=python.executable)


def ensure_installed(connection: Connection, say: Callable[[str], None]) -> str:
    """The path, on the host, of an interpreter that runs this build; it is installed where it is missing.

    Args:
        connection: An open one.
        say: Is told of what takes some time.

    Raises:
        HostError: It cannot be installed; it says what to do.
    """
    found = find_installed(connection)
    if found is not None:
        return found.python
    return install(connection, find_python(connection), say)


def install(connection: Connection, python: Interpreter, say: Callable[[str], None]) -> str:
    """Installs this build, for this interpreter; returns the path of the one that runs it.

    Raises:
        HostError: It cannot be installed; it says what to do.
    """
    say(f"host {connection.host.name}: installing build {build_id()} for Python {python.release}")
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
    """Yield the wheels as `remote_install` takes them."""
    for wheel in wheels:
        content = wheel.read_bytes()
        yield f"{wheel.name} {len(content)}\n".encode()
        yield content
    yield b"\n"


def _identity(connection: Connection, command: tuple[str, ...]) -> Identity | None:
    done = connection.run(command, _LOOK_TIMEOUT_S)
    if done.status != 0:
        return None
    try:
        return msgspec.json.decode(done.last_output, type=Identity)
    except msgspec.DecodeError:
        return None
