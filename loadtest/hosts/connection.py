"""A connection to one host over SSH: commands, and the channel of a long-lived process.

Fabric and Paramiko do the work. This module adds that host keys are verified and the user is never prompted.
Each call ends at the latest by its timeout or when the link is lost. Each failure is a one-line `HostError`.
"""

import contextlib
import io
import logging
import math
import shlex
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import fabric
import paramiko
from invoke.exceptions import CommandTimedOut, ThreadException
from msgspec import Struct
from paramiko.config import SSH_PORT
from paramiko.ssh_exception import (
    AuthenticationException,
    BadHostKeyException,
    NoValidConnectionsError,
    PasswordRequiredException,
    SSHException,
)

from loadtest.errors import HostError
from loadtest.hosts.ssh_config import SSHConfigError, read_ssh_config
from loadtest.scenario.inventory import HostPlan

OPEN_TIMEOUT_S = 10.0
KEEPALIVE_S = 1
"""Seconds between keep-alive messages, by which a lost link is noticed."""
LOST_AFTER_S = 5.0
"""Seconds without an acknowledgement after which a connection is given up (RFC 5482)."""
_LOST = "connection lost"
_NO_SESSION = ("protocol banner", "No existing session")
"""Parts of Paramiko's messages if no SSH server answers; the second one follows Paramiko's own timeout."""
_KNOWN_HOSTS = Path("~/.ssh/known_hosts")
_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")

