"""Fixtures: four hosts for all tests, reconnected after each test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.conftest import skip
from tests.hosts.network import Network, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COUNT = 4


def make_network(count: int, environment: Mapping[str, str] | None = None) -> Iterator[Network]:
    """For a fixture; without hosts its tests are skipped, and in CI fail unless the kernel is why."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Network(count, environment))
        except UnavailableError as error:
            if error.refused:
                pytest.skip(str(error))
            skip(str(error))
        yield made


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    """Four hosts."""
    yield from make_network(COUNT)


@pytest.fixture(autouse=True)
def plugged_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reconnect the hosts after a test."""
    yield
    if "network" in request.fixturenames:
        network = request.getfixturevalue("network")
        for index in range(COUNT):
            network.mend(index)
