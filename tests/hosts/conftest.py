"""Four hosts for all tests, whose cables are plugged in again after each."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.conftest import skip
from tests.hosts.network import Network, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 4


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    """Four hosts; without them the test is skipped, and in CI fails unless the kernel is why."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Network(COUNT))
        except UnavailableError as error:
            if error.refused:
                pytest.skip(str(error))
            skip(str(error))
        yield made


@pytest.fixture(autouse=True)
def plugged_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test cut is mended for the next."""
    yield
    if "network" in request.fixturenames:
        network = request.getfixturevalue("network")
        for index in range(COUNT):
            network.mend(index)
