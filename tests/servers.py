"""Servers under test, each a real process, with the checks that tests make on them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Self

import servers
from servers import (
    ROOT,
    STOP_TIMEOUT_S,
    Address,
    Server,
    nats_server_command,
    subjectbus_command,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "ROOT",
    "STOP_TIMEOUT_S",
    "Address",
    "Broker",
    "NatsServer",
    "Server",
    "in_ci",
    "nats_server_command",
    "subjectbus_command",
    "wait_until",
]

Options = dict[str, str | float | bool | list[str]]

#: Nothing of this kind may ever be written by a broker, whatever its clients do.
CRASH_MARKS = ("panicked", "Traceback", "RuntimeError", "fatal error")
#: A drain waits for its clients; tests that are not about it need not.
QUICK_DRAIN: Options = {"lame_duck_grace_s": 0.05, "lame_duck_duration_s": 0.05}


class Broker(servers.Broker):
    """`subjectbus serve`, ended by SIGTERM with status 0."""

    #: The tests may rely on its counters and its strictness.
    ours = True

    @classmethod
    def start(
        cls,
        directory: Path,
        command: str | None = None,
        prefix: Sequence[str] = (),
        **options: str | float | bool | list[str],
    ) -> Self:
        """Start a broker whose drain is quick, and which asks raw sockets for nothing (no pings)."""
        return super().start(directory, command, prefix, **{"ping_interval_s": 0, **QUICK_DRAIN, **options})

    def conservation(self) -> dict[str, Any]:
        """The conservation counters as they are now, perhaps in the middle of a shard's turn."""
        counters: dict[str, Any] = self.varz()["conservation"]
        return counters

    def wait_settled(self) -> dict[str, Any]:
        """Wait until no message is pending and every message is accounted for, and return the counters.

        Raises:
            TimeoutError: messages wait or are lost.
        """

        def settled() -> dict[str, Any]:
            counters = self.conservation()
            return counters if is_accounted(counters) and counters["pending"] == 0 else {}

        try:
            return wait_until(settled, what="no message pending, none lost")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.conservation()}") from error

    def wait_idle(self) -> None:
        """Wait until no client is left, no message is pending, and every message is accounted for.

        Raises:
            TimeoutError: connections, subscriptions or messages leaked.
        """
        seen: dict[str, Any] = {}

        def is_idle() -> bool:
            seen.update(self.varz())
            conservation = seen["conservation"]
            is_empty = not (seen["connections"] or seen["subscriptions"] or conservation["pending"])
            return is_empty and is_accounted(conservation)

        try:
            wait_until(is_idle, what="idle broker")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {seen}") from error

    def wait_status(self) -> int:
        """Wait for the end of the process, check its log, and return its exit status."""
        status = self.process.wait(STOP_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        log = self.log()
        assert not any(mark in log for mark in CRASH_MARKS), log
        return status

    def stop(self) -> None:
        """Terminate the process and check that it ended as it should."""
        try:
            self.process.send_signal(signal.SIGTERM)
            assert self.wait_status() == 0, self.log()
        finally:
            if self.is_running():
                self.kill()


class NatsServer(servers.NatsServer):
    """nats-server, whose behaviour proves the expectations of the tests."""

    ours = False

    def stop(self) -> None:
        """Terminate the process."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        finally:
            if self.is_running():
                self.kill()


def is_accounted(conservation: dict[str, Any]) -> bool:
    """Return whether every message to a receiver was delivered, dropped for a reason, or is pending.

    The broker counts each of these where it happens. A page is read while shards work, so that a look in the
    middle of a turn may miss some: look again then.
    """
    counted = conservation["delivered"] + sum(conservation["dropped"].values()) + conservation["pending"]
    return bool(conservation["matched"] == counted)


def in_ci() -> bool:
    """Return whether a missing counterpart must fail the run instead of skipping tests."""
    return os.environ.get("CI", "").lower() in ("1", "true")
