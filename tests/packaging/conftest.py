"""The wheel as pip builds it, and commands run away from the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT

#: Building wheels takes too long for a test: `make test-wheels` does it, and says where they are.
collect_ignore = [] if "SUBJECTBUS_WHEELS" in os.environ else ["test_wheels.py"]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the source tree; return its output, show it when it fails."""
    # `make` constrains versions to those of the development tools, which users do not have.
    ours = ("PYTHON", "PIP_CONSTRAINT")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    # Without build isolation the build backend looks for its own command.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip builds it, on what cargo has compiled before."""
    directory = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", directory)
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=directory)
    (wheel,) = directory.glob("*.whl")
    return wheel
