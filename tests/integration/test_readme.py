"""The programs and commands that the README shows, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import skip
from tests.servers import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Broker


@pytest.fixture(scope="module", autouse=True)
def curl() -> None:
    if shutil.which("curl") is None:
        skip("curl is not installed")


@pytest.fixture
def commands(broker: Broker) -> list[str]:
    """The shell blocks of the section; of the addresses, the default ports give way to the broker's."""
    readme = (ROOT / "README.md").read_text()
    section = readme.split("\n## HTTP\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for default, address in (("127.0.0.1:4222", broker.tcp), ("127.0.0.1:8080", broker.http)):
        assert any(default in block for block in blocks)
        blocks = [block.replace(default, f"{address[0]}:{address[1]}") for block in blocks]
    return blocks


def environment() -> dict[str, str]:
    """`python` is the one that runs the tests."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(command: str) -> str:
    """What a command prints that ends by itself."""
    done = subprocess.run(
        ["bash", "-euc", command], env=environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(command: str, output: Path) -> Iterator[None]:
    """Have a command run that goes on until it is interrupted."""
    with output.open("w") as file:
        process = subprocess.Popen(
            ["bash", "-euc", command], env=environment(), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
        assert process.poll() is None, output.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_commands_of_the_readme(broker: Broker, commands: list[str], tmp_path: Path) -> None:
    answer, request, subscribe, publish = commands
    subscribed = broker.varz()["subscriptions"]
    with running(answer, tmp_path / "answer"):
        wait_until(lambda: broker.varz()["subscriptions"] == subscribed + 1, what="somebody to answer")
        assert run(request) == "HELLO"
        with running(subscribe, tmp_path / "events"):
            wait_until(lambda: broker.varz()["subscriptions"] == subscribed + 2, what="a stream")
            assert run(publish) == ""
            event = "id: 1\ndata: it works\n\n"
            wait_until(lambda: event in (tmp_path / "events").read_text(), what="the event")


def programs(section: str) -> list[str]:
    """The Python blocks of a section."""
    text = (ROOT / "README.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def python(program: str) -> str:
    """Run a program that ends by itself; return its output."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_program_of_the_readme(broker: Broker) -> None:
    client, *_ = programs("Run the broker")
    for default, address in (("127.0.0.1:8080", broker.http), ("127.0.0.1:4222", broker.tcp)):
        assert default in client
        client = client.replace(default, f"{address[0]}:{address[1]}")
    assert python(client) == "b'HELLO'\n"


def test_the_broker_in_a_program_of_the_readme() -> None:
    _, server, _ = programs("Run the broker")
    urls = python(server).split()
    assert [url.partition(":")[0] for url in urls] == ["nats", "ws", "http", "http"]
