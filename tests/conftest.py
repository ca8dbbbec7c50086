"""Fixtures that start the servers under test and check them after every test."""

from __future__ import annotations

import platform
import signal
import sys
import zlib
from contextlib import ExitStack, suppress
from functools import cache
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
#: Fixtures that start processes -> the marks of the tests that use them.
MARKS = {
    "pool": ["process"],
    "start_broker": ["process"],
    "browser": ["process", "browser"],
    "network": ["process", "hosts"],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brokers",
        choices=("one", "all", *BROKERS),
        default="one",
        help="which forms of the broker tests run on: one per case, chosen by its name (the default; "
        "all for tests marked `matrix`), all, or the one that is named",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Iterator[None]:
    """Mark tests by their fixtures, and leave out forms of the broker that `--brokers` does not ask for."""
    made = yield
    if not isinstance(made, list):
        return made
    for item in made:
        for mark in {mark for name in item.fixturenames for mark in MARKS.get(name, [])}:
            item.add_marker(mark)
    return [item for item in made if is_wanted(item, collector.config.getoption("brokers"))]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let only tests marked `process` start processes."""
    permit_processes(allowed=item.get_closest_marker("process") is not None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Permit processes while fixtures end; fixtures of the session end after the last test."""
    permit_processes(allowed=True)


def permit_processes(*, allowed: bool) -> None:
    """Permit or forbid to start processes."""
    global may_start_processes  # noqa: PLW0603 - an audit hook has no arguments of ours, and stays for ever
    may_start_processes = allowed


def refuse_processes(event: str, _: tuple[object, ...]) -> None:
    """Refuse to start a process for a test without the mark: `make check` runs it."""
    if event in {"subprocess.Popen", "os.fork", "os.posix_spawn"} and not may_start_processes:
        raise RuntimeError("a test that starts processes is marked: @pytest.mark.process")


may_start_processes = True
platform.platform()  # starts uname(1) when it is called first
sys.addaudithook(refuse_processes)


def is_wanted(item: pytest.Function, brokers: str) -> bool:
    """Return whether `--brokers` selects the form of the broker that a case runs on."""
    case = getattr(item, "callspec", None)
    form = next((value for value in case.params.values() if value in tuple(BROKERS)), None) if case else None
    if form is None or brokers == "all":
        return True
    if brokers == "one":
        return item.get_closest_marker("matrix") is not None or form == one_form(
            item.nodeid.replace(form, "")
        )
    return bool(form == brokers)


def one_form(case: str) -> str:
    """The form of the broker for a case: always the same for a name, and spread evenly over all names."""
    forms = usable_forms()
    return forms[zlib.crc32(case.encode()) % len(forms)]


@cache
def usable_forms() -> list[str]:
    """The forms of the broker that this kernel permits."""
    usable = []
    for form, options in BROKERS.items():
        with suppress(ConfigError):
            resolve_driver(options["driver"])
            usable.append(form)
    return usable


def nats_server_executable() -> str:
    """The path of nats-server; without it the test is skipped, and fails in CI."""
    executable = nats_server_command()
    if executable is None:
        skip("nats-server is not installed: `make setup` installs it if Go is installed")
    return executable


def skip(reason: str) -> NoReturn:
    """Skip the test; in CI fail, since everything must be installed there."""
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)


def require_driver(name: object) -> None:
    """Skip the test if the kernel does not permit this driver, also in CI."""
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
            return NatsServer.start(self.directory, nats_server_executable())
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
            server = NatsServer.start(tmp_path, executable, **options)
            stack.callback(server.stop)
            return server

        yield start
