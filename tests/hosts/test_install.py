"""Installation of a build over SSH into a virtual environment, where later runs find it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import threading
import tomllib
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadtest.errors import HostError, RunError
from loadtest.hosts import wheels
from loadtest.hosts.connection import Connection
from loadtest.hosts.identity import build_id
from loadtest.hosts.install import ensure_installed, find_installed
from loadtest.hosts.interpreter import MINIMUM_PYTHON, Interpreter, find_python
from loadtest.scenario.inventory import load_inventory
from tests.hosts.conftest import make_network
from tests.servers import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hosts.network import Network

# One process runs them in their order: what one installs on a host the next one finds there.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("install"), pytest.mark.process]

#: Where the interpreter is that made the one of the tests: without what is installed for these.
PLAIN = Path(sys.base_exec_prefix) / "bin"
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def plain() -> Iterator[Network]:
    """Two hosts whose Python has nothing installed."""
    yield from make_network(2, {"PATH": f"{PLAIN}:{SYSTEM}"})


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A host with few commands, to which tests add their own in `bin` at home."""
    tools = tmp_path_factory.mktemp("bin")
    for tool in ("sh", "mkdir", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    yield from make_network(1, {"PATH": str(tools)})


@contextmanager
def connected(network: Network, index: int = 0, **overrides: Any) -> Iterator[Connection]:
    roles = [["requestor"]] * len(network.hosts)
    path = network.inventory(roles, **{"python": None, **overrides})
    with Connection(load_inventory(path).hosts[index]) as connection:
        connection.open()
        yield connection


def refusal(connection: Connection) -> str:
    with pytest.raises(HostError) as caught:
        ensure_installed(connection, lambda _: None)
    text = str(caught.value)
    assert text.startswith(f"host {connection.host.name} ({connection.host.address}): ")
    assert "\n" not in text
    return text


def builds(network: Network, index: int = 0) -> dict[str, Path]:
    """Return the content of the folder of builds, with the targets of links."""
    return {path.name: path.resolve() for path in (network.hosts[index].home / ".cache/subjectbus").glob("*")}


def test_a_build_is_installed_once(plain: Network) -> None:
    said: list[str] = []
    with connected(plain) as connection:
        assert find_installed(connection) is None
        python = ensure_installed(connection, said.append)
        assert said == [f"host a: installing build {build_id()} for Python {find_python(connection).release}"]
        assert python == str(plain.hosts[0].home / ".cache/subjectbus" / build_id() / "bin/python")
        before = builds(plain)
        (folder,) = {name: path for name, path in before.items() if name != build_id()}.items()
        assert before == {build_id(): folder[1], folder[0]: folder[1]}
        assert ensure_installed(connection, said.append) == python
        assert len(said) == 1
        assert builds(plain) == before
        check_that_it_runs(connection, python, plain)


def check_that_it_runs(connection: Connection, python: str, network: Network) -> None:
    """Check that all modules of a host can be imported, a broker serves, and drawing modules are missing."""
    modules = ["loadtest.workers.worker", "loadtest.workers.child"]
    modules += [
        "loadtest.sampling.usage",
        "loadtest.sampling.environment",
        "subjectbus.serve",
        "subjectbus.cli",
    ]
    if (ROOT / "loadtest/workers/agent.py").exists():
        modules.append("loadtest.workers.agent")
    done = connection.run([python, "-P", "-c", f"import {', '.join(modules)}"], 60)
    assert done.status == 0, done.stderr
    assert connection.run([python, "-P", "-c", "import jinja2"], 30).status == 1
    command = [python, "-P", "-m", "subjectbus", "serve"]
    channel = connection.start([*command, *(f"--{name}=127.0.0.1:0" for name in ("tcp", "http", "monitor"))])
    assert channel.makefile("r").readline().startswith("ready tcp=127.0.0.1:")
    (broker,) = network.processes(0)
    os.kill(broker, signal.SIGTERM)
    assert channel.recv_exit_status() == 0


def test_two_installs_at_once_leave_one(plain: Network) -> None:
    found: list[str] = []

    def install() -> None:
        with connected(plain, 1) as connection:
            found.append(ensure_installed(connection, lambda _: None))

    threads = [threading.Thread(target=install) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert len(set(found)) == 1
    assert len(builds(plain, 1)) == 2


def test_interrupted_or_damaged_builds_are_installed_again(plain: Network) -> None:
    with connected(plain) as connection:
        python = ensure_installed(connection, lambda _: None)
        cache = plain.hosts[0].home / ".cache/subjectbus"
        broken = (cache / build_id()).resolve()
        (broken / "bin/python").unlink()
        half = cache / f"{build_id()}-half"
        half.mkdir()
        old = cache / "0123456789ab-old"
        old.mkdir()
        os.utime(old, (0, 0))
        said: list[str] = []
        assert ensure_installed(connection, said.append) == python
        assert len(said) == 1
        assert (cache / build_id()).resolve() != broken
        assert half.exists(), "an install that another one may be at"
        assert not old.exists()
        half.rmdir()


def test_a_named_interpreter_is_used_unchanged(network: Network) -> None:
    with connected(network, python=sys.executable) as connection:
        assert ensure_installed(connection, pytest.fail) == sys.executable
        assert not (network.hosts[0].home / ".cache").exists()


def test_a_named_interpreter_must_have_this_build(plain: Network, tmp_path: Path) -> None:
    bare_python = PLAIN / f"python3.{sys.version_info.minor}"
    with connected(plain, python=str(bare_python)) as connection:
        assert f"{bare_python} has no subjectbus installed" in refusal(connection)
    shutil.copytree(ROOT / "loadtest", tmp_path / "loadtest", ignore=shutil.ignore_patterns("__pycache__"))
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    (tmp_path / "loadtest/more.py").touch()
    with connected(plain, python=str(other)) as connection:
        text = refusal(connection)
        assert f"{other} has build " in text
        assert f", but this machine has build {build_id()}: install the same build on the host" in text
    with connected(plain, python="/bin/sh") as connection:
        assert "python: /bin/sh is not a Python that runs on the host" in refusal(connection)
    with connected(plain, python="/nowhere/python") as connection:
        assert "python: /nowhere/python is not a Python that runs on the host" in refusal(connection)


def put_python(network: Network, script: str) -> None:
    """Write a script that the host runs as python3."""
    path = Path(network.environment["PATH"]) / "python3"
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_error_for_a_host_without_python_says_what_to_install(bare: Network) -> None:
    with connected(bare) as connection:
        text = refusal(connection)
        assert "no Python found: install CPython 3.11 or later (Debian: apt-get install python3)" in text
        put_python(bare, "exit 1")
        assert refusal(connection) == text


def test_a_python_that_is_too_old_is_named(bare: Network) -> None:
    old = {"executable": "/usr/bin/python3", "version": [3, 9, 2], "implementation": "CPython"}
    old |= {"machine": "x86_64", "libc": ["glibc", "2.31"]}
    put_python(bare, f"echo '{json.dumps(old)}'")
    with connected(bare) as connection:
        text = refusal(connection)
        assert "CPython 3.9.2 (/usr/bin/python3) cannot be used: CPython 3.11 or later is needed" in text
        # A newer one beside it is found, though.
        newer = Path(bare.environment["PATH"]) / "python3.11"
        newer.symlink_to(Path(sys.base_exec_prefix) / "bin" / f"python3.{sys.version_info.minor}")
        assert find_python(connection).version == sys.version_info[:3]
        newer.unlink()


def test_the_error_for_a_python_without_venv_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "venv.py").write_text("raise ImportError('no module')")
    for network in make_network(1, {"PATH": f"{PLAIN}:{SYSTEM}", "PYTHONPATH": str(tmp_path)}):
        with connected(network) as connection:
            text = refusal(connection)
        assert "cannot install: the host's Python has no module venv (Debian: apt-get install" in text
        assert not builds(network), "half an install is left"


def test_a_full_disk_is_reported_before_anything_is_sent(plain: Network) -> None:
    with connected(plain) as connection:
        cache = plain.hosts[0].home / "small"
        cache.mkdir()
        # Seen by the host alone, whose server has mounts of its own.
        mounted = connection.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(cache)], 10)
        if mounted.status != 0:
            pytest.skip(f"the kernel refuses: {mounted.last_line}")
        python = find_python(connection)
        command = ["env", f"XDG_CACHE_HOME={cache}", python.executable, "-c", remote_install()]
        done = connection.run_attached([*command, build_id(), str(100 << 20)], 30)
        assert done.status == 1
        text = f"not enough space: {cache}/subjectbus has 8 MiB free, the installation needs 100 MiB"
        assert done.last_line == text


