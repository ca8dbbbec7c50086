"""The load engine, typed: the one module of this package that reaches into the extension."""

import msgspec

from loadtest.engine.messages import (
    BroadcasterConfig,
    BroadcasterResult,
    Progress,
    ProviderConfig,
    ProviderResult,
    RequestorConfig,
    RequestorResult,
)
from subjectbus import _core


class Requestor:
    """Users that send requests at planned times and measure the replies.

    Calling order: `connect()`, phase "connected", `start()`, phase "done", `result()`, `close()`; with a
    sweep, phase "swept" and another `start()` come between.
    """

    def __init__(self, config: RequestorConfig) -> None:
        """Checks the configuration; ValueError names the key."""
        self._core = _core.Requestor(msgspec.json.encode(config).decode())

    def connect(self) -> None:
        """Begins to open the connections."""
        self._core.connect()

    def start(self, at_ns: int | None = None) -> None:
        """Begins sweep or warm-up, at a time of the run's clock or now; the rest follows by itself."""
        self._core.start(at_ns)

    def stop(self) -> None:
        """Sends no more, drains and ends in phase "done"."""
        self._core.stop()

    def progress(self) -> Progress:
        """Phase and counts now."""
        return msgspec.json.decode(self._core.progress(), type=Progress)

    def result(self) -> RequestorResult:
        """Everything measured; RuntimeError before phase "done"."""
        return msgspec.json.decode(self._core.result(), type=RequestorResult)

    def close(self) -> None:
        """Closes the connections and joins the threads."""
        self._core.close()


class Provider:
    """Providers that answer the requests on their subjects as soon as they are connected.

    Calling order: `connect()`, phase "connected", `start()` where they stall, `stop()`, phase "done",
    `result()`, `close()`.
    """

    def __init__(self, config: ProviderConfig) -> None:
        """Checks the configuration; ValueError names the key."""
        self._core = _core.Provider(msgspec.json.encode(config).decode())

    def connect(self) -> None:
        """Begins to open the connections."""
        self._core.connect()

    def start(self, at_ns: int | None = None) -> None:
        """Counts stalls from a time of the run's clock on, or from now; answering has begun before."""
        self._core.start(at_ns)

    def stop(self) -> None:
        """Sends the replies that wait, answers no more and ends in phase "done"."""
        self._core.stop()

    def progress(self) -> Progress:
        """Phase and counts now."""
        return msgspec.json.decode(self._core.progress(), type=Progress)

    def result(self) -> ProviderResult:
        """The counts; RuntimeError before phase "done"."""
        return msgspec.json.decode(self._core.result(), type=ProviderResult)

    def close(self) -> None:
        """Closes the connections and joins the threads."""
        self._core.close()


class Broadcaster:
    """Publishers that send messages at planned times, each to all users of its subject, and these users.

    Calling order: `connect()`, phase "connected", `start()`, phase "done", `result()`, `close()`.
    """

    def __init__(self, config: BroadcasterConfig) -> None:
        """Checks the configuration; ValueError names the key."""
        self._core = _core.Broadcaster(msgspec.json.encode(config).decode())

    def connect(self) -> None:
        """Begins to open the connections."""
        self._core.connect()

    def start(self, at_ns: int | None = None) -> None:
        """Begins the warm-up, at a time of the run's clock where one is given; the rest follows by itself."""
        self._core.start(at_ns)

    def stop(self) -> None:
        """Publishes no more, drains and ends in phase "done"."""
        self._core.stop()

    def progress(self) -> Progress:
        """Phase and counts now."""
        return msgspec.json.decode(self._core.progress(), type=Progress)

    def result(self) -> BroadcasterResult:
        """Everything measured; RuntimeError before phase "done"."""
        return msgspec.json.decode(self._core.result(), type=BroadcasterResult)

    def close(self) -> None:
        """Closes the connections and joins the threads."""
        self._core.close()
