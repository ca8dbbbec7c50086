"""The monitor's web console in a real browser, Chromium, with a little load on the broker."""

from __future__ import annotations

import json
import signal
import urllib.request
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.browser import chromium
from tests.servers import wait_until
from tests.wire import TRANSPORTS, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.browser.chromium import Tab
    from tests.servers import Broker
    from tests.wire import Wire

#: Each is run, or changes what is read, where it is taken for markup or shown as it is.
HOSTILE_NAME = (
    "<img src=x onerror=window.hacked=1></td></script><script>window.hacked=1</script>\u202egnp.exe"
)
SHOWN_NAME = HOSTILE_NAME.replace("\u202e", r"\u{202e}")
HOSTILE_SUBJECT = "<svg/onload=window.hacked=1>.&lt;b&gt;"
#: One publish in so many is noted for the hottest subjects.
MESSAGES = 64 * 20
HISTORY_POINTS = 3


@pytest.fixture
def tab(browser: str, tmp_path: Path) -> Iterator[Tab]:
    with chromium.tab(browser, tmp_path / "profile") as tab:
        yield tab


def address(broker: Broker) -> str:
    return f"http://{broker.monitor[0]}:{broker.monitor[1]}/"


def history(broker: Broker) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address(broker)}history?resolution=1", timeout=10) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def points(broker: Broker) -> int:
    return len(history(broker)["columns"]["connections"])


@contextmanager
def load(broker: Broker) -> Iterator[list[Wire]]:
    """One client of each transport, with a hostile name, to which a hostile subject's messages went."""
    with ExitStack() as stack:
        clients = [stack.enter_context(open_wire(broker, transport)) for transport in TRANSPORTS]
        for client in clients:
            client.handshake(name=HOSTILE_NAME, verbose=False)
            client.send(f"SUB {HOSTILE_SUBJECT} 1\r\n".encode())
            client.ping()
        message = f"{HOSTILE_SUBJECT} 1 2\r\nhi\r\n".encode()
        clients[0].send(b"".join(b"PUB " + message.replace(b" 1 2", b" 2") for _ in range(MESSAGES)))
        for client in clients:
            client.expect(b"".join(b"MSG " + message for _ in range(MESSAGES)))
        yield clients


def tile(title: str, part: str) -> str:
    """JavaScript for a text of the overview: `figure` or `detail`."""
    return (
        f"[...document.querySelectorAll('.tile')].find((tile) => tile.querySelector('dt').textContent === "
        f"{json.dumps(title)})?.querySelector('.{part}').textContent"
    )


def text(element: str) -> str:
    """JavaScript for the text of an element."""
    return f"document.getElementById({json.dumps(element)}).textContent"


def chart(title: str) -> str:
    """JavaScript for a chart's drawing."""
    return f"document.querySelector('svg[aria-label={json.dumps(title)}]')"


def table(title: str) -> str:
    """JavaScript for a table's cells: a list for each row."""
    return (
        f"[...document.querySelectorAll('[aria-label={json.dumps(title)}] tbody tr')]"
        f".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


def state(name: str) -> str:
    return f"document.body.dataset.state === {json.dumps(name)}"


def press(tab: Tab, key: str) -> None:
    for type_ in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=type_, key=key, code=key)


def check_clean(tab: Tab, broker: Broker) -> None:
    """Check that the page had no error, ran no foreign script and sent requests to the broker only."""
    assert tab.errors() == []
    assert tab.evaluate("window.hacked") is None
    elsewhere = [url for url in tab.requests() if not url.startswith((address(broker), "data:", "about:"))]
    assert elsewhere == []


def test_the_console_shows_the_figures_of_the_broker(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=2)
    with load(broker):
        tab.open(address(broker))
        tab.wait(state("live"))
        varz = broker.varz()
        assert (varz["connections"], varz["in_msgs"], varz["out_msgs"]) == (2, MESSAGES, 2 * MESSAGES)
        assert tab.evaluate(tile("Connections", "figure")) == "2"
        assert tab.evaluate(tile("Messages in", "detail")) == f"{MESSAGES:,} so far"
        assert tab.evaluate(tile("Messages out", "detail")) == f"{2 * MESSAGES:,} so far"
        assert tab.evaluate(text("name")) == varz["server_name"]
        assert tab.evaluate(text("version")) == varz["version"]
        assert tab.evaluate(text("driver")) == f"{varz['driver']} · 2 shards"
        assert tab.evaluate(text("uptime")).endswith("s")
        assert tab.evaluate(text("taken")) == f"2 / {varz['max_connections']:,}"
        transports = {row[0]: row[1] for row in tab.evaluate(table("Transports"))}
        assert transports == {"http": "0", "tcp": "1", "websocket": "1"}
        assert len(tab.evaluate(table("Shards"))) == 2
        # It goes on.
        with open_wire(broker, "tcp") as third:
            third.handshake()
            tab.wait(f"{tile('Connections', 'figure')} === '3'")
        tab.wait(f"{tile('Connections', 'figure')} === '2'")
        tab.wait(f"{table('Closed connections')}.some((row) => row[0] === 'client closed' && row[1] === '1')")
        assert tab.evaluate(text("trouble")) == ""
        check_clean(tab, broker)
    broker.wait_idle()


