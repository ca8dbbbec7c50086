"""The hosts of an inventory, made machines for a run: connected to, installed on, with an agent each."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress

import paramiko

from loadtest.hosts.connection import Connection
from loadtest.hosts.install import ensure_installed
from loadtest.plan.inventory import HostPlan
from loadtest.processes.remote import RemoteMachine

_MOST_AT_ONCE = 32
_CHUNK_BYTES = 1 << 16

Say = Callable[[str], None]
"""Is told what is done now; from several threads."""


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except (EOFError, paramiko.SSHException) as error:
        raise OSError(str(error) or "the connection was closed") from error


class SshChannel:
    """The streams of a process at the other end of a channel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        channel.settimeout(None)

    def receive(self) -> bytes:
        """See Channel."""
        with _as_os_errors():
            return bytes(self._channel.recv(_CHUNK_BYTES))

    def receive_error(self) -> bytes:
        """See Channel."""
        with _as_os_errors():
            return bytes(self._channel.recv_stderr(_CHUNK_BYTES))

    def send(self, data: bytes) -> None:
        """See Channel; it waits while the other side takes nothing."""
        with _as_os_errors():
            self._channel.sendall(data)

    def end_input(self) -> None:
        """See Channel."""
        with _as_os_errors():
            self._channel.shutdown_write()

    def close(self) -> None:
        """See Channel."""
        with suppress(OSError), _as_os_errors():
            self._channel.close()

    @property
    def is_cut(self) -> bool:
        """See Channel."""
        return not self._channel.get_transport().is_active()


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
                wait(opening, return_when=FIRST_EXCEPTION)
                failed = [future for future in opening if future.done() and future.exception()]
                machines = [future.result() for future in failed or opening]
            except BaseException:
                # Nobody goes on with a host that will not be needed.
                pool.shutdown(wait=False, cancel_futures=True)
                for connection in connections:
                    connection.close()
                raise
        try:
            yield machines
        finally:
            # All at once: each may take a while.
            with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
                list(pool.map(RemoteMachine.close, machines))
