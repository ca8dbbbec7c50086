"""The monitor's pages as tests read them."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from tests.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Broker
    from tests.wire import Wire

#: A point of time as the monitor writes it.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
PENDING = re.compile(r'^subjectbus_pending_messages\{place="(\w+)"\} (-?\d+)$', re.MULTILINE)


def fetch(broker: Broker, path: str, method: str = "GET", **fields: str) -> tuple[int, dict[str, str], bytes]:
    """One request to the monitor: status, fields and body."""
    with closing(HTTPConnection(*broker.monitor, timeout=10)) as connection:
        connection.request(method, path, headers=fields)
        response = connection.getresponse()
        return (
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )


def page(broker: Broker, path: str) -> dict[str, Any]:
    """The JSON at `path`."""
    status, fields, body = fetch(broker, path)
    assert status == 200, body
    assert fields["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(body)
    return found


def pending(broker: Broker) -> dict[str, int]:
    """How many messages wait at each place."""
    return {place: int(count) for place, count in PENDING.findall(fetch(broker, "/metrics")[2].decode())}


def connz(broker: Broker, query: str = "") -> list[dict[str, Any]]:
    """The connections of one page."""
    found = page(broker, f"/connz?{query}")
    assert found["num_connections"] == len(found["connections"])
    connections: list[dict[str, Any]] = found["connections"]
    return connections


@contextmanager
def clients(broker: Broker, *names: str, transport: str = "tcp") -> Iterator[list[Wire]]:
    """Clients of these names, which have done their handshake."""
    with ExitStack() as stack:
        wires = [stack.enter_context(open_wire(broker, transport)) for _ in names]
        for wire, name in zip(wires, names, strict=True):
            wire.handshake(name=name, lang="python", version="1.2")
        yield wires
