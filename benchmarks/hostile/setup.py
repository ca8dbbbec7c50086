"""Broker under attack, with the processes and threads of the attack, all of which end with it."""

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

import servers
from measure import LOAD_CPU, SERVER_CPU
from servers import ROOT

from hostile.client import TIMEOUT_S

_CHILD_READY_S = 120.0
"""Seconds until a child must be ready; thousands of connections take a while on a busy machine."""
_CHILD_END_S = 60.0
_POLL_S = 0.05
_PAGE = 4096


@dataclass(frozen=True)
class Setup:
    """Driver of the broker, and processors of broker and attackers."""

    driver: str
    server_cpu: str | None = SERVER_CPU
    """Processors of the broker; None leaves them to the kernel."""
    load_cpu: str | None = LOAD_CPU
    """Processors of attackers and witnesses; None leaves them to the kernel."""
    quiet_s: float = 1.0
    """Seconds before an attack in which the witness is measured undisturbed."""
    settle_s: float = 0.3
    """Seconds after each step of an attack, so that its effects do not count for the next step."""

    @contextmanager
    def broker(
        self,
        settings: Mapping[str, object] = MappingProxyType({}),
        *,
        shards: int | str = 1,
        nofile: int | None = None,
    ) -> Iterator["Broker"]:
        """Run a broker; kill it on exit.

        Args:
            settings: Keys of the configuration, besides driver, shards and listeners.
            shards: Number of shards, or "auto".
            nofile: Limit on open files. None keeps the limit of this process.
        """
        prefix = servers.pinned(self.server_cpu)
        prefix += [] if nofile is None else ["prlimit", f"--nofile={nofile}"]
        options: dict[str, Any] = {"driver": self.driver, "shards": shards, **settings}
        with (
            tempfile.TemporaryDirectory() as folder,
            Broker.start(Path(folder), prefix=prefix, **options) as broker,
        ):
            yield broker

    @contextmanager
    def child(self, module: str, *arguments: object) -> Iterator["Child"]:
        """Run a module of this package in a process of its own; kill it on exit.

        Args:
            module: Name of the module, which prints "ready" and ends when its standard input ends.
            arguments: Command line of the module.
        """
        command = [*servers.pinned(self.load_cpu), sys.executable, "-m", f"hostile.{module}"]
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
        """Start `subjectbus loadtest` on the processors of the load; the caller ends the process."""
        command = [servers.subjectbus_command(), "loadtest", *arguments]
        if self.load_cpu is not None:
            command += ["--load-cpus", self.load_cpu]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)


class Broker(servers.Broker):
    """Running broker, with the memory and processor time that it uses."""

    def varz(self) -> dict[str, Any]:
        """Return the counters of /varz; an attack may delay them for as long as TIMEOUT_S."""
        return self.read("/varz", timeout_s=TIMEOUT_S)

    def connection(self, cid: int) -> dict[str, Any]:
        """Return the row of /connz for one client."""
        rows = self.read("/connz", timeout_s=TIMEOUT_S, cid=cid)["connections"]
        if not rows:
            raise ConnectionError(f"the broker has no client with CID {cid}")
        row: dict[str, Any] = rows[0]
        return row

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        return int(self._proc("statm").read_text(encoding="ascii").split()[1]) * _PAGE

    def cpu_s(self) -> float:
        """Return the processor time of all threads in seconds, from schedstat, which counts nanoseconds."""
        tasks = self._proc("task").glob("*/schedstat")
        return sum(int(one.read_text(encoding="ascii").split()[0]) for one in tasks) / 1e9

    def _proc(self, name: str) -> Path:
        return Path("/proc") / str(self.process.pid) / name

    def terminate(self) -> None:
        """Send SIGTERM, which begins lame duck mode."""
        self.process.send_signal(signal.SIGTERM)


@dataclass(frozen=True)
class Child:
    """Process of an attack, besides the attacker's own."""

    process: subprocess.Popen[bytes]

    def finish(self) -> bytes:
        """Close the process's standard input, wait for its end and return its remaining output."""
        output, _ = self.process.communicate(timeout=_CHILD_END_S)
        if self.process.returncode:
            raise ChildProcessError(f"{self.process.args!r} ended with status {self.process.returncode}")
        return output


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It does not hold after `timeout_s`; the text begins with `what`.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(_POLL_S)


@contextmanager
def repeated(work: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call a function repeatedly in a thread until the block ends.

    Args:
        work: Function to call, which returns soon.
        every_s: Seconds between the end of one call and the beginning of the next.

    Raises:
        Exception: The first exception of `work`, which ended the calls.
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


def _first_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """Return the first line that a process prints; empty if it ends or prints nothing in time."""
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
