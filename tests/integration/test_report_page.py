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

from loadtest.result.metrics import number_text
from loadtest.runner.building.result import build_result
from tests.loadtest import samples, test_transports
from tests.loadtest.rendered import as_page

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.browser.chromium import Tab

# One process draws the report for all.
pytestmark = pytest.mark.xdist_group("report page")

CHARTS = 14
#: Of 255, by which antialiasing may change a colour.
NEAR = 40
#: Width, and whether charts may be wider than what is seen of them, and scroll.
WIDTHS = {"wide": 1100, "narrow": 360}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over four machines, one of which was lost."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(as_page(samples.four_hosts(60, 50, lost=True)), encoding="utf-8")
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
    """Check that the page had no error and loaded only itself."""
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
    """Return the pixels of a chart: rows, columns, and red, green and blue."""
    clip = tab.evaluate(
        f"(() => {{ const box = document.querySelector('#{name} svg.chart').getBoundingClientRect();"
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
        drawn = tab.evaluate(f"document.querySelector('#{name} svg.chart').outerHTML")
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
    assert (
        tab.evaluate("document.querySelector('#percentiles svg.chart').getBoundingClientRect().width") > 500
    )
    check_clean(tab, page)


def test_missing_results_are_visible_without_scrolling(tab: Tab, page: Path) -> None:
    show(tab, page, "light", WIDTHS["wide"])
    box = "document.querySelector('.alert').getBoundingClientRect()"
    assert tab.evaluate(f"{box}.height > 0 && {box}.bottom < innerHeight")
    assert "host c was lost" in tab.evaluate("document.querySelector('.alert').innerText")


def test_charts_have_names_and_tables_for_screen_readers(tab: Tab, page: Path) -> None:
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
    shown = "document.querySelector('#send-lag details table').checkVisibility()"
    assert not tab.evaluate(shown)
    tab.evaluate("document.querySelector('#send-lag summary').click()")
    assert tab.evaluate(shown)


def test_the_page_prints_dark_on_white_with_any_screen_theme(tab: Tab, page: Path) -> None:
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
def test_reports_of_runs_with_less_data_have_no_errors(tab: Tab, tmp_path: Path, kind: str) -> None:
    failed = samples.collected([], error="lost", requestors=[], providers=[], counters=None)
    result = {
        "failed": lambda: build_result(failed)[0],
        "plain": lambda: structs.replace(samples.result(), hosts=[], heatmap=None),
        "transports": test_transports.comparison,
    }[kind]()
    page = tmp_path / f"{kind}.html"
    page.write_text(as_page(result), encoding="utf-8")
    show(tab, page, "light", WIDTHS["narrow"])
    assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS["narrow"]
    assert tab.evaluate("document.querySelectorAll('h2').length") >= 6
    check_clean(tab, page)


def move(tab: Tab, name: str, across: float, kind: str = "mouseMoved", **options: object) -> None:
    """Move, press or release the mouse at a share of a chart's width, in the middle of its height."""
    box = tab.evaluate(
        f"(() => {{ const chart = document.querySelector('#{name} svg.chart');"
        " chart.scrollIntoView({block: 'center', behavior: 'instant'});"
        " const {x, y, width, height} = chart.getBoundingClientRect(); return [x, y, width, height]; })()"
    )
    x, y = box[0] + across * box[2], box[1] + 0.5 * box[3]
    tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **options)


def drag(tab: Tab, name: str, start: float, end: float) -> None:
    """Select a part of a chart with the mouse."""
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    move(tab, name, start, "mousePressed", **held)
    move(tab, name, (start + end) / 2, button="left", buttons=1)
    move(tab, name, end, button="left", buttons=1)
    move(tab, name, end, "mouseReleased", **held)


def values(tab: Tab, name: str) -> list[str]:
    """The lines of what is shown under the pointer; none if nothing is."""
    return tab.evaluate(f"document.querySelector('#{name} .values')?.innerText ?? ''").split("\n")


def x_ticks(tab: Tab, name: str) -> list[float]:
    texts = tab.evaluate(
        f"[...document.querySelectorAll('#{name} .ticks.x text')].map(text => text.textContent)"
    )
    return [float(text.replace(",", "")) for text in texts]


