"""The broker as a Python object: start, addresses, drain, stop; never a message."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from subjectbus import _core, settings
from subjectbus.config import BrokerConfig
from subjectbus.errors import AddressError, BrokerError, ConfigError

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
"""Defaults inside another program: free ports, a drain without delay, a log only of what is wrong."""


def default_config() -> dict[str, Any]:
    """Every configuration key of the broker with the default that it takes when the key is left out."""
    defaults: dict[str, Any] = json.loads(_core.default_broker_config())
    return defaults


def resolve_driver(name: str) -> str:
    """The driver that "auto", "epoll" or "uring" stands for here; ConfigError when the kernel refuses it."""
    try:
        return _core.resolve_driver(name)[0]
    except ValueError as error:
        raise ConfigError(str(error)) from error


@contextmanager
def _failures() -> Iterator[None]:
    """Raise BrokerError for what the extension says of a broker that has failed, or was not started."""
    try:
        yield
    except RuntimeError as error:
        raise BrokerError(str(error)) from error


async def _in_thread(function: Callable[..., object], *arguments: object) -> None:
    # Imported here: it is a third of the time that `import subjectbus` would take.
    import asyncio  # noqa: PLC0415

    await asyncio.to_thread(function, *arguments)


class Server:
    """A broker in this process, on threads of its own.

    `with Server() as server` starts it on entry, and on exit drains it, and ends it if that takes more than
    10 s; `async with` does the same. Without them the calling order is `start()`, then the addresses and
    `counters()` at will, then `drain()` or `stop()`, then `wait()`.

    Keys that the configuration leaves out have the broker's defaults, except: every listener takes a free
    port of 127.0.0.1, a drain closes each client as soon as it has what waits for it, and only warnings and
    errors are logged, to standard error.

    When a shard fails, the whole broker ends at once, and every later call raises BrokerError, which says
    which shard it was and why.
    """

    def __init__(self, config: BrokerConfig | None = None) -> None:
        """Check the configuration; raise ConfigError that names the key. Open nothing yet."""
        self._config = config or BrokerConfig()
        self._is_started = False
        try:
            self._broker = _core.Broker(settings.merge(_EMBEDDED, self._config).to_json())
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config!r})"

    def start(self) -> None:
        """Open the listeners and start the shards; AddressError names the one that cannot be opened.

        ConfigError when the limit of open files does not allow what is configured.
        """
        try:
            self._broker.start()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise AddressError(error.strerror or str(error)) from error
        self._is_started = True

    def addresses(self) -> dict[str, str]:
        """Return the open listeners with the ports that were bound: `{"tcp": "127.0.0.1:4222", ...}`."""
        with _failures():
            return self._broker.addresses()

    @property
    def url(self) -> str | None:
        """URL of the NATS protocol over TCP, `nats://127.0.0.1:4222`; None without that listener."""
        return self._url("nats", "tcp")

    @property
    def ws_url(self) -> str | None:
        """URL of the NATS protocol over WebSocket, `ws://127.0.0.1:8080`; None without that listener."""
        return self._url("ws", "http")

    @property
    def http_url(self) -> str | None:
        """URL of the HTTP gateway, `http://127.0.0.1:8080`; None without that listener."""
        return self._url("http", "http")

    @property
    def monitor_url(self) -> str | None:
        """URL of the monitor, `http://127.0.0.1:8222`; None without that listener."""
        return self._url("http", "monitor")

    def _url(self, scheme: str, listener: str) -> str | None:
        """Return the URL of a listener, for callers on this machine if it listens on all addresses."""
        address = self.addresses().get(listener)
        if address is None:
            return None
        host, _, port = address.rpartition(":")
        host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - nothing listens here
        return f"{scheme}://{host}:{port}"

    def driver(self) -> tuple[str, str | None]:
        """Return the driver in use, and the reason if "auto" could not choose the best one."""
        with _failures():
            return self._broker.driver()

    def drain(self, reason: str = "") -> None:
        """Begin lame duck mode and return at once: no new connections, clients are told and then closed.

        The log gives `reason`, such as the name of a signal.
        """
        with _failures():
            self._broker.drain(reason)

    def stop(self, reason: str = "") -> None:
        """End at once; pending messages are dropped and counted. The log gives `reason`."""
        with _failures():
            self._broker.stop(reason)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every shard has ended: True, or False after `timeout_s` seconds (None: no limit).

        Raises:
            BrokerError: A shard has failed.
        """
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            # In short waits, between which Python handles signals such as Ctrl-C.
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
        """Return totals over all shards since the start, as the monitor serves them at /varz."""
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
        # In a thread, so that clients of this event loop can take what waits for them.
        await _in_thread(self.__exit__, kind, error, trace)

    def _end(self) -> None:
        """Drain and wait; stop if that takes too long."""
        self.drain()
        if self.wait(_DRAIN_TIMEOUT_S):
            return
        self.stop()
        if not self.wait(_STOP_TIMEOUT_S):
            raise BrokerError(f"the broker did not stop within {_STOP_TIMEOUT_S:.0f} s")
