"""The servers under test, each a real process: our broker through its own command, and nats-server.

Both bind port 0 and say which ports they got, so tests never guess a port, and both are ended
by the caller through `stop`.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
Address = tuple[str, int]
Options = dict[str, str | float | bool | list[str]]

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
#: Nothing of this kind may ever be written by a broker, whatever its clients do.
CRASH_MARKS = ("panicked", "Traceback", "RuntimeError", "fatal error")
#: A drain waits for its clients; tests that are not about it need not.
QUICK_DRAIN: Options = {"lame_duck_grace_s": 0.05, "lame_duck_duration_s": 0.05}


def wait_until(condition: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """Poll `condition` until it is truthy and return it.

    Raises:
        TimeoutError: it was still falsy after `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what or condition} not reached in {timeout_s} s")
        time.sleep(0.01)
    return value


def parse_address(text: str) -> Address:
    """Split `host:port`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


class Server:
    """A running server that speaks the NATS client protocol over TCP and WebSocket."""

    #: True for our own broker, whose counters and strictness the tests may rely on.
    ours: bool

    def __init__(self, process: subprocess.Popen[str], stderr: Path) -> None:
        self.process = process
        self.stderr = stderr
        self.tcp: Address = ("", 0)
        self.http: Address = ("", 0)
        self.monitor: Address = ("", 0)

    def url(self, transport: str) -> str:
        """The address that a client is given; `transport` is `tcp`, `ws` or `http`."""
        scheme, (host, port) = ("nats", self.tcp) if transport == "tcp" else (transport, self.http)
        return f"{scheme}://{host}:{port}"

    def varz(self) -> dict[str, Any]:
        """The counters of /varz."""
        host, port = self.monitor
        with urllib.request.urlopen(f"http://{host}:{port}/varz", timeout=10) as response:
            counters: dict[str, Any] = json.load(response)
            return counters

    def is_running(self) -> bool:
        """Whether the process still lives."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the process without ceremony, and reap it."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def log(self) -> str:
        """What the process wrote to standard error so far."""
        return self.stderr.read_text(errors="replace")

    def stop(self) -> None:
        """Terminate the process and check that it ended as it should."""
        raise NotImplementedError


class Broker(Server):
    """`subjectbus serve`, read from its ready line, ended by SIGTERM with status 0."""

    ours = True

    @classmethod
    def start(
        cls,
        directory: Path,
        command: str | None = None,
        prefix: Sequence[str] = (),
        **options: str | float | bool,
    ) -> Broker:
        """Start a broker; every other option is a flag of `subjectbus serve` with underscores.

        Args:
            directory: Where it runs and logs.
            command: The executable; None for the one beside this interpreter.
            prefix: A command that runs the broker's, as prlimit(1) does.
            options: The flags.
        """
        settings: Options = {
            "tcp": "127.0.0.1:0",
            "http": "127.0.0.1:0",
            "monitor": "127.0.0.1:0",
            "ping_interval_s": 0,  # raw sockets expect nothing that they did not ask for
            **QUICK_DRAIN,
            **options,
        }
        stderr = directory / f"broker-{time.monotonic_ns()}.log"
        with stderr.open("w") as log:
            process = subprocess.Popen(
                [*prefix, command or subjectbus_command(), "serve", *flags(settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=directory,
            )
        broker = cls(process, stderr)
        try:
            broker.read_ready_line()
        except BaseException:
            broker.kill()
            raise
        return broker

    def read_ready_line(self) -> None:
        """Wait for the ready line and take the addresses from it."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        self.ready_line = self.process.stdout.readline() if readable else ""
        word, *fields = self.ready_line.split() or [""]
        assert word == "ready", f"no ready line but {self.ready_line!r}; stderr: {self.log()}"
        addresses = dict(field.split("=", 1) for field in fields)
        self.tcp, self.http, self.monitor = (
            parse_address(addresses[name]) for name in ("tcp", "http", "monitor")
        )

    def conservation(self) -> dict[str, Any]:
        """The conservation counters, with `holds` worked out from them."""
        return with_holds(self.varz()["conservation"])

    def wait_idle(self) -> None:
        """Wait until no client is left, no message is pending, and every message is accounted for.

        A page is read while shards work, so a look may come in the middle of a turn. It is repeated then.

        Raises:
            TimeoutError: connections, subscriptions or messages leaked.
        """
        seen: dict[str, Any] = {}

        def is_idle() -> bool:
            seen.update(self.varz())
            conservation = with_holds(seen["conservation"])
            is_empty = not (seen["connections"] or seen["subscriptions"] or conservation["pending"])
            return is_empty and bool(conservation["holds"])

        try:
            wait_until(is_idle, what="idle broker")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {seen}") from error

    def wait_status(self) -> int:
        """Wait for the end of the process, check its log, and return its exit status."""
        status = self.process.wait(STOP_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        log = self.log()
        assert not any(mark in log for mark in CRASH_MARKS), log
        return status

    def stop(self) -> None:
        try:
            self.process.send_signal(signal.SIGTERM)
            assert self.wait_status() == 0, self.log()
        finally:
            if self.is_running():
                self.kill()


class NatsServer(Server):
    """nats-server, whose behaviour proves the expectations of the tests."""

    ours = False
    #: Our option names -> the keys of its configuration file.
    KEYS: ClassVar[dict[str, str]] = {
        "max_subscriptions": "max_subs",
        "max_subject_tokens": "max_sub_tokens",
        "ping_interval_s": "ping_interval",
        "write_deadline_s": "write_deadline",
    }

    @classmethod
    def start(cls, executable: str, directory: Path, **options: str | float) -> NatsServer:
        """Start a nats-server with the options it shares with our broker."""
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
                [executable, "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
            )
        server = cls(process, stderr)
        try:
            server.read_ports_file(ports / f"{Path(executable).name}_{process.pid}.ports")
        except BaseException:
            server.kill()
            raise
        return server

    def read_ports_file(self, path: Path) -> None:
        """Wait for the file that names the ports it got."""

        def parse() -> dict[str, list[str]]:
            assert self.is_running(), self.log()
            try:
                ports: dict[str, list[str]] = json.loads(path.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return {}
            return ports

        ports = wait_until(parse, START_TIMEOUT_S, "the ports of nats-server")
        self.tcp, self.http, self.monitor = (
            (urlsplit(ports[key][0]).hostname or "", urlsplit(ports[key][0]).port or 0)
            for key in ("nats", "websocket", "monitoring")
        )

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        finally:
            if self.is_running():
                self.kill()


def with_holds(conservation: dict[str, Any]) -> dict[str, Any]:
    """Add `holds` to the conservation counters: whether they account for every message."""
    counted = conservation["delivered"] + sum(conservation["dropped"].values()) + conservation["pending"]
    return {**conservation, "holds": conservation["matched"] == counted}


def flags(options: Options) -> list[str]:
    """Command line flags; True is a flag without a value, a list a flag for each of its values."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            words += [flag] if one is True else [flag, str(one)]
    return words


def subjectbus_command() -> str:
    """The command installed beside the running interpreter, else the one on PATH."""
    beside = Path(sys.executable).with_name("subjectbus")
    found = str(beside) if beside.exists() else shutil.which("subjectbus")
    assert found, "the command `subjectbus` is not installed: run `make build`"
    return found


def nats_server_command() -> str | None:
    """nats-server on PATH or where `make setup` put it."""
    cached = ROOT / ".cache" / "go" / "bin" / "nats-server"
    return str(cached) if cached.exists() else shutil.which("nats-server")


def in_ci() -> bool:
    """Whether a missing counterpart must fail the run instead of being skipped."""
    return os.environ.get("CI", "").lower() in ("1", "true")
