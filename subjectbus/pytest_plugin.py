"""Fixtures of pytest: a broker for tests of programs that use NATS, inside the test process.

pytest finds them wherever subjectbus is installed. A test takes `subjectbus_server` and connects to its
`url`, `ws_url` or `http_url`:

    async def test_orders(subjectbus_server):
        client = await nats.connect(subjectbus_server.url)

A project that needs other settings defines a fixture `subjectbus_config` of its own, of scope "session".
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
    """Configuration of the brokers; to be overridden."""
    from subjectbus import BrokerConfig  # noqa: PLC0415 - pytest loads this file in every session

    return BrokerConfig(shards=1)


@pytest.fixture(scope="session")
def subjectbus_server(subjectbus_config: BrokerConfig) -> Iterator[Server]:
    """A broker that all tests of the session share."""
    with _accounted(subjectbus_config) as server:
        yield server


@pytest.fixture
def subjectbus_own_server(subjectbus_config: BrokerConfig) -> Iterator[Server]:
    """A broker for one test alone, which may stop it."""
    with _accounted(subjectbus_config) as server:
        yield server


@contextmanager
def _accounted(config: BrokerConfig) -> Iterator[Server]:
    """Run a broker; fail if, when it has ended, a message is not accounted for."""
    from subjectbus import Server  # noqa: PLC0415

    with Server(config) as server:
        yield server
    account = server.counters()["conservation"]
    matched, delivered, pending = account["matched"], account["delivered"], account["pending"]
    dropped = sum(account["dropped"].values())
    if matched != delivered + dropped + pending or pending:
        pytest.fail(
            f"subjectbus: {matched} messages had a receiver, but {delivered} were delivered, "
            f"{dropped} dropped and {pending} still wait"
        )
