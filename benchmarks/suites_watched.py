"""What it costs to be watched: a scrape every second and the console open in a browser, or neither."""

import json
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

from measure import (
    EPOLL,
    LOAD_CPU,
    START_TIMEOUT_S,
    URING,
    Result,
    Server,
    Target,
    median,
    run_scenario,
    say,
    table,
)
from web import serve

_CONSOLE_REQUESTS = 6
"""The page itself, and its data more than once."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-background-timer-throttling", "--remote-debugging-port=0", "--window-size=1280,1800",
)  # fmt: skip


def watched(rounds: int, users: int = 15_000, rate: int = 50_000, duration_s: int = 10) -> list[str]:
    """The autocomplete workload at about half of capacity, watched and not, in turn."""
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
            # Whichever comes second finds another minute: the order changes with the round.
            for is_watched in (number % 2 == 0, number % 2 == 1):
                say(f"round {number + 1}: {server.title}, {'watched' if is_watched else 'not watched'}")
                with serve(str(server.driver)) as (process, addresses):
                    monitor = addresses["monitor"]
                    with watch(browser, monitor) if is_watched else nullcontext():
                        target = Target(f"ws://{addresses['http']}", process.pid)
                        run = run_scenario(server, "autocomplete", settings, target)
                runs[server, is_watched].append(run)
    rows = []
    for server in (URING, EPOLL):
        pairs = list(zip(runs[server, True], runs[server, False], strict=True))
        for is_watched in (True, False):
            results = runs[server, is_watched]
            ratios = [
                statistics.median(one[part][key] / other[part][key] for one, other in pairs)
                for part, key in (("achieved", "rate"), ("server", "cpu_us_per_request"))
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
def watch(browser: str, monitor: str) -> Iterator[None]:
    """Reads the metrics every second and keeps the console open. SystemExit when either failed."""
    stop = threading.Event()
    failures: list[str] = []

    def scrape() -> None:
        while not stop.wait(1.0):
            try:
                _read(monitor, "/metrics")
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
        # Where sessions share a core evenly (sched(7), autogroups), nice says nothing between them.
        group = Path(f"/proc/{page.pid}/autogroup")
        if group.exists():
            group.write_text("19", encoding="ascii")
        scraper = threading.Thread(target=scrape)
        try:
            _await_console(monitor)
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


def _read(monitor: str, path: str) -> bytes:
    """A page of the monitor, whose address is `monitor`. OSError when it does not answer with one."""
    connection = HTTPConnection(monitor, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise OSError(f"{path}: status {answer.status}")
    return body


def _await_console(monitor: str) -> None:
    """Waits until the console asks for data: requests that are not those made here."""
    deadline, own = time.monotonic() + START_TIMEOUT_S, 0
    while time.monotonic() < deadline:
        requests = json.loads(_read(monitor, "/varz"))["http_requests"]
        own += 1
        if requests - own >= _CONSOLE_REQUESTS:
            return
        time.sleep(0.2)
    raise SystemExit("the console has not asked for anything")
