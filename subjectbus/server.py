"""Broker as a Python object: it is started, inspected, drained and stopped; messages stay in Rust."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from subjectbus import settings
from subjectbus.config import BrokerConfig
from subjectbus.errors import AddressError, BrokerError, ConfigError

try:
    from subjectbus import _core
except ImportError as error:
    _folder = Path(__file__).parent
    if any(_folder.glob("_core.*.so")):
        raise
    # Python looks into the current folder first, and a checkout has the sources only.
    raise ImportError(
        f"{_folder} is the source of subjectbus, without the compiled extension: "
        "start Python in another folder, or compile the extension into this one (make develop)"
    ) from error

__version__ = _core.__version__

_POLL_S = 0.1
_DRAIN_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 10.0

_EMBEDDED = BrokerConfig(
    tcp="127.0.0.1:0",
    http="127.0.0.1:0",
    monitor="127.0.0.1:0",
    lame_duck_grace_s=0.0,
    lame_duck_duration_s=0.0,
    log_level="warning",
)
"""Defaults of a broker inside another program: free ports, a drain without delay, only warnings logged."""


def default_config() -> dict[str, Any]:
    """Return each configuration key of the broker with its default."""
    defaults: dict[str, Any] = json.loads(_core.default_broker_config())
    return defaults


def resolve_driver(name: str) -> str:
    """Return the driver, "epoll" or "uring", that a value of the key `driver` selects on this machine.

    Raises:
        ConfigError: The name is unknown, or the kernel does not permit the driver.
    """
    try:
        return _core.resolve_driver(name)[0]
    except ValueError as error:
        raise ConfigError(str(error)) from error


@contextmanager
def _failures() -> Iterator[None]:
    """Turn the extension's error about a broker that failed or was not started into a BrokerError."""
    try:
        yield
    except RuntimeError as error:
        raise BrokerError(str(error)) from error


async def _in_thread(function: Callable[..., object], *arguments: object) -> None:
    # Imported here: it would take a third of the time of `import subjectbus`.
    import asyncio  # noqa: PLC0415

    await asyncio.to_thread(function, *arguments)


class Server:
    """Broker in this process, on threads of its own.

    `with Server() as server` starts the broker on entry. On exit it drains the broker, and stops it if the
    drain takes more than 10 s; `async with` does the same. Without `with`, call `start()` first, then
    `addresses()` and `counters()` as needed, then `drain()` or `stop()`, then `wait()`.

    A key that the configuration does not set has the broker's default, with three exceptions: every listener
    takes a free port of 127.0.0.1, a drain disconnects each client as soon as its backlog is sent, and only
    warnings and errors are logged, to standard error.

    If a shard fails, the whole broker ends at once. Every later call raises a BrokerError that names the
    shard and the reason.
    """

    def __init__(self, config: BrokerConfig | None = None) -> None:
        """Check the configuration; nothing is opened before `start`.

        Args:
            config: Keys that differ from the defaults. None for the defaults alone.

        Raises:
            ConfigError: A key cannot be used; the text names it.
            TypeError: The configuration is not a BrokerConfig.
        """
        if config is not None and not isinstance(config, BrokerConfig):
            raise TypeError(f"config: expected a BrokerConfig, got {type(config).__name__}")
        self._config = config or BrokerConfig()
        self._is_started = False
        try:
            self._broker = _core.Broker(settings.merge(_EMBEDDED, self._config).to_json())
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config!r})"

    def start(self) -> None:
        """Open the listeners and start the shards.

        Raises:
            AddressError: A listener cannot be opened; the text names it.
            ConfigError: The limit on open files is too low for the configuration.
        """
        try:
            self._broker.start()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise AddressError(error.strerror or str(error)) from error
        self._is_started = True

    def addresses(self) -> dict[str, str]:
        """Return the bound address of each open listener, such as `{"tcp": "127.0.0.1:4222"}`."""
        with _failures():
            return self._broker.addresses()

    @property
    def url(self) -> str | None:
        """URL of NATS over TCP, such as `nats://127.0.0.1:4222`. None without that listener."""
        return self._url("nats", "tcp")

    @property
    def ws_url(self) -> str | None:
        """URL of NATS over WebSocket, such as `ws://127.0.0.1:8080`. None without that listener."""
        return self._url("ws", "http")

    @property
    def http_url(self) -> str | None:
        """URL of the HTTP gateway, such as `http://127.0.0.1:8080`. None without that listener."""
        return self._url("http", "http")

    @property
    def monitor_url(self) -> str | None:
        """URL of the monitor, such as `http://127.0.0.1:8222`. None without that listener."""
        return self._url("http", "monitor")

    def _url(self, scheme: str, listener: str) -> str | None:
        """Return the URL of a listener, with the loopback address if it listens on all addresses."""
        address = self.addresses().get(listener)
        if address is None:
            return None
        host, _, port = address.rpartition(":")
        host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - nothing listens here
        return f"{scheme}://{host}:{port}"

    def driver(self) -> tuple[str, str | None]:
        """Return the driver in use, and the reason if "auto" could not choose io_uring, else None."""
        with _failures():
            return self._broker.driver()

    def drain(self, reason: str = "") -> None:
        """Begin lame duck mode and return at once.

        The broker accepts no new connections, asks its clients to leave, and then disconnects them.

        Args:
            reason: Reason for the log, such as the name of a signal.
        """
        with _failures():
            self._broker.drain(reason)

    def stop(self, reason: str = "") -> None:
        """Stop the broker at once; pending messages are dropped and counted.

        Args:
            reason: Reason for the log, such as the name of a signal.
        """
        with _failures():
            self._broker.stop(reason)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every shard has ended.

        Args:
            timeout_s: Longest time to wait, in seconds. None for no limit.

        Returns:
            Whether every shard has ended.

        Raises:
            BrokerError: A shard has failed.
        """
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            # Waiting is divided into short waits, between which Python handles signals such as Ctrl-C.
            left = end - time.monotonic()
            with _failures():
                if self._broker.join(max(0.0, min(left, _POLL_S))):
                    return True
            if left <= _POLL_S:
                return False

    @property
    def is_running(self) -> bool:
        """Whether the broker has started and has neither ended nor failed."""
        try:
            return self._is_started and not self.wait(0.0)
        except BrokerError:
            return False

    def counters(self) -> dict[str, Any]:
        """Return the totals of all shards since the start, with the keys of the monitor's /varz."""
        with _failures():
            counters: dict[str, Any] = json.loads(self._broker.counters())
        return counters

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        except BrokerError as failure:
            if error is None:
                raise
            error.add_note(f"subjectbus: {failure}")

    async def __aenter__(self) -> Self:
        await _in_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In a thread, so that clients in this event loop can read their backlog during the drain.
        await _in_thread(self.__exit__, kind, error, trace)

    def _end(self) -> None:
        """Drain the broker and wait; stop it if the drain takes too long."""
        self.drain()
        if self.wait(_DRAIN_TIMEOUT_S):
            return
        self.stop()
        if not self.wait(_STOP_TIMEOUT_S):
            raise BrokerError(f"the broker did not stop within {_STOP_TIMEOUT_S:.0f} s")
