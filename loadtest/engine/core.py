"""The load engine, typed: the one module of this package that reaches into the extension."""

from typing import Generic, TypeVar

import msgspec

from loadtest.engine.messages import (
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
    """What every engine can be told and asked; every call returns at once but `close()`."""

    def __init__(
        self, core: _core.Requestor | _core.Provider | _core.Broadcaster, result: type[_Result]
    ) -> None:
        self._core = core
        self._decoder: msgspec.json.Decoder[_Result] = msgspec.json.Decoder(result)

    def connect(self) -> None:
        """Begins to open the connections."""
        self._core.connect()

    def start(self, at_ns: int | None = None) -> None:
        """Begins sweep or warm-up, at a time of the run's clock or now; the rest follows by itself.

        Providers, who have answered before, count their stalls from then on.
        """
        self._core.start(at_ns)

    def stop(self) -> None:
        """Sends no more, drains and ends in phase "done"; told so again, it drains no longer."""
        self._core.stop()

    def progress(self) -> Progress:
        """Phase and counts now."""
        return msgspec.json.decode(self._core.progress(), type=Progress)

    def result(self) -> _Result:
        """Everything measured or counted; RuntimeError before phase "done"."""
        return self._decoder.decode(self._core.result())

    def close(self) -> None:
        """Closes the connections and joins the threads."""
        self._core.close()


def _encode(config: EngineConfig) -> str:
    return msgspec.json.encode(config).decode()


class Requestor(_Engine[RequestorResult]):
    """Users that send requests at planned times and measure the replies.

    Calling order: `connect()`, phase "connected", `start()`, phase "done", `result()`, `close()`; with a
    sweep, phase "swept" and another `start()` come between.
    """

    def __init__(self, config: RequestorConfig) -> None:
        """Checks the configuration; ValueError names the key."""
        super().__init__(_core.Requestor(_encode(config)), RequestorResult)


class Provider(_Engine[ProviderResult]):
    """Providers that answer the requests on their subjects as soon as they are connected.

    Calling order: `connect()`, phase "connected", `start()` where they stall, `stop()`, phase "done",
    `result()`, `close()`.
    """

    def __init__(self, config: ProviderConfig) -> None:
        """Checks the configuration; ValueError names the key."""
        super().__init__(_core.Provider(_encode(config)), ProviderResult)


class Broadcaster(_Engine[BroadcasterResult]):
    """Publishers that send messages at planned times, each to all users of its subject, and these users.

    Calling order: `connect()`, phase "connected", `start()`, phase "done", `result()`, `close()`.
    """

    def __init__(self, config: BroadcasterConfig) -> None:
        """Checks the configuration; ValueError names the key."""
        super().__init__(_core.Broadcaster(_encode(config)), BroadcasterResult)
