"""A stand-in for a monitor listener, for answers that no broker gives."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Documents = dict[str, Any]


def documents(**varz: Any) -> Documents:
    """The documents of a broker with one client; keys of /varz may be set."""
    shard = {
        "index": 0,
        "connections": 1,
        "cpu_percent": 12.5,
        "cpu_s": 1.0,
        "turns": 100,
        "calls": {"wait": 100},
        "descriptors": {"used": 12, "limit": 20000},
        "mailbox": 0,
        "pending_bytes": 0,
        "accept_queue": {"tcp": 0, "http": 0},
    }
    client = {
        "cid": 7,
        "kind": "Client",
        "type": "nats",
        "ip": "127.0.0.1",
        "port": 40000,
        "uptime": "3s",
        "idle": "1s",
        "pending_bytes": 0,
        "in_msgs": 5,
        "out_msgs": 6,
        "in_bytes": 50,
        "out_bytes": 60,
        "subscriptions": 1,
        "shard": 0,
        "name": "someone",
        "lang": "python",
        "version": "2.9",
    }
    return {
        "/varz": {
            "server_id": "N1",
            "server_name": "here",
            "version": "1.2.3",
            "driver": "epoll",
            "uptime": "1h2m3s",
            "uptime_s": 3723.0,
            "cpu": 12.5,
            "mem": 34_000_000,
            "connections": 1,
            "max_connections": 1_000_016,
            "subscriptions": 1,
            "in_msgs": 5,
            "in_bytes": 50,
            "out_msgs": 6,
            "out_bytes": 60,
            "slow_consumers": 0,
            "pending_bytes": 0,
            "max_pending": 67108864,
            "conservation": {"dropped": {"slow_consumer": 0, "closed": 0}},
            "transports": {"tcp": {"connections": 1}, "websocket": {"connections": 0}},
            "shard": [shard],
            **varz,
        },
        "/connz": {"total": 1, "connections": [client]},
        "/subjects": {
            "one_in": 64,
            "seconds": 10.0,
            "subjects": [{"subject": "news.today", "msgs_per_s": 12.0, "bytes_per_s": 3.5e6, "share": 0.25}],
        },
    }


@contextmanager
def serving(answers: Documents, note_port: Callable[[int], object] = int) -> Iterator[str]:
    """Serve `answers`, read anew for every request, at the URL that is yielded.

    `note_port` is called with the client's port at each request.

    An answer is a document, or a whole response as bytes, status line and all; without one it is 404.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            note_port(self.client_address[1])
            answer = answers.get(urlsplit(self.path).path)
            if isinstance(answer, bytes):
                self.wfile.write(answer)
                self.close_connection = True
                return
            body = json.dumps({"detail": "no such document"} if answer is None else answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