def remote_install() -> str:
    return (ROOT / "loadtest/hosts/remote_install.py").read_text()


def test_a_cache_that_cannot_be_written_is_named() -> None:
    for network in make_network(1, {"PATH": f"{PLAIN}:{SYSTEM}"}):
        (network.hosts[0].home / ".cache").touch()
        with connected(network) as connection:
            cache = network.hosts[0].home / ".cache/subjectbus"
            assert f"cannot install: {cache}: Not a directory" in refusal(connection)


def test_wheels_that_cannot_be_fetched_are_reported(plain: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_folders", {})
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    cache = plain.hosts[0].home / ".cache"
    cache.mkdir(exist_ok=True)
    cache.rename(plain.hosts[0].home / "cache-away")
    try:
        with connected(plain) as connection:
            text = refusal(connection)
    finally:
        (plain.hosts[0].home / "cache-away").rename(cache)
    assert "cannot fetch click==" in text
    assert "No matching distribution found" in text


def test_an_install_ends_with_its_connection_and_leaves_nothing(network: Network, tmp_path: Path) -> None:
    """While it runs pip; here that is a wheel that waits."""
    with zipfile.ZipFile(tmp_path / "pip-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", "import subprocess; subprocess.run(['sleep', '1000'])")
    content = (tmp_path / "pip-1-py3-none-any.whl").read_bytes()
    [plan] = load_inventory(network.inventory([("requestor",)])).hosts
    with Connection(plan) as connection:
        connection.open()
        channel = connection.start([str(PLAIN / "python3"), "-c", remote_install(), "0123456789ab", "1"])
        channel.sendall(sent("pip-1-py3-none-any.whl", content) + b"\n")
        wait_until(lambda: any("sleep 1000" in line for line in network.processes(0).values()))
        assert builds(network)
    wait_until(lambda: not network.processes(0))
    assert not builds(network)


def sent(name: str, content: bytes, sha256: str = "") -> bytes:
    """Return a wheel in the form that `remote_install` reads."""
    digest = sha256 or hashlib.sha256(content).hexdigest()
    return f"{name} {len(content)} {digest}\n".encode() + content


def test_a_wheel_that_was_changed_on_its_way_is_refused(network: Network) -> None:
    [plan] = load_inventory(network.inventory([("requestor",)])).hosts
    wrong = "0" * 64
    with Connection(plan) as connection:
        connection.open()
        command = [str(PLAIN / "python3"), "-c", remote_install(), "0123456789ab", "1"]
        parts = iter([sent("pip-1-py3-none-any.whl", b"PK", wrong), b"\n"])
        done = connection.run_attached(command, 60, parts)
    right = hashlib.sha256(b"PK").hexdigest()
    assert done.status == 1
    assert done.last_line == (
        f"pip-1-py3-none-any.whl was damaged in transfer: its SHA-256 is {right}, not {wrong}: try again"
    )
    assert not builds(network)


def test_a_cache_that_others_may_write_to_is_refused(plain: Network) -> None:
    """Before anything in it runs, and before anything is installed there."""
    with connected(plain) as connection:
        python = ensure_installed(connection, lambda _: None)
        cache = plain.hosts[0].home / ".cache/subjectbus"
        build = (cache / build_id()).resolve()
        ran = plain.hosts[0].home / "ran"
        interpreter = Path(python).resolve()
        (build / "bin/python").unlink()
        (build / "bin/python").write_text(f'#!/bin/sh\ntouch {ran}\nexec {interpreter} "$@"\n')
        (build / "bin/python").chmod(0o755)
        for folder, mode in ((cache, 0o777), (cache, 0o770), (build, 0o777), (cache.parent, 0o777)):
            before = folder.stat().st_mode
            folder.chmod(mode)
            text = refusal(connection)
            folder.chmod(before)
            named = cache / build_id() if folder == build else folder
            assert f"{named} belongs to another user, or other users may write to it: check its" in text
            assert "chmod go-w" in text
            assert not ran.exists()
        os.chown(build, 4242, 4242)
        assert f"{cache / build_id()} belongs to another user" in refusal(connection)
        os.chown(build, 0, 0)
        cache.parent.chmod(0o1777)
        find_installed(connection)
        assert ran.exists(), "a sticky folder around it is no danger"
        cache.parent.chmod(0o755)
        shutil.rmtree(build)


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_nothing_is_installed_into_a_cache_that_others_may_write_to(network: Network, mode: int) -> None:
    cache = network.hosts[0].home / ".cache/subjectbus"
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(mode)
    [plan] = load_inventory(network.inventory([("requestor",)])).hosts
    try:
        with Connection(plan) as connection:
            connection.open()
            command = [str(PLAIN / "python3"), "-c", remote_install(), "0123456789ab", "1"]
            done = connection.run_attached(command, 60, iter([b"\n"]))
        assert done.status == 1
        assert done.last_line.startswith(f"{cache} belongs to another user, or other users may write to it")
        assert not builds(network)
    finally:
        shutil.rmtree(cache.parent)


BROKEN_OFF = [
    sent("a.whl", b"P") + b"b.whl 1000000 00\nPK",
    sent("a.whl", b"P"),
    sent("a.whl", b"P") + b"b.whl 1",
]


@pytest.mark.parametrize("upload", BROKEN_OFF)
def test_an_interrupted_upload_leaves_nothing(network: Network, upload: bytes) -> None:
    [plan] = load_inventory(network.inventory([("requestor",)])).hosts
    with Connection(plan) as connection:
        connection.open()
        channel = connection.start([str(PLAIN / "python3"), "-c", remote_install(), "0123456789ab", "1"])
        channel.sendall(upload)
        wait_until(lambda: any(any(folder.glob("a.whl")) for folder in builds(network).values()))
    wait_until(lambda: not network.processes(0))
    assert not builds(network)


def test_the_wheel_lists_its_files(tmp_path: Path) -> None:
    path = wheels.build_wheel(tmp_path, os.uname().machine)
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        listed = [row[0] for row in csv.reader(wheel.read(record).decode().splitlines())]
    assert sorted(listed) == sorted(names)
    assert {"subjectbus/_core.abi3.so", "loadtest/hosts/identity.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_another_machine_needs_another_build(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"machine type is riscv64, but this build is for (linux_|manylinux)"):
        wheels.build_wheel(tmp_path, "riscv64")


def test_platform_tags_match_published_wheels() -> None:
    python = Interpreter("python", (3, 12, 1), "CPython", "aarch64", ("glibc", "2.28"))
    names = list(wheels.platforms(python))
    assert names[0] == "manylinux_2_28_aarch64"
    assert {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64"} <= set(names)
    assert "manylinux_2_29_aarch64" not in names
    musl = Interpreter("python", (3, 12, 1), "CPython", "x86_64", ("", ""))
    assert next(iter(wheels.platforms(musl))) == "musllinux_1_2_x86_64"


@pytest.mark.parametrize("number", ["2.999999999", "2", "", "two.three", "3.1"])
def test_a_host_with_a_strange_c_library_is_refused(number: str) -> None:
    interpreter = Interpreter("python3", (3, 11, 0), "CPython", "x86_64", ("glibc", number))
    with pytest.raises(RunError, match="C library"):
        list(wheels.platforms(interpreter))


def test_without_pip_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho 'python: No module named pip' >&2; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(wheels, "_folders", {})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    interpreter = Interpreter("python3", (3, 11, 0), "CPython", platform.machine(), ("glibc", "2.36"))
    with pytest.raises(RunError, match=r"needs pip to fetch wheels for hosts: .*/python -m ensurepip"):
        wheels.wheels_for(interpreter)


def test_hosts_get_the_dependencies_that_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["loadtest"]
    names = {text.partition(">")[0] for text in requirements}
    assert names >= set(wheels.HOST_REQUIREMENTS)
    assert project["requires-python"] == f">={MINIMUM_PYTHON[0]}.{MINIMUM_PYTHON[1]}"
