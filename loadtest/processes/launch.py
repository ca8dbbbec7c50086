"""The processes of a run: broker, providers, requestors. Whatever happens to the run, all of them end."""

import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Self

import msgspec

from loadtest.engine.messages import (
    BroadcasterResult,
    Command,
    Configure,
    Event,
    Failed,
    Finished,
    Progress,
    ProviderResult,
    Reported,
    RequestorResult,
)
from loadtest.errors import RunError
from loadtest.processes import child
from subjectbus import BrokerConfig, UsageError, settings

_READY_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0
_END_S_PER_CONNECTION = 50e-6  # the kernel takes tens of seconds to let a million sockets go
_POLL_S = 0.02
_USAGE_STATUS = 2
_KEPT_LINES = 20


class Child:
    """A process with its output read by threads; a process group of its own keeps Ctrl-C away from it.

    `connections` is how many it will hold: the more, the longer it may take to end.
    """

    def __init__(
        self, name: str, command: list[str], cpus: frozenset[int] | None, connections: int = 0
    ) -> None:
        self.name = name
        self.end_timeout_s = _END_TIMEOUT_S + connections * _END_S_PER_CONNECTION
        self._process = subprocess.Popen(
            child.command_line(command, cpus),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._handle_line), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self._keep_line), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def require_alive(self) -> None:
        """RunError with the last words of a process that has ended."""
        status = self._process.poll()
        if status is not None:
            raise RunError(f"{self.name} ended with status {status}{self.last_words()}")

    def last_words(self) -> str:
        """': ' and the last line it wrote to standard error, or nothing."""
        for reader in self._readers:
            reader.join(1.0)
        return f": {self._log[-1]}" if self._log else ""

    def end(self) -> int:
        """Asks it to end, waits, kills it if it does not; returns its status."""
        self._ask_to_end()
        try:
            return self._process.wait(self.end_timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()

    def _ask_to_end(self) -> None:
        self._process.terminate()

    def _read(self, stream: IO[bytes], handle: Callable[[bytes], None]) -> None:
        with stream:
            for line in stream:
                handle(line)

    def _handle_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _keep_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._log.append(text)


class Broker(Child):
    """`subjectbus serve` on ports that the system chooses, drained when it is told to end."""

    def __init__(self, config: BrokerConfig, cpus: frozenset[int] | None, connections: int = 0) -> None:
        self.addresses: dict[str, str] = {}
        self._ready = threading.Event()
        flags = _serve_flags(config)
        super().__init__("broker", [*child.PYTHON, "subjectbus", "serve", *flags], cpus, connections)

    def wait_ready(self) -> None:
        """Until every listener accepts; UsageError when the configuration is at fault, RunError otherwise."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self._ready.wait(_POLL_S):
            if self._process.poll() == _USAGE_STATUS:
                raise UsageError(self.last_words().removeprefix(": ").removeprefix("subjectbus: error: "))
            self.require_alive()
            if time.monotonic() > deadline:
                raise RunError(f"broker was not ready within {_READY_TIMEOUT_S:.0f} s")

    def _handle_line(self, line: bytes) -> None:
        words = line.decode("utf-8", "replace").split()
        if words[:1] == ["ready"]:
            self.addresses = dict(listener.split("=", 1) for listener in words[1:])
            self._ready.set()


def _serve_flags(config: BrokerConfig) -> list[str]:
    """The configuration as flags; system-chosen ports and a short drain unless it says otherwise."""
    any_port = "127.0.0.1:0"
    defaults = BrokerConfig(
        tcp=any_port, http=any_port, monitor=any_port, lame_duck_grace_s=0.0, lame_duck_duration_s=0.0
    )
    flags: list[str] = []
    for key, value in msgspec.to_builtins(settings.merge(defaults, config)).items():
        flag = key.replace("_", "-")
        if key == "echo":
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", "" if value is False else str(value)]
    return flags


class Worker(Child):
    """A `loadtest.engine.worker`: its last snapshot, and its result once it has one."""

    def __init__(
        self, name: str, configure: Configure, cpus: frozenset[int] | None, connections: int = 0
    ) -> None:
        self.report = Reported(Progress(phase="idle"))
        """The last one."""
        self.requestor: RequestorResult | None = None
        self.provider: ProviderResult | None = None
        self.broadcaster: BroadcasterResult | None = None
        self._failure: Failed | None = None
        super().__init__(name, [*child.PYTHON, "loadtest.engine.worker"], cpus, connections)
        self.send(configure)

    @property
    def progress(self) -> Progress:
        """What it last reported."""
        return self.report.progress

    @property
    def finished(self) -> bool:
        """Whether the result is here."""
        return any(result is not None for result in (self.requestor, self.provider, self.broadcaster))

    @property
    def reporting(self) -> bool:
        """Whether its result may still come."""
        began = self.progress.phase not in ("idle", "failed")
        return began and not self.finished and self._failure is None and self._process.poll() is None

    def send(self, command: Command) -> None:
        """Sends a command; RunError when the worker is gone."""
        try:
            _pipe(self._process.stdin).write(msgspec.json.encode(command) + b"\n")
            _pipe(self._process.stdin).flush()
        except (OSError, ValueError):  # the pipe is broken, or closed already
            self.require_alive()
            raise RunError(f"{self.name} takes no more commands{self.last_words()}") from None

    def require_alive(self) -> None:
        """RunError, or UsageError when its configuration is at fault, once it has failed or ended."""
        if self.progress.phase == "failed":
            raise RunError(f"{self.name}: {self.progress.error}")
        if self._process.poll() is not None:
            self.last_words()  # everything it wrote has been read now
        if self._failure is not None:
            raise (UsageError if self._failure.usage else RunError)(f"{self.name}: {self._failure.error}")
        super().require_alive()

    def _ask_to_end(self) -> None:
        try:
            _pipe(self._process.stdin).close()
        except OSError:
            self._process.terminate()

    def _handle_line(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=Event)
        except msgspec.MsgspecError as error:
            self._failure = Failed(f"unreadable event: {error}")
            return
        match event:
            case Reported():
                self.report = event
            case Finished():
                self.requestor, self.provider = event.requestor, event.provider
                self.broadcaster = event.broadcaster
            case Failed():
                self._failure = event


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the child was started without pipes")
    return stream


class Fleet:
    """The children of one run. On exit all of them end, workers first; after an error, at once."""

    def __init__(self) -> None:
        self.broker: Broker | None = None
        self.provider: Worker | None = None
        self.requestors: list[Worker] = []
        """Those who begin to send when they are told to: requestors or broadcasters."""

    @property
    def workers(self) -> list[Worker]:
        """Providers and requestors."""
        return [*([self.provider] if self.provider else []), *self.requestors]

    @property
    def children(self) -> list[Child]:
        """All of them, in the order in which they end."""
        return [
            *self.requestors,
            *([self.provider] if self.provider else []),
            *([self.broker] if self.broker else []),
        ]

    def require_alive(self) -> None:
        """The error of the first child that has failed."""
        for process in self.children:
            process.require_alive()

    def end_workers(self) -> None:
        """Ends requestors and providers, whose connections close; RunError when one does not end cleanly."""
        self._end([process for process in self.children if process is not self.broker])

    def end(self) -> None:
        """Ends every child in order; RunError when one does not end cleanly."""
        self._end(self.children)

    def _end(self, children: Sequence[Child]) -> None:
        for process in children:
            if (status := process.end()) != 0:
                raise RunError(f"{process.name} ended with status {status}{process.last_words()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.children:
            process.kill()
