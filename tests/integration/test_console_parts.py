"""What the web console's scripts work out, without a broker: in a browser's empty page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.browser import chromium
from tests.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.browser.chromium import Tab

CONSOLE = ROOT / "rust_core" / "crates" / "broker" / "src" / "monitor" / "console"
PARTS = ("elements.js", "format.js", "chart.js", "table.js", "feed.js", "overview.js")


@pytest.fixture(scope="module")
def tab(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium.tab(browser, tmp_path_factory.mktemp("chromium") / "profile") as tab:
        tab.evaluate("\n".join((CONSOLE / part).read_text() for part in PARTS))
        yield tab


@pytest.fixture
def value(tab: Tab) -> Callable[[str], Any]:
    """The value of a JavaScript expression among the console's scripts."""
    return tab.evaluate


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("UNITS.exact.text(1234567)", "1,234,567"),
        ("UNITS.exact.text(null)", "\N{EN DASH}"),
        ("UNITS.count.text(999)", "999"),
        ("UNITS.count.text(1000)", "1.00 k"),
        ("UNITS.count.text(999_999)", "1.00 M"),
        ("UNITS.count.label(20_000)", "20 k"),
        ("UNITS.rate.text(0)", "0/s"),
        ("UNITS.rate.text(0.25)", "0.25/s"),
        ("UNITS.rate.text(1234567)", "1.23 M/s"),
        ("UNITS.rate.text(-1500)", "\N{MINUS SIGN}1.50 k/s"),
        ("UNITS.rate.text(NaN)", "\N{EN DASH}"),
        ("UNITS.bytes.text(1023)", "1023 B"),
        ("UNITS.bytes.text(1024)", "1.00 KiB"),
        ("UNITS.bytes.text(1024 ** 2 * 150)", "150 MiB"),
        ("UNITS.bytes.label(1024 * 512)", "512 KiB"),
        ("UNITS.microseconds.text(420.5)", "421 µs"),
        ("UNITS.microseconds.text(1934.5)", "1.93 ms"),
        ("UNITS.microseconds.text(7.2e6)", "7.20 s"),
        ("UNITS.percent.text(100)", "100 %"),
        ("UNITS.percent.text(0.44)", "0.4 %"),
        ("UNITS.percent.label(20)", "20 %"),
        ("words('slow_consumer')", "slow consumer"),
        (r"plain('a\u202eb\nc\u0000<b>')", r"a\u{202e}b\u{a}c\u{0}<b>"),
    ],
)
def test_numbers_are_told_with_units(value: Callable[[str], Any], expression: str, text: str) -> None:
    assert value(expression) == text


@pytest.mark.parametrize(
    ("most", "unit", "step"),
    [
        ("1", "rate", 0.5),
        ("1", "count", 1),
        ("100", "percent", 50),
        ("80", "percent", 20),
        ("52_000", "rate", 20_000),
        ("1024", "bytes", 512),
        ("3 * 1024 ** 2", "bytes", 1024**2),
        ("1_000_000", "microseconds", 500_000),
    ],
)
def test_axes_have_a_few_round_steps(value: Callable[[str], Any], most: str, unit: str, step: float) -> None:
    assert value(f"axisStep({most}, UNITS.{unit})") == step


def test_missing_values_and_missing_points_are_gaps(value: Callable[[str], Any]) -> None:
    assert value("unbroken([1, 2, 3, 4], [5, 0, null, 7], 1)") == [[0, 1], [3, 3]]
    assert value("unbroken([10, 20, 90, 100], [1, 1, 1, 1], 10)") == [[0, 1], [2, 3]]
    assert value("unbroken([1, 2], [null, null], 1)") == []
    assert value("pile([{values: [1, null, 3]}, {values: [4, 5, 6]}]).map(({top}) => top)") == [
        [1, None, 3],
        [5, 5, 9],
    ]


def test_the_nearest_point(value: Callable[[str], Any]) -> None:
    assert value("[-5, 1, 1.4, 1.6, 8, 9, 99].map((time) => nearest([1, 2, 10], time))") == [
        0,
        0,
        0,
        1,
        2,
        2,
        2,
    ]


def fed(*answers: str) -> str:
    """JavaScript for a history of one second's resolution after these answers."""
    adds = "; ".join(f"history.add({answer})" for answer in answers)
    return f"(() => {{ const history = new History(1); {adds}; return history; }})()"