def test_values_are_shown_under_the_pointer(tab: Tab, page: Path) -> None:
    show(tab, page, "light", WIDTHS["wide"])
    run = samples.four_hosts(60, 50, lost=True)
    move(tab, "latency-time", 0.5)
    title, *lines = values(tab, "latency-time")
    second = run.intervals[int(float(title.split()[0]))]
    assert title.endswith("seconds since the measured phase began")
    assert 20 < second.start_s < 40
    shown = dict(line.strip().split("\t")[-2:] for line in lines if line.strip())
    assert shown == {
        name: number_text(us / 1000)
        for name, us in (("maximum", second.max_us), ("p99", second.p99_us), ("p50", second.p50_us))
    }
    assert tab.evaluate("document.querySelectorAll('#latency-time circle').length") == 3
    move(tab, "percentiles", 0.5)
    assert "%" in values(tab, "percentiles")[0]
    # Over the heat map it is the cell's time, its latencies and its count.
    move(tab, "heatmap", 0.42)
    assert "replies received" in values(tab, "heatmap")[-1]
    move(tab, "throughput", 0.5)
    assert values(tab, "heatmap") == [""]
    assert "requests planned\t50" in "\n".join(values(tab, "throughput"))
    check_clean(tab, page)


def test_a_selected_part_is_enlarged_until_it_is_reset(tab: Tab, page: Path) -> None:
    show(tab, page, "light", WIDTHS["wide"])
    whole = x_ticks(tab, "latency-time")
    drag(tab, "latency-time", 0.4, 0.6)
    ticks = x_ticks(tab, "latency-time")
    assert len(ticks) > 2
    assert max(ticks) - min(ticks) < 0.5 * (max(whole) - min(whole))
    move(tab, "latency-time", 0.95)
    assert 30 < float(values(tab, "latency-time")[0].split()[0]) < 40
    tab.evaluate("document.querySelector('#latency-time .reset').click()")
    assert x_ticks(tab, "latency-time") == whole
    assert tab.evaluate("document.querySelector('.reset')") is None
    # A chart on a logarithmic scale, and the keys.
    drag(tab, "percentiles", 0.5, 0.9)
    enlarged = "document.querySelector('#percentiles .shapes').getAttribute('transform')"
    assert tab.evaluate(enlarged).startswith("translate")
    tab.evaluate("document.querySelector('#percentiles .wide').focus()")
    for key in ("ArrowRight", "ArrowRight", "Escape"):
        seen = values(tab, "percentiles")
        tab.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    assert len(seen) > 1
    assert tab.evaluate("document.querySelector('.reset')") is None
    check_clean(tab, page)


def test_charts_are_legible_without_scripts(tab: Tab, page: Path) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(tab, page, "light", WIDTHS["wide"])
        drawn = tab.evaluate(
            "[...document.querySelectorAll('svg.chart')].map(svg => svg.querySelectorAll('text').length)"
        )
        assert len(drawn) == CHARTS
        assert min(drawn) > 5
        assert count_near(pixels(tab, "latency-time"), colour(tab, "var(--series-1)")) > 20
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
    check_clean(tab, page)


def test_only_the_pages_own_script_runs(tab: Tab, page: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted.html"
    text = page.read_text(encoding="utf-8")
    planted.write_text(
        text.replace("<main>", "<main><script>document.title = 'planted'</script>"), encoding="utf-8"
    )
    show(tab, planted, "light", WIDTHS["wide"])
    assert tab.evaluate("document.title") != "planted"
    assert any("Content Security Policy" in str(error) for error in tab.errors())
    move(tab, "latency-time", 0.5)
    assert len(values(tab, "latency-time")) > 1


def test_hostile_names_stay_text_under_the_pointer(tab: Tab, tmp_path: Path) -> None:
    name = "<img src=x onerror=document.title='planted'>'\"</script>"
    result = samples.four_hosts(20, 20)
    hosts = [structs.replace(host, name=name) for host in result.hosts]
    page = tmp_path / "hostile.html"
    page.write_text(as_page(structs.replace(result, hosts=hosts)), encoding="utf-8")
    show(tab, page, "light", WIDTHS["wide"])
    move(tab, "host-cpu", 0.6)
    assert name in "\n".join(values(tab, "host-cpu"))
    assert tab.evaluate("document.images.length") == 0
    check_clean(tab, page)
