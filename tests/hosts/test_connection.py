"""Connections to real OpenSSH servers: their functions, and a one-line error for every failure."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from loadtest.errors import HostError
from loadtest.hosts import ssh_config
from loadtest.hosts.connection import Connection
from loadtest.scenario.inventory import HostPlan
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hosts.network import Network


def plan(network: Network, index: int = 0, **changes: Any) -> HostPlan:
    host = network.hosts[index]
    fields = {"name": host.name, "address": host.address, "roles": ("requestor",), "user": "root"}
    fields |= {"key": str(host.key), "known_hosts": str(host.known_hosts)}
    return HostPlan(**{**fields, **changes})


@pytest.fixture
def connection(network: Network) -> Iterator[Connection]:
    with Connection(plan(network)) as connection:
        connection.open()
        yield connection


def failure(host: HostPlan, timeout_s: float = 5) -> str:
    """Return the error of opening a connection."""
    before = threading.active_count()
    with pytest.raises(HostError) as caught:
        Connection(host).open(timeout_s)
    text = str(caught.value)
    assert text.startswith(f"host {host.name} ({host.address}): ")
    assert "\n" not in text
    assert caught.value.exit_status == 3
    wait_until(lambda: threading.active_count() <= before, what="an end of the connection's thread")
    return text


def test_arguments_arrive_unchanged(connection: Connection) -> None:
    arguments = [
        "a b",
        "$HOME",
        "'quoted' \"twice\"",
        "*",
        "",
        "back\\slash",
        "ümläut",
        "two\nlines",
        "; exit 5",
    ]
    done = connection.run(["printf", "%s|", *arguments], 10)
    assert done.stdout == "".join(f"{argument}|" for argument in arguments)
    assert (done.status, done.stderr) == (0, "")


def test_status_and_both_streams_of_a_command_are_returned_separately(connection: Connection) -> None:
    done = connection.run(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 7"], 10)
    assert (done.status, done.stdout, done.stderr, done.last_line) == (7, "out\n", "first\nlast\n", "last")
    assert connection.run(["nonexistent-command"], 10).status == 127


def test_a_command_has_empty_input_and_may_print_much(connection: Connection) -> None:
    assert connection.run(["cat"], 10).stdout == ""
    assert len(connection.run(["head", "-c", "3000000", "/dev/zero"], 30).stdout) == 3_000_000


def test_a_command_that_does_not_end_times_out(connection: Connection, network: Network) -> None:
    with pytest.raises(HostError, match=r"`sleep 1000` did not end within 0.5 s"):
        connection.run(["sleep", "1000"], 0.5)
    assert connection.run(["echo", "next"], 10).stdout == "next\n"
    for pid in network.processes(0):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not network.processes(0))


def test_input_arrives_completely(connection: Connection) -> None:
    parts = [os.urandom(1_000_000), b"", os.urandom(1_000_000)]
    done = connection.run_attached(["sh", "-c", "head -c 2000000 | sha256sum"], 30, parts)
    assert done.stdout.split()[0] == hashlib.sha256(b"".join(parts)).hexdigest()


def test_a_command_that_ends_before_its_input_gives_the_reason(connection: Connection) -> None:
    done = connection.run_attached(["sh", "-c", "echo no >&2; exit 3"], 30, [b"x" * 100_000] * 100)
    assert (done.status, done.last_line) == (3, "no")


def test_a_started_process_exchanges_lines_until_its_input_ends(
    connection: Connection, network: Network
) -> None:
    channel = connection.start(["sh", "-c", 'while read line; do echo "<$line>"; done; echo end >&2; exit 4'])
    lines = channel.makefile("r")
    for text in ("one", "two words"):
        channel.sendall(f"{text}\n".encode())
        assert lines.readline() == f"<{text}>\n"
    assert connection.run(["echo", "beside"], 10).stdout == "beside\n"
    channel.shutdown_write()
    assert channel.makefile_stderr("r").read() == b"end\n"
    assert channel.recv_exit_status() == 4
    wait_until(lambda: not network.processes(0))


def test_closing_the_connection_ends_the_input_of_started_processes(network: Network) -> None:
    with Connection(plan(network)) as connection:
        connection.open()
        connection.start(["cat"])
        wait_until(lambda: "cat" in network.processes(0).values())
    wait_until(lambda: not network.processes(0))


def test_a_closed_connection_cannot_be_used(connection: Connection) -> None:
    connection.close()
    connection.close()
    with pytest.raises(HostError, match="connection lost"):
        connection.run(["true"], 10)
    with pytest.raises(HostError, match="connection closed"):
        connection.open()


def test_a_cut_link_is_noticed_soon(network: Network) -> None:
    with Connection(plan(network, 1)) as connection:
        connection.open()
        channel = connection.start(["cat"])
        wait_until(lambda: network.processes(1))
        network.cut(1)
        # Before the command's own time is over.
        with pytest.raises(HostError, match="connection lost"):
            connection.run(["true"], 60)
        assert channel.recv(1) == b""
        with pytest.raises(HostError, match="connection lost"):
            connection.start(["true"])
        with pytest.raises(HostError, match="connection lost"):
            connection.run_attached(["cat"], 60, [b"x"])
    network.mend(1)
    for pid in network.processes(1):
        os.kill(pid, signal.SIGKILL)


def test_a_killed_server_is_noticed(network: Network) -> None:
    with Connection(plan(network, 1)) as connection:
        connection.open()
        parent = connection.run(["sh", "-c", "echo $PPID"], 10).stdout
        os.kill(int(parent), signal.SIGKILL)
        with pytest.raises(HostError, match="connection lost"):
            connection.run(["sleep", "1000"], 30)


def test_a_host_behind_another_is_reached_as_the_ssh_configuration_says(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jump, inner = network.hosts[0], network.hosts[1]
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(f"Include {tmp_path}/.ssh/config.d/*\n")
    (tmp_path / ".ssh/config.d").mkdir()
    (tmp_path / ".ssh/config.d/jump").write_text(
        f"Host jump\nHostName {jump.address}\nUser root\nIdentityFile {jump.key}\n"
    )
    (tmp_path / ".ssh/config.d/inner").write_text(f"Host inner\nHostName {inner.address}\nProxyJump jump\n")
    with Connection(plan(network, 1, address="inner", user="root")) as connection:
        connection.open()
        seen = connection.run(["sh", "-c", "echo $SSH_CLIENT; echo $HOME"], 10).stdout.split()
    assert (seen[0], seen[-1]) == (jump.address, str(inner.home))
    empty = tmp_path / "known_hosts"
    empty.touch()
    text = failure(plan(network, 1, address="inner", known_hosts=str(empty)))
    assert f"`ssh-keyscan {inner.address} >> {empty}`" in text


def test_an_ssh_configuration_that_openssh_refuses_is_reported(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Hots a\n")
    text = failure(plan(network))
    assert f"SSH configuration: {tmp_path}/.ssh/config: line 1: Bad configuration option: hots" in text


@pytest.mark.parametrize(
    ("jump", "name"),
    [
        ("a", "a"),
        ("me@a:2222", "a"),
        ("ssh://me@a:22", "a"),
        ("[2001:db8::1]:22", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_the_host_of_a_jump(jump: str, name: str) -> None:
    assert ssh_config._jump_host(jump) == name


def test_an_unknown_host_key_is_refused_with_its_fingerprint(network: Network, tmp_path: Path) -> None:
    empty = tmp_path / "known hosts"
    empty.touch()
    text = failure(plan(network, known_hosts=str(empty)))
    assert f"unknown host key ssh-ed25519 {fingerprint(network, 0)}" in text
    assert f"`ssh-keyscan {network.hosts[0].address} >> '{empty}'`" in text
    assert not empty.read_text()


def test_the_command_in_the_error_makes_an_unknown_host_key_known(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.touch()
    host = plan(network, known_hosts=str(path))
    command = failure(host).partition("`")[2].rpartition("`")[0]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=30)
    with Connection(host) as connection:
        connection.open()


def test_a_wrong_host_key_is_refused_and_the_commands_in_the_error_help(
    network: Network, tmp_path: Path
) -> None:
    path = tmp_path / "known_hosts"
    public = (network.hosts[1].folder / "host_key.pub").read_text()
    path.write_text(f"{network.hosts[0].address} {public}")
    host = plan(network, known_hosts=str(path))
    text = failure(host)
    assert f"wrong host key ssh-ed25519 {fingerprint(network, 0)}, expected" in text
    assert fingerprint(network, 1) in text
    command = text.partition("`")[2].rpartition("`")[0]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=30)
    assert "unknown host key" in failure(host)


def fingerprint(network: Network, index: int) -> str:
    path = network.hosts[index].folder / "host_key.pub"
    told = subprocess.run(["ssh-keygen", "-l", "-f", path], check=True, capture_output=True, text=True)
    return told.stdout.split()[1]


def test_damaged_host_keys_are_named(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(b"\xff\xfe\n")
    assert f"cannot read the host keys in {path}" in failure(plan(network, known_hosts=str(path)))


@pytest.fixture
def other_key(tmp_path: Path) -> Path:
    path = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=30)
    return path


def test_a_wrong_key_is_refused(network: Network, other_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert f"user root cannot log in with the key {other_key}" in failure(plan(network, key=str(other_key)))
    assert "user nobody cannot log in with the key" in failure(plan(network, user="nobody"))


def test_a_key_with_a_passphrase_is_refused(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    locked = tmp_path / "locked"
    shutil.copy(network.hosts[0].key, locked)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", locked], check=True, timeout=30)
    assert f"the key {locked} has a passphrase" in failure(plan(network, key=str(locked)))


def test_a_file_that_is_not_a_key_is_named(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    path = tmp_path / "key"
    path.write_text("no key")
    assert f"key {path}: not a private key" in failure(plan(network, key=str(path)))


def test_a_closed_port_refuses_the_connection(network: Network) -> None:
    assert failure(plan(network, port=9)).endswith("port 9: Connection refused")


def test_an_unknown_host_name_is_reported(network: Network) -> None:
    assert "unknown host name" in failure(plan(network, address="host.invalid"))


def test_an_unused_address_is_unreachable(network: Network) -> None:
    free = network.hosts[0].address.rpartition(".")[0] + ".250"
    text = failure(plan(network, address=free), timeout_s=10)
    assert "No route to host" in text or "port 22: no answer within 10 s" in text


def test_a_cut_host_does_not_answer_in_time(network: Network) -> None:
    network.cut(3)
    text = failure(plan(network, 3), timeout_s=1)
    assert "port 22: no answer within 1 s" in text or "No route to host" in text


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
def test_a_server_without_ssh_is_reported(network: Network, says: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        held = []

        def serve() -> None:
            peer, _ = listener.accept()
            held.append(peer)
            if says is not None:
                peer.sendall(says)
                peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        text = failure(plan(network, address="127.0.0.1", port=port), timeout_s=1)
        thread.join()
        held[0].close()
    assert f"port {port}: no SSH server answers" in text


def test_messages_of_paramiko_are_not_printed() -> None:
    assert logging.getLogger("paramiko").handlers, "what Paramiko logs would be printed"
