"""Helpers for tests with nats-py."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nats


async def flush(client: nats.NATS) -> None:
    """Wait until the server has read everything that `client` was told to send.

    nats-py writes its PING at once, but leaves commands to a task, which comes later: the first PONG may
    arrive before a SUB has been read. The second PING stands behind them.
    """
    await client.flush()
    await client.flush()
