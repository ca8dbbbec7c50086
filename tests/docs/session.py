"""Session of a reader: files of a page are saved, its commands and programs run, one after the other."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.docs.smaller import MONITOR
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.pages import Block

DEFAULTS = {"tcp": "127.0.0.1:4222", "http": "127.0.0.1:8080", "monitor": "127.0.0.1:8222"}
"""The addresses on the pages, by listener."""
_BACKGROUND = re.compile(r"background until (?P<until>ready|subscribed)(?:, prints (?P<text>.+))?")
_TIMEOUT_S = 500
_SHIM = """#!{python}
import sys
sys.path.insert(0, {folder!r})  # not the checkout, whose sources are without the built extension
from smaller import {command}
sys.exit({command}())
"""


class Session:
    """One page in a folder of its own; what goes on in the background ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "page"
        self.folder.mkdir()
        commands = folder / "bin"
        commands.mkdir()
        for command in ("subjectbus", "pip"):
            shim = commands / command
            shim.write_text(
                _SHIM.format(python=sys.executable, folder=str(Path(__file__).parent), command=command)
            )
            shim.chmod(0o755)
        path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "NO_COLOR": "1"}
        self.addresses: dict[str, str] = {}
        self.background = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.background.close()

    def run(self, block: Block) -> None:
        """Run a block to its end, or, if it has none, into the background."""
        if (match := _BACKGROUND.fullmatch(block.mark)) is not None:
            self.background.enter_context(self._going_on(block, match["until"], match["text"]))
            return
        interpreter = {"sh": ["bash", "-euc"], "python": [sys.executable, "-P", "-c"]}[block.language]
        done = subprocess.run(
            [*interpreter, self._placed(block.text)], cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.place}: status {done.returncode}\n{done.stdout}{done.stderr}"
        if block.mark:
            assert done.stdout.strip() == block.mark.removeprefix("prints "), block.place

    def pytest(self, block: Block) -> None:
        """Run the tests in a file that has been saved."""
        assert block.file is not None, f"{block.place}: tests need a first line with the name of a file"
        (self.folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
        done = subprocess.run(
            [*command, block.file], cwd=self.folder, env=self.environment, text=True, capture_output=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.place}\n{done.stdout}"
        assert f"{block.text.count('def test_')} passed" in done.stdout, done.stdout

    def save(self, block: Block) -> Path:
        """Save a block as the file that its first line names."""
        assert block.file is not None
        path = self.folder / block.file
        path.write_text(block.text)
        return path

    def _placed(self, text: str) -> str:
        """Return a text with the addresses that the page's broker has."""
        for listener, default in DEFAULTS.items():
            text = text.replace(default, self.addresses.get(listener, default))
        return text

    def _varz(self) -> dict[str, object]:
        with urllib.request.urlopen(f"http://{self.addresses['monitor']}/varz", timeout=10) as answer:
            counters: dict[str, object] = json.load(answer)
        return counters

    @contextmanager
    def _going_on(self, block: Block, until: str, text: str | None) -> Iterator[None]:
        """Have a command going on while the rest of the page is read."""
        log = self.folder / f"line-{block.line}.log"
        is_broker = until == "ready"
        command = block.text if not is_broker else re.sub(r"(127\.0\.0\.1):\d+", r"\1:0", block.text)
        subscribed = None if is_broker else self._varz()["subscriptions"]
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-euc", command if is_broker else self._placed(command)], cwd=self.folder,
                env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        try:

            def is_there() -> bool:
                assert process.poll() is None, f"{block.place}: it has ended\n{log.read_text()}"
                if not is_broker:
                    return self._varz()["subscriptions"] != subscribed
                return re.search(r"^ready .*\n", log.read_text(), re.MULTILINE) is not None

            wait_until(is_there, timeout_s=30, what=block.place)
            if is_broker:
                self._take_addresses(log)
            yield
            if text is not None:
                wait_until(lambda: text in log.read_text(), what=f"{block.place}: {text}")
            if is_broker:
                os.killpg(process.pid, signal.SIGTERM)
                assert process.wait(30) in (0, -signal.SIGTERM), log.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _take_addresses(self, log: Path) -> None:
        ready = re.search(r"^ready (.*)$", log.read_text(), re.MULTILINE)
        assert ready is not None
        self.addresses |= dict(word.split("=", 1) for word in ready[1].split())
        if "monitor" in self.addresses:
            self.environment[MONITOR] = f"http://{self.addresses['monitor']}"
