"""Fixtures that start the servers under test and check, after every test, that they are still well."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from subjectbus import ConfigError, resolve_driver
from tests.servers import Broker, NatsServer, Server, in_ci, nats_server_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import NoReturn

OPEN_FILES = ("prlimit", "--nofile=1024")
#: Our broker in each form: the options that make it so.
BROKERS: dict[str, dict[str, Any]] = {
    "epoll-1-shard": {"driver": "epoll", "shards": 1},
    "epoll-2-shards": {"driver": "epoll", "shards": 2},
    "uring-1-shard": {"driver": "uring", "shards": 1},
    # More connections than one ring may hold make several rings of each shard.
    "uring-2-shards": {"driver": "uring", "shards": 2, "max_connections": 5000, "prefix": OPEN_FILES},
}
#: Every test of ordinary NATS behaviour runs on nats-server too: that proves the expectation.
SERVERS = (*BROKERS, "nats-server")


def nats_server_executable() -> str:
    """The path of nats-server; without it the test is skipped, and fails in CI."""
    executable = nats_server_command()
    if executable is None:
        skip("nats-server is not installed: `make setup` installs it where Go is")
    return executable


def skip(reason: str) -> NoReturn:
    """Skips the test, but for CI, where everything has to be there."""
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)


def require_driver(name: object) -> None:
    """Skips the test where the kernel does not permit this driver, which no setup can change."""
    try:
        resolve_driver(str(name))
    except ConfigError as error:
        pytest.skip(str(error))


class Pool:
    """Servers shared by the whole run, started when first asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers: dict[str, Server] = {}

    def server(self, name: str) -> Server:
        """The running server of this name."""
        if name not in self.servers:
            self.servers[name] = self.start(name)
        return self.servers[name]

    def start(self, name: str) -> Server:
        if name == "nats-server":
            return NatsServer.start(nats_server_executable(), self.directory)
        options = BROKERS[name]
        require_driver(options["driver"])
        return Broker.start(self.directory, echo=True, handshake_timeout_s=5, **options)

    def discard(self, name: str) -> None:
        """Kill a server that a test left in disorder, so that only that test fails."""
        self.servers.pop(name).kill()

    def check(self, name: str) -> None:
        """Check that the server of this name lives, is idle and lost no message."""
        server = self.servers[name]
        try:
            assert server.is_running(), server.log()
            if isinstance(server, Broker):
                server.wait_idle()
        except BaseException:
            self.discard(name)
            raise

    def stop(self) -> None:
        with ExitStack() as stack:
            for server in self.servers.values():
                stack.callback(server.stop)


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """Started in the background or under nohup, the tests' processes would inherit ignored signals."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The shared servers; ending them is part of the test."""
    pool = Pool(tmp_path_factory.mktemp("servers"))
    yield pool
    pool.stop()


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Server]:
    """Each server in turn, checked to be idle and lossless after the test."""
    yield pool.server(request.param)
    pool.check(request.param)


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Broker]:
    """Our broker, with one shard and with two, checked after the test."""
    broker = pool.server(request.param)
    assert isinstance(broker, Broker)
    yield broker
    pool.check(request.param)


@pytest.fixture
def nats_server(pool: Pool) -> Server:
    """A running nats-server."""
    return pool.server("nats-server")


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start brokers with flags of their own; those still running are stopped after the test."""
    with ExitStack() as stack:

        def start(**options: str | float | bool) -> Broker:
            broker = Broker.start(tmp_path, **options)
            stack.callback(lambda: broker.is_running() and broker.stop())
            return broker

        yield start


@pytest.fixture(params=("subjectbus", "nats-server"))
def start_server(
    request: pytest.FixtureRequest, tmp_path: Path, start_broker: Callable[..., Broker]
) -> Iterator[Callable[..., Server]]:
    """Start each kind of server with limits of its own."""
    if request.param == "subjectbus":
        yield start_broker
        return
    executable = nats_server_executable()
    with ExitStack() as stack:

        def start(**options: str | float) -> Server:
            server = NatsServer.start(executable, tmp_path, **options)
            stack.callback(server.stop)
            return server

        yield start
