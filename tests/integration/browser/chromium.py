"""Chromium without a window, controlled through its DevTools protocol."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from websockets.sync.client import connect

from tests.conftest import skip
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from websockets.sync.client import ClientConnection

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Nothing leaves the machine, and nothing of the browser's own gets in between.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 30.0


def executable() -> str:
    """The path of Chromium; without it the test is skipped, and fails in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        skip("no browser: install Chromium (Debian: apt-get install chromium)")
    return found


@contextmanager
def running(browser: str, profile: Path, *arguments: str) -> Iterator[Path]:
    """Run the browser, with a profile of its own, until the block ends; the path of its log."""
    log = profile.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [browser, *FLAGS, f"--user-data-dir={profile}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # It starts processes of its own, which are ended with it.
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Tab:
    """A page of the browser, controlled from the test."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.calls = 0
        #: What the browser told unasked: {"method", "params"}.
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the DevTools protocol; its result."""
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=ANSWER_TIMEOUT_S))
            if message.get("id") != self.calls:
                self.events.append(message)
                continue
            assert "error" not in message, (method, message["error"])
            result: dict[str, Any] = message["result"]
            return result

    def open(self, url: str) -> None:
        """Go to a page, and wait until it and its scripts are there."""
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, awaited where it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, timeout_s: float = 20.0) -> Any:
        """Wait until an expression holds in the page; its value."""
        return wait_until(lambda: self.evaluate(expression), timeout_s, expression)

    def requests(self) -> list[str]:
        """The address of each request so far."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def errors(self) -> list[dict[str, Any]]:
        """Exceptions that nobody caught, and errors in the page's console, the browser's own included."""
        return [event["params"] for event in self.events if is_error(event)]


def is_error(event: dict[str, Any]) -> bool:
    """Return whether an event reports an error or a warning in the page."""
    parameters = event.get("params", {})
    match event["method"]:
        case "Runtime.exceptionThrown":
            return True
        case "Runtime.consoleAPICalled":
            return parameters["type"] in ("error", "warning", "assert")
        case "Log.entryAdded":
            return parameters["entry"]["level"] in ("error", "warning")
        case _:
            return False


@contextmanager
def tab(browser: str, profile: Path) -> Iterator[Tab]:
    """Run the browser with one empty tab."""
    # Chromium writes the port that it got, and a path, into its profile.
    address = profile / "DevToolsActivePort"
    with running(browser, profile, "--remote-debugging-port=0", "about:blank") as log:
        try:
            port, _ = wait_until(lambda: lines(address), START_TIMEOUT_S, "DevTools of the browser")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {log.read_text(errors='replace')[-3000:]}") from error
        with connect(page_address(port), max_size=None) as socket:
            yield Tab(socket)


def lines(path: Path) -> list[str]:
    """The two lines of the file, once both are there."""
    found = path.read_text().splitlines() if path.exists() else []
    return found if len(found) == 2 else []


def page_address(port: str) -> str:
    """Return the URL of the WebSocket of the browser's first tab."""

    def find() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as response:
            targets = json.load(response)
        return next((target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"), "")

    return wait_until(find, START_TIMEOUT_S, "the browser's tab")
