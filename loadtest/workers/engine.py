"""The load engine with types: the only module of loadtest that imports the extension."""

from typing import Generic, TypeVar

import msgspec

from loadtest.workers.messages import (
    BroadcasterConfig,
    BroadcasterResult,
    EngineConfig,
    Progress,
    ProviderConfig,
    ProviderResult,
    RequestorConfig,
    RequestorResult,
)
from subjectbus import _core

_Result = TypeVar("_Result", bound=RequestorResult | ProviderResult | BroadcasterResult)


class _Engine(Generic[_Result]):
    """Calls that all engines have; every call returns at once, except `close()`."""

    def __init__(
        self, core: _core.Requestor | _core.Provider | _core.Broadcaster, result: type[_Result]
    ) -> None:
        self._core = core
        self._decoder: msgspec.json.Decoder[_Result] = msgspec.json.Decoder(result)

    def connect(self) -> None:
        """Start opening the connections."""
        self._core.connect()

    def start(self, at_ns: int | None = None) -> None:
        """Start the sweep or the warm-up at `at_ns` on the run's clock; None starts it now.

        The measured phase and the drain follow without further calls. Providers answer already; their periods
        of delayed replies are counted from this time.
        """
        self._core.start(at_ns)

    def stop(self) -> None:
        """Stop sending and drain, then enter the phase "done"; a second call skips the drain."""
        self._core.stop()

    def progress(self) -> Progress:
        """Return the current phase and counts."""
        return msgspec.json.decode(self._core.progress(), type=Progress)

    def result(self) -> _Result:
        """Return everything that was measured and counted.

        Raises:
            RuntimeError: The phase is not "done" yet.
        """
        return self._decoder.decode(self._core.result())

    def close(self) -> None:
        """Close the connections and join the threads."""
        self._core.close()


def _encode(config: EngineConfig) -> str:
    return msgspec.json.encode(config).decode()


class Requestor(_Engine[RequestorResult]):
    """Engine whose users send requests at planned times and measure the replies.

    Order of calls: `connect()`, phase "connected", `start()`, phase "done", `result()`, `close()`. With a
    sweep, phase "swept" and a second `start()` come after the first `start()`.
    """

    def __init__(self, config: RequestorConfig) -> None:
        """Check the configuration and make the engine.

        Raises:
            ValueError: The configuration is invalid; the text names the key.
        """
        super().__init__(_core.Requestor(_encode(config)), RequestorResult)


class Provider(_Engine[ProviderResult]):
    """Engine whose providers answer the requests on their subjects, from the time they are connected.

    Order of calls: `connect()`, phase "connected", `start()` if replies are to be delayed, `stop()`, phase
    "done", `result()`, `close()`.
    """

    def __init__(self, config: ProviderConfig) -> None:
        """Check the configuration and make the engine.

        Raises:
            ValueError: The configuration is invalid; the text names the key.
        """
        super().__init__(_core.Provider(_encode(config)), ProviderResult)


class Broadcaster(_Engine[BroadcasterResult]):
    """Engine of publishers, which send messages at planned times, and of the users that receive them.

    Each message goes to all users of its subject. Order of calls: `connect()`, phase "connected", `start()`,
    phase "done", `result()`, `close()`.
    """

    def __init__(self, config: BroadcasterConfig) -> None:
        """Check the configuration and make the engine.

        Raises:
            ValueError: The configuration is invalid; the text names the key.
        """
        super().__init__(_core.Broadcaster(_encode(config)), BroadcasterResult)
