"""Hosts with addresses of their own on one machine: real OpenSSH servers in network namespaces.

A bridge joins them; this machine has an address on it, too. All are named after the process that made
them, so runs side by side do not meet, and what a killed one left behind is removed by the next.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PORT = 22
START_TIMEOUT_S = 10.0
_NAMESPACES = Path("/run/netns")
_SEPARATION = Path("/run/sshd")  # where sshd's unprivileged half lives; the system's unit makes it, too
_OWNED = re.compile(r"(?P<prefix>sb(?P<pid>\d+)n\d+)(?:b|h\d+)")
_SEQUENCE = itertools.count()
_CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {authorized}
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
PrintLastLog no
MaxStartups 100
MaxSessions 100
SetEnv {environment}
"""


class UnavailableError(Exception):
    """This machine cannot make the network; `refused` where no setup could change that."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its OpenSSH server listens at `address`, port 22."""

    name: str
    address: str
    namespace: str
    folder: Path
    """Its configuration, host key and log (`sshd.log`)."""
    home: Path
    """$HOME of whoever logs in, empty at first."""
    key: Path
    """The private key that root logs in with."""
    known_hosts: Path
    """The keys of all hosts of the network, as OpenSSH's client keeps them."""

    def log(self) -> str:
        """What its server has said."""
        return (self.folder / "sshd.log").read_text(encoding="utf-8")


