"""Suite that measures the cost of monitoring: metrics read each second and the console open in a browser."""

import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

from measure import (
    EPOLL,
    LOAD_CPU,
    URING,
    Server,
    median,
    run_scenario,
    say,
    table,
)
from servers import START_TIMEOUT_S, Broker
from web import serve

if TYPE_CHECKING:
    from loadtest import Result

_CONSOLE_REQUESTS = 6
"""Requests after which the console is open: the page itself, and its data more than once."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-background-timer-throttling", "--remote-debugging-port=0", "--window-size=1280,1800",
)  # fmt: skip


def watched(rounds: int, users: int = 15_000, rate: int = 50_000, duration_s: int = 10) -> list[str]:
    """Measure the autocomplete workload at about half of capacity, with and without monitoring, in turn."""
    title = f"## Watched or not: {users:,} WebSocket users, {rate:,} requests/s"
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        return [
            title,
            "",
            "No browser is installed (Debian: apt-get install chromium); nothing was measured.",
        ]
    settings = {"users": users, "rate": rate, "duration_s": duration_s, "warmup_s": 2}
    runs: dict[tuple[Server, bool], list[Result]] = defaultdict(list)
    for number in range(rounds):
        for server in (URING, EPOLL):
            # The machine's speed changes from minute to minute, so the order changes with each round.
            for is_watched in (number % 2 == 0, number % 2 == 1):
                say(f"round {number + 1}: {server.title}, {'watched' if is_watched else 'not watched'}")
                with (
                    serve(str(server.driver)) as broker,
                    watch(browser, broker) if is_watched else nullcontext(),
                ):
                    run = run_scenario(server, "autocomplete", settings, broker)
                runs[server, is_watched].append(run)
    rows = []
    for server in (URING, EPOLL):
        pairs = list(zip(runs[server, True], runs[server, False], strict=True))
        for is_watched in (True, False):
            results = runs[server, is_watched]
            ratios = [
                statistics.median(median([one], *path) / median([other], *path) for one, other in pairs)
                for path in (("achieved", "rate"), ("server", "cpu_us_per_request"))
            ]
            rows.append([
                f"{server.title}, {'watched' if is_watched else 'not watched'}",
                f"{median(results, 'achieved', 'rate'):,.0f}",
                f"{ratios[0]:.4f}" if is_watched else "1",
                f"{median(results, 'server', 'cpu_us_per_request'):.2f}",
                f"{ratios[1]:.3f}" if is_watched else "1",
                *(f"{median(results, 'latency_us', key) / 1000:.2f}" for key in ("mean", "p99")),
            ])  # fmt: skip
    return [
        title,
        "",
        (
            "Watched: /metrics is read every second, and the console is open in Chromium, which runs on the "
            "load's core and yields to the users (nice 19). Ratios are medians of the pairs' own."
        ),
        "",
        *table(
            ["", "requests/s", "of unwatched", "broker CPU us/request", "of unwatched", "mean ms", "p99 ms"],
            rows,
        ),
    ]


@contextmanager
def watch(browser: str, broker: Broker) -> Iterator[None]:
    """Read the metrics each second and keep the console open during the block.

    Raises:
        SystemExit: The metrics could not be read, or the browser ended.
    """
    stop = threading.Event()
    failures: list[str] = []
    monitor = f"{broker.monitor[0]}:{broker.monitor[1]}"

    def scrape() -> None:
        while not stop.wait(1.0):
            try:
                _scrape(monitor)
            except OSError as error:
                failures.append(str(error))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            "nice",
            "-n",
            "19",
            "taskset",
            "-c",
            LOAD_CPU,
            browser,
            *_CHROMIUM,
            f"--user-data-dir={profile}",
            f"http://{monitor}/",
        ]
        page = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        # With autogroups (sched(7)), sessions share a core evenly whatever their nice values are.
        group = Path(f"/proc/{page.pid}/autogroup")
        if group.exists():
            group.write_text("19", encoding="ascii")
        scraper = threading.Thread(target=scrape)
        try:
            _await_console(broker)
            scraper.start()
            yield
        finally:
            stop.set()
            if scraper.ident:
                scraper.join()
            is_open = page.poll() is None
            page.terminate()
            page.wait()
    if failures or not is_open:
        raise SystemExit(f"not watched throughout: {failures or 'the browser has ended'}")


def _scrape(monitor: str) -> None:
    """Read the metrics of the monitor at an address.

    Raises:
        OSError: The monitor does not answer, or answers with an error.
    """
    connection = HTTPConnection(monitor, timeout=5)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise OSError(f"/metrics: status {answer.status}")


def _await_console(broker: Broker) -> None:
    """Wait until the console asks for data, which shows as requests beyond those of this function."""
    deadline, own = time.monotonic() + START_TIMEOUT_S, 0
    while time.monotonic() < deadline:
        requests = broker.varz()["http_requests"]
        own += 1
        if requests - own >= _CONSOLE_REQUESTS:
            return
        time.sleep(0.2)
    raise SystemExit("the console has not asked for data")
