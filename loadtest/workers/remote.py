"""Processes of another machine, through its agent."""

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self

import msgspec
from msgspec import structs

from loadtest.errors import HostError, RunError
from loadtest.result.schema import HostSample
from loadtest.sampling.usage import Usage
from loadtest.workers.agent_messages import (
    SILENCE_S,
    AgentEvent,
    CloseCounters,
    CountersRead,
    Ended,
    EndInput,
    Heartbeat,
    HeartbeatAnswered,
    HostSampled,
    Input,
    Kill,
    Launch,
    MeasureProcess,
    Order,
    OutputLine,
    ProcessMeasured,
    ReadCounters,
    Ready,
    Started,
    Terminate,
)
from loadtest.workers.machine import LineHandler, Program
from subjectbus import MonitorError

_HEARTBEAT_S = 1.0
_QUICK_HEARTBEATS = 8
_READY_TIMEOUT_S = 20.0
_START_TIMEOUT_S = 10.0
_LAST_LINES_TIMEOUT_S = 1.0
_ANSWER_TIMEOUT_S = 1.0
_DESCRIPTORS_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 3.0
_STDERR_TIMEOUT_S = 1.0
_MAX_LOG_LINES = 20
_MAX_EXCHANGES = 60


class Channel(Protocol):
    """Byte streams to and from an agent's process."""

    def receive(self) -> bytes:
        """Return bytes of the agent's standard output as soon as there are any; empty at its end."""

    def receive_error(self) -> bytes:
        """Return bytes of the agent's standard error as soon as there are any; empty at its end."""

    def send(self, data: bytes) -> None:
        """Write to the agent's standard input.

        Raises:
            OSError: The bytes cannot be written.
        """

    def end_input(self) -> None:
        """Close the agent's standard input."""

    def close(self) -> None:
        """End all three streams; a `receive` that waits in another thread ends too."""

    @property
    def is_connection_lost(self) -> bool:
        """Whether the connection is lost, so that the end of a stream is not the end of the agent."""


def _complete_lines(receive: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield the complete lines of a stream; an incomplete last line is left out."""
    parts: list[bytes] = []
    while chunk := receive():
        *complete, rest = chunk.split(b"\n")
        if complete:
            yield b"".join([*parts, complete[0]])
            yield from complete[1:]
            parts = []
        parts.append(rest)


class RemoteProcess:
    """A process on another machine, started, supervised and ended by the machine's agent."""

    def __init__(self, machine: "RemoteMachine", number: int, program: Program) -> None:
        self._machine = machine
        self.number = number
        self._output, self._errors = program.output, program.errors
        self._pid: int | None = None
        self._start_error: str | None = None
        self._status: int | None = None
        self._changed = threading.Condition()

    @property
    def pid(self) -> int:
        """Process id on its machine; 0 before the process has started."""
        return self._pid or 0

    def wait_started(self) -> None:
        """Wait until the process has started.

        Raises:
            RunError: The process cannot be started.
            HostError: The machine is lost, or does not report the start in time.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._pid or self._start_error or self._machine.lost, _START_TIMEOUT_S
            )
        self._machine.require_reachable()
        if self._start_error is not None:
            raise RunError(f"host {self._machine.name}: {self._start_error}")
        if self._pid is None:
            raise self._machine.error(f"no process started within {_START_TIMEOUT_S:.0f} s")

    def handle(self, event: Started | OutputLine | Ended) -> None:
        """Handle an event of the agent about this process."""
        match event:
            case OutputLine(_, text, error):
                handle: LineHandler = self._errors if error else self._output
                handle(text.encode())
            case Started(_, pid, error):
                self._pid, self._start_error = pid or None, error
            case Ended(_, status):
                self._status = status
        self.notify()

    def notify(self) -> None:
        """Wake the threads that wait for a change of this process."""
        with self._changed:
            self._changed.notify_all()

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        return self._status

    def wait(self, timeout_s: float) -> int | None:
        """Wait at most `timeout_s` seconds for the exit status; return None if it is not known by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None or self._machine.lost, timeout_s)
        return self._status

    def send(self, line: bytes) -> None:
        """Write a line to standard input.

        Raises:
            BrokenPipeError: The process has ended, or its machine is lost.
        """
        if self._status is not None or self._machine.lost:
            raise BrokenPipeError("the process has ended, or its host is lost")
        self._machine.send_order(Input(self.number, line.decode()))

    def end_input(self) -> None:
        """Close standard input."""
        self._machine.send_order(EndInput(self.number))

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._machine.send_order(Terminate(self.number))

    def kill(self) -> None:
        """Send SIGKILL."""
        self._machine.send_order(Kill(self.number))

    def request_usage(self) -> Callable[[], Usage | None]:
        """Request the usage; return a function that waits at most 1 s for it."""
        answer = self._machine.request(lambda number: MeasureProcess(number, self.number))

        def usage() -> Usage | None:
            event = answer(_ANSWER_TIMEOUT_S)
            if not isinstance(event, ProcessMeasured) or event.at_s is None:
                return None
            return Usage(event.at_s, event.cpu_s, event.rss_bytes, self._machine.cores)

        return usage

    def count_descriptors(self) -> int | None:
        """Return the number of open descriptors; None if the agent cannot inspect them or does not answer."""
        answer = self._machine.request(lambda number: MeasureProcess(number, self.number, descriptors=True))
        event = answer(_DESCRIPTORS_TIMEOUT_S)
        return event.descriptors if isinstance(event, ProcessMeasured) else None


