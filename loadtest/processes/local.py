"""Processes of this machine."""

import platform
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

import psutil

from loadtest.errors import RunError
from loadtest.plan.target import parse_monitor
from loadtest.processes import child
from loadtest.processes.machine import Handle, Program
from loadtest.result.schema import HostSample
from loadtest.sampling.environment import describe_environment
from loadtest.sampling.host import HostSampler
from loadtest.sampling.monitor import Counters, HttpCounters
from loadtest.sampling.usage import Processes, Usage, count_descriptors

_DRAIN_S = 1.0


class LocalProcess:
    """A child with its output read by threads; a process group of its own keeps Ctrl-C away from it."""

    def __init__(self, program: Program) -> None:
        """OSError when it cannot be started."""
        self._process = subprocess.Popen(
            child.command_line([*child.PYTHON, *program.module], program.cpus),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self._readers = [
            threading.Thread(target=_read, args=(self._process.stdout, program.output), daemon=True),
            threading.Thread(target=_read, args=(self._process.stderr, program.errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """See Process."""
        return self._process.pid

    def poll(self) -> int | None:
        """See Process."""
        status = self._process.poll()
        if status is not None:
            self._drain()
        return status

    def wait(self, timeout_s: float) -> int | None:
        """See Process."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._drain()
        return status

    def _drain(self) -> None:
        """A grandchild may hold the pipes open, so it is not waited for without end."""
        deadline = time.monotonic() + _DRAIN_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def send(self, line: bytes) -> None:
        """See Process."""
        try:
            _pipe(self._process.stdin).write(line + b"\n")
            _pipe(self._process.stdin).flush()
        except ValueError as error:
            raise BrokenPipeError(str(error)) from error

    def end_input(self) -> None:
        """See Process."""
        with suppress(OSError):  # it has gone, and what was to be said to it with it
            _pipe(self._process.stdin).close()

    def terminate(self) -> None:
        """See Process."""
        self._process.terminate()

    def kill(self) -> None:
        """See Process."""
        self._process.kill()

    def ask_usage(self) -> Callable[[], Usage | None]:
        """See Process."""
        return self._usage

    def _usage(self) -> Usage | None:
        try:
            return Processes([self.pid]).usage()
        except psutil.NoSuchProcess:
            return None

    def count_descriptors(self) -> int | None:
        """See Process."""
        return count_descriptors(self.pid)


def _read(stream: IO[bytes], handle: Handle) -> None:
    with stream:
        for line in stream:
            handle(line.rstrip(b"\r\n"))


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the child was started without pipes")
    return stream


class LocalMachine:
    """The machine that the command runs on."""

    address: str | None = None
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
    lost: str | None = None
    samples: list[HostSample]

    def __init__(self) -> None:
        self.name = platform.node() or "localhost"
        self.environment: Mapping[str, Any] = describe_environment()
        self.samples = []
        self._sampler = HostSampler()

    def require_present(self) -> None:
        """See Machine."""

    def close(self) -> None:
        """See Machine: its processes are children of this one."""

    def start(self, program: Program) -> LocalProcess:
        """See Machine."""
        try:
            return LocalProcess(program)
        except OSError as error:
            raise RunError(f"{program.module[0]} cannot be started: {error.strerror}") from error

    def sample(self) -> None:
        """See Machine."""
        sample = self._sampler.sample()
        if sample is not None:
            self.samples.append(sample)

    def open_counters(self, url: str) -> Counters:
        """See Machine."""
        return HttpCounters(parse_monitor(url))

    def listening_address(self, wanted: str) -> str:
        """See Machine."""
        here = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
        if wanted in here:
            return wanted
        return "::" if ":" in wanted else "0.0.0.0"  # noqa: S104 - it is reached under an address of a router
