"""Attacks by many clients: all connections end in one drain, or all clients leave at the same time."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hostile.finding import Finding
from hostile.setup import Broker, Setup, wait_until
from hostile.witness import watch

_SERVED_MS = 100.0
_CONNECT_S = 1800
_LEAVE_S = 300.0
_DRAIN_S = 300.0
_ROOM = 128
"""Additional connections for the witnesses and the load test's providers."""
_PER_THREAD = 15_000
"""Connections of one thread of the crowd, each of which needs a descriptor."""


def drain(
    setup: Setup, connections: int = 20_000, grace_s: float = 2.0, duration_s: float = 20.0
) -> list[Finding]:
    """Drain a broker by SIGTERM while a crowd is connected; clients are served until they are disconnected.

    `grace_s` and `duration_s` are the broker's `lame_duck_grace_s` and `lame_duck_duration_s`.
    """
    what = f"lame duck with {connections:,} connections, a client that came "
    with (
        _roomy_broker(
            setup, connections, lame_duck_grace_s=grace_s, lame_duck_duration_s=duration_s
        ) as broker,
        watch(setup, broker, is_urgent=True) as early,
        _crowd(setup, broker, connections),
        watch(setup, broker, is_urgent=True) as late,
        early.during(what + "first") as window_of_early,
        late.during(what + "last") as window_of_late,
    ):
        begun = time.perf_counter()
        broker.terminate()
        broker.process.wait(_DRAIN_S)
    findings = []
    for witness, window in ((early, window_of_early), (late, window_of_late)):
        window.remarks.append(f"served for {witness.last - begun:.1f} s")
        findings += witness.findings(_SERVED_MS, may_be_closed=True)
    return findings


def mass_leave(setup: Setup, connections: int = 20_000) -> list[Finding]:
    """Let a whole crowd leave at the same time, as if a proxy in front of the broker were killed."""
    with (
        _roomy_broker(setup, connections) as broker,
        watch(setup, broker, is_urgent=True) as witness,
        _crowd(setup, broker, connections) as crowd,
        witness.during(f"{connections:,} connections leave at once") as window,
    ):
        begun = time.perf_counter()
        crowd.kill()
        wait_until(lambda: broker.varz()["connections"] <= 1, _LEAVE_S, "the crowd's leaving")
        window.remarks.append(f"all gone after {time.perf_counter() - begun:.1f} s")
    return witness.findings(_SERVED_MS)


@contextmanager
def _roomy_broker(setup: Setup, connections: int, **settings: object) -> Iterator[Broker]:
    """Run a broker that has room for a crowd; with epoll it has as many shards as the crowd needs."""
    shards = 1 if setup.driver == "uring" else "auto"
    with setup.broker({"max_connections": connections + _ROOM, **settings}, shards=shards) as broker:
        yield broker


@contextmanager
def _crowd(setup: Setup, broker: Broker, connections: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a load test with so many connections, each with a subscription; kill it on exit.

    The load test uses epoll. With io_uring, threads of the kernel on every core would remove the rings of the
    killed process, for more than a second with a million connections. That would take time from the broker's
    core, which clients on other machines would not.
    """
    settings = {
        "load_driver": "epoll", "threads": -(-connections // _PER_THREAD),
        "users": connections, "rate": 1, "duration_s": 3600, "thresholds": "[]",
        "connect_in_flight": 1024, "connect_timeout_s": _CONNECT_S,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        target = f"ws://{broker.http[0]}:{broker.http[1]}"
        command = ["run", "autocomplete", "--quiet", "--target", target, "--out", f"{folder}/result"]
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        process = setup.load_test(*command)
        try:

            def is_complete() -> bool:
                if process.poll() is not None:
                    raise ChildProcessError("the load test has ended before all were connected")
                return int(broker.varz()["connections"]) > connections

            wait_until(is_complete, _CONNECT_S, f"{connections:,} connections")
            yield process
        finally:
            process.kill()
            process.wait()
