"""nats.js, the browser's client, over WebSocket under Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers import ROOT, Server, in_ci

SCRIPT = Path(__file__).with_name("javascript") / "client.mjs"


@pytest.fixture(scope="module")
def library() -> Path:
    """The entry point of @nats-io/nats-core that `make setup` installed."""
    path = ROOT / ".cache" / "npm" / "node_modules" / "@nats-io" / "nats-core" / "lib" / "mod.js"
    if shutil.which("node") is None or not path.exists():
        reason = "nats.js is not installed: `make setup` installs it if Node is installed"
        if in_ci():
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def test_nats_js(server: Server, library: Path) -> None:
    """Wildcards, requests with repeated headers, no responders, a megabyte and drain."""
    run = subprocess.run(
        ["node", "--experimental-websocket", str(SCRIPT), str(library), server.url("ws")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "reply": "HELLO",
        "headers": ["this", "and that"],
        "noResponders": True,
        "inOrder": True,
        "large": 1_000_000,
        "seen": 502,
        "first": "js.a.upper",
    }
