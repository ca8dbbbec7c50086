"""Program that publishes small messages until its standard input ends.

`python -m hostile.publisher HOST:PORT SUBJECT CONNECTIONS RATE`. RATE is the rate of all connections together
in messages per second; 0 = as fast as the broker accepts them. The program prints "ready" when it is
connected. At the end it writes two doubles for each PONG: its time by CLOCK_MONOTONIC, and the number of
messages that it acknowledged.
"""

import gc
import select
import sys
import time
from array import array
from collections import deque
from contextlib import ExitStack

from hostile.client import Client, parse_address

_BATCH = 256
_MOST_BATCHES = 8
"""Largest number of unacknowledged batches of a connection, so that sending never waits for the broker."""
_TURN_S = 0.002


class _Publisher:
    """One connection, with the numbers of sent and of unacknowledged messages."""

    def __init__(self, client: Client, subject: str, rate: float) -> None:
        self.client = client
        self._rate = rate
        self._message = f"PUB {subject} 16\r\n0123456789abcdef\r\n".encode()
        self._sent = 0
        self._unacknowledged: deque[int] = deque()

    def send(self, elapsed_s: float) -> None:
        """Send the messages that are due, unless too many are unacknowledged."""
        while len(self._unacknowledged) < _MOST_BATCHES:
            due = int(elapsed_s * self._rate) - self._sent if self._rate else _BATCH
            count = min(due, _BATCH)
            if count <= 0:
                return
            self.client.send(self._message * count + b"PING\r\n")
            self._sent += count
            self._unacknowledged.append(count)

    def receive(self) -> int:
        """Read PONGs; return the number of messages that they acknowledge."""
        pongs = self.client.receive().count(b"G")
        return sum(self._unacknowledged.popleft() for _ in range(pongs))


def main() -> None:
    """Publish until standard input ends."""
    gc.disable()
    address, subject, connections, rate = sys.argv[1:]
    taken = array("d")
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(parse_address(address))) for _ in range(int(connections))]
        publishers = [
            _Publisher(client, f"{subject}.{n}", float(rate) / len(clients))
            for n, client in enumerate(clients)
        ]
        sys.stdout.buffer.write(b"ready\n")
        sys.stdout.buffer.flush()
        begun, watched = time.perf_counter(), [*(client.socket for client in clients), sys.stdin]
        while True:
            for one in publishers:
                one.send(time.perf_counter() - begun)
            readable, _, _ = select.select(watched, [], [], _TURN_S)
            if sys.stdin in readable:
                break
            for one in publishers:
                if one.client.socket in readable:
                    count = one.receive()
                    taken.extend((time.perf_counter(), count))
    taken.tofile(sys.stdout.buffer)


if __name__ == "__main__":
    main()
