"""Program that sends a message to itself, waits for it, and repeats this until standard input ends.

`python -m hostile.witness_client HOST:PORT [urgent]`. With "urgent" it has priority over other processes of
its core if the system permits it, since a wait for the core is not caused by the broker. The program prints
"ready" when it has subscribed. At the end it writes doubles of this machine: 1 if the broker closed the
connection, or else 0; then begin (by CLOCK_MONOTONIC) and length of each round trip, in seconds.
"""

import gc
import os
import select
import sys
import time
from array import array
from contextlib import suppress

from hostile.client import Client, parse_address

_LAST_REPLY_S = 30.0
"""Seconds in which the last message must come back after standard input has ended."""


def main() -> None:
    """Run until standard input or the connection ends."""
    gc.disable()
    if "urgent" in sys.argv[2:]:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    trips = array("d", [0.0])
    with Client(parse_address(sys.argv[1]), name="witness") as client:
        subject = f"witness.{client.cid}"
        operation = f"PUB {subject} 1\r\n.\r\n".encode()
        message = f"MSG {subject} 1 1\r\n.\r\n".encode()
        client.carry_out(f"SUB {subject} 1\r\n".encode())
        sys.stdout.buffer.write(b"ready\n")
        sys.stdout.buffer.flush()
        is_last = False
        while not is_last:
            begun = time.perf_counter()
            try:
                client.send(operation)
                is_last = _await(client, len(message))
            except OSError:
                trips[0], is_last = 1.0, True
            trips.extend((begun, time.perf_counter() - begun))
    trips.tofile(sys.stdout.buffer)


def _await(client: Client, missing: int) -> bool:
    """Wait for the bytes of a message; return whether standard input ended in the meantime.

    Raises:
        OSError: The connection ended first, or the time was over.
    """
    has_ended = False
    while missing > 0:
        watched = [client.socket] if has_ended else [client.socket, sys.stdin]
        readable, _, _ = select.select(watched, [], [], _LAST_REPLY_S if has_ended else None)
        has_ended |= sys.stdin in readable
        if client.socket in readable:
            missing -= len(client.receive())
        elif not readable:
            raise TimeoutError
    return has_ended


if __name__ == "__main__":
    main()
