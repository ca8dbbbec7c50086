"""The processes of a run: brokers, providers and requestors. However the run ends, all of them end."""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import tomli_w
from msgspec import structs

from loadtest.errors import RunError
from loadtest.sampling.usage import Usage
from loadtest.workers.interrupts import Interrupts
from loadtest.workers.machine import Machine, Program
from loadtest.workers.messages import (
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
from subjectbus import BrokerConfig, UsageError, settings

_READY_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0
_KILL_TIMEOUT_S = 5.0
_END_S_PER_CONNECTION = 50e-6  # the kernel takes tens of seconds to close a million sockets
_POLL_S = 0.02
_USAGE_STATUS = 2
_KILLED_STATUS = -9
_MAX_LOG_LINES = 20
_Config = TypeVar("_Config", bound=EngineConfig)


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Place for a process: its machine, and the settings that differ there."""

    machine: Machine
    cpus: frozenset[int] | None = None
    sources: tuple[str, ...] = ()
    """Addresses to connect from, instead of the scenario's; empty = the scenario's."""
    threads: int | None = None
    driver: str | None = None

    def apply_overrides(self, config: _Config) -> _Config:
        """Return an engine's configuration with the settings of this slot."""
        changes: dict[str, Any] = {"clock_offset_ns": round((self.machine.clock_offset_s or 0.0) * 1e9)}
        if self.sources:
            changes["sources"] = self.sources
        if self.threads is not None:
            # No thread may be left without work: the hosts file's defaults are for hosts of any role.
            changes["threads"] = min(self.threads, *_divided_counts(config))
        if self.driver is not None:
            changes["driver"] = self.driver
        return structs.replace(config, **changes)


def _divided_counts(config: EngineConfig) -> list[int]:
    """Return the counts that an engine divides among its threads; each thread needs at least one of each."""
    if isinstance(config, ProviderConfig):
        return [config.providers]
    counts = (getattr(config, name, 0) for name in ("users", "outstanding", "calls"))
    return [count for count in counts if count]


class ManagedProcess:
    """A process of the run on its machine.

    `connections` is the number of connections that it will open; with more of them, it gets more time to end.
    """

    def __init__(self, name: str, module: Sequence[str], slot: Slot, connections: int = 0) -> None:
        self.name = name
        self.machine = slot.machine
        self.end_timeout_s = _END_TIMEOUT_S + connections * _END_S_PER_CONNECTION
        self._log: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        program = Program(module=module, cpus=slot.cpus, output=self._handle_line, errors=self._keep_line)
        self.process = slot.machine.start(program)

    @property
    def title(self) -> str:
        """Name of the process, with its host if that is another machine."""
        return f"{self.name} on host {self.machine.name}" if self.machine.address else self.name

    @property
    def pid(self) -> int:
        """Process id on its machine."""
        return self.process.pid

    def require_alive(self) -> None:
        """Raise an error if the process has ended, or if its machine is lost.

        Raises:
            RunError: The process has ended; the text has its last line of standard error.
            HostError: The machine is lost.
        """
        status = self.process.poll()
        if status is not None:
            raise RunError(f"{self.title} ended with status {status}{self.last_error_line()}")
        self.machine.require_reachable()

    def last_error_line(self) -> str:
        """Return ": " and the last line of standard error; the empty string if there is no such line."""
        return f": {self._log[-1]}" if self._log else ""

    def end(self) -> int:
        """Ask the process to end, kill it if it does not within `end_timeout_s`, and return its exit status.

        Raises:
            HostError: The machine is lost.
        """
        self._request_end()
        status = self.process.wait(self.end_timeout_s)
        if status is None:
            self.process.kill()
            status = self.process.wait(_KILL_TIMEOUT_S)
        if status is None:
            self.machine.require_reachable()
        return _KILLED_STATUS if status is None else status

    def kill(self) -> None:
        """Kill the process and wait for its end; on a lost machine, the agent kills it."""
        self.process.kill()
        self.process.wait(_KILL_TIMEOUT_S)

    def _request_end(self) -> None:
        self.process.terminate()

    def _handle_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _keep_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._log.append(text)


def measure_usages(processes: Sequence[ManagedProcess]) -> list[Usage | None]:
    """Return the usage of each process, all at about the same time; None for a process that has ended."""
    answers = [process.process.request_usage() for process in processes]
    return [answer() for answer in answers]


class BrokerProcess(ManagedProcess):
    """A `subjectbus serve` process on ports that the system chooses; SIGTERM drains it."""

    def __init__(
        self,
        config: BrokerConfig,
        slot: Slot,
        connections: int = 0,
        *,
        address: str = "127.0.0.1",
        name: str = "broker",
    ) -> None:
        """Start the broker; the load connects to `address`, unless the configuration names another one."""
        self.addresses: dict[str, str] = {}
        self._address = address
        if slot.driver is not None:
            config = structs.replace(config, driver=slot.driver)
        if slot.threads is not None:
            config = structs.replace(config, shards=slot.threads)
        listening = slot.machine.listening_address(address) if slot.machine.address else address
        super().__init__(name, ["subjectbus", "serve", "--config", "-"], slot, connections)
        with suppress(OSError):  # the broker has ended: `wait_ready` reports why
            self.process.send(_config_document(config, listening).encode())
        self.process.end_input()

    def wait_ready(self) -> None:
        """Wait until every listener accepts connections.

        Raises:
            UsageError: The broker's configuration is invalid.
            RunError: The broker ended, or was not ready in time.
        """
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self.addresses:
            if self.process.poll() == _USAGE_STATUS:
                raise UsageError(
                    self.last_error_line().removeprefix(": ").removeprefix("subjectbus: error: ")
                )
            self.require_alive()
            if time.monotonic() > deadline:
                raise RunError(f"{self.title} was not ready within {_READY_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def _handle_line(self, line: bytes) -> None:
        words = line.decode("utf-8", "replace").split()
        if words[:1] == ["ready"]:
            listeners = dict(listener.split("=", 1) for listener in words[1:])
            self.addresses = {name: self._reachable_address(address) for name, address in listeners.items()}

    def _reachable_address(self, address: str) -> str:
        """Return the address at which workers reach a listener, also one that listens on all interfaces."""
        host, _, port = address.rpartition(":")
        if host not in ("0.0.0.0", "[::]"):  # noqa: S104 - nothing is bound here
            return address
        return f"[{self._address}]:{port}" if ":" in self._address else f"{self._address}:{port}"


def _config_document(config: BrokerConfig, listening: str) -> str:
    """Return the broker's configuration as TOML, with system-chosen ports and a short drain as defaults."""
    any_port = f"[{listening}]:0" if ":" in listening else f"{listening}:0"
    defaults = BrokerConfig(
        tcp=any_port, http=any_port, monitor="127.0.0.1:0", lame_duck_grace_s=0.0, lame_duck_duration_s=0.0
    )
    return tomli_w.dumps(json.loads(settings.merge(defaults, config).to_json()))


class WorkerProcess(ManagedProcess):
    """A `loadtest.workers.worker` process, with its last snapshot and, once it has one, its result."""

    def __init__(self, name: str, configure: Configure, slot: Slot, connections: int = 0) -> None:
        self.report = Reported(Progress(phase="idle"))
        """The last snapshot that the worker has sent."""
        self.requestor: RequestorResult | None = None
        self.provider: ProviderResult | None = None
        self.broadcaster: BroadcasterResult | None = None
        self._failure: Failed | None = None
        super().__init__(name, ["loadtest.workers.worker"], slot, connections)
        self.send(configure)

    @property
    def progress(self) -> Progress:
        """Phase and counts of the last snapshot."""
        return self.report.progress

    @property
    def finished(self) -> bool:
        """Whether the result has arrived."""
        return any(result is not None for result in (self.requestor, self.provider, self.broadcaster))

    @property
    def may_report(self) -> bool:
        """Whether a result may still arrive."""
        if self.machine.lost is not None or self.process.poll() is not None:
            return False
        return self.progress.phase not in ("idle", "failed") and not self.finished and self._failure is None

    def send(self, command: Command) -> None:
        """Send a command.

        Raises:
            RunError: The worker has ended.
        """
        try:
            self.process.send(msgspec.json.encode(command))
        except OSError:  # the pipe is broken or closed
            self.require_alive()
            raise RunError(
                f"{self.title} does not accept commands any more{self.last_error_line()}"
            ) from None

    def require_alive(self) -> None:
        """Raise an error if the worker has failed or ended, or if its machine is lost.

        Raises:
            UsageError: The worker's configuration is invalid.
            RunError: The worker has failed or ended.
            HostError: The machine is lost.
        """
        if self.progress.phase == "failed":
            raise RunError(f"{self.title}: {self.progress.error}")
        self.process.poll()  # if it returns a status, all output has been handled
        if self._failure is not None:
            raise (UsageError if self._failure.usage else RunError)(f"{self.title}: {self._failure.error}")
        super().require_alive()

    def _request_end(self) -> None:
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


class RunProcesses:
    """All processes of one run; on exit all of them are killed that still run, workers first."""

    def __init__(self, interrupts: Interrupts | None = None) -> None:
        """Hold `interrupts` back while a process starts."""
        self._interrupts = interrupts or Interrupts()
        self.brokers: list[BrokerProcess] = []
        self.providers: list[WorkerProcess] = []
        self.requestors: list[WorkerProcess] = []
        """Workers that send after a `Start` command: requestors or broadcasters."""

    def add_broker(self, start: Callable[[], BrokerProcess]) -> None:
        """Start a broker; no interrupt comes between its start and its entry in the list."""
        with self._interrupts.held():
            self.brokers.append(start())

    def add_worker(self, workers: list[WorkerProcess], start: Callable[[], WorkerProcess]) -> None:
        """Start a worker for the list `workers`; no interrupt comes between its start and its entry."""
        with self._interrupts.held():
            workers.append(start())

    @property
    def workers(self) -> list[WorkerProcess]:
        """Providers and requestors."""
        return [*self.providers, *self.requestors]

    @property
    def all_processes(self) -> list[ManagedProcess]:
        """All processes, in the order in which they end."""
        return [*self.requestors, *self.providers, *self.brokers]

    def require_alive(self) -> None:
        """Raise the error of the first process that has failed.

        Raises:
            UsageError: The configuration of a worker is invalid.
            RunError: A process has failed or ended, or its machine is lost.
        """
        for process in self.all_processes:
            process.require_alive()

    def end_workers(self) -> None:
        """End requestors and providers, which closes their connections.

        Raises:
            RunError: A process did not end with status 0.
        """
        self._end([*self.requestors, *self.providers])

    def end(self) -> None:
        """End every process in order.

        Raises:
            RunError: A process did not end with status 0.
        """
        self._end(self.all_processes)

    def _end(self, processes: Sequence[ManagedProcess]) -> None:
        for process in processes:
            if (status := process.end()) != 0:
                raise RunError(f"{process.title} ended with status {status}{process.last_error_line()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.all_processes:
            process.process.kill()
        for process in self.all_processes:
            process.kill()
