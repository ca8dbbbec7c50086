"""The wheel: its content, and its use after an installation into a clean environment."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from typing import TYPE_CHECKING

import pytest

from tests.packaging.conftest import run
from tests.servers import ROOT, Broker

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

# One process builds the wheel for all.
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("packaging"),
    pytest.mark.process,
    pytest.mark.wheel,
]

#: Panic texts that the compiler puts only into a build with overflow checks.
DEBUG_BUILD_MARKS = (b"attempt to add with overflow", b"attempt to multiply with overflow")


def install(wheel: Path, extra: str, directory: Path, *options: str | Path) -> Path:
    """The folder of the commands of a clean environment with the wheel and what its extra asks for."""
    venv.create(directory, with_pip=True)
    requirement = f"subjectbus{extra} @ {wheel.as_uri()}"
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", *options, requirement, cwd=directory)
    return directory / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of the light install."""
    return install(wheel, "", tmp_path_factory.mktemp("venv"))


def size_mb(commands: Path) -> float:
    """Megabytes of what is installed beside pip."""
    (packages,) = commands.parent.glob("lib/python3*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    own = [
        path for path in files if not path.relative_to(packages).parts[0].startswith(("pip", "setuptools"))
    ]
    return sum(path.stat().st_size for path in own) / 1e6


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_one_wheel_serves_every_python(wheel: Path) -> None:
    name, version, python, abi, _platform = wheel.stem.split("-")
    assert (name, python, abi) == ("subjectbus", "cp311", "abi3")
    assert version == metadata(wheel)["Version"]


def test_the_wheel_has_the_expected_files(wheel: Path) -> None:
    """Both packages with their data, every source file of them, and nothing else."""
    shipped = {name for name in names(wheel) if ".dist-info/" not in name}
    tracked = {
        str(path.relative_to(ROOT))
        for package in ("subjectbus", "loadtest")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert shipped - {"subjectbus/_core.abi3.so"} == tracked
    assert {
        "subjectbus/_core.abi3.so",
        "subjectbus/_core.pyi",
        "subjectbus/py.typed",
        "loadtest/py.typed",
        "loadtest/scenarios/autocomplete.toml",
        "loadtest/scenarios/broadcast.toml",
        "loadtest/scenarios/http-byte.toml",
        "loadtest/scenarios/transports.toml",
        "loadtest/report/templates/page.html.j2",
    } <= shipped


def test_the_wheel_has_the_projects_metadata(wheel: Path) -> None:
    fields = metadata(wheel)
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.11"
    assert any(name.endswith("/LICENSE") for name in names(wheel))


def test_extension_is_a_release_build(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        extension = archive.read("subjectbus/_core.abi3.so")
    assert extension.startswith(b"\x7fELF")
    assert not any(mark in extension for mark in DEBUG_BUILD_MARKS)


def test_version(wheel: Path, installed: Path, tmp_path: Path) -> None:
    assert metadata(wheel)["Version"] in run(installed / "subjectbus", "--version", cwd=tmp_path)


def test_import_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import subjectbus, subjectbus._core, loadtest; print(subjectbus.__file__, loadtest.__file__)"
    files = run(installed / "python", "-c", code, cwd=tmp_path).split()
    assert all(file.startswith(str(installed.parent)) for file in files)


def test_serve(installed: Path, tmp_path: Path) -> None:
    check_that_it_serves(installed, tmp_path)


def check_that_it_serves(commands: Path, directory: Path) -> None:
    """Check that the installed command starts, answers and drains."""
    broker = Broker.start(directory, command=str(commands / "subjectbus"))
    try:
        assert broker.varz()["connections"] == 0
    finally:
        broker.stop()


def test_the_light_install_is_light_and_names_the_extra_that_a_command_lacks(
    installed: Path, tmp_path: Path
) -> None:
    assert size_mb(installed) < 40
    assert "capacity" in run(installed / "subjectbus", "loadtest", "--help", cwd=tmp_path)
    assert "--once" in run(installed / "subjectbus", "top", "--help", cwd=tmp_path)
    command = [installed / "subjectbus", "loadtest", "run", "autocomplete"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    needs = r"subjectbus: error: subjectbus loadtest run needs \w+: "
    install = "pip install '.[loadtest]' in a checkout of subjectbus\n"
    assert re.fullmatch(needs + re.escape(install), done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_the_load_test_installs_and_runs(wheel: Path, tmp_path: Path) -> None:
    commands = install(wheel, "[loadtest]", tmp_path / "venv")
    assert size_mb(commands) < 150
    scenario = ("autocomplete", "--set", "users=10", "--set", "rate=100", "--set", "duration_s=1")
    scenario += ("--set", "max_send_lag_ms=0")
    run(commands / "subjectbus", "loadtest", "run", *scenario, "--out", "result", cwd=tmp_path)
    assert (tmp_path / "result" / "report.html").is_file()
    assert not (tmp_path / "result" / "timeline.parquet").exists()


def test_stub_agrees_with_the_extension(tmp_path: Path) -> None:
    run(sys.executable, "-m", "mypy.stubtest", "subjectbus._core", cwd=tmp_path)