# Paramiko also logs each error that it raises. Without a handler, Python would print those messages.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Completed(Struct, frozen=True):
    """Exit status and output of a command that has ended."""

    status: int
    """Exit status of the command."""
    stdout: str
    stderr: str

    @property
    def last_output(self) -> str:
        """Last line of standard output. Lines before it may come from the login shell."""
        return self.stdout.strip().rpartition("\n")[2]

    @property
    def last_line(self) -> str:
        """Last line of standard error, or of standard output if standard error is empty."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit status {self.status}"


class _UnknownHostKeyError(SSHException):  # type: ignore[misc]  # Paramiko has no types
    def __init__(self, hostname: str, key: paramiko.PKey) -> None:
        super().__init__("unknown host key")
        self.hostname = hostname
        self.key = key


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # Paramiko has no types
    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> NoReturn:  # noqa: ANN401, ARG002
        raise _UnknownHostKeyError(hostname, key)


class Connection:
    """SSH connection to one host.

    One thread at a time may use it. Any thread may close it or use a channel that was started.
    """

    def __init__(self, host: HostPlan) -> None:
        """Describe the connection; `open` establishes it."""
        self.host = host
        self._fabric: Any = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, timeout_s: float = OPEN_TIMEOUT_S) -> None:
        """Connect and log in; `timeout_s` limits each of the two steps.

        Raises:
            HostError: The host is unreachable, its key does not match, or it refuses the login.
        """
        self._disconnect()
        with self._connect_errors(timeout_s):
            self._fabric = connection = self._prepare(timeout_s)
            try:
                connection.open()
            except BaseException:
                self._disconnect()  # an incomplete connection would keep its thread
                raise
        if self._is_closed:
            self._disconnect()
            raise self.error("connection closed")
        transport = connection.transport
        transport.set_keepalive(KEEPALIVE_S)
        # A ProxyCommand has no socket here, so only its own keep-alive can notice a lost link.
        with contextlib.suppress(AttributeError, OSError):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LOST_AFTER_S * 1000))

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        """Run a command to its end, with empty standard input.

        Raises:
            HostError: The command took longer than `timeout_s`, or the connection was lost.
        """
        command = shlex.join(argv)
        options = {"hide": True, "warn": True, "in_stream": io.StringIO(), "pty": False, "encoding": "utf-8"}
        with self._channel_errors():
            try:
                done = self._require_open().run(command, timeout=timeout_s, **options)
            except CommandTimedOut as error:
                raise self.error(f"`{_shortened(command)}` did not end within {timeout_s:g} s") from error
        if done.return_code < 0:  # Paramiko's value for "no exit status received"
            raise self.error(f"{_LOST} during `{_shortened(command)}`")
        return Completed(done.return_code, done.stdout, done.stderr)

    def run_attached(self, argv: Sequence[str], timeout_s: float, data: Iterable[bytes] = ()) -> Completed:
        """Run a command to its end, keeping its standard input open until then.

        A command that reads its standard input can notice there that the connection was lost.

        Args:
            argv: Command and arguments.
            timeout_s: Longest time without a byte sent or received.
            data: Bytes to send to the command's standard input.

        Raises:
            HostError: No byte was sent or received for `timeout_s`, or the connection was lost.
        """
        channel = self.start(argv)
        channel.settimeout(timeout_s)
        try:
            _send(channel, data)
            stdout, stderr = channel.makefile("rb").read(), channel.makefile_stderr("rb").read()
            # The exit status follows the last output. It is -1 if the connection was lost.
            status = channel.recv_exit_status()
        except TimeoutError as error:
            command = _shortened(shlex.join(argv))
            raise self.error(f"`{command}` neither read nor wrote anything for {timeout_s:g} s") from error
        except (OSError, EOFError, SSHException) as error:
            raise self.error(_LOST) from error
        finally:
            channel.close()
        if status < 0:
            raise self.error(f"{_LOST} during `{_shortened(shlex.join(argv))}`")
        return Completed(status, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))

    def start(self, argv: Sequence[str]) -> paramiko.Channel:
        """Start a command and return the channel that carries its standard streams.

        Closing the channel does not end the command, since it has no terminal. The command has to end by
        itself when its standard input ends.

        Raises:
            HostError: The connection was lost, or the host refuses another session.
        """
        with self._channel_errors():
            channel = self._require_open().transport.open_session(timeout=OPEN_TIMEOUT_S)
            channel.exec_command(shlex.join(argv))
            return channel

    def close(self) -> None:
        """Close the connection with all its channels for good; closing it again has no effect."""
        self._is_closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._fabric = self._fabric, None
        # Fabric leaves the connections to ProxyJump hosts open. A ProxyCommand is text and is not closed.
        while isinstance(connection, fabric.Connection):
            with contextlib.suppress(OSError, EOFError, SSHException):
                connection.close()
            with contextlib.suppress(OSError, EOFError, SSHException):
                connection.client.close()
            connection = connection.gateway

    def error(self, what: str) -> HostError:
        """Return an error with the text `what` that names this host."""
        return HostError(self.host.name, self.host.address, what)

    def _require_open(self) -> Any:  # noqa: ANN401 - Fabric has no types
        connection = self._fabric
        if connection is None or not connection.is_connected:
            raise self.error(_LOST)
        return connection

    def _prepare(self, timeout_s: float) -> Any:  # noqa: ANN401 - Fabric has no types
        host = self.host
        options: dict[str, Any] = {
            "banner_timeout": timeout_s,
            "auth_timeout": timeout_s,
            "channel_timeout": timeout_s,
            "look_for_keys": host.key is None,
        }
        if host.key is not None:
            options["key_filename"] = [host.key]
        try:
            ssh_config = read_ssh_config(host.address)
        except SSHConfigError as error:
            raise self.error(f"SSH configuration: {error}") from error
        connection = fabric.Connection(
            host.address,
            config=fabric.Config(ssh_config=ssh_config),
            user=host.user,
            port=host.port,
            connect_timeout=max(1, math.ceil(timeout_s)),
            connect_kwargs=options,
        )
        connection.client.set_missing_host_key_policy(_RefuseUnknown())
        for path in self._known_hosts_files():
            try:
                connection.client.load_system_host_keys(str(path))
            except (OSError, ValueError, paramiko.hostkeys.InvalidHostKey) as error:
                raise self.error(f"cannot read the host keys in {path}: {error}") from error
        return connection

    def _known_hosts_files(self) -> list[Path]:
        if self.host.known_hosts is not None:
            return [Path(self.host.known_hosts)]
        return [path for path in (_KNOWN_HOSTS.expanduser(), _SYSTEM_KNOWN_HOSTS) if path.is_file()]

    @contextlib.contextmanager
    def _connect_errors(self, timeout_s: float) -> Iterator[None]:
        """Turn each failure to connect into a HostError that gives the reason."""
        port = self.host.port
        try:
            yield
        except TimeoutError as error:
            raise self.error(f"port {port}: no answer within {timeout_s:g} s") from error
        except NoValidConnectionsError as error:
            reasons = sorted({str(each.strerror or each) for each in error.errors.values()})
            raise self.error(f"port {port}: {', '.join(reasons)}") from error
        except (SSHException, OSError, EOFError, ValueError) as error:
            raise self.error(self._explain(error)) from error

    @contextlib.contextmanager
    def _channel_errors(self) -> Iterator[None]:
        """Turn each failure of an open connection into a HostError: a refused session or a lost link."""
        try:
            yield
        except paramiko.ChannelException as error:
            text = f"the SSH server refused another session: {error.text} (raise MaxSessions in sshd_config)"
            raise self.error(text) from error
        except (SSHException, OSError, EOFError, ThreadException) as error:
            raise self.error(_LOST) from error

    def _explain(self, error: Exception) -> str:
        explain = _EXPLANATIONS.get(type(error))
        if explain is not None:
            return explain(self.host, error)
        if isinstance(error, AuthenticationException):
            return _explain_refused_login(self.host, error)
        if isinstance(error, OSError) and error.strerror:
            return f"port {self.host.port}: {error.strerror}"
        if any(part in str(error) for part in _NO_SESSION):
            return f"port {self.host.port}: no SSH server answers"
        if "private key file" in str(error):
            return f"key {self.host.key or 'in ~/.ssh'}: not a private key in a format of OpenSSH"
        return " ".join(f"SSH: {error}".split())


def _send(channel: paramiko.Channel, data: Iterable[bytes]) -> None:
    """Send data to a channel's command; stop without an error if the command ends, as its output says why."""
    try:
        for part in data:
            channel.sendall(part)
    except TimeoutError:
        raise
    except OSError:
        if not channel.get_transport().is_active():
            raise


