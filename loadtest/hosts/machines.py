"""Start of the agents on the hosts of a run: connect, install the build, start one agent for each host."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import paramiko

from loadtest.hosts.connection import Connection
from loadtest.hosts.install import ensure_installed
from loadtest.hosts.parallel import on_each
from loadtest.scenario.inventory import HostPlan
from loadtest.workers.remote import RemoteMachine

_CHUNK_BYTES = 1 << 16

OnProgress = Callable[[str], None]
"""Function that is called with a line for each step, from several threads."""


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except (EOFError, paramiko.SSHException) as error:
        raise OSError(str(error) or "the connection was closed") from error


class SshChannel:
    """Streams of a process on a host over an SSH channel; implements `loadtest.workers.remote.Channel`."""

    def __init__(self, channel: paramiko.Channel) -> None:
        """Use an SSH channel whose command is running."""
        self._channel = channel
        channel.settimeout(None)

    def receive(self) -> bytes:
        """Return bytes of standard output, waiting for at least one; nothing at its end.

        Raises:
            OSError: The connection was lost.
        """
        with _as_os_errors():
            return bytes(self._channel.recv(_CHUNK_BYTES))

    def receive_error(self) -> bytes:
        """Return bytes of standard error, waiting for at least one; nothing at its end.

        Raises:
            OSError: The connection was lost.
        """
        with _as_os_errors():
            return bytes(self._channel.recv_stderr(_CHUNK_BYTES))

    def send(self, data: bytes) -> None:
        """Write to standard input, waiting while the host accepts nothing.

        Raises:
            OSError: The connection was lost, or the process has ended.
        """
        with _as_os_errors():
            self._channel.sendall(data)

    def end_input(self) -> None:
        """End standard input.

        Raises:
            OSError: The connection was lost.
        """
        with _as_os_errors():
            self._channel.shutdown_write()

    def close(self) -> None:
        """Close all streams, which also ends a `receive` that waits."""
        with suppress(OSError), _as_os_errors():
            self._channel.close()

    @property
    def is_connection_lost(self) -> bool:
        """Whether the connection was lost, so that a stream's end does not mean the end of the process."""
        return not self._channel.get_transport().is_active()


@contextmanager
def open_machines(hosts: Sequence[HostPlan], on_progress: OnProgress) -> Iterator[list[RemoteMachine]]:
    """Yield a machine with an agent for each host, in the order of the hosts, opened in parallel.

    On exit all agents end, and with them every process that they started.

    Raises:
        HostError: A host cannot be reached or used.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(host)) for host in hosts]

        def open_one(connection: Connection) -> RemoteMachine:
            host = connection.host
            connection.open()
            python = ensure_installed(connection, on_progress)
            channel = connection.start([python, "-P", "-m", "loadtest.workers.agent"])
            machine = RemoteMachine(host.name, host.address, SshChannel(channel))
            stack.callback(machine.close)
            machine.open()
            return machine

        on_progress(f"connecting to {', '.join(host.name for host in hosts)}")
        machines = on_each(connections, open_one)
        try:
            yield machines
        finally:
            # In parallel, since each agent may take seconds to end.
            with ThreadPoolExecutor(len(machines)) as pool:
                list(pool.map(RemoteMachine.close, machines))
