"""Wheels to install on hosts: a wheel built from the files of this build, and its dependencies."""

import atexit
import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from loadtest.errors import RunError
from loadtest.hosts.identity import package_files
from loadtest.hosts.interpreter import Interpreter

HOST_REQUIREMENTS = ("click", "msgspec", "psutil")
"""Packages that broker, workers and agent import; hosts get the versions installed on this machine."""
_NAME = "subjectbus"
_DOWNLOAD_TIMEOUT_S = 300
_OLDEST_GLIBC_MINOR = 5  # the oldest glibc of manylinux is 2.5
_MUSL_MINORS = (1, 2)

_lock = threading.Lock()
_folders: dict[str, Path] = {}


def wheels_for(interpreter: Interpreter) -> list[Path]:
    """Return the paths of the wheels to install for an interpreter, including a wheel of pip.

    The wheels are made once for each combination of Python version, C library and machine type.

    Raises:
        RunError: This build does not run on such a machine, or a wheel cannot be fetched.
    """
    major, minor, _ = interpreter.version
    kind = f"cp{major}{minor}-{'_'.join((*interpreter.libc, interpreter.machine))}"
    with _lock:
        if kind not in _folders:
            _folders[kind] = _collect(interpreter)
        return sorted(_folders[kind].iterdir())


def _collect(interpreter: Interpreter) -> Path:
    """Return a new folder with the wheels; it is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="subjectbus-wheels-")
    try:
        build_wheel(Path(folder.name), interpreter.machine)
        _download(Path(folder.name), interpreter)
    except BaseException:
        folder.cleanup()
        raise
    atexit.register(folder.cleanup)
    return Path(folder.name)


def build_wheel(folder: Path, machine: str) -> Path:
    """Write a wheel of this build into a folder and return its path, however the build was installed.

    Raises:
        RunError: The build is for another machine type than `machine`, or is not installed.
    """
    try:
        installed = distribution(_NAME)
    except PackageNotFoundError as error:
        raise RunError(
            f"{_NAME} is not installed on this machine, so no wheel can be made of it (pip install it first)"
        ) from error
    tag = _tag(installed)
    if not tag.endswith(f"_{machine}"):
        raise RunError(
            f"the host's machine type is {machine}, but this build is for {tag.rpartition('-')[2]}"
        )
    path = folder / f"{_NAME}-{installed.version}-{tag}.whl"
    about = f"{_NAME}-{installed.version}.dist-info"
    texts = {
        f"{about}/METADATA": installed.read_text("METADATA") or "",
        f"{about}/WHEEL": installed.read_text("WHEEL") or "",
        f"{about}/entry_points.txt": installed.read_text("entry_points.txt") or "",
    }
    contents = {name: file.read_bytes() for name, file in package_files()}
    contents |= {name: text.encode() for name, text in texts.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in contents.items():
            wheel.writestr(name, content)
        wheel.writestr(f"{about}/RECORD", _record(contents, f"{about}/RECORD"))
    return path


def _tag(installed: Distribution) -> str:
    lines = (installed.read_text("WHEEL") or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")), "")


def _record(contents: dict[str, bytes], own_name: str) -> str:
    """Return the text of RECORD: each file of the wheel with its hash and size (PEP 427)."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((own_name, "", ""))
    return text.getvalue()


def _download(folder: Path, interpreter: Interpreter) -> None:
    """Download the wheels of the dependencies on this machine, since hosts may not reach a package index."""
    major, minor, _ = interpreter.version
    wanted = [f"{name}=={version(name)}" for name in HOST_REQUIREMENTS]
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    for platform in platforms(interpreter):
        options += ["--platform", platform]
    options += ["--python-version", f"{major}.{minor}", "--implementation", "cp", "--dest", str(folder)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, *wanted, "pip"],
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"`pip download` did not end within {_DOWNLOAD_TIMEOUT_S} s") from error
    if done.returncode != 0 and "No module named pip" in done.stderr:
        raise RunError(
            f"this machine needs pip to fetch wheels for hosts: install it with {sys.executable} -m ensurepip"
        )
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1] if errors else done.stderr.strip().rpartition("\n")[2]
        raise RunError(f"cannot fetch {', '.join(wanted)} for Python {major}.{minor}: {reason}")


def platforms(interpreter: Interpreter) -> Iterable[str]:
    """Yield the platform tags of wheels that run on an interpreter's machine, the best one first.

    Raises:
        RunError: The C library's version cannot be parsed.
    """
    name, number = interpreter.libc
    machine = interpreter.machine
    if name == "glibc":
        found = re.fullmatch(r"2\.(\d{1,2})(\..*)?", number)
        if found is None:
            raise RunError(f"the host's C library has version {number!r}, expected a version like 2.36")
        for minor in range(int(found[1]), _OLDEST_GLIBC_MINOR - 1, -1):
            yield f"manylinux_2_{minor}_{machine}"
        yield f"manylinux2014_{machine}"
    else:
        for minor in reversed(_MUSL_MINORS):
            yield f"musllinux_1_{minor}_{machine}"
    yield f"linux_{machine}"