class RemoteMachine:
    """A machine with an agent; a context manager that ends the agent and all of its processes."""

    samples: list[HostSample]

    def __init__(self, name: str, address: str, channel: Channel) -> None:
        """Use the agent whose process `channel` leads to; it has been started already."""
        self.name = name
        self.address: str | None = address
        self.environment: Mapping[str, Any] = {}
        self.samples = []
        self.lost: str | None = None
        self._addresses: list[str] = []
        self._channel = channel
        self._last_lines: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._processes: dict[int, RemoteProcess] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, AgentEvent | None] = {}
        self._exchanges: deque[tuple[float, float]] = deque(maxlen=_MAX_EXCHANGES)
        """Half the duration of each heartbeat exchange, and the offset of the clock by it, in seconds."""
        self._best_exchange: tuple[float, float] | None = None
        self._changed = threading.Condition()
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._last_received_s = time.monotonic()
        self._answered_heartbeats = 0
        self._is_closing = False
        self._threads = [
            threading.Thread(target=work, name=f"{name} {work.__name__}", daemon=True)
            for work in (self._read_events, self._read_errors, self._send_orders, self._send_heartbeats)
        ]

    @property
    def clock_offset_s(self) -> float | None:
        """Seconds by which the machine's monotonic clock is ahead; None before the first heartbeat's answer.

        Only the heartbeats of the last minute count, because clocks drift.
        """
        return self._best_exchange[1] if self._best_exchange else None

    @property
    def clock_error_s(self) -> float | None:
        """Largest possible error of `clock_offset_s` in seconds; None before the first heartbeat's answer."""
        return self._best_exchange[0] if self._best_exchange else None

    @property
    def cores(self) -> int:
        """Number of hardware threads."""
        return int(self.environment.get("cores", 1))

    def open(self) -> None:
        """Wait until the agent is ready and the offset of its clock is known.

        Raises:
            HostError: The agent ended, or was not ready in time.
        """
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + _READY_TIMEOUT_S
        with self._changed:
            is_ready = self._changed.wait_for(
                lambda: self.lost or (self.environment and self._answered_heartbeats >= _QUICK_HEARTBEATS),
                deadline - time.monotonic(),
            )
        self.require_reachable()
        if not is_ready:
            raise self.error(f"the agent was not ready within {_READY_TIMEOUT_S:.0f} s")

    def error(self, problem: str) -> HostError:
        """Return an error about this machine with the text `problem`."""
        return HostError(self.name, self.address or "", problem)

    def require_reachable(self) -> None:
        """Raise an error if the machine is lost.

        Raises:
            HostError: The machine is lost.
        """
        if self.lost is not None:
            raise self.error(f"lost: {self.lost}")

    def start(self, program: Program) -> RemoteProcess:
        """Start a process.

        Raises:
            RunError: The process cannot be started.
            HostError: The machine is lost, or does not report the start in time.
        """
        self.require_reachable()
        number = next(self._numbers)
        process = self._processes[number] = RemoteProcess(self, number, program)
        cpus = None if program.cpus is None else sorted(program.cpus)
        self.send_order(Launch(number, list(program.module), cpus))
        process.wait_started()
        return process

    def sample(self) -> None:
        """Do nothing: the agent samples the machine."""

    def open_counters(self, url: str) -> "RemoteCounters":
        """Return a reader of the counters at the monitor's `url`, run by the agent."""
        return RemoteCounters(self, url)

    def listening_address(self, wanted: str) -> str:
        """Return `wanted` if it is an address of the machine, otherwise the address of all interfaces."""
        if wanted in self._addresses:
            return wanted
        return "::" if ":" in wanted else "0.0.0.0"  # noqa: S104 - a router translates the wanted address

    def send_order(self, order: Order) -> None:
        """Queue an order for the agent; if the machine is lost, the order has no effect."""
        self._orders.put(order)

    def request(self, build: Callable[[int], Order]) -> Callable[[float], AgentEvent | None]:
        """Send a request and return a function that waits for its answer.

        Args:
            build: Makes the order from the number of the request.

        Returns:
            A function that waits at most the given number of seconds, and returns None without an answer.
        """
        number = next(self._numbers)
        self._answers[number] = None
        self.send_order(build(number))

        def answer(timeout_s: float) -> AgentEvent | None:
            with self._changed:
                self._changed.wait_for(lambda: self._answers[number] is not None or self.lost, timeout_s)
                return self._answers.pop(number)

        return answer

    def close(self) -> None:
        """End the agent and wait at most 3 s for its end; a second call has no effect."""
        if self._is_closing:
            return
        self._is_closing = True
        self._orders.put(None)
        listener = self._threads[0]
        if listener.ident is not None and self.lost is None:
            listener.join(_END_TIMEOUT_S)
        self.lost = self.lost or "closed"
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_orders(self) -> None:
        try:
            while (order := self._orders.get()) is not None:
                self._channel.send(msgspec.json.encode(order) + b"\n")
            self._channel.end_input()
        except OSError as error:
            # If the agent has ended, its last line says why, and the threads that read will find it.
            with self._changed:
                self._changed.wait_for(lambda: self.lost or self._is_closing, _LAST_LINES_TIMEOUT_S)
            self._mark_lost(str(error) or type(error).__name__)

    def _send_heartbeats(self) -> None:
        """Send heartbeats, and mark the machine as lost if a ready agent is silent for too long."""
        while not (self.lost or self._is_closing):
            self.send_order(Heartbeat(time.monotonic()))
            if self.environment and time.monotonic() - self._last_received_s > SILENCE_S:
                self._mark_lost(f"no message from its agent for {SILENCE_S:.0f} s")
            answered = self._answered_heartbeats
            with self._changed:
                self._changed.wait_for(partial(self._is_heartbeat_due, answered), _HEARTBEAT_S)

    def _is_heartbeat_due(self, answered: int) -> bool:
        """Return whether the next heartbeat is due at once: the first ones follow without a pause."""
        is_over = self.lost is not None or self._is_closing
        return is_over or answered < self._answered_heartbeats <= _QUICK_HEARTBEATS

    def _read_events(self) -> None:
        decoder = msgspec.json.Decoder(AgentEvent)
        try:
            for line in _complete_lines(self._receive):
                try:
                    event = decoder.decode(line)
                except msgspec.MsgspecError as error:
                    if self.environment:
                        raise
                    # The text that a login shell prints comes before the agent's first event.
                    self._last_lines.append(line.decode("utf-8", "replace").strip() or str(error))
                    continue
                self._handle(event)
            # The reason for its end is on standard error.
            self._threads[1].join(_STDERR_TIMEOUT_S)
            self._mark_lost(
                "the connection was closed" if self._channel.is_connection_lost else "its agent has ended"
            )
        except msgspec.MsgspecError as error:
            self._mark_lost(f"unreadable event of its agent: {error}")
        except OSError as error:
            self._mark_lost(str(error) or type(error).__name__)

    def _receive(self) -> bytes:
        """Receive bytes and note the time: a long result is a sign of life before it is complete."""
        chunk = self._channel.receive()
        self._last_received_s = time.monotonic()
        return chunk

    def _read_errors(self) -> None:
        with suppress(OSError):
            for line in _complete_lines(self._channel.receive_error):
                if text := line.decode("utf-8", "replace").strip():
                    self._last_lines.append(text)

    def _handle(self, event: AgentEvent) -> None:
        match event:
            case Started(number) | OutputLine(number) | Ended(number):
                if (process := self._processes.get(number)) is not None:
                    process.handle(event)
                if isinstance(event, Ended):
                    self._processes.pop(number, None)
                return
            case HostSampled(sample):
                at_s = sample.t_s - (self.clock_offset_s or 0.0)
                self.samples.append(structs.replace(sample, t_s=at_s))
                return
        with self._changed:
            match event:
                case Ready(environment, addresses):
                    self.environment, self._addresses = environment, addresses
                case HeartbeatAnswered(sent_s, at_s):
                    self._add_exchange(sent_s, at_s, time.monotonic())
                case ProcessMeasured(number) | CountersRead(number):
                    if number in self._answers:
                        self._answers[number] = event
            self._changed.notify_all()

    def _add_exchange(self, sent_s: float, at_s: float, received_s: float) -> None:
        """Add an exchange and choose the quickest, whose offset has the smallest error (RFC 5905, 8)."""
        self._exchanges.append(((received_s - sent_s) / 2, at_s - (sent_s + received_s) / 2))
        self._best_exchange = min(self._exchanges)
        self._answered_heartbeats += 1

    def _mark_lost(self, reason: str) -> None:
        """Mark the machine as lost, with the first reason only."""
        last = f": {self._last_lines[-1]}" if self._last_lines else ""
        with self._changed:
            if self._is_closing or self.lost:
                return
            self.lost = f"{reason}{last}"
            self._changed.notify_all()
        for process in list(self._processes.values()):
            process.notify()
        # Ends a send or a receive that other threads wait in.
        threading.Thread(target=self._channel.close, daemon=True).start()


class RemoteCounters:
    """A broker's counters, read by the agent of the broker's machine."""

    def __init__(self, machine: RemoteMachine, url: str) -> None:
        self._machine = machine
        self._url = url

    def fetch(self, *, timeout_s: float) -> dict[str, Any]:
        """Return the counters.

        Raises:
            MonitorError: The agent could not read them or did not answer in time, or its machine is lost.
        """
        timeout_s = max(0.0, timeout_s)
        request = partial(ReadCounters, url=self._url, timeout_s=timeout_s)
        event = self._machine.request(request)(timeout_s)
        if not isinstance(event, CountersRead):
            raise MonitorError(f"{self._url}: {self._machine.lost or 'no answer in time'}")
        if event.counters is None:
            raise MonitorError(event.error)
        return event.counters

    def interrupt(self) -> None:
        """Do nothing: a fetch ends at its deadline."""

    def close(self) -> None:
        """Close the agent's connection to the monitor."""
        self._machine.send_order(CloseCounters(self._url))
