"""Fixtures for pytest that run a broker inside the test process, for tests of programs that use NATS.

pytest finds the fixtures if subjectbus is installed. A test takes `subjectbus_server` and connects to its
`url`, `ws_url` or `http_url`:

    async def test_orders(subjectbus_server):
        client = await nats.connect(subjectbus_server.url)

A project that needs other settings defines its own fixture `subjectbus_config` of scope "session".
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from subjectbus import BrokerConfig, Server


@pytest.fixture(scope="session")
def subjectbus_config() -> BrokerConfig:
    """Return the configuration of the brokers; a project may override this fixture."""
    from subjectbus import BrokerConfig  # noqa: PLC0415 - pytest loads this file in every session

    return BrokerConfig(shards=1)


@pytest.fixture(scope="session")
def subjectbus_server(subjectbus_config: BrokerConfig) -> Iterator[Server]:
    """Yield a broker that all tests of the session share."""
    with _checked_server(subjectbus_config) as server:
        yield server


@pytest.fixture
def subjectbus_own_server(subjectbus_config: BrokerConfig) -> Iterator[Server]:
    """Yield a broker for one test alone, which may stop it."""
    with _checked_server(subjectbus_config) as server:
        yield server


@contextmanager
def _checked_server(config: BrokerConfig) -> Iterator[Server]:
    """Run a broker; fail the test if its counters do not account for every message at the end."""
    from subjectbus import Server  # noqa: PLC0415

    with Server(config) as server:
        yield server
    account = server.counters()["conservation"]
    matched, delivered, pending = account["matched"], account["delivered"], account["pending"]
    dropped = sum(account["dropped"].values())
    if matched != delivered + dropped + pending or pending:
        pytest.fail(
            f"subjectbus: {matched} messages had a receiver, but {delivered} were delivered, "
            f"{dropped} were dropped and {pending} are pending"
        )
