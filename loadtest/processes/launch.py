"""The processes of a run: broker, providers, requestors. Whatever happens to the run, all of them end."""

import json
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import tomli_w
from msgspec import structs

from loadtest.engine.messages import (
    BroadcasterResult,
    Command,
    Configure,
    EngineConfig,
    Event,
    Failed,
    Finished,
    Progress,
    ProviderConfig,
    ProviderResult,
    Reported,
    RequestorResult,
)
from loadtest.errors import RunError
from loadtest.processes.machine import Machine, Program
from loadtest.sampling.usage import Usage
from subjectbus import BrokerConfig, UsageError, settings

_READY_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0
_KILL_TIMEOUT_S = 5.0
_END_S_PER_CONNECTION = 50e-6  # the kernel takes tens of seconds to let a million sockets go
_POLL_S = 0.02
_USAGE_STATUS = 2
_KILLED_STATUS = -9
_KEPT_LINES = 20
_Config = TypeVar("_Config", bound=EngineConfig)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a process is to run, and what is different there."""

    machine: Machine
    cpus: frozenset[int] | None = None
    sources: tuple[str, ...] = ()
    """Addresses to connect from, in place of the scenario's."""
    threads: int | None = None
    driver: str | None = None

    def settle(self, config: _Config) -> _Config:
        """An engine's configuration as it is for this place."""
        changes: dict[str, Any] = {"clock_offset_ns": round((self.machine.clock_offset_s or 0.0) * 1e9)}
        if self.sources:
            changes["sources"] = self.sources
        if self.threads is not None:
            # As many as have something to do: the file's defaults are for hosts of any role.
            changes["threads"] = min(self.threads, *_shared(config))
        if self.driver is not None:
            changes["driver"] = self.driver
        return structs.replace(config, **changes)


def _shared(config: EngineConfig) -> list[int]:
    """What an engine's threads share, each of them at least one."""
    if isinstance(config, ProviderConfig):
        return [config.providers]
    counts = (getattr(config, name, 0) for name in ("users", "outstanding", "calls"))
    return [count for count in counts if count]


class Child:
    """A process of the run on its machine.

    `connections` is how many it will hold: the more, the longer it may take to end.
    """

    def __init__(self, name: str, module: Sequence[str], seat: Seat, connections: int = 0) -> None:
        self.name = name
        self.machine = seat.machine
        self.end_timeout_s = _END_TIMEOUT_S + connections * _END_S_PER_CONNECTION
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        program = Program(module=module, cpus=seat.cpus, output=self._handle_line, errors=self._keep_line)
        self.process = seat.machine.start(program)

    @property
    def title(self) -> str:
        """Its name, with its host if that is another one."""
        return f"{self.name} on host {self.machine.name}" if self.machine.address else self.name

    @property
    def pid(self) -> int:
        """The process id, on its machine."""
        return self.process.pid

    def require_alive(self) -> None:
        """RunError with the last words of a process that has ended, or HostError when its machine is lost."""
        status = self.process.poll()
        if status is not None:
            raise RunError(f"{self.title} ended with status {status}{self.last_words()}")
        self.machine.require_present()

    def last_words(self) -> str:
        """': ' and the last line it wrote to standard error, or nothing."""
        return f": {self._log[-1]}" if self._log else ""

    def end(self) -> int:
        """Asks it to end, waits, kills it if it does not; returns its status.

        HostError when its machine is lost.
        """
        self._ask_to_end()
        status = self.process.wait(self.end_timeout_s)
        if status is None:
            self.process.kill()
            status = self.process.wait(_KILL_TIMEOUT_S)
        if status is None:
            self.machine.require_present()
        return _KILLED_STATUS if status is None else status

    def kill(self) -> None:
        """Ends it at once; with a machine that is lost, its agent does that."""
        self.process.kill()
        self.process.wait(_KILL_TIMEOUT_S)

    def _ask_to_end(self) -> None:
        self.process.terminate()

    def _handle_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _keep_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._log.append(text)


def ask_usages(children: Sequence[Child]) -> list[Usage | None]:
    """What each of them uses at about the same time."""
    answers = [child.process.ask_usage() for child in children]
    return [answer() for answer in answers]


