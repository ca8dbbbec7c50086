"""The Rust extension: broker and load engine. JSON text in and out; no message ever passes through Python."""

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
    """A broker: listeners, shards and their counters."""

    def __new__(cls, config: str) -> Self:
        """Takes a JSON object of configuration keys; ValueError names the key that cannot be used."""

    def start(self) -> None:
        """Opens the listeners and starts the shards; OSError names listener and address."""

    def addresses(self) -> dict[str, str]:
        """The open listeners: "tcp", "http", "monitor" with the address that was bound."""

    def driver(self) -> tuple[str, str | None]:
        """The driver in use, and why "auto" did not choose the best one if it did not."""

    def drain(self, reason: str = "") -> None:
        """Begins the lame duck and returns at once; the reason is for the log."""

    def stop(self, reason: str = "") -> None:
        """Ends at once; the reason is for the log."""

    def join(self, timeout_s: float) -> bool:
        """True when every shard has ended; RuntimeError when a shard panicked. Releases the GIL."""

    def counters(self) -> str:
        """JSON object of totals over all shards."""

@final
class Requestor:
    """Users of the benchmark workload: each sends requests at planned times and measures the replies."""

    def __new__(cls, config: str) -> Self:
        """Takes a JSON object of configuration keys; ValueError names the key that cannot be used."""

    def connect(self) -> None:
        """Starts the threads and the connect phase; returns at once."""

    def start(self, at_ns: int | None = None) -> None:
        """Begins sweep or warm-up at a time of the run's clock, or now; returns at once."""

    def stop(self) -> None:
        """Ends early: no more requests, then the drain, then the result; returns at once."""

    def progress(self) -> str:
        """JSON snapshot of phase and counts."""

    def result(self) -> str:
        """JSON of everything measured; RuntimeError unless the phase is "done"."""

    def close(self) -> None:
        """Closes the connections and joins the threads. Releases the GIL."""

@final
class Provider:
    """Providers of the benchmark workload: each answers the requests on its subject once it is connected."""

    def __new__(cls, config: str) -> Self:
        """Takes a JSON object of configuration keys; ValueError names the key that cannot be used."""

    def connect(self) -> None:
        """Starts the threads and the connect phase; returns at once."""

    def start(self, at_ns: int | None = None) -> None:
        """Counts stalls from a time of the run's clock on, or from now; returns at once."""

    def stop(self) -> None:
        """Ends answering; the counts become the result. Returns at once."""

    def progress(self) -> str:
        """JSON snapshot of phase and counts."""

    def result(self) -> str:
        """JSON of the counts; RuntimeError unless the phase is "done"."""

    def close(self) -> None:
        """Closes the connections and joins the threads. Releases the GIL."""

@final
class Broadcaster:
    """Users of the broadcast workload: each message that is published goes to all users of its subject."""

    def __new__(cls, config: str) -> Self:
        """Takes a JSON object of configuration keys; ValueError names the key that cannot be used."""

    def connect(self) -> None:
        """Starts the threads and the connect phase; returns at once."""

    def start(self, at_ns: int | None = None) -> None:
        """Begins the warm-up at a time of the run's clock, or now; returns at once."""

    def stop(self) -> None:
        """Ends early: no more messages, then the drain, then the result; returns at once."""

    def progress(self) -> str:
        """JSON snapshot of phase and counts."""

    def result(self) -> str:
        """JSON of everything measured; RuntimeError unless the phase is "done"."""

    def close(self) -> None:
        """Closes the connections and joins the threads. Releases the GIL."""

def default_broker_config() -> str:
    """JSON object of every configuration key of the broker with its default."""

def resolve_driver(name: str) -> tuple[str, str | None]:
    """The driver that a name stands for here, and why "auto" is not the best one; ValueError if refused."""
