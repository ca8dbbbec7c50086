"""Script that installs a build; it is sent to the host as text and needs only the standard library.

`python -c TEXT BUILD BYTES` checks that BYTES bytes of the disk are free. It then reads wheels from standard
input, each as a line `NAME SIZE SHA256` followed by SIZE bytes, until an empty line. It installs the wheels
into a new virtual environment and prints the path of its interpreter. On failure it ends with status 1 and
one line on standard error.

A build is a symbolic link to its virtual environment, made after the installation is complete. So an
interrupted installation, or two at the same time, cannot damage a build. If standard input ends during an
installation, the script removes its folder and ends.
"""

import hashlib
import os
import shutil
import signal
import stat
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
_INTERRUPTED = "the connection ended before all wheels arrived"
_PIP_OPTIONS = (
    *("--isolated", "--quiet", "--no-input", "--disable-pip-version-check"),
    *("--no-index", "--no-deps", "--no-cache-dir", "--no-compile"),
)
_IDENTITY = ("-P", "-m", "loadtest.hosts.identity")


def cache() -> Path:
    """Return the folder that holds all builds of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subjectbus"


def prepare(build: str, needed: int) -> Path:
    """Return a new folder for wheels, after removing abandoned ones and checking for `needed` free bytes."""
    folder = cache()
    with suppress(FileExistsError):
        folder.parent.mkdir(parents=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    _require_own(folder)
    for old in folder.glob("*-*"):
        if time.time() - old.stat().st_mtime > _ABANDONED_AFTER_S and not _is_linked(old):
            shutil.rmtree(old, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(
            f"not enough space: {folder} has {free >> 20} MiB free, the installation needs {needed >> 20} MiB"
        )
    return Path(tempfile.mkdtemp(prefix=f"{build}-", dir=folder))


def _require_own(folder: Path) -> None:
    """Exit if another user may write to the folder, since a load test runs the interpreters in it."""
    found, around = folder.stat(), folder.parent.stat()
    for path, unsafe in (
        (folder, found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)),
        (folder.parent, around.st_mode & stat.S_IWOTH and not around.st_mode & stat.S_ISVTX),
    ):
        if unsafe:
            sys.exit(
                f"{path} belongs to another user, or other users may write to it: "
                "check its contents, then chmod go-w, or set XDG_CACHE_HOME to a folder of your own"
            )


def receive(stream: BinaryIO, folder: Path) -> None:
    """Write the wheels that a stream carries, up to its empty line, into the folder; check their hashes."""
    while (line := stream.readline()) != b"\n":
        if not line.endswith(b"\n"):
            sys.exit(_INTERRUPTED)
        name, digits, sent = os.fsdecode(line).rsplit(maxsplit=2)
        size = int(digits)
        arrived = hashlib.sha256()
        with (folder / name).open("wb") as file:
            while size:
                part = stream.read(min(size, _PART_BYTES))
                if not part:
                    sys.exit(_INTERRUPTED)
                file.write(part)
                arrived.update(part)
                size -= len(part)
        if arrived.hexdigest() != sent:
            sys.exit(
                f"{name} was damaged in transfer: its SHA-256 is {arrived.hexdigest()}, not {sent}: try again"
            )


def _is_linked(folder: Path) -> bool:
    build = folder.parent / folder.name.partition("-")[0]
    return build.is_symlink() and build.resolve() == folder.resolve()


def install(build: str, needed: int, stream: BinaryIO) -> Path:
    """Install the wheels of a stream into a virtual environment; return the path of its interpreter."""
    folder = prepare(build, needed)
    final = folder.parent / build
    try:
        receive(stream, folder)
        _end_with_stream(stream, folder)
        _create_environment(folder)
        if not _has_build(final / "bin" / "python"):
            link = folder / "link"
            link.symlink_to(folder.name)
            link.replace(final)
    finally:
        _discard(folder)
    return final / "bin" / "python"


def _discard(folder: Path) -> None:
    """Remove the folder unless the link of a build points to it."""
    if not _is_linked(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _create_environment(folder: Path) -> None:
    try:
        import venv  # noqa: PLC0415 - Debian's Python may lack it
    except ImportError:
        sys.exit("the host's Python has no module venv (Debian: apt-get install python3-venv)")
    wheels = sorted(folder.glob("*.whl"))
    # pip runs from the wheel that was sent: the host may have no pip, or an old one.
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
        sys.exit(f"the installed build does not run on the host: {_last_line(done.stderr)}")


def _run(command: "list[str | Path]") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _has_build(python: Path) -> bool:
    return python.exists() and _run([python, *_IDENTITY]).returncode == 0


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.startswith("ERROR:")]
    return (lines or text.strip().splitlines() or ["no reason given"])[-1]


def _end_with_stream(stream: BinaryIO, folder: Path) -> None:
    """Start a thread that ends this process and its children when the stream ends: the launcher is gone."""
    with suppress(PermissionError):  # this process already leads a session, and so a process group
        os.setpgid(0, 0)

    # SIGTERM ends the children, while this process survives it to remove the folder.
    signal.signal(signal.SIGTERM, lambda *_: None)

    def watch() -> None:
        while os.read(stream.fileno(), 1):
            pass
        os.killpg(0, signal.SIGTERM)
        _discard(folder)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Install the build that the arguments name and print the path of its interpreter."""
    build, needed = sys.argv[1:]
    try:
        print(install(build, int(needed), sys.stdin.buffer))  # noqa: T201 - the caller reads standard output
    except OSError as error:
        sys.exit(f"{error.filename or cache()}: {error.strerror or error}")


if __name__ == "__main__":
    main()
