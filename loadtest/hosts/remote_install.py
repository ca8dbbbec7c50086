"""What a host does to install a build, sent there as text: the standard library is all that it has.

`python -c TEXT prepare BUILD BYTES` prints a new folder to upload wheels to; `python -c TEXT install BUILD
FOLDER` makes a virtual environment of them and prints its interpreter. Each ends with status 1 and a line on
standard error if it fails. A build is what its link points to, and that appears when all is done: an install
that was interrupted, or two at the same time, are never in the way. It lasts as long as its standard input.
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

_ABANDONED_AFTER_S = 3600
_PIP_OPTIONS = (
    *("--isolated", "--quiet", "--no-input", "--disable-pip-version-check"),
    *("--no-index", "--no-deps", "--no-cache-dir", "--no-compile"),
)
_IDENTITY = ("-P", "-m", "loadtest.hosts.identity")


def cache() -> Path:
    """The folder of all builds."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subjectbus"


def prepare(build: str, needed: int) -> Path:
    """Makes a new folder that wheels can be uploaded to, and room for `needed` bytes certain."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*-*"):
        if time.time() - old.stat().st_mtime > _ABANDONED_AFTER_S and not _is_linked(old):
            shutil.rmtree(old, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(f"no space: {folder} has {free >> 20} MB, the installation needs {needed >> 20} MB")
    return Path(tempfile.mkdtemp(prefix=f"{build}-", dir=folder))


def _is_linked(folder: Path) -> bool:
    build = folder.parent / folder.name.partition("-")[0]
    return build.is_symlink() and build.resolve() == folder.resolve()


def install(build: str, folder: Path) -> Path:
    """Makes a virtual environment of the wheels in `folder`, there; returns its interpreter."""
    final = folder.parent / build
    try:
        _fill(folder)
        if not _runs(final / "bin" / "python"):
            link = folder / "link"
            link.symlink_to(folder.name)
            link.replace(final)
    finally:
        if not _is_linked(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return final / "bin" / "python"


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


def _end_with_input() -> None:
    """Whatever this process has started ends with it when its input does: nobody waits for it any more."""
    with suppress(PermissionError):  # it leads a session, and so a group, already
        os.setpgid(0, 0)

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Does what the arguments say."""
    action, build, argument = sys.argv[1:]
    _end_with_input()
    try:
        if action == "prepare":
            print(prepare(build, int(argument)))  # noqa: T201 - the whole point
        else:
            print(install(build, Path(argument)))  # noqa: T201 - the whole point
    except OSError as error:
        sys.exit(f"{error.filename or cache()}: {error.strerror or error}")


if __name__ == "__main__":
    main()
