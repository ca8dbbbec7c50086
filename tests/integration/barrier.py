"""Waiting until the server has handled everything that clients sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.aio.client import Client


async def settle(*clients: Client) -> None:
    """Wait until the server has handled everything each client sent before.

    `Client.flush` of nats-py will not do: its PING overtakes the operations still in the client's
    buffer. A message to oneself stands in line behind them.
    """
    for client in clients:
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, max_msgs=1)
        await client.publish(inbox)
        await subscription.next_msg(timeout=10)
        await subscription.unsubscribe()
