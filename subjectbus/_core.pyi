"""Rust extension with broker and load engine: arguments and results are JSON, messages stay in Rust."""

from typing import Self, final

__all__ = [
    "Broadcaster",
    "Broker",
    "Provider",
    "Requestor",
    "__version__",
    "default_broker_config",
    "resolve_driver",
]

__version__: str

@final
class Broker:
    """A broker: listeners, shards and their counters. Calls raise RuntimeError once a shard has failed."""

    def __new__(cls, config: str) -> Self:
        """Take a JSON object of configuration keys. ValueError names an unusable key."""

    def start(self) -> None:
        """Open the listeners and start the shards; OSError names listener and address."""

    def addresses(self) -> dict[str, str]:
        """Return the open listeners: "tcp", "http", "monitor", each with its bound address."""

    def driver(self) -> tuple[str, str | None]:
        """Return the driver in use, and the reason if "auto" did not choose the best one."""

    def drain(self, reason: str = "") -> None:
        """Begin lame duck mode and return at once; the reason is for the log."""

    def stop(self, reason: str = "") -> None:
        """End at once; the reason is for the log."""

    def join(self, timeout_s: float) -> bool:
        """Return whether every shard has ended; RuntimeError if a shard has failed. Releases the GIL."""

    def counters(self) -> str:
        """Return a JSON object of totals over all shards."""

@final
class Requestor:
    """Users of the benchmark workload: each sends requests at planned times and measures the replies."""

    def __new__(cls, config: str) -> Self:
        """Take a JSON object of configuration keys. ValueError names an unusable key."""

    def connect(self) -> None:
        """Start the threads and the connect phase; return at once."""

    def start(self, at_ns: int | None = None) -> None:
        """Begin sweep or warm-up at a time on the run's clock, or now; return at once."""

    def stop(self) -> None:
        """End early: no more requests, then the drain, then the result; return at once."""

    def progress(self) -> str:
        """Return a JSON snapshot of phase and counts."""

    def result(self) -> str:
        """Return everything measured as JSON; RuntimeError unless the phase is "done"."""

    def close(self) -> None:
        """Close the connections and join the threads, without the GIL."""

@final
class Provider:
    """Providers of the benchmark workload: each answers the requests on its subject once it is connected."""

    def __new__(cls, config: str) -> Self:
        """Take a JSON object of configuration keys. ValueError names an unusable key."""

    def connect(self) -> None:
        """Start the threads and the connect phase; return at once."""

    def start(self, at_ns: int | None = None) -> None:
        """Set the start of the stalls, a time on the run's clock, or now; return at once."""

    def stop(self) -> None:
        """End answering once the delayed replies have left; the counts become the result. Return at once."""

    def progress(self) -> str:
        """Return a JSON snapshot of phase and counts."""

    def result(self) -> str:
        """Return the counts as JSON; RuntimeError unless the phase is "done"."""

    def close(self) -> None:
        """Close the connections and join the threads, without the GIL."""

@final
class Broadcaster:
    """Users of the broadcast workload: each message goes to all users of its subject."""

    def __new__(cls, config: str) -> Self:
        """Take a JSON object of configuration keys. ValueError names an unusable key."""

    def connect(self) -> None:
        """Start the threads and the connect phase; return at once."""

    def start(self, at_ns: int | None = None) -> None:
        """Begin the warm-up at a time on the run's clock, or now; return at once."""

    def stop(self) -> None:
        """End early: no more messages, then the drain, then the result; return at once."""

    def progress(self) -> str:
        """Return a JSON snapshot of phase and counts."""

    def result(self) -> str:
        """Return everything measured as JSON; RuntimeError unless the phase is "done"."""

    def close(self) -> None:
        """Close the connections and join the threads, without the GIL."""

def default_broker_config() -> str:
    """Return every setting of a broker with its default, as a JSON object."""

def resolve_driver(name: str) -> tuple[str, str | None]:
    """Return the driver that a name selects, and the reason if it is not the best; ValueError if refused."""
