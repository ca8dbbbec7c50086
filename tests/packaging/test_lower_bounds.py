"""The lowest versions that pyproject.toml allows install without a compiler, and everything runs on them."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.conftest import skip
from tests.packaging.conftest import run
from tests.packaging.test_wheel import install
from tests.servers import ROOT, Broker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
    pytest.mark.wheel,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("packaging"),
]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Notebooks are read in any Jupyter; its lowest version would take minutes to install.
LEFT_OUT = {"jupyterlab", "subjectbus"}
LOWEST_PYTHON = (3, 11)


def lowest() -> dict[str, str]:
    """The lower bound of each direct dependency that users install."""
    extras = PROJECT["optional-dependencies"]
    bounds: dict[str, str] = {}
    for requirement in (*PROJECT["dependencies"], *extras["loadtest"], *extras["analysis"]):
        name = re.split(r"[\[<>=]", requirement)[0]
        if name not in LEFT_OUT:
            (bounds[name],) = re.findall(r">=([\d.]+)", requirement)
    return bounds


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with these versions and no other package beside what they need."""
    if sys.version_info[:2] != LOWEST_PYTHON:
        skip(f"lower bounds are those of Python {'.'.join(map(str, LOWEST_PYTHON))}")
    directory = tmp_path_factory.mktemp("lowest")
    constraints = directory / "constraints.txt"
    constraints.write_text("".join(f"{name}=={bound}\n" for name, bound in lowest().items()))
    analysis = [name for name in lowest() if name in " ".join(PROJECT["optional-dependencies"]["analysis"])]
    return install(
        wheel, "[loadtest]", directory / "venv", "--only-binary=:all:", "--constraint", constraints, *analysis
    )


def test_the_python_is_the_lowest_that_the_project_names() -> None:
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, LOWEST_PYTHON))


def test_the_lowest_versions_are_installed(commands: Path, tmp_path: Path) -> None:
    code = f"from importlib.metadata import version\nfor name in {[*lowest()]}: print(name, version(name))"
    installed = dict(line.split() for line in run(commands / "python", "-c", code, cwd=tmp_path).splitlines())
    parts = {name: [int(part) for part in version.split(".")] for name, version in installed.items()}
    for name, bound in lowest().items():
        wanted = [int(part) for part in bound.split(".")]
        assert parts[name][: len(wanted)] == wanted, name
        assert not any(parts[name][len(wanted) :]), name


def test_broker_and_console_run(commands: Path, tmp_path: Path) -> None:
    broker = Broker.start(tmp_path, command=str(commands / "subjectbus"))
    try:
        url = "http://{}:{}".format(*broker.monitor)
        assert "connections" in run(commands / "subjectbus", "top", "--once", url, cwd=tmp_path)
    finally:
        broker.stop()
    # What they print of wrong arguments is click's business in part.
    with pytest.raises(AssertionError, match=r"^subjectbus: error: .*nowhere.*\n"):
        run(commands / "subjectbus", "serve", "--tcp", "nowhere", cwd=tmp_path)


def test_load_test_report_and_frames_run(commands: Path, tmp_path: Path) -> None:
    loadtest = (commands / "subjectbus", "loadtest")
    size = ("--set", "users=10", "--set", "rate=100", "--set", "duration_s=2", "--set", "warmup_s=0")
    # No objective of speed: the machine may be busy with other tests.
    size += ("--set", "max_send_lag_ms=0", "--set", 'thresholds=["achieved.errors == 0"]')
    run(*loadtest, "run", "autocomplete", *size, "--out", "result", cwd=tmp_path)
    report = tmp_path / "result" / "report.html"
    report.unlink()
    run(*loadtest, "report", "result", cwd=tmp_path)
    assert "<svg" in report.read_text()
    assert (tmp_path / "result" / "timeline.parquet").is_file()
    code = "import loadtest; print(len(loadtest.load_run('result').timeline) > 0)"
    assert run(commands / "python", "-c", code, cwd=tmp_path).split() == ["True"]
    run(commands / "python", "-c", "import loadtest.hosts.connection", cwd=tmp_path)
