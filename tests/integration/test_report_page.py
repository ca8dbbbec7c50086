"""report.html in a real browser, Chromium: every chart can be seen, and nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec import structs
from PIL import Image

from loadtest.collect.build import build_result
from loadtest.report.html import render_report
from tests.loadtest import samples, test_transports

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.browser.chromium import Tab

CHARTS = 14
#: Of 255, by which antialiasing may change a colour.
NEAR = 40
#: Width, and whether charts may be wider than what is seen of them, and scroll.
WIDTHS = {"wide": 1100, "narrow": 360}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over four machines, one of which was lost."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(samples.four_hosts(60, 50, lost=True)), encoding="utf-8")
    return path


def show(tab: Tab, page: Path, scheme: str, width: int, media: str = "") -> None:
    tab.events.clear()
    tab.call(
        "Emulation.setEmulatedMedia",
        media=media,
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    tab.open(page.as_uri())


def check_clean(tab: Tab, page: Path) -> None:
    """Nothing went wrong in the page, and it asked for nothing but itself."""
    assert tab.errors() == []
    assert set(tab.requests()) == {page.as_uri()}


def colour(tab: Tab, expression: str) -> np.ndarray:
    """Red, green and blue of a CSS colour, as the page has it now."""
    text = tab.evaluate(
        f"(() => {{ const probe = document.body.appendChild(document.createElement('i'));"
        f" probe.style.color = {expression!r}; const seen = getComputedStyle(probe).color;"
        f" probe.remove(); return seen; }})()"
    )
    return np.array([int(part) for part in re.findall(r"\d+", text)[:3]])


def pixels(tab: Tab, name: str) -> np.ndarray:
    """What is to be seen of a chart: rows, columns, and red, green and blue."""
    clip = tab.evaluate(
        f"(() => {{ const box = document.querySelector('#{name} svg').getBoundingClientRect();"
        " return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: 1};"
        " })()"
    )
    assert clip["width"] > 300
    assert clip["height"] > 100
    shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")).astype(int)


def count_near(image: np.ndarray, wanted: np.ndarray) -> int:
    return int((np.abs(image - wanted).max(axis=2) < NEAR).sum())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_in_the_pages_colours(tab: Tab, page: Path, scheme: str) -> None:
    show(tab, page, scheme, WIDTHS["wide"])
    paper, ink = colour(tab, "var(--paper)"), colour(tab, "var(--ink)")
    assert (paper.mean() > ink.mean()) == (scheme == "light")
    names = tab.evaluate("[...document.querySelectorAll('figure')].map((figure) => figure.id)")
    assert len(names) == CHARTS
    for name in names:
        image = pixels(tab, name)
        assert count_near(image, paper) > image.size / 3 * 0.2, name
        assert count_near(image, ink) > 50, name
        drawn = tab.evaluate(f"document.querySelector('#{name} svg').outerHTML")
        used = set(re.findall(r"var\(--(?:series|heat)-\d\)", drawn))
        assert used, name
        for variable in used:
            assert count_near(image, colour(tab, variable)) > 20, (name, variable)
    check_clean(tab, page)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_the_page_is_as_wide_as_the_window(tab: Tab, page: Path, width: int) -> None:
    show(tab, page, "light", width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    # What is wider scrolls within itself.
    scrolling = "getComputedStyle(document.querySelector('#percentiles .wide')).overflowX"
    assert tab.evaluate(scrolling) == "auto"
    assert tab.evaluate("document.querySelector('#percentiles svg').getBoundingClientRect().width") > 500
    check_clean(tab, page)


def test_what_is_missing_is_seen_without_scrolling(tab: Tab, page: Path) -> None:
    show(tab, page, "light", WIDTHS["wide"])
    box = "document.querySelector('.alert').getBoundingClientRect()"
    assert tab.evaluate(f"{box}.height > 0 && {box}.bottom < innerHeight")
    assert "host c was lost" in tab.evaluate("document.querySelector('.alert').innerText")


def test_charts_have_names_and_tables_for_who_cannot_see_them(tab: Tab, page: Path) -> None:
    show(tab, page, "light", WIDTHS["wide"])
    tab.call("Accessibility.enable")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    tab.call("Accessibility.disable")
    images = [
        node["name"]["value"]
        for node in nodes
        if not node.get("ignored") and node["role"]["value"] in ("image", "img")
    ]
    assert len(images) == CHARTS
    assert all(images)
    shown = "document.querySelector('#slip details table').checkVisibility()"
    assert not tab.evaluate(shown)
    tab.evaluate("document.querySelector('#slip summary').click()")
    assert tab.evaluate(shown)


def test_it_prints_dark_on_white_whatever_the_screen(tab: Tab, page: Path) -> None:
    show(tab, page, "dark", WIDTHS["wide"], media="print")
    assert colour(tab, "var(--paper)").tolist() == [255, 255, 255]
    assert colour(tab, "var(--ink)").max() < 64
    assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    image = pixels(tab, "heatmap")
    assert count_near(image, colour(tab, "var(--heat-8)")) > 20
    pdf = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    pages = max(int(count) for count in re.findall(rb"/Count (\d+)", pdf))
    assert 4 <= pages <= 12
    check_clean(tab, page)


@pytest.mark.parametrize("kind", ["failed", "plain", "transports"])
def test_reports_of_runs_with_less_are_as_clean(tab: Tab, tmp_path: Path, kind: str) -> None:
    failed = samples.collected([], error="lost", requestors=[], providers=[], counters=None)
    result = {
        "failed": lambda: build_result(failed)[0],
        "plain": lambda: structs.replace(samples.result(), hosts=[], heatmap=None),
        "transports": test_transports.comparison,
    }[kind]()
    page = tmp_path / f"{kind}.html"
    page.write_text(render_report(result), encoding="utf-8")
    show(tab, page, "light", WIDTHS["narrow"])
    assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS["narrow"]
    assert tab.evaluate("document.querySelectorAll('h2').length") >= 6
    check_clean(tab, page)
