"""A page in a real browser, Chromium, that uses gateway and WebSocket from another origin."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import nats
import pytest

from tests.integration.browser import chromium
from tests.nats_client import flush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nats.aio.msg import Msg

    from tests.servers import Broker

PAGE = Path(__file__).with_name("browser") / "page.html"
TIMEOUT_S = 60.0


class PageServer(ThreadingHTTPServer):
    """Server of the page, which also receives its reports."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.results: Queue[dict[str, Any]] = Queue()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class PageHandler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        is_page = self.path.startswith("/?")
        body = PAGE.read_bytes() if is_page else b""
        self.answer(200 if is_page else 404, body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")
        self.server.results.put(json.loads(body))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def page() -> Iterator[PageServer]:
    with PageServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def visit(browser: str, page: PageServer, broker: Broker, profile: Path) -> dict[str, Any]:
    """Have the browser open the page; what the page reports."""
    gateway = f"http://{broker.http[0]}:{broker.http[1]}"
    with chromium.running(browser, profile, f"{page.origin}/?gateway={gateway}") as log:
        try:
            return page.results.get(timeout=TIMEOUT_S)
        except Empty:
            pytest.fail(f"the page reported nothing: {log.read_text(errors='replace')[-3000:]}")


async def visit_with_service(browser: str, page: PageServer, broker: Broker, profile: Path) -> dict[str, Any]:
    """The same while a NATS client answers what the page asks."""
    client = await nats.connect(broker.url("tcp"))

    async def reply(message: Msg) -> None:
        trace = (message.headers or {}).get("X-Trace", "")
        fields = {"X-Answer": trace, "Content-Type": "text/plain; charset=utf-8"}
        await client.publish(message.reply, message.data.upper(), headers=fields)

    await client.subscribe("browser-service", cb=reply)
    await flush(client)
    result = await asyncio.to_thread(visit, browser, page, broker, profile)
    await client.close()
    return result


def test_a_page_of_an_allowed_origin(
    browser: str, page: PageServer, start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = start_broker(cors_origins=[page.origin], websocket_origins=[page.origin])
    result = asyncio.run(visit_with_service(browser, page, broker, tmp_path / "profile"))
    assert result == {
        "greeting": "INFO",
        "image": "failed",
        "streamed": True,
        "published": [202, 202, 202],
        "events": [
            {"id": "1", "type": "message", "data": "one"},
            {"id": "2", "type": "message", "data": "two\nlïnes"},
            {"id": "3", "type": "base64", "data": "AP8="},
        ],
        "reply": [200, "HELLO", "42"],
        "nobody": 503,
        "blind": "opaque",
    }
    # The service and the stream; the image did not subscribe, since browsers send none of its page's origin.
    assert broker.varz()["total_subscribed"] == 2
    broker.wait_idle()


def test_a_page_of_another_origin(
    browser: str, page: PageServer, start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """It reads nothing, connects to nothing, and nothing that it sends is published."""
    elsewhere = ["https://elsewhere.example"]
    broker = start_broker(cors_origins=elsewhere, websocket_origins=elsewhere)
    result = asyncio.run(visit_with_service(browser, page, broker, tmp_path / "profile"))
    assert result == {
        "greeting": "refused",
        "image": "failed",
        "streamed": False,
        "published": ["TypeError"] * 3,
        "events": [],
        "reply": "TypeError",
        "nobody": "TypeError",
        # Sent, and refused: the page cannot tell.
        "blind": "opaque",
    }
    varz = broker.varz()
    assert (varz["in_msgs"], varz["total_websockets"], varz["total_subscribed"]) == (0, 0, 1)
    assert varz["http_errors"] >= 7
    broker.wait_idle()
