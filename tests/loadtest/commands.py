"""The commands of the load test, as tests start them: in processes of their own."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from loadtest.workers.child import PYTHON

if TYPE_CHECKING:
    from pathlib import Path


def run_command(folder: Path, scenario: str, *arguments: str, **changes: Any) -> list[str]:
    """The command that runs a scenario with changes into a folder."""
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    return [*PYTHON, "subjectbus", "loadtest", "run", scenario, "--out", str(folder), *settings, *arguments]


def run(
    folder: Path, scenario: str, *arguments: str, cwd: Path | None = None, **changes: Any
) -> subprocess.CompletedProcess[str]:
    """The same, carried out."""
    return subprocess.run(
        run_command(folder, scenario, *arguments, **changes),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        cwd=cwd,
    )
