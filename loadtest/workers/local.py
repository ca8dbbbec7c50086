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
from loadtest.result.schema import HostSample
from loadtest.sampling.environment import describe_environment
from loadtest.sampling.host import HostSampler
from loadtest.sampling.monitor import Counters, open_monitor
from loadtest.sampling.usage import Processes, Usage, count_descriptors
from loadtest.workers import child
from loadtest.workers.machine import LineHandler, Program

_READERS_TIMEOUT_S = 1.0


class LocalProcess:
    """A child process whose output is read by threads; its own process group protects it from Ctrl-C."""

    def __init__(self, program: Program) -> None:
        """Start the process.

        Raises:
            OSError: The process cannot be started.
        """
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
        """Process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        status = self._process.poll()
        if status is not None:
            self._join_readers()
        return status

    def wait(self, timeout_s: float) -> int | None:
        """Wait at most `timeout_s` seconds for the exit status; return None if the process still runs."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._join_readers()
        return status

    def _join_readers(self) -> None:
        """Wait at most 1 s for the rest of the output: a grandchild may keep the pipes open."""
        deadline = time.monotonic() + _READERS_TIMEOUT_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def send(self, line: bytes) -> None:
        """Write a line to standard input.

        Raises:
            BrokenPipeError: Standard input is closed.
        """
        try:
            _require_pipe(self._process.stdin).write(line + b"\n")
            _require_pipe(self._process.stdin).flush()
        except ValueError as error:
            raise BrokenPipeError(str(error)) from error

    def end_input(self) -> None:
        """Close standard input."""
        with suppress(OSError):  # the process has exited, so unwritten input does not matter
            _require_pipe(self._process.stdin).close()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def request_usage(self) -> Callable[[], Usage | None]:
        """Return a function that measures the usage."""
        return self._usage

    def _usage(self) -> Usage | None:
        try:
            return Processes([self.pid]).usage()
        except psutil.NoSuchProcess:
            return None

    def count_descriptors(self) -> int | None:
        """Return the number of open descriptors; None if the process cannot be inspected."""
        return count_descriptors(self.pid)


def _read(stream: IO[bytes], handle: LineHandler) -> None:
    with stream:
        for line in stream:
            handle(line.rstrip(b"\r\n"))


def _require_pipe(stream: IO[bytes] | None) -> IO[bytes]:
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

    def require_reachable(self) -> None:
        """Do nothing: this machine is always reachable."""

    def close(self) -> None:
        """Do nothing: the processes are children of this one and end with it."""

    def start(self, program: Program) -> LocalProcess:
        """Start a process.

        Raises:
            RunError: The process cannot be started.
        """
        try:
            return LocalProcess(program)
        except OSError as error:
            raise RunError(f"{program.module[0]} cannot be started: {error.strerror}") from error

    def sample(self) -> None:
        """Take a sample of this machine if a second has passed since the last one."""
        sample = self._sampler.sample()
        if sample is not None:
            self.samples.append(sample)

    def open_counters(self, url: str) -> Counters:
        """Return a reader of the counters at the monitor's `url`."""
        return open_monitor(url)

    def listening_address(self, wanted: str) -> str:
        """Return `wanted` if it is an address of this machine, otherwise the address of all interfaces."""
        here = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
        if wanted in here:
            return wanted
        return "::" if ":" in wanted else "0.0.0.0"  # noqa: S104 - a router translates the wanted address