def _explain_unknown_key(host: HostPlan, error: Any) -> str:  # noqa: ANN401 - by its type
    # ~/.ssh/config may give the host another name than the hosts file. With a port it is [NAME]:PORT.
    name = error.hostname.removeprefix("[").partition("]")[0]
    port = "" if host.port == SSH_PORT else f"-p {host.port} "
    return (
        f"unknown host key {_fingerprint(error.key)}: if it is the host's key, add it with "
        f"`ssh-keyscan {port}{shlex.quote(name)} >> {_known_hosts(host)}`"
    )


def _explain_wrong_key(host: HostPlan, error: Any) -> str:  # noqa: ANN401 - by its type
    name = error.hostname if host.port == SSH_PORT else f"[{error.hostname}]:{host.port}"
    return (
        f"wrong host key {_fingerprint(error.key)}, expected {_fingerprint(error.expected_key)}: this may be "
        "another machine; if the host was reinstalled, remove the expected key with "
        f"`ssh-keygen -f {_known_hosts(host)} -R {shlex.quote(name)}`"
    )


def _explain_refused_login(host: HostPlan, error: Exception) -> str:
    user = f"user {host.user}" if host.user else "the user"
    if isinstance(error, PasswordRequiredException):
        return f"the key {host.key or 'in ~/.ssh'} has a passphrase: add it to an SSH agent (ssh-add)"
    keys = f"the key {host.key}" if host.key else "any key of the SSH agent and of ~/.ssh"
    return f"{user} cannot log in with {keys}: add the public key to the host with ssh-copy-id"


_EXPLANATIONS: dict[type[Exception], Callable[[HostPlan, Any], str]] = {
    _UnknownHostKeyError: _explain_unknown_key,
    BadHostKeyException: _explain_wrong_key,
    socket.gaierror: lambda _, error: f"unknown host name: {error.strerror}",
    EOFError: lambda host, _: f"port {host.port}: the server closed the connection",
}


def _known_hosts(host: HostPlan) -> str:
    return shlex.quote(host.known_hosts) if host.known_hosts else str(_KNOWN_HOSTS)


def _fingerprint(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _shortened(command: str) -> str:
    return command if len(command) <= 60 else f"{command[:57]}..."  # noqa: PLR2004