class Network:
    """`count` hosts, from entering to leaving the context.

    Args:
        count: Hosts, at most 200; their names are a, b, c... (h0, h1... beyond 26).
        environment: Variables of every login beside HOME, such as PATH.

    Raises:
        UnavailableError: Not root, no `ip` or `sshd`, or the kernel refuses.
    """

    def __init__(self, count: int, environment: Mapping[str, str] | None = None) -> None:
        self.count = count
        self.environment = environment or {}
        self.hosts: list[Host] = []
        self._prefix = f"sb{os.getpid()}n{next(_SEQUENCE)}"
        self._bridge = f"{self._prefix}b"
        self._folder = Path()
        self._servers: list[subprocess.Popen[bytes]] = []
        self._written = 0

    def __enter__(self) -> Self:
        _require_tools()
        _sweep()
        with ExitStack() as stack:
            self._folder = Path(tempfile.gettempdir(), self._prefix)
            self._folder.mkdir(mode=0o700)
            stack.callback(self._reap)
            stack.callback(_remove, self._prefix)
            self._build()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _reap(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()

    def _build(self) -> None:
        _keygen(self._folder / "key")
        subnet = _unused_subnet()
        _make(f"link add {self._bridge} type bridge")
        _ip(f"address add {subnet[1]}/{subnet.prefixlen} dev {self._bridge}")
        _ip(f"link set {self._bridge} up")
        for index in range(self.count):
            self._add(index, f"{subnet[10 + index]}", subnet.prefixlen)
        for host, server in zip(self.hosts, self._servers, strict=True):
            wait_until(lambda h=host, s=server: _accepts(h, s), START_TIMEOUT_S, f"sshd of {host.name}")

    def _add(self, index: int, address: str, prefix_length: int) -> None:
        namespace = f"{self._prefix}h{index}"
        folder = self._folder / f"h{index}"
        host = Host(
            name=chr(ord("a") + index) if self.count <= 26 else f"h{index}",
            address=address,
            namespace=namespace,
            folder=folder,
            home=folder / "home",
            key=self._folder / "key",
            known_hosts=self._folder / "known_hosts",
        )
        host.home.mkdir(parents=True)
        _make(f"netns add {namespace}")
        _ip(f"link add {namespace} type veth peer name eth0 netns {namespace}")
        _ip(f"link set {namespace} master {self._bridge} up")
        for command in (
            "link set lo up",
            f"address add {address}/{prefix_length} dev eth0",
            "link set eth0 up",
        ):
            _ip(f"-n {namespace} {command}")
        self.hosts.append(host)
        self._serve(host)

    def _serve(self, host: Host) -> None:
        """Starts the OpenSSH server of a host."""
        _keygen(host.folder / "host_key")
        public = (host.folder / "host_key.pub").read_text(encoding="ascii")
        with host.known_hosts.open("a", encoding="ascii") as file:
            file.write(f"{host.address} {public}")
        environment = {"HOME": str(host.home), **self.environment}
        config = host.folder / "sshd_config"
        config.write_text(
            _CONFIG.format(
                address=host.address,
                port=PORT,
                folder=host.folder,
                authorized=f"{host.key}.pub",
                environment=" ".join(f'"{name}={value}"' for name, value in environment.items()),
            ),
            encoding="utf-8",
        )
        _SEPARATION.mkdir(mode=0o755, exist_ok=True)
        enter = ("ip", "netns", "exec", host.namespace, "setpriv", "--pdeathsig", "KILL")
        with (host.folder / "sshd.log").open("wb") as log:
            server = [*enter, _sshd(), "-D", "-e", "-f", str(config)]
            self._servers.append(subprocess.Popen(server, stdin=subprocess.DEVNULL, stderr=log))

    def cut(self, index: int) -> None:
        """Pulls the cable of a host."""
        _ip(f"link set {self.hosts[index].namespace} down")

    def mend(self, index: int) -> None:
        """Plugs it in again; of a cable that is plugged in, nothing happens."""
        _ip(f"link set {self.hosts[index].namespace} up")

    def processes(self, index: int) -> dict[int, str]:
        """Process ids and command lines of a host, but for those of its OpenSSH server."""
        found = _processes_in(self.hosts[index].namespace)
        return {
            pid: command for pid, (program, command) in found.items() if program != Path(_sshd()).resolve()
        }

    def inventory(self, roles: Sequence[Iterable[str]], **overrides: Any) -> Path:
        """Writes a hosts file.

        Args:
            roles: The roles of each host, from the first on.
            overrides: Keys of `[defaults]` beside or instead of user, key, known_hosts and python (this one).
        """
        defaults: dict[str, Any] = {"user": "root", "key": str(self.hosts[0].key)}
        defaults |= {"known_hosts": str(self.hosts[0].known_hosts), "python": sys.executable, **overrides}
        lines = ["[defaults]", *_toml(defaults)]
        for host, own in zip(self.hosts[: len(roles)], roles, strict=True):
            lines += [
                "",
                "[[hosts]]",
                *_toml({"name": host.name, "address": host.address, "roles": list(own)}),
            ]
        self._written += 1
        path = self._folder / f"hosts-{self._written}.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def _toml(table: Mapping[str, Any]) -> list[str]:
    # A JSON number, text or list of them is TOML, too.
    return [f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None]


def _sshd() -> str:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or ""


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise UnavailableError("network namespaces need root")
    for tool, package in (("ip", "iproute2"), ("ssh-keygen", "openssh-client"), ("setpriv", "util-linux")):
        if shutil.which(tool) is None:
            raise UnavailableError(f"{tool} is not installed (Debian: {package})")
    if not _sshd():
        raise UnavailableError("sshd is not installed (Debian: openssh-server)")


def _ip(arguments: str) -> str:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout


def _make(arguments: str) -> None:
    """An `ip` command that needs the kernel's permission."""
    try:
        _ip(arguments)
    except OSError as error:
        raise UnavailableError(f"the kernel refuses: {error}", refused=True) from error


def _keygen(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL)


def _unused_subnet() -> ipaddress.IPv4Network:
    routes = (route["dst"] for route in json.loads(_ip("-json -4 route")))
    taken = [ipaddress.IPv4Network(route) for route in routes if route != "default"]
    while True:
        subnet = ipaddress.IPv4Network(f"10.{random.randrange(64, 192)}.{random.randrange(256)}.0/24")
        if not any(subnet.overlaps(other) for other in taken):
            return subnet


def _accepts(host: Host, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise AssertionError(f"sshd of {host.name} ended: {host.log()}")
    try:
        with socket.create_connection((host.address, PORT), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _processes_in(namespace: str) -> dict[int, tuple[Path, str]]:
    """Program and command line of each process in it, by process id."""
    try:
        wanted = (_NAMESPACES / namespace).stat()
    except FileNotFoundError:
        return {}
    found = {}
    for entry in Path("/proc").iterdir():
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.path.samestat((entry / "ns" / "net").stat(), wanted):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found[int(entry.name)] = ((entry / "exe").readlink(), b" ".join(words).decode().strip())
    return found


def _remove(prefix: str) -> None:
    """Ends the processes in the namespaces with this prefix, then removes these, all links and the folder."""
    for name in _owned(prefix, _namespaces()):
        wait_until(lambda n=name: not _kill(_processes_in(n)), what=f"an end of all processes in {name}")
        _ip(f"netns delete {name}")
    for name in _owned(prefix, _links()):
        # With a namespace its end of a pair goes, and the other end with it, some time later.
        with contextlib.suppress(OSError):
            _ip(f"link delete {name}")
    shutil.rmtree(Path(tempfile.gettempdir(), prefix), ignore_errors=True)


def _kill(processes: Iterable[int]) -> bool:
    """False when there was none."""
    alive = False
    for pid in processes:
        alive = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return alive


def _owned(prefix: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if (match := _OWNED.fullmatch(name)) and match["prefix"] == prefix]


def _namespaces() -> list[str]:
    return [entry.name for entry in _NAMESPACES.iterdir()] if _NAMESPACES.is_dir() else []


def _links() -> list[str]:
    return [link["ifname"] for link in json.loads(_ip("-json link"))]


def _sweep() -> None:
    """Remove leftovers of killed test runs."""
    found = filter(None, map(_OWNED.fullmatch, _links() + _namespaces()))
    for prefix in {match["prefix"] for match in found if not Path("/proc", match["pid"]).exists()}:
        _remove(prefix)
