"""Program with many subscribers to one subject, which discard all messages until standard input ends.

`python -m hostile.receivers HOST:PORT SUBJECT COUNT`. The program prints "ready" when all have subscribed.
"""

import select
import sys
import time
from contextlib import ExitStack

from hostile.client import Client, parse_address, raise_descriptor_limit

_PIECE = 1 << 18
_PAUSE_S = 0.1
"""Seconds between two rounds of reading, so that one call reads many messages."""


def main() -> None:
    """Read until standard input ends."""
    raise_descriptor_limit()
    address, subject, count = sys.argv[1:]
    with ExitStack() as stack:
        clients = {}
        poll = select.epoll()
        poll.register(sys.stdin, select.EPOLLIN)
        for _ in range(int(count)):
            client = stack.enter_context(Client(parse_address(address)))
            client.carry_out(f"SUB {subject} 1\r\n".encode())
            clients[client.socket.fileno()] = client.socket
            poll.register(client.socket, select.EPOLLIN)
        sys.stdout.buffer.write(b"ready\n")
        sys.stdout.buffer.flush()
        while True:
            for descriptor, _ in poll.poll(None, len(clients) + 1):
                if descriptor == sys.stdin.fileno():
                    return
                if not clients[descriptor].recv(_PIECE):
                    raise SystemExit("the broker has closed a receiver's connection")
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
