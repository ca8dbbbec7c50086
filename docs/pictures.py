"""Draw the pictures of the pages from real runs, into docs/images: `make pictures`.

The pictures of the consoles, in the browser and in the terminal, show a broker under load. The picture of
the report shows a load test with a broker of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

import loadtest
from subjectbus import BrokerConfig, Monitor, Server
from subjectbus.top import view
from subjectbus.top.rates import RateMeter

IMAGES = Path(__file__).resolve().parent / "images"
USERS = 5_000
RATE = 5_000
SEEN_S = 20.0
"""Seconds of load before the consoles are drawn, so that their charts have data."""
TERMINAL_COLUMNS = 110
TERMINAL_LINES = 30
CONSOLE_PIXELS = (1280, 900)
REPORT_PIXELS = (1000, 1500)
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono'"

_SVG = (
    """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px """
    + _FONT
    + """, monospace; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
)
"""Template for Rich's SVG export, without the fonts that Rich's own template loads from the network."""


def main() -> None:
    """Draw all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw_consoles(folder)
        draw_report(folder)


def draw_consoles(folder: Path) -> None:
    """Draw both consoles of a broker under load."""
    with Server(BrokerConfig(shards=1, server_name="orders")) as server:
        monitor_url = server.monitor_url
        assert monitor_url is not None
        load = start_load(str(server.ws_url), folder / "load")
        try:
            while server.counters()["connections"] < USERS:
                assert load.poll() is None, load.communicate()[1]
                time.sleep(0.2)
            time.sleep(SEEN_S)
            draw_terminal(monitor_url, IMAGES / "top.svg")
            draw_page(monitor_url, IMAGES / "console.png", CONSOLE_PIXELS, folder)
        finally:
            load.terminate()
            load.wait()


def draw_report(folder: Path) -> None:
    """Draw the report of a load test."""
    loadtest.run("autocomplete", out=folder / "report", users=USERS, rate=RATE, warmup_s=2.0, thresholds=())
    draw_page((folder / "report" / "report.html").as_uri(), IMAGES / "report.png", REPORT_PIXELS, folder)


def start_load(target: str, out: Path) -> subprocess.Popen[bytes]:
    """Start a load test of a running broker, which runs until it is ended."""
    changes = (f"users={USERS}", f"rate={RATE}", "duration_s=600", "thresholds=[]")
    words = [word for change in changes for word in ("--set", change)]
    # As a module, the command would be the checkout's sources, which lack the extension.
    command = [str(Path(sys.executable).with_name("subjectbus")), "loadtest", "run", "autocomplete"]
    return subprocess.Popen(
        [*command, "--target", target, *words, "--quiet", "--out", str(out)], stderr=subprocess.PIPE
    )


def draw_terminal(monitor_url: str, path: Path) -> None:
    """Draw the console `subjectbus top`."""
    monitor = Monitor(monitor_url)
    meter = RateMeter(min_interval_s=0.0)
    meter.add(monitor.sample(sort="msgs_to", limit=view.rows_of(TERMINAL_LINES)))
    time.sleep(1)
    sample = monitor.sample(sort="msgs_to", limit=view.rows_of(TERMINAL_LINES))
    meter.add(sample)
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=TERMINAL_COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        state = view.State(monitor.endpoint, meter, sample)
        console.print(view.screen(state, TERMINAL_COLUMNS, TERMINAL_LINES))
    svg = console.export_svg(
        title="subjectbus top", theme=SVG_EXPORT_THEME, code_format=_SVG, unique_id="top"
    )
    path.write_text(svg, encoding="utf-8")


def draw_page(url: str, path: Path, pixels: tuple[int, int], folder: Path) -> None:
    """Draw the upper end of a page, in Chromium without a window."""
    width, height = pixels
    subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"),
            *("--virtual-time-budget=5000", "--timeout=20000", f"--screenshot={path}", url),
        ],
        check=True, capture_output=True, timeout=90,
    )  # fmt: skip


if __name__ == "__main__":
    main()
