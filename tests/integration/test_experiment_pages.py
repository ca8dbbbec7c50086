"""The pages of experiments in a real browser: charts are drawn, and nothing is loaded from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from loadtest.experiments.capacity import find_capacity, plan_search
from loadtest.experiments.compare import compare_runs, read_sides
from loadtest.experiments.repeat import summarise_runs
from loadtest.result.schema import write_result
from loadtest.scenario.load import load_scenario
from loadtest.workers.interrupts import Interrupts
from tests.loadtest import samples
from tests.loadtest.queues import Queue
from tests.loadtest.rendered import as_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.browser.chromium import Tab


def capacity_page(folder: Path) -> str:
    plan = plan_search(
        load_scenario("autocomplete"),
        ("latency_us.p99 < 100000",),
        from_rate=None,
        to_rate=None,
        precision=0.02,
        probe_s=10.0,
    )
    return as_page(find_capacity(plan, folder, Queue(20_000.0).run_into, Interrupts(), str))


def comparison_page(folder: Path) -> str:
    for name in ("before", "after"):
        (folder / name).mkdir()
        write_result(samples.result(500), folder / name)
    return as_page(compare_runs(read_sides([folder / "before", folder / "after"]), 0.05))


def repeated_page(_: Path) -> str:
    first = samples.result(500)
    return as_page(summarise_runs({"run-1": first, "run-2": structs.replace(first, error="lost")}))


@pytest.mark.parametrize(
    ("render", "charts"),
    [(capacity_page, 2), (comparison_page, 1), (repeated_page, 0)],
    ids=["capacity", "comparison", "repeated"],
)
def test_a_page_opens_without_a_network(
    tab: Tab, tmp_path: Path, render: Callable[[Path], str], charts: int
) -> None:
    page = tmp_path / "page.html"
    page.write_text(render(tmp_path), encoding="utf-8")
    tab.events.clear()
    tab.call("Emulation.setDeviceMetricsOverride", width=360, height=900, deviceScaleFactor=1, mobile=False)
    tab.open(page.as_uri())
    assert tab.errors() == []
    assert set(tab.requests()) == {page.as_uri()}
    # Every chart has a size and curves that do, and the page is no wider than a small screen.
    drawn = (
        "[...document.querySelectorAll('svg.chart')].map(svg => svg.getBoundingClientRect().height > 100 &&"
    )
    drawn += " [...svg.querySelectorAll('path.line')].filter(p => p.getTotalLength() > 50).length > 1)"
    assert tab.evaluate(drawn) == [True] * charts
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.evaluate("document.querySelectorAll('table').length") >= 1
