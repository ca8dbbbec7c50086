"""Servers in processes of their own: this project's broker, started by its command, and nats-server.

Tests, benchmarks and the recording of the notebooks' data use this module. Every server binds port 0 and
reports the ports that the system chose.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

from subjectbus import Monitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Address = tuple[str, int]
T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.01
_LISTENERS = ("tcp", "http", "monitor")


class StartError(Exception):
    """Failure of a server to start; the text has the server's output."""


def wait_until(condition: Callable[[], T], timeout_s: float = 60.0, what: str = "") -> T:
    """Poll `condition` until it is truthy and return it.

    Raises:
        TimeoutError: The condition was still falsy after `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what or condition} not reached in {timeout_s} s")
        time.sleep(_POLL_S)
    return value


def parse_address(text: str) -> Address:
    """Split `host:port`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def pinned(cpus: str | None) -> list[str]:
    """Return a command prefix that limits a process to these processors; empty for None."""
    return [] if cpus is None else ["taskset", "-c", cpus]


class Server:
    """Server that speaks the NATS client protocol over TCP and WebSocket; `with` kills it at the end."""

    def __init__(self, process: subprocess.Popen[str], stderr: Path) -> None:
        self.process = process
        self.stderr = stderr
        self.tcp: Address = ("", 0)
        self.http: Address = ("", 0)
        self.monitor: Address = ("", 0)

    def url(self, transport: str) -> str:
        """Return the URL for clients; `transport` is `tcp`, `ws` or `http`."""
        scheme, (host, port) = ("nats", self.tcp) if transport == "tcp" else (transport, self.http)
        return f"{scheme}://{host}:{port}"

    @property
    def monitor_url(self) -> str:
        """URL of the monitor."""
        return f"http://{self.monitor[0]}:{self.monitor[1]}"

    def read(self, path: str, *, timeout_s: float = 10.0, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - as Monitor.fetch has them
        """Return a document of the monitor.

        Raises:
            MonitorError: The document cannot be read.
        """
        with Monitor(self.monitor_url, timeout_s) as monitor:
            return monitor.fetch(path, **query)

    def varz(self) -> dict[str, Any]:
        """Return the counters of /varz."""
        return self.read("/varz")

    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def log(self) -> str:
        """Return what the process has written to standard error so far."""
        return self.stderr.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Broker(Server):
    """Process `subjectbus serve`, which prints a line on standard output when it is ready."""

    @classmethod
    def start(
        cls,
        directory: Path,
        command: str | None = None,
        prefix: Sequence[str] = (),
        **options: Any,  # noqa: ANN401 - of each flag
    ) -> Self:
        """Start a broker and wait until it accepts connections.

        Args:
            directory: Current folder of the broker, and folder of its log.
            command: Path of the executable; None for the executable beside this interpreter.
            prefix: Command that runs the broker's command, such as prlimit(1).
            options: Flags of `subjectbus serve`, with underscores. True stands for a flag without a value,
                and a list for one flag for each of its values.

        Raises:
            StartError: The broker has ended, or was not ready in time.
        """
        stderr = directory / f"broker-{time.monotonic_ns()}.log"
        listeners = dict.fromkeys(_LISTENERS, "127.0.0.1:0")
        with stderr.open("w") as log:
            process = subprocess.Popen(
                [*prefix, command or subjectbus_command(), "serve", *_flags({**listeners, **options})],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=directory,
            )
        broker = cls(process, stderr)
        try:
            broker._read_ready_line()
        except BaseException:
            broker.kill()
            raise
        return broker

    def _read_ready_line(self) -> None:
        """Wait for the ready line and take the addresses from it."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        self.ready_line = self.process.stdout.readline() if readable else ""
        word, *fields = self.ready_line.split() or [""]
        if word != "ready":
            raise StartError(f"expected a ready line, got {self.ready_line!r}; stderr: {self.log()}")
        addresses = dict(field.split("=", 1) for field in fields)
        self.tcp, self.http, self.monitor = (
            parse_address(addresses[name]) if name in addresses else ("", 0) for name in _LISTENERS
        )


class NatsServer(Server):
    """Process nats-server, which writes its ports to a file."""

    #: Names of the broker's options -> the keys of nats-server's configuration file.
    KEYS: ClassVar[dict[str, str]] = {
        "max_subscriptions": "max_subs",
        "max_subject_tokens": "max_sub_tokens",
        "ping_interval_s": "ping_interval",
        "write_deadline_s": "write_deadline",
    }

    @classmethod
    def start(
        cls, directory: Path, executable: str, prefix: Sequence[str] = (), **options: str | float
    ) -> Self:
        """Start a nats-server and wait until it accepts connections.

        Args:
            directory: Folder of its files.
            executable: Path of its executable.
            prefix: Command that runs the server's command.
            options: Keys of its configuration, or options of the broker that `KEYS` translates.

        Raises:
            StartError: The server has ended, or was not ready in time.
        """
        ports = directory / f"ports-{time.monotonic_ns()}"
        ports.mkdir()
        lines = [f"{cls.KEYS.get(k, k)}: {v}{'s' * k.endswith('_s')}" for k, v in options.items()]
        lines += [
            "listen: 127.0.0.1:-1",
            "http: 127.0.0.1:-1",
            f'ports_file_dir: "{ports}"',
            'websocket { listen: "127.0.0.1:-1", no_tls: true }',
        ]
        config = ports / "nats.conf"
        config.write_text("\n".join(lines) + "\n")
        stderr = ports / "log"
        with stderr.open("w") as log:
            process = subprocess.Popen(
                [*prefix, executable, "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
            )
        server = cls(process, stderr)
        try:
            server._read_ports_file(ports / f"{Path(executable).name}_{process.pid}.ports")
        except BaseException:
            server.kill()
            raise
        return server

    def _read_ports_file(self, path: Path) -> None:
        """Wait for the file that names the ports."""

        def parse() -> dict[str, list[str]]:
            if not self.is_running():
                raise StartError(self.log())
            try:
                ports: dict[str, list[str]] = json.loads(path.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return {}
            return ports

        try:
            ports = wait_until(parse, START_TIMEOUT_S, "the ports of nats-server")
        except TimeoutError as error:
            raise StartError(f"{error}; stderr: {self.log()}") from error
        self.tcp, self.http, self.monitor = (
            (urlsplit(ports[key][0]).hostname or "", urlsplit(ports[key][0]).port or 0)
            for key in ("nats", "websocket", "monitoring")
        )


@contextmanager
def own_broker(cpus: str | None, **options: Any) -> Iterator[Broker]:  # noqa: ANN401 - of each flag
    """Run a broker on these processors."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker.start(Path(folder), prefix=pinned(cpus), **options) as broker,
    ):
        yield broker


@contextmanager
def nats_server(cpus: str | None, **options: str | float) -> Iterator[NatsServer]:
    """Run nats-server on these processors; SystemExit if it is not installed."""
    executable = nats_server_command()
    if executable is None:
        raise SystemExit("nats-server is not installed: `make setup` installs it if Go is installed")
    with (
        tempfile.TemporaryDirectory() as folder,
        NatsServer.start(Path(folder), executable, pinned(cpus), **options) as server,
    ):
        yield server


def subjectbus_command() -> str:
    """Return the path of `subjectbus`: beside the running interpreter, or else on PATH."""
    beside = Path(sys.executable).with_name("subjectbus")
    found = str(beside) if beside.exists() else shutil.which("subjectbus")
    assert found, "the command `subjectbus` is not installed: run `make build`"
    return found


def nats_server_command() -> str | None:
    """Return the path of nats-server from `make setup` or else from PATH; None if it is not installed."""
    cached = ROOT / ".cache" / "go" / "bin" / "nats-server"
    return str(cached) if cached.exists() else shutil.which("nats-server")


def _flags(options: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            words += [flag] if one is True else [flag, str(one)]
    return words
