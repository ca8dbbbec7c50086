"""The broker as a Python object: start, addresses, drain, stop; never a message."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from subjectbus import _core, settings
from subjectbus.config import BrokerConfig
from subjectbus.errors import AddressError, BrokerError, ConfigError

__version__ = _core.__version__

_STOP_TIMEOUT_S = 10.0

#: A program that has a broker inside shall hear of it when something is wrong, and not otherwise.
_EMBEDDED = BrokerConfig(log_level="warning")


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


class Server:
    """A broker in this process, on threads of its own.

    Calling order: `start()`, then `addresses()` and `counters()` at will, then `drain()` or `stop()`, then
    `wait()`. As a context manager it starts on entry, and on exit it stops and waits.

    When a shard fails, the whole broker ends at once, and every later call raises BrokerError, which says
    which shard it was and why.

    It logs to standard error, from a thread of its own: warnings and errors, unless `log_level` is set.
    """

    def __init__(self, config: BrokerConfig | None = None) -> None:
        """Checks the configuration; raises ConfigError that names the key. Opens nothing yet."""
        try:
            config = settings.merge(_EMBEDDED, config or BrokerConfig())
            self._broker = _core.Broker(config.to_json())
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def start(self) -> None:
        """Opens the listeners and starts the shards; AddressError names the one that cannot be opened.

        ConfigError when the limit of open files does not allow what is configured.
        """
        try:
            self._broker.start()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise AddressError(error.strerror or str(error)) from error

    def addresses(self) -> dict[str, str]:
        """`{"tcp": "127.0.0.1:4222", ...}`: the open listeners with the ports that were bound."""
        with _failures():
            return self._broker.addresses()

    def driver(self) -> tuple[str, str | None]:
        """The driver in use, and why "auto" has to do without the best one if it has."""
        with _failures():
            return self._broker.driver()

    def drain(self, reason: str = "") -> None:
        """Begins the lame duck: no new connections, clients are told and then closed. Returns at once.

        The log gives `reason`, such as the name of a signal, where there is one.
        """
        with _failures():
            self._broker.drain(reason)

    def stop(self, reason: str = "") -> None:
        """Ends at once; what is pending is dropped and counted. The log gives `reason`."""
        with _failures():
            self._broker.stop(reason)

    def wait(self, timeout_s: float) -> bool:
        """True when every shard has ended, False when the time is up; BrokerError when a shard failed."""
        with _failures():
            return self._broker.join(timeout_s)

    def counters(self) -> dict[str, Any]:
        """Totals over all shards since the start, as the monitor serves them at /varz."""
        with _failures():
            counters: dict[str, Any] = json.loads(self._broker.counters())
        return counters

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if not self.wait(_STOP_TIMEOUT_S):
            raise BrokerError(f"broker did not stop within {_STOP_TIMEOUT_S:.0f} s")
