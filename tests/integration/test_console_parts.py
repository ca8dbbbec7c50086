"""Functions of the web console's scripts, in an empty page of a browser, without a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.browser import chromium
from tests.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.browser.chromium import Tab

CONSOLE = ROOT / "rust_core" / "crates" / "broker" / "src" / "monitor" / "console"
PARTS = (
    "elements.js",
    "format.js",
    "chart.js",
    "table.js",
    "feed.js",
    "overview.js",
    "panels.js",
    "connection.js",
)


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
        ("UNITS.id.text(3150)", "3150"),
        ("counted(1, 'subject')", "1 subject"),
        ("counted(0, 'subject')", "0 subjects"),
        ("counted(1234, 'subject')", "1,234 subjects"),
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
def test_numbers_are_shown_with_units(value: Callable[[str], Any], expression: str, text: str) -> None:
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


def test_the_nearest_point_is_found(value: Callable[[str], Any]) -> None:
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


def test_a_history_continues_where_it_ended(value: Callable[[str], Any]) -> None:
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
def test_expensive_documents_are_requested_less_often(
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


def test_values_without_events_are_left_out(value: Callable[[str], Any]) -> None:
    answer = "{start: 1, now: 3, columns: {p99: [0, 5, 6], rate: [0, 2, 0]}}"
    assert value(f"{fed(answer)}.columnWhere('p99', 'rate')") == [None, 5, None]


def test_rows_are_ordered_by_size_and_name_with_the_missing_last(value: Callable[[str], Any]) -> None:
    assert value("[3, null, 20, 1].sort((a, b) => compare(a, b, true))") == [20, 3, 1, None]
    assert value("[3, null, 20, 1].sort((a, b) => compare(a, b, false))") == [1, 3, 20, None]
    assert value("['b10', 'b9', 'a'].sort((a, b) => compare(a, b, false))") == ["a", "b9", "b10"]


VARZ = """{connections: 10, max_connections: 100, held_memory: 0, max_memory: 100, uptime_s: 10,
 slow_consumers: 0, conservation: {dropped: {closed: 1}}, shard: [{index: 0, cpu_percent: 20}]}"""


@pytest.mark.parametrize(
    ("now", "concern"),
    [
        ("{}", None),
        ("{draining: false}", None),
        ("{draining: true}", "the broker is draining, 10 connections left"),
        ("{draining: true, connections: 1}", "the broker is draining, 1 connection left"),
        ("{connections: 95}", "95.0 % of all connections are taken"),
        ("{held_memory: 60}", "60.0 % of the memory for connections is used"),
        ("{slow_consumers: 5}", "consumers are closed because they are slow (1/s)"),
        ("{conservation: {dropped: {closed: 11}}}", "messages are dropped (2/s)"),
        ("{shard: [{index: 3, cpu_percent: 97}]}", "shard 3 is busy 97.0 % of the time"),
    ],
)
def test_conditions_that_need_attention_are_shown(
    value: Callable[[str], Any], now: str, concern: str | None
) -> None:
    look = f"{{before: {VARZ}, varz: {{...{VARZ}, uptime_s: 15, ...{now}}}}}"
    assert value(f"concerns({look})") == ([concern] if concern else [])


#: Gives a status the page that it writes to, shows it these values and says what stands there then.
SHOW_STATUS = """((...values) => {
  const names = ["name", "state", "version", "driver", "uptime", "taken", "concerns", "news", "lost"];
  document.body.replaceChildren(...names.map((id) => html("p", { id })));
  const status = new Status();
  for (const varz of values) {
    status.show({ varz, before: null });
    status.live();
  }
  return [document.body.dataset.state, byId("state").textContent, byId("concerns").textContent];
})"""


def test_a_draining_broker_is_shown_as_not_healthy(value: Callable[[str], Any]) -> None:
    server = f"...{VARZ}, server_id: 'a', start: '2026-01-01T00:00:00Z'"
    well = f"{{{server}}}"
    ten, one = f"{{{server}, draining: true}}", f"{{{server}, draining: true, connections: 1}}"
    assert value(f"{SHOW_STATUS}({well})") == ["live", "live", "All is well."]
    drained = ["draining", "draining, 10 connections left"]
    assert value(f"{SHOW_STATUS}({well}, {ten})") == [*drained, f"Look here: the broker is {drained[1]}."]
    # The number goes on; another broker, at the same address, is well.
    assert value(f"{SHOW_STATUS}({ten}, {one})")[1] == "draining, 1 connection left"
    assert value(f"{SHOW_STATUS}({ten}, {{...{well}, server_id: 'b'}})")[:2] == ["live", "live"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3150", "3150"),
        ("3,150", "3150"),
        ("3 150", "3150"),
        ("12,345,678", "12345678"),
        ("3\u202f150", "3150"),
        ("31,50", None),
        ("1.234", None),
        ("10 of 3150", None),
        ("9" * 20, None),
    ],
)
def test_an_id_with_separators_is_recognised(
    value: Callable[[str], Any], text: str, found: str | None
) -> None:
    assert value(f"idIn({json.dumps(text)})") == found


#: What is asked for to find a text, where the broker has only a connection of id 7.
WATCH_SEARCH = """(async (wanted) => {
  const real = window.fetch;
  const asked = [];
  window.fetch = async (path) => {
    asked.push(path);
    const connections = path === "/connz?cid=7" ? [{ cid: 7 }] : [];
    return { ok: true, json: async () => ({ connections }) };
  };
  try {
    await findConnections(wanted);
    return asked;
  } finally {
    window.fetch = real;
  }
})"""


def test_a_number_that_may_be_an_id_or_a_name_is_searched_as_both(value: Callable[[str], Any]) -> None:
    assert value(f"{WATCH_SEARCH}('7')") == ["/connz?cid=7"]
    assert value(f"{WATCH_SEARCH}('3,150')") == ["/connz?cid=3150", "/connz?limit=64&name=3%2C150"]
    assert value(f"{WATCH_SEARCH}('a b')") == ["/connz?limit=64&name=a%20b"]


def test_identifiers_have_no_separators_and_the_sorted_column_is_near_the_name(
    value: Callable[[str], Any],
) -> None:
    row = (
        "{cid: 3150, name: 'worker', type: 'nats', shard: 1, subscriptions: 4321, rate: 5, pending_bytes: 0}"
    )
    cells = f"""((sort) => {{
      const table = connectionTable("Connections", "None.", sort, () => 0);
      table.show([{row}]);
      return table.heads.map((head, i) => [head.textContent, table.body.rows[0].cells[i].textContent]);
    }})"""
    assert value(f"{cells}('Messages')")[:4] == [
        ["Id", "3150"],
        ["Name", "worker"],
        ["Messages", "5/s"],
        ["Transport", "tcp"],
    ]
    assert value(f"{cells}('Pending')")[2] == ["Pending", "0 B"]
    by_id = value(f"{cells}('Id')")
    assert by_id[0] == ["Id", "3150"]
    assert ["Subs", "4,321"] in by_id


def test_the_heading_names_the_window_of_an_average(value: Callable[[str], Any]) -> None:
    shown = """(() => {
      const table = subjectTable();
      table.show([], "sampled", ", average of the last 48 s");
      return [table.heading.textContent, table.note.textContent];
    })()"""
    assert value(shown) == ["Hottest subjects, average of the last 48 s", "sampled"]


def test_upgraded_connections_are_counted_apart_from_closed_ones(value: Callable[[str], Any]) -> None:
    transports = (
        "{http: {connections: 0, opened: 5, closed: 2}, websocket: {connections: 3, opened: 3, closed: 0}}"
    )
    http, websocket = value(f"transportRows({{transports: {transports}}})")
    assert http == {"name": "http", "upgraded": 3, "connections": 0, "opened": 5, "closed": 2}
    assert http["opened"] == http["connections"] + http["upgraded"] + http["closed"]
    assert websocket.get("upgraded") is None
    assert value("transportRows({})") == []
