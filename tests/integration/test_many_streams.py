"""Very many receivers of one subject, by Server-Sent Events and WebSocket, get every message."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_http import Caller
from tests.conftest import require_driver
from tests.integration.streams import payload
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from tests.servers import Broker

PROGRAM = Path(__file__).with_name("streams.py")
#: For each transport.
STREAMS = 10_000
MESSAGES = 200
SUBJECT = "many.streams"


def read_line(output: TextIO | None) -> str:
    assert output is not None
    return output.readline().strip()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", ["epoll", "uring"])
def test_every_stream_gets_every_message(start_broker: Callable[..., Broker], driver: str) -> None:
    """10,000 streams of either kind, 200 messages, 4,000,000 deliveries: each compared, none missing."""
    require_driver(driver)
    broker = start_broker(
        driver=driver, max_connections=2 * STREAMS + 100, event_heartbeat_s=3600, handshake_timeout_s=60
    )
    host, port = broker.http
    arguments = [host, str(port), str(STREAMS), SUBJECT, str(MESSAGES)]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(PROGRAM), kind, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for kind in ("sse", "ws")
        ]
        assert [read_line(client.stdout) for client in clients] == ["ready", "ready"]
        wait_until(lambda: broker.varz()["subscriptions"] == 2 * STREAMS)
        with Caller(broker.http) as caller:
            caller.socket.settimeout(500)
            line = f"POST /v1/publish/{SUBJECT} HTTP/1.1\r\n".encode()
            head = line + b"Host: localhost\r\nContent-Length: %d\r\n\r\n"
            bodies = [payload(number) for number in range(1, MESSAGES + 1)]
            caller.send(b"".join(head % len(body) + body for body in bodies))
            assert all(caller.answer().status == 202 for _ in bodies)
        assert [read_line(client.stdout) for client in clients] == ["complete", "complete"]
        due = 2 * STREAMS * MESSAGES
        wait_until(lambda: broker.conservation()["delivered"] >= due, 60)
        conservation = wait_until(lambda: seen if (seen := broker.conservation())["pending"] == 0 else None)
        assert conservation["matched"] == conservation["delivered"] == due
        assert not any(conservation["dropped"].values()), conservation
    assert [client.returncode for client in clients] == [0, 0]
    broker.wait_idle()
