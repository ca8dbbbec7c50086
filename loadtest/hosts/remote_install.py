"""The part of an install that runs on the host, sent there as text: it needs the standard library alone.

`python -c TEXT BUILD BYTES` checks that BYTES are free and takes wheels from its standard input, each a line
`NAME SIZE` and so many bytes, until an empty line. It makes a virtual environment of them and prints its
interpreter, or ends with status 1 and a line on standard error.

A build is what its link points to, and that appears when all is done: an install that was interrupted, or two
at the same time, are never in the way. An install ends with its standard input, and takes its folder with it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_ABANDONED_AFTER_S = 3600
_PART_BYTES = 1 << 20
_INTERRUPTED = "the connection ended before all was sent"
_PIP_OPTIONS = (
    *("--isolated", "--quiet", "--no-input", "--disable-pip-version-check"),
    *("--no-index", "--no-deps", "--no-cache-dir", "--no-compile"),
)
_IDENTITY = ("-P", "-m", "loadtest.hosts.identity")


def cache() -> Path:
    """The folder of all builds."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subjectbus"


def prepare(build: str, needed: int) -> Path:
    """Make a new folder for wheels, and certain that `needed` bytes are free."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*-*"):
        if time.time() - old.stat().st_mtime > _ABANDONED_AFTER_S and not _is_linked(old):
            shutil.rmtree(old, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(f"no space: {folder} has {free >> 20} MB, the installation needs {needed >> 20} MB")
    return Path(tempfile.mkdtemp(prefix=f"{build}-", dir=folder))


def receive(stream: BinaryIO, folder: Path) -> None:
    """Write the wheels of a stream, until its empty line, into the folder."""
    while (line := stream.readline()) != b"\n":
        if not line.endswith(b"\n"):
            sys.exit(_INTERRUPTED)
        name, _, digits = os.fsdecode(line).rpartition(" ")
        size = int(digits)
        with (folder / name).open("wb") as file:
            while size:
                part = stream.read(min(size, _PART_BYTES))
                if not part:
                    sys.exit(_INTERRUPTED)
                file.write(part)
                size -= len(part)


def _is_linked(folder: Path) -> bool:
    build = folder.parent / folder.name.partition("-")[0]
    return build.is_symlink() and build.resolve() == folder.resolve()


def install(build: str, needed: int, stream: BinaryIO) -> Path:
    """Make a virtual environment of the wheels in a stream; return the path of its interpreter."""
    folder = prepare(build, needed)
    final = folder.parent / build
    try:
        receive(stream, folder)
        _end_with(stream, folder)
        _fill(folder)
        if not _runs(final / "bin" / "python"):
            link = folder / "link"
            link.symlink_to(folder.name)
            link.replace(final)
    finally:
        _discard(folder)
    return final / "bin" / "python"


def _discard(folder: Path) -> None:
    """Remove the folder unless it is the build."""
    if not _is_linked(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path) -> None:
    try:
        import venv  # noqa: PLC0415 - Debian has Pythons without
    except ImportError:
        sys.exit("its Python has no module venv (Debian: apt-get install python3-venv)")
    wheels = sorted(folder.glob("*.whl"))
    # A wheel of pip can be run as it is: the host's own, if it has one, may be any.
    pip = next(wheel for wheel in wheels if wheel.name.startswith("pip-"))
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    wanted = [wheel for wheel in wheels if wheel != pip]
    done = _run([python, pip / "pip", "install", *_PIP_OPTIONS, *wanted])
    if done.returncode != 0:
        sys.exit(f"pip: {_last_line(done.stderr)}")
    for wheel in wheels:
        wheel.unlink()
    done = _run([python, *_IDENTITY])
    if done.returncode != 0:
        sys.exit(f"it does not run there: {_last_line(done.stderr)}")


def _run(command: "list[str | Path]") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _runs(python: Path) -> bool:
    return python.exists() and _run([python, *_IDENTITY]).returncode == 0


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.startswith("ERROR:")]
    return (lines or text.strip().splitlines() or ["no reason given"])[-1]


def _end_with(stream: BinaryIO, folder: Path) -> None:
    """Have all end that this process has started when the stream does, since its reader has gone."""
    with suppress(PermissionError):  # it leads a session, and so a group, already
        os.setpgid(0, 0)

    # This process goes on, to remove the folder; what it starts has the signal's default.
    signal.signal(signal.SIGTERM, lambda *_: None)

    def watch() -> None:
        while os.read(stream.fileno(), 1):
            pass
        os.killpg(0, signal.SIGTERM)
        _discard(folder)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Install the build that the arguments name."""
    build, needed = sys.argv[1:]
    try:
        print(install(build, int(needed), sys.stdin.buffer))  # noqa: T201 - the whole point
    except OSError as error:
        sys.exit(f"{error.filename or cache()}: {error.strerror or error}")


if __name__ == "__main__":
    main()
