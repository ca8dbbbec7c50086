"""The broker under attack, and processes and threads around it, all of which end with the attack."""

import json
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from measure import LOAD_CPU, ROOT, SERVER_CPU, START_TIMEOUT_S

from hostile.client import Address, get, parse_address

_CHILD_READY_S = 120.0
"""Thousands of connections take a while on a busy machine."""
_CHILD_END_S = 60.0
_POLL_S = 0.05
_PAGE = 4096
_OK = 200


@dataclass(frozen=True)
class Setup:
    """The driver that is attacked, and the processors of both sides."""

    driver: str
    server_cpu: str | None = SERVER_CPU
    """Processors of the broker; None leaves them to the kernel."""
    load_cpu: str | None = LOAD_CPU
    """Processors of attackers and witnesses; None leaves them to the kernel."""
    quiet_s: float = 1.0
    """Seconds for which a witness is watched before an attack."""
    settle_s: float = 0.3
    """Seconds after each step of an attack, so that a wait that it caused is not taken for the next one's."""

    @contextmanager
    def broker(
        self,
        settings: Mapping[str, object] = MappingProxyType({}),
        *,
        shards: int | str = 1,
        nofile: int | None = None,
    ) -> Iterator["Broker"]:
        """Start a broker, and kill it afterwards.

        Args:
            settings: Keys of its configuration, besides driver, shards and listeners.
            shards: How many shards it has, or "auto".
            nofile: Its limit of open files; None keeps the runner's.
        """
        command = _pinned(self.server_cpu)
        command += [] if nofile is None else ["prlimit", f"--nofile={nofile}"]
        command += [str(Path(sys.executable).parent / "subjectbus"), "serve", "--driver", self.driver]
        for listener in ("tcp", "http", "monitor"):
            command += [f"--{listener}", "127.0.0.1:0"]
        for key, value in {"shards": shards, **settings}.items():
            command += ["--" + key.replace("_", "-"), str(value)]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, bufsize=0)
            try:
                ready = _first_line(process, START_TIMEOUT_S)
                if not ready.startswith(b"ready "):
                    log.seek(0)
                    raise SystemExit(f"{' '.join(command)} did not start: {log.read().decode()}")
                addresses = dict(word.split("=", 1) for word in ready.decode().split()[1:])
                yield Broker(process, **{name: parse_address(text) for name, text in addresses.items()})
            finally:
                _end(process)

    @contextmanager
    def child(self, module: str, *arguments: object) -> Iterator["Child"]:
        """Run a module of this package in a process beside the attacker until it is finished.

        Args:
            module: The module's name; it says "ready" once it is, and ends when its standard input does.
            arguments: Its command line.
        """
        command = [*_pinned(self.load_cpu), sys.executable, "-m", f"hostile.{module}"]
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT / "benchmarks",
        )
        try:
            if _first_line(process, _CHILD_READY_S) != b"ready\n":
                raise ChildProcessError(f"hostile.{module} did not get ready")
            yield Child(process)
        finally:
            _end(process)

    def load_test(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `subjectbus loadtest` with the load's processors; the caller ends it."""
        command = [str(Path(sys.executable).parent / "subjectbus"), "loadtest", *arguments]
        if self.load_cpu is not None:
            command += ["--load-cpus", self.load_cpu]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class Broker:
    """A broker that runs, with the addresses of its listeners."""

    process: subprocess.Popen[bytes]
    tcp: Address
    http: Address
    monitor: Address

    def varz(self) -> dict[str, Any]:
        """Return the counters of /varz."""
        return self._read("/varz")

    def connection(self, cid: int) -> dict[str, Any]:
        """Return the row of /connz for one client."""
        rows = self._read(f"/connz?cid={cid}")["connections"]
        if not rows:
            raise ConnectionError(f"the broker knows no client {cid}")
        row: dict[str, Any] = rows[0]
        return row

    def _read(self, path: str) -> dict[str, Any]:
        status, body = get(self.monitor, path)
        if status != _OK:
            raise ConnectionError(f"{path}: status {status}")
        counters: dict[str, Any] = json.loads(body)
        return counters

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        return int(self._proc("statm").read_text(encoding="ascii").split()[1]) * _PAGE

    def cpu_s(self) -> float:
        """Return the processor time of all threads, in seconds: sched_info's nanoseconds, not clock ticks."""
        tasks = self._proc("task").glob("*/schedstat")
        return sum(int(one.read_text(encoding="ascii").split()[0]) for one in tasks) / 1e9

    def _proc(self, name: str) -> Path:
        return Path("/proc") / str(self.process.pid) / name

    def terminate(self) -> None:
        """Send SIGTERM, which begins lame duck mode."""
        self.process.send_signal(signal.SIGTERM)


@dataclass(frozen=True)
class Child:
    """A process beside the attacker."""

    process: subprocess.Popen[bytes]

    def finish(self) -> bytes:
        """Close its standard input and return everything that it says before it ends."""
        said, _ = self.process.communicate(timeout=_CHILD_END_S)
        if self.process.returncode:
            raise ChildProcessError(f"{self.process.args!r} ended with status {self.process.returncode}")
        return said


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds; TimeoutError that says what did not happen after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} not within {timeout_s:.0f} s")
        time.sleep(_POLL_S)


@contextmanager
def repeated(work: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `work` every so many seconds until the block ends.

    Args:
        work: What is to be done; it returns soon.
        every_s: Seconds between the end of one call and the beginning of the next.

    Raises:
        Exception: The first that `work` raised, which ended the calls.
    """
    stop = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        while not stop.wait(every_s):
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                failures.append(error)
                return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _pinned(cpus: str | None) -> list[str]:
    return [] if cpus is None else ["taskset", "-c", cpus]


def _first_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """Return what a process says when it is ready; empty when it ends or says nothing in time."""
    out: IO[bytes] | None = process.stdout
    assert out is not None
    readable, _, _ = select.select([out], [], [], timeout_s)
    return out.readline() if readable else b""


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