class Broker(Child):
    """`subjectbus serve` on ports that the system chooses, drained when it is told to end."""

    def __init__(
        self,
        config: BrokerConfig,
        seat: Seat,
        connections: int = 0,
        *,
        address: str = "127.0.0.1",
        name: str = "broker",
    ) -> None:
        """`address` is the one that the load connects to, unless the configuration says otherwise."""
        self.addresses: dict[str, str] = {}
        self._address = address
        if seat.driver is not None:
            config = structs.replace(config, driver=seat.driver)
        if seat.threads is not None:
            config = structs.replace(config, shards=seat.threads)
        listening = seat.machine.listening_address(address) if seat.machine.address else address
        super().__init__(name, ["subjectbus", "serve", "--config", "-"], seat, connections)
        with suppress(OSError):  # it has ended: `wait_ready` says why
            self.process.send(_document(config, listening).encode())
        self.process.end_input()

    def wait_ready(self) -> None:
        """Until every listener accepts; UsageError when the configuration is at fault, RunError otherwise."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self.addresses:
            if self.process.poll() == _USAGE_STATUS:
                raise UsageError(self.last_words().removeprefix(": ").removeprefix("subjectbus: error: "))
            self.require_alive()
            if time.monotonic() > deadline:
                raise RunError(f"{self.title} was not ready within {_READY_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def _handle_line(self, line: bytes) -> None:
        words = line.decode("utf-8", "replace").split()
        if words[:1] == ["ready"]:
            listeners = dict(listener.split("=", 1) for listener in words[1:])
            self.addresses = {name: self._reachable(address) for name, address in listeners.items()}

    def _reachable(self, address: str) -> str:
        """The address of a listener, one on all addresses by the one that the load knows."""
        host, _, port = address.rpartition(":")
        if host not in ("0.0.0.0", "[::]"):  # noqa: S104 - nothing is bound here
            return address
        return f"[{self._address}]:{port}" if ":" in self._address else f"{self._address}:{port}"


def _document(config: BrokerConfig, listening: str) -> str:
    """Return the configuration as TOML; system-chosen ports and a short drain unless it says otherwise."""
    any_port = f"[{listening}]:0" if ":" in listening else f"{listening}:0"
    defaults = BrokerConfig(
        tcp=any_port, http=any_port, monitor="127.0.0.1:0", lame_duck_grace_s=0.0, lame_duck_duration_s=0.0
    )
    return tomli_w.dumps(json.loads(settings.merge(defaults, config).to_json()))


class Worker(Child):
    """A `loadtest.engine.worker`: its last snapshot, and its result once it has one."""

    def __init__(self, name: str, configure: Configure, seat: Seat, connections: int = 0) -> None:
        self.report = Reported(Progress(phase="idle"))
        """The last one."""
        self.requestor: RequestorResult | None = None
        self.provider: ProviderResult | None = None
        self.broadcaster: BroadcasterResult | None = None
        self._failure: Failed | None = None
        super().__init__(name, ["loadtest.engine.worker"], seat, connections)
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
        if self.machine.lost is not None or self.process.poll() is not None:
            return False
        return self.progress.phase not in ("idle", "failed") and not self.finished and self._failure is None

    def send(self, command: Command) -> None:
        """Sends a command; RunError when the worker is gone."""
        try:
            self.process.send(msgspec.json.encode(command))
        except OSError:  # the pipe is broken, or closed already
            self.require_alive()
            raise RunError(f"{self.title} takes no more commands{self.last_words()}") from None

    def require_alive(self) -> None:
        """RunError, or UsageError when its configuration is at fault, once it has failed or ended."""
        if self.progress.phase == "failed":
            raise RunError(f"{self.title}: {self.progress.error}")
        self.process.poll()  # once it has ended, everything it wrote has been read
        if self._failure is not None:
            raise (UsageError if self._failure.usage else RunError)(f"{self.title}: {self._failure.error}")
        super().require_alive()

    def _ask_to_end(self) -> None:
        self.process.end_input()

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


class Fleet:
    """The children of one run. On exit all of them end, workers first; after an error, at once."""

    def __init__(self) -> None:
        self.brokers: list[Broker] = []
        self.providers: list[Worker] = []
        self.requestors: list[Worker] = []
        """Those who begin to send when they are told to: requestors or broadcasters."""

    @property
    def workers(self) -> list[Worker]:
        """Providers and requestors."""
        return [*self.providers, *self.requestors]

    @property
    def children(self) -> list[Child]:
        """All of them, in the order in which they end."""
        return [*self.requestors, *self.providers, *self.brokers]

    def require_alive(self) -> None:
        """The error of the first child that has failed."""
        for process in self.children:
            process.require_alive()

    def end_workers(self) -> None:
        """Ends requestors and providers, whose connections close; RunError when one does not end cleanly."""
        self._end([*self.requestors, *self.providers])

    def end(self) -> None:
        """Ends every child in order; RunError when one does not end cleanly."""
        self._end(self.children)

    def _end(self, children: Sequence[Child]) -> None:
        for process in children:
            if (status := process.end()) != 0:
                raise RunError(f"{process.title} ended with status {status}{process.last_words()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.children:
            child.process.kill()
        for child in self.children:
            child.kill()