def test_names_and_subjects_from_clients_are_shown_as_text(
    tab: Tab, start_broker: Callable[..., Broker]
) -> None:
    broker = start_broker(shards=1)
    with load(broker):
        tab.open(address(broker))
        tab.wait(f"{table('Busiest connections')}.length === 2")
        assert {row[1] for row in tab.evaluate(table("Busiest connections"))} == {SHOWN_NAME}
        hottest = tab.wait(f"{table('Hottest subjects')}.length && {table('Hottest subjects')}")
        assert [row[0] for row in hottest] == [HOSTILE_SUBJECT]
        tab.evaluate("document.querySelector('[aria-label=\"Busiest connections\"] tbody button').click()")
        tab.wait("document.querySelector('#connection li') !== null")
        assert tab.evaluate("document.querySelector('#connection li').textContent") == HOSTILE_SUBJECT
        assert SHOWN_NAME in tab.evaluate("document.querySelector('#connection dl').textContent")
        assert tab.evaluate("document.querySelectorAll('img, td svg, td script, dialog svg').length") == 0
        check_clean(tab, broker)


def test_a_list_of_subjects_counts_the_hidden_ones(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    count = 6000
    with open_wire(broker, "tcp") as client:
        client.handshake(name="many", verbose=False)
        for at in range(0, count, 500):
            client.send("".join(f"SUB {'x' * 300}.{n} {n}\r\n" for n in range(at, at + 500)).encode())
        client.send(b"PUB nobody 2\r\nhi\r\n" * 1000)
        client.ping()
        tab.open(address(broker))
        tab.wait(f"{table('Busiest connections')}.length === 1")
        tab.evaluate("document.querySelector('[aria-label=\"Busiest connections\"] tbody button').click()")
        tab.wait("document.querySelector('#connection li') !== null")
        note = tab.evaluate("document.querySelector('#connection p').textContent")
        assert note == f"Subscribed to {count:,} subjects; 1,000 of them are shown."
        assert tab.evaluate("document.querySelector('#connection li').textContent") == "x" * 256 + "…"
        facts = tab.evaluate("document.querySelector('#connection dl').textContent")
        assert f"subscriptions{count:,}" in facts
        assert "left out" not in facts
        check_clean(tab, broker)


def test_charts_include_the_time_before_the_page_was_opened(
    tab: Tab, start_broker: Callable[..., Broker]
) -> None:
    broker = start_broker(shards=1)
    with load(broker):
        wait_until(lambda: points(broker) >= HISTORY_POINTS, what="points of history")
        before = history(broker)
        tab.open(address(broker))
        sessions = chart("Sessions by transport")
        tab.wait(f"Number({sessions}?.getAttribute('aria-valuemax')) >= {HISTORY_POINTS - 1}")
        tab.evaluate(f"{sessions}.focus()")
        press(tab, "Home")
        first = datetime.fromtimestamp(before["start"]).astimezone().strftime("%H:%M:%S")
        assert tab.evaluate(f"{sessions}.getAttribute('aria-valuetext')").startswith(f"{first}: WebSocket ")
        # All charts show the values of that moment.
        moments = tab.evaluate(
            "[...document.querySelectorAll('.chart .moment')].map((one) => one.textContent)"
        )
        assert set(moments) == {first}
        press(tab, "Escape")
        assert tab.evaluate(f"{sessions}.getAttribute('aria-valuetext')").endswith(
            "WebSocket 1, TCP 1, HTTP 0, Total 2"
        )
        # Later points are added to those that are there.
        known = int(tab.evaluate(f"{sessions}.getAttribute('aria-valuemax')"))
        tab.wait(f"Number({sessions}.getAttribute('aria-valuemax')) > {known + 1}")
        assert any("resolution=1&since=" in url for url in tab.requests())
        tab.evaluate("document.querySelector('input[value=\"10\"]').click()")
        few = f"Number({sessions}.getAttribute('aria-valuemax')) < {HISTORY_POINTS}"
        tab.wait(f"{sessions}.hasAttribute('aria-valuemax') && {few}", timeout_s=40)
        assert any("resolution=10" in url for url in tab.requests())
        check_clean(tab, broker)


def test_a_broker_that_is_lost_and_comes_back(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    wait_until(lambda: points(broker) >= HISTORY_POINTS, what="points of history")
    tab.open(address(broker))
    tab.wait(f"{state('live')} && {chart('Messages')}?.hasAttribute('aria-valuemax')")
    check_clean(tab, broker)
    known = int(tab.evaluate(f"{chart('Messages')}.getAttribute('aria-valuemax')"))
    assert not tab.evaluate("document.getElementById('lost').checkVisibility()")
    broker.stop()
    tab.wait(state("lost"))
    assert tab.evaluate("document.getElementById('lost').checkVisibility()")
    assert "Last data at " in tab.evaluate(text("age"))
    start_broker(shards=1, monitor=f"127.0.0.1:{broker.monitor[1]}")
    tab.wait(state("live"))
    assert not tab.evaluate("document.getElementById('lost').checkVisibility()")
    assert "restarted" in tab.evaluate(text("news"))
    # What was drawn before stays, and goes on.
    tab.wait(f"Number({chart('Messages')}.getAttribute('aria-valuemax')) > {known}")
    # A page cannot keep the browser from noting that nobody answered.
    assert {error.get("entry", {}).get("source") for error in tab.errors()} <= {"network"}


def test_a_broker_that_drains(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, lame_duck_grace_s=60, lame_duck_duration_s=60)
    with open_wire(broker, "tcp") as wire:
        wire.handshake()
        tab.open(address(broker))
        tab.wait(f"{state('live')} && {text('concerns')} === 'All is well.'")
        broker.process.send_signal(signal.SIGTERM)
        tab.wait(state("draining"))
        assert tab.evaluate(text("state")) == "draining, 1 connection left"
        assert tab.evaluate(text("concerns")) == "Look here: the broker is draining, 1 connection left."
        check_clean(tab, broker)
        # A second signal ends it at once.
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_status() == 128 + signal.SIGTERM


def test_a_hidden_page_sends_no_requests(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    tab.open(address(broker))
    tab.wait(state("live"))
    hide = "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}})"
    tab.evaluate(hide.format("true") + "; document.dispatchEvent(new Event('visibilitychange'))")
    tab.wait(state("paused"))
    asked, known = len(tab.requests()), points(broker)
    wait_until(lambda: points(broker) >= known + HISTORY_POINTS, what="seconds of the broker's")
    assert tab.evaluate("document.body.dataset.state") == "paused"
    assert len(tab.requests()) == asked
    tab.evaluate(hide.format("false") + "; document.dispatchEvent(new Event('visibilitychange'))")
    tab.wait(state("live"))
    check_clean(tab, broker)


def test_tables_are_sorted_by_their_heads(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=2)
    tab.open(address(broker))
    tab.wait(f"{table('Shards')}.length === 2")
    head = "document.querySelector('[aria-label=\"Shards\"] th:first-child')"
    assert tab.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert [row[0] for row in tab.evaluate(table("Shards"))] == ["0", "1"]
    tab.evaluate(f"{head}.querySelector('button').focus()")
    tab.call(
        "Input.dispatchKeyEvent",
        type="keyDown",
        key="Enter",
        code="Enter",
        text="\r",
        windowsVirtualKeyCode=13,
    )
    assert tab.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"
    assert [row[0] for row in tab.evaluate(table("Shards"))] == ["1", "0"]
    check_clean(tab, broker)


def test_the_console_fits_narrow_and_dark_screens(tab: Tab, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=2)
    narrow = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    tab.call("Emulation.setDeviceMetricsOverride", **narrow)
    scheme = "prefers-color-scheme"
    tab.call("Emulation.setEmulatedMedia", features=[{"name": scheme, "value": "light"}])
    tab.open(address(broker))
    tab.wait(f"{state('live')} && {chart('Messages')}?.hasAttribute('aria-valuemax')")
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    edges = tab.evaluate(
        "[...new Set([...document.querySelectorAll('.chart')].map((one) => one.offsetLeft))].length"
    )
    assert edges == 1
    page = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(page)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": scheme, "value": "dark"}])
    dark = tab.evaluate(page)
    assert dark != light
    tab.evaluate("document.getElementById('theme').click()")
    assert tab.evaluate(page) == light
    check_clean(tab, broker)


def test_the_sorted_column_is_visible_on_a_narrow_screen(
    tab: Tab, start_broker: Callable[..., Broker]
) -> None:
    broker = start_broker(shards=1)
    narrow = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    tab.call("Emulation.setDeviceMetricsOverride", **narrow)
    with load(broker):
        tab.open(address(broker))
        tab.wait(f"{table('Busiest connections')}.length === 2")
        box = "document.querySelector('[aria-label=\"Busiest connections\"]')"
        right = f"{box}.querySelector('th[aria-sort]').getBoundingClientRect().right"
        assert tab.evaluate(f"{box}.querySelector('th[aria-sort]').textContent") == "Messages"
        assert tab.evaluate(f"{right} <= {box}.getBoundingClientRect().right")
        check_clean(tab, broker)