def test_a_history_goes_on_where_it_ended(value: Callable[[str], Any]) -> None:
    first = "{start: 100, now: 102, columns: {a: [1, 2, 3]}}"
    assert value("new History(10).path") == "/history?resolution=10"
    assert value(f"{fed(first)}.path") == "/history?resolution=1&since=102"
    # What is known already is left out, also where the broker says it again.
    again = "{start: 102, now: 103, columns: {a: [3, 4]}}"
    assert value(f"{fed(first, again)}.times") == [100, 101, 102, 103]
    assert value(f"{fed(first, again)}.column('a')") == [1, 2, 3, 4]
    # Another broker with other columns, later.
    other = "{start: 200, now: 200, columns: {b: [9]}}"
    assert value(f"{fed(first, other)}.times") == [100, 101, 102, 200]
    assert value(f"{fed(first, other)}.column('a')") == [1, 2, 3, None]
    assert value(f"{fed(first, other)}.column('b')") == [None, None, None, 9]
    assert value(f"{fed(first)}.column('none')") == [None, None, None]
    # No new point; a clock that was set back; only the last ten minutes.
    assert value(f"{fed(first, '{start: 103, now: 102, columns: {a: []}}')}.times") == [100, 101, 102]
    assert value(f"{fed(first, '{start: 50, now: 50, columns: {a: [7]}}')}.times") == [50]
    late = "{start: 701, now: 701, columns: {a: [5]}}"
    assert value(f"{fed(first, late)}.times") == [102, 701]
    assert value(f"{fed(first, late)}.column('a')") == [3, 5]
    assert value(f"[101, 102, 103].map((now) => {fed(first)}.isDue(now))") == [False, False, True]


#: Runs a feed against answers of our own, on a clock of our own, for 40 s; when it asked for what.
WATCH_FEED = """(async (connections) => {
  const real = [window.fetch, window.setTimeout, performance.now];
  const asked = [];
  let [now, next] = [0, null];
  performance.now = () => now;
  window.setTimeout = (task, delay) => { next = task; now += delay; };
  window.fetch = async (path) => {
    asked.push([now / 1000, path]);
    const time = 1e9 + now / 1000;
    const json = { server_id: "x", now: new Date(time * 1000).toISOString(), connections, start: time };
    if (path.startsWith("/connz")) json.connections = [];
    else if (path.startsWith("/history")) Object.assign(json, { now: time, columns: { a: [1] } });
    return { ok: true, json: async () => json };
  };
  try {
    new Feed(10).resume();
    for (;;) {
      while (!next) await Promise.resolve();
      if (now === 40_000) return asked;
      const task = next;
      next = null;
      task();
    }
  } finally {
    [window.fetch, window.setTimeout, performance.now] = real;
  }
})"""


@pytest.mark.parametrize(
    ("connections", "lists"),
    [(100_000, [0, 1, 6, 11, 16, 21, 26, 31, 36]), (100_001, [0, 1, 31])],
)
def test_what_is_dear_is_asked_for_less_often(
    value: Callable[[str], Any], connections: int, lists: list[float]
) -> None:
    asked = value(f"{WATCH_FEED}({connections})")
    assert [at for at, path in asked if path == "/varz"] == list(range(40))
    assert [at for at, path in asked if path.startswith("/connz?sort=pending")] == lists
    assert [at for at, path in asked if path.startswith("/subjects")] == lists
    history = [path for _, path in asked if path.startswith("/history")]
    assert history == [
        "/history?resolution=10",
        *(f"/history?resolution=10&since={10**9 + t}" for t in (0, 10, 20)),
    ]


def test_values_without_an_occasion_are_left_out(value: Callable[[str], Any]) -> None:
    answer = "{start: 1, now: 3, columns: {p99: [0, 5, 6], rate: [0, 2, 0]}}"
    assert value(f"{fed(answer)}.columnWhere('p99', 'rate')") == [None, 5, None]


def test_rows_are_ordered_by_size_and_name_with_the_missing_last(value: Callable[[str], Any]) -> None:
    assert value("[3, null, 20, 1].sort((a, b) => compare(a, b, true))") == [20, 3, 1, None]
    assert value("[3, null, 20, 1].sort((a, b) => compare(a, b, false))") == [1, 3, 20, None]
    assert value("['b10', 'b9', 'a'].sort((a, b) => compare(a, b, false))") == ["a", "b9", "b10"]


VARZ = """{connections: 10, max_connections: 100, pending_bytes: 0, max_pending_total: 100, uptime_s: 10,
 slow_consumers: 0, conservation: {dropped: {closed: 1}}, shard: [{index: 0, cpu_percent: 20}]}"""


@pytest.mark.parametrize(
    ("now", "concern"),
    [
        ("{}", None),
        ("{connections: 95}", "95.0 % of all connections are taken"),
        ("{pending_bytes: 60}", "60.0 % of the memory for pending output is used"),
        ("{slow_consumers: 5}", "consumers are closed because they are slow (1/s)"),
        ("{conservation: {dropped: {closed: 11}}}", "messages are dropped (2/s)"),
        ("{shard: [{index: 3, cpu_percent: 97}]}", "shard 3 is busy 97.0 % of the time"),
    ],
)
def test_what_needs_a_look_is_said(value: Callable[[str], Any], now: str, concern: str | None) -> None:
    look = f"{{before: {VARZ}, varz: {{...{VARZ}, uptime_s: 15, ...{now}}}}}"
    assert value(f"concerns({look})") == ([concern] if concern else [])
