"""Work on many hosts at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from loadtest.hosts.connection import Connection

T = TypeVar("T")

_MAX_PARALLEL = 32


def on_each(connections: Sequence[Connection], work: Callable[[Connection], T]) -> list[T]:
    """Call `work` with each connection, in parallel, and return the results in the order of the connections.

    If a call fails, or this thread is interrupted, all connections are closed: that ends what the other calls
    wait for.

    Raises:
        Exception: The first exception of `work`.
    """
    with ThreadPoolExecutor(min(max(len(connections), 1), _MAX_PARALLEL)) as pool:
        working = [pool.submit(work, connection) for connection in connections]
        try:
            wait(working, return_when=FIRST_EXCEPTION)
            failed = [future for future in working if future.done() and future.exception()]
            return [future.result() for future in failed or working]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for connection in connections:
                connection.close()
            raise
