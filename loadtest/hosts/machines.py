"""The hosts of an inventory, made machines for a run: connected to, installed on, with an agent each."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import IO

import paramiko

from loadtest.hosts.connection import Connection
from loadtest.hosts.install import ensure_installed
from loadtest.plan.inventory import HostPlan
from loadtest.processes.remote import RemoteMachine

_MOST_AT_ONCE = 32
_SEND_TIMEOUT_S = 10.0

Say = Callable[[str], None]
"""Is told what is done now; from several threads."""


class SshChannel:
    """The streams of a process at the other end of a channel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        channel.settimeout(None)
        self.output: IO[bytes] = channel.makefile("rb")
        self.errors: IO[bytes] = channel.makefile_stderr("rb")

    def send(self, data: bytes) -> None:
        """See Channel; it waits while the other side takes nothing."""
        self._channel.sendall(data)

    def end_input(self) -> None:
        """See Channel."""
        self._channel.shutdown_write()

    def close(self) -> None:
        """See Channel."""
        self._channel.close()


@contextmanager
def open_machines(hosts: Sequence[HostPlan], say: Say) -> Iterator[list[RemoteMachine]]:
    """A machine for each host, all at once; in the end their agents end, and with them whatever they started.

    Raises:
        HostError: A host cannot be reached or used.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(host)) for host in hosts]

        def open_one(connection: Connection) -> RemoteMachine:
            host = connection.host
            connection.open()
            python = ensure_installed(connection, say)
            channel = connection.start([python, "-P", "-m", "loadtest.processes.agent"])
            machine = RemoteMachine(host.name, host.address, SshChannel(channel))
            stack.callback(machine.close)
            machine.open()
            return machine

        say(f"connecting to {', '.join(host.name for host in hosts)}")
        with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
            opening = [pool.submit(open_one, connection) for connection in connections]
            try:
                machines = [future.result() for future in opening]
            except BaseException:
                # Nobody goes on with a host that will not be needed.
                for connection in connections:
                    connection.close()
                raise
        yield machines
