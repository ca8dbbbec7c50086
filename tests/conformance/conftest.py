"""Raw connections to the server under test, closed after each test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.wire import TRANSPORTS, Wire, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Server


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """TCP and WebSocket carry the same stream."""
    name: str = request.param
    return name


@pytest.fixture
def connect(server: Server, transport: str) -> Iterator[Callable[..., Wire]]:
    """Open connections that have done the handshake, with fields of CONNECT as arguments."""
    with ExitStack() as stack:

        def open_connection(**fields: object) -> Wire:
            wire = stack.enter_context(open_wire(server, transport))
            wire.handshake(**fields)
            return wire

        yield open_connection
