"""The network of hosts that other tests use separates its hosts and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hosts.network import Network, _links, _namespaces
from tests.servers import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hosts.network import Host

KILLED = """
import os, signal, sys
sys.path += [".", "benchmarks"]  # last: the checkout has sources without the built extension
from tests.hosts.network import Network
with Network(1) as network:
    print(network.hosts[0].namespace, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def ssh(host: Host, command: str) -> list[str]:
    options = (f"UserKnownHostsFile={host.known_hosts}", "BatchMode=yes", "ConnectTimeout=1")
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-i", str(host.key), *words, f"root@{host.address}", command]


def test_each_host_has_an_address_a_home_and_processes_of_its_own(network: Network) -> None:
    for index, host in enumerate(network.hosts):
        told = subprocess.run(
            ssh(host, "echo $HOME; ip -brief address"), capture_output=True, text=True, check=True, timeout=60
        )
        home, addresses = told.stdout.split("\n", 1)
        assert home == str(host.home)
        assert [other for other in network.hosts if f"{other.address}/" in addresses] == [host]
        with running(host, "exec sleep 1000"):
            wait_until(lambda i=index: list(network.processes(i).values()) == ["sleep 1000"])
            assert not any(network.processes(other) for other in range(4) if other != index)
            # Without a terminal OpenSSH's server leaves a command alone whose client has gone.
            os.kill(next(iter(network.processes(index))), signal.SIGKILL)
            wait_until(lambda i=index: not network.processes(i))


@contextmanager
def running(host: Host, command: str) -> Iterator[None]:
    client = subprocess.Popen(ssh(host, command))
    try:
        yield
    finally:
        client.kill()
        client.wait()


def test_a_disconnected_host_is_unreachable_until_reconnected(network: Network) -> None:
    host = network.hosts[2]
    network.cut(2)
    assert subprocess.run(ssh(host, "true"), check=False, capture_output=True).returncode == 255
    network.mend(2)
    assert subprocess.run(ssh(host, "true"), check=False, capture_output=True).returncode == 0


def test_nothing_is_left_behind(network: Network) -> None:
    before = {*_namespaces(), *_links()}
    with Network(2) as other:
        folder = other.hosts[0].folder.parent
        assert len({*_namespaces(), *_links()} - before) == 2 + 1  # a namespace and its link share a name
        assert folder.is_dir()
    assert {*_namespaces(), *_links()} == before
    assert not folder.exists()


def test_leftovers_of_a_killed_run_are_removed_by_the_next(network: Network) -> None:
    killed = subprocess.run(
        [sys.executable, "-P", "-c", KILLED],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    namespace = killed.stdout.strip()
    prefix = namespace.rpartition("h")[0]
    folder = Path(tempfile.gettempdir(), prefix)
    assert folder.is_dir()
    assert namespace in _namespaces()
    with Network(1):
        assert namespace not in _namespaces()
        assert not [link for link in _links() if link.startswith(prefix)]
        assert not folder.exists()
