"""nats-py clients over TCP and WebSocket, closed after each test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nats
import pytest

from tests.integration.browser import chromium
from tests.wire import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from nats.aio.client import Client

    from tests.integration.browser.chromium import Tab
    from tests.servers import Server


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of Chromium."""
    return chromium.executable()


@pytest.fixture(scope="module")
def tab(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab without a network."""
    with chromium.tab(browser, tmp_path_factory.mktemp("browser") / "profile") as tab:
        tab.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        yield tab


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """Each test runs over TCP and over WebSocket."""
    name: str = request.param
    return name


@pytest.fixture
def url(server: Server, transport: str) -> str:
    """The address of the server under test."""
    return server.url(transport)


@pytest.fixture
async def connect(url: str) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Open nats-py clients that never reconnect, so that a lost connection is an error."""
    clients: list[Client] = []

    async def open_client(address: str = url, **options: Any) -> Client:
        client = await nats.connect(address, allow_reconnect=False, **options)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        if not client.is_closed:
            await client.close()
