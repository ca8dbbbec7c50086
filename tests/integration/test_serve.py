"""`subjectbus serve` as scripts see it: the ready line, the streams, the exit status."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.servers import subjectbus_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers import Broker

pytestmark = pytest.mark.process


def test_ready_line(start_broker: Callable[..., Broker]) -> None:
    """One line in a fixed form, and every listener it names accepts."""
    broker = start_broker(shards=2)
    match = re.fullmatch(
        r"ready tcp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+) monitor=127\.0\.0\.1:(\d+)\n",
        broker.ready_line,
    )
    assert match, broker.ready_line
    for port in match.groups():
        socket.create_connection(("127.0.0.1", int(port)), 10).close()


def test_standard_output_has_the_ready_line_only(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    assert broker.process.stdout is not None
    broker.process.terminate()
    assert broker.process.stdout.read() == ""
    assert broker.wait_status() == 0


def test_server_name(start_broker: Callable[..., Broker]) -> None:
    assert start_broker(server_name="here").varz()["server_name"] == "here"


def refused(directory: Path, *arguments: str) -> str:
    """Run `serve`, which must end with status 2 and one line; return that line."""
    done = subprocess.run(
        [subjectbus_command(), "serve", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_port_in_use(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """The line names the address, whichever listener it is."""
    broker = start_broker()
    free = {"tcp": "127.0.0.1:0", "http": "127.0.0.1:0", "monitor": "127.0.0.1:0"}
    for listener, (host, port) in {
        "tcp": broker.tcp,
        "http": broker.http,
        "monitor": broker.monitor,
    }.items():
        addresses = {**free, listener: f"{host}:{port}"}
        line = refused(tmp_path, *(f"--{name}={address}" for name, address in addresses.items()))
        assert f"{host}:{port}" in line


def test_flags_override_the_file(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('server_name = "from-the-file"\nmax_payload = 1000\n')
    assert start_broker(config=str(file)).varz()["server_name"] == "from-the-file"
    named = start_broker(config=str(file), server_name="from-the-flag").varz()
    assert named["server_name"] == "from-the-flag"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--shards", "many"], "shards"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--tcp", "nonsense"], "nonsense"),
        (["--driver", "kqueue"], "kqueue"),
        (["--log-level", "loud"], "debug, info, warning, error"),
        (["--log-format", "xml"], "text, json"),
        (["--max-payload", "-1"], "max-payload"),
        (["--config", "absent.toml"], "absent.toml"),
        (["--max-connections", "100000000"], "max-connections"),
    ],
)
def test_unusable_arguments(tmp_path: Path, arguments: list[str], named: str) -> None:
    line = refused(tmp_path, *arguments)
    assert line.startswith("subjectbus: error: ")
    assert named in line.replace("_", "-") or named in line
