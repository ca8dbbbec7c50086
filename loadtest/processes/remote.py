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
from loadtest.processes.agent_messages import (
    SILENCE_S,
    Answered,
    Beat,
    Counted,
    Ended,
    EndInput,
    Forget,
    Hello,
    Input,
    Kill,
    Launch,
    Measure,
    Measured,
    Order,
    Read,
    Said,
    Sampled,
    Started,
    Terminate,
    Wrote,
)
from loadtest.processes.machine import Handle, Program
from loadtest.result.schema import HostSample
from loadtest.sampling.usage import Usage

_BEAT_S = 1.0
_FIRST_BEATS = 8
_HELLO_TIMEOUT_S = 20.0
_START_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 1.0
_DESCRIPTORS_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 3.0
_LAST_WORDS_S = 1.0
_KEPT_LINES = 20
_KEPT_EXCHANGES = 60


class Channel(Protocol):
    """Three byte streams to an agent's process."""

    def receive(self) -> bytes:
        """Some of what it writes to its standard output, as soon as there is any; nothing at its end."""

    def receive_error(self) -> bytes:
        """The same of its standard error."""

    def send(self, data: bytes) -> None:
        """Writes to its standard input; OSError when that cannot be done."""

    def end_input(self) -> None:
        """Closes its standard input."""

    def close(self) -> None:
        """Ends all of them; what is being received ends, too."""

    @property
    def is_cut(self) -> bool:
        """Whether what carries it has gone, so that its end does not tell that of the process."""


def _lines(receive: Callable[[], bytes]) -> Iterator[bytes]:
    """The lines of a stream; one that its end cuts off is none."""
    parts: list[bytes] = []
    while chunk := receive():
        *complete, rest = chunk.split(b"\n")
        if complete:
            yield b"".join([*parts, complete[0]])
            yield from complete[1:]
            parts = []
        parts.append(rest)


class RemoteProcess:
    """A process of a machine that an agent starts, speaks to and ends."""

    def __init__(self, machine: "RemoteMachine", number: int, program: Program) -> None:
        self._machine = machine
        self.number = number
        self._output, self._errors = program.output, program.errors
        self._pid: int | None = None
        self._refused: str | None = None
        self._status: int | None = None
        self._changed = threading.Condition()

    @property
    def pid(self) -> int:
        """See Process."""
        return self._pid or 0

    def wait_started(self) -> None:
        """RunError when it could not be started, or is not within a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._pid or self._refused or self._machine.lost, _START_TIMEOUT_S)
        self._machine.require_present()
        if self._refused is not None:
            raise RunError(f"host {self._machine.name}: {self._refused}")
        if self._pid is None:
            raise self._machine.error("starts no process")

    def handle(self, said: Started | Wrote | Ended) -> None:
        """What its agent says of it."""
        match said:
            case Wrote(_, text, error):
                handle: Handle = self._errors if error else self._output
                handle(text.encode())
            case Started(_, pid, error):
                self._pid, self._refused = pid or None, error
            case Ended(_, status):
                self._status = status
        self.notify()

    def notify(self) -> None:
        """Whoever waits looks again."""
        with self._changed:
            self._changed.notify_all()

    def poll(self) -> int | None:
        """See Process."""
        return self._status

    def wait(self, timeout_s: float) -> int | None:
        """See Process; of a machine that is lost, nobody knows."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None or self._machine.lost, timeout_s)
        return self._status

    def send(self, line: bytes) -> None:
        """See Process."""
        if self._status is not None or self._machine.lost:
            raise BrokenPipeError("the process has gone")
        self._machine.order(Input(self.number, line.decode()))

    def end_input(self) -> None:
        """See Process."""
        self._machine.order(EndInput(self.number))

    def terminate(self) -> None:
        """See Process."""
        self._machine.order(Terminate(self.number))

    def kill(self) -> None:
        """See Process."""
        self._machine.order(Kill(self.number))

    def ask_usage(self) -> Callable[[], Usage | None]:
        """See Process."""
        answer = self._machine.ask(lambda number: Measure(number, self.number))

        def usage() -> Usage | None:
            said = answer(_ANSWER_TIMEOUT_S)
            if not isinstance(said, Measured) or said.at_s is None:
                return None
            return Usage(said.at_s, said.cpu_s, said.rss_bytes, self._machine.cores)

        return usage

    def count_descriptors(self) -> int | None:
        """See Process."""
        answer = self._machine.ask(lambda number: Measure(number, self.number, descriptors=True))
        said = answer(_DESCRIPTORS_TIMEOUT_S)
        return said.descriptors if isinstance(said, Measured) else None


class RemoteMachine:
    """A machine with an agent; a context manager, which ends the agent and with it everything it started."""

    samples: list[HostSample]

    def __init__(self, name: str, address: str, channel: Channel) -> None:
        """`channel` leads to the agent's process, which has been started."""
        self.name = name
        self.address: str | None = address
        self.environment: Mapping[str, Any] = {}
        self.samples = []
        self.lost: str | None = None
        self._addresses: list[str] = []
        self._channel = channel
        self._last_words: deque[str] = deque(maxlen=_KEPT_LINES)
        self._processes: dict[int, RemoteProcess] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, Said | None] = {}
        self._exchanges: deque[tuple[float, float]] = deque(maxlen=_KEPT_EXCHANGES)
        """Half of how long each took, and the clock's offset by it."""
        self._quickest: tuple[float, float] | None = None
        self._answered = threading.Condition()
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._heard_s = time.monotonic()
        self._beats = 0
        self._is_closing = False
        self._threads = [
            threading.Thread(target=work, name=f"{name} {work.__name__}", daemon=True)
            for work in (self._listen, self._note_errors, self._write, self._beat)
        ]

    @property
    def clock_offset_s(self) -> float | None:
        """See Machine; of the last minute, for clocks drift."""
        return self._quickest[1] if self._quickest else None

    @property
    def clock_error_s(self) -> float | None:
        """See Machine."""
        return self._quickest[0] if self._quickest else None

    @property
    def cores(self) -> int:
        """Hardware threads."""
        return int(self.environment.get("cores", 1))

    def open(self) -> None:
        """Waits until the agent is there and its clock is known; HostError when that does not happen."""
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + _HELLO_TIMEOUT_S
        with self._answered:
            is_there = self._answered.wait_for(
                lambda: self.lost or (self.environment and self._beats >= _FIRST_BEATS),
                deadline - time.monotonic(),
            )
        self.require_present()
        if not is_there:
            raise self.error(f"no agent within {_HELLO_TIMEOUT_S:.0f} s")

    def error(self, what: str) -> HostError:
        """The error that says `what` of it."""
        return HostError(self.name, self.address or "", what)

    def require_present(self) -> None:
        """See Machine."""
        if self.lost is not None:
            raise self.error(f"lost: {self.lost}")

    def start(self, program: Program) -> RemoteProcess:
        """See Machine."""
        self.require_present()
        number = next(self._numbers)
        process = self._processes[number] = RemoteProcess(self, number, program)
        cpus = None if program.cpus is None else sorted(program.cpus)
        self.order(Launch(number, list(program.module), cpus))
        process.wait_started()
        return process

    def sample(self) -> None:
        """See Machine: the agent does it."""

    def open_counters(self, url: str) -> "RemoteCounters":
        """See Machine."""
        return RemoteCounters(self, url)

    def listening_address(self, wanted: str) -> str:
        """See Machine."""
        if wanted in self._addresses:
            return wanted
        return "::" if ":" in wanted else "0.0.0.0"  # noqa: S104 - it is reached under an address of a router

    def order(self, order: Order) -> None:
        """Gives an order; one to a machine that is lost has no effect."""
        self._orders.put(order)

    def ask(self, question: Callable[[int], Order]) -> Callable[[float], Said | None]:
        """Asks something; the answer's call waits so long for it, and has None when none comes."""
        number = next(self._numbers)
        self._answers[number] = None
        self.order(question(number))

        def answer(timeout_s: float) -> Said | None:
            with self._answered:
                self._answered.wait_for(lambda: self._answers[number] is not None or self.lost, timeout_s)
                return self._answers.pop(number)

        return answer

    def close(self) -> None:
        """Ends the agent, and waits a while for it; of a closed one, nothing happens."""
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

    def _write(self) -> None:
        try:
            while (order := self._orders.get()) is not None:
                self._channel.send(msgspec.json.encode(order) + b"\n")
            self._channel.end_input()
        except OSError as error:
            self._lose(str(error) or type(error).__name__)

    def _beat(self) -> None:
        """Says that the run is alive, and watches whether the agent is, once it has been there."""
        while not (self.lost or self._is_closing):
            self.order(Beat(time.monotonic()))
            if self.environment and time.monotonic() - self._heard_s > SILENCE_S:
                self._lose(f"not heard for {SILENCE_S:.0f} s")
            beats = self._beats
            with self._answered:
                self._answered.wait_for(partial(self._is_due, beats), _BEAT_S)

    def _is_due(self, beats: int) -> bool:
        """Whether there is no more to wait for: the first ones follow each other as quickly as they can."""
        is_over = self.lost is not None or self._is_closing
        return is_over or beats < self._beats <= _FIRST_BEATS

    def _listen(self) -> None:
        decoder = msgspec.json.Decoder(Said)
        try:
            for line in _lines(self._receive):
                try:
                    said = decoder.decode(line)
                except msgspec.MsgspecError as error:
                    if self.environment:
                        raise
                    # What a login prints comes before the agent's first word.
                    self._last_words.append(line.decode("utf-8", "replace").strip() or str(error))
                    continue
                self._handle(said)
            # Its last words come by another way.
            self._threads[1].join(_LAST_WORDS_S)
            self._lose("the connection was closed" if self._channel.is_cut else "its agent has ended")
        except msgspec.MsgspecError as error:
            self._lose(f"its agent is not understood: {error}")
        except OSError as error:
            self._lose(str(error) or type(error).__name__)

    def _receive(self) -> bytes:
        """Any byte is a sign of life: a result may take long to come over."""
        chunk = self._channel.receive()
        self._heard_s = time.monotonic()
        return chunk

    def _note_errors(self) -> None:
        with suppress(OSError):
            for line in _lines(self._channel.receive_error):
                if text := line.decode("utf-8", "replace").strip():
                    self._last_words.append(text)

    def _handle(self, said: Said) -> None:
        match said:
            case Started(number) | Wrote(number) | Ended(number):
                if (process := self._processes.get(number)) is not None:
                    process.handle(said)
                if isinstance(said, Ended):
                    self._processes.pop(number, None)
                return
            case Sampled(sample):
                at_s = sample.t_s - (self.clock_offset_s or 0.0)
                self.samples.append(structs.replace(sample, t_s=at_s))
                return
        with self._answered:
            match said:
                case Hello(environment, addresses):
                    self.environment, self._addresses = environment, addresses
                case Answered(sent_s, at_s):
                    self._note_clock(sent_s, at_s, time.monotonic())
                case Measured(number) | Counted(number):
                    if number in self._answers:
                        self._answers[number] = said
            self._answered.notify_all()

    def _note_clock(self, sent_s: float, at_s: float, received_s: float) -> None:
        """The quickest exchange tells most: the answer was given between both of our times (RFC 5905, 8)."""
        self._exchanges.append(((received_s - sent_s) / 2, at_s - (sent_s + received_s) / 2))
        self._quickest = min(self._exchanges)
        self._beats += 1

    def _lose(self, why: str) -> None:
        """The first reason stands."""
        last = f": {self._last_words[-1]}" if self._last_words else ""
        with self._answered:
            if self._is_closing or self.lost:
                return
            self.lost = f"{why}{last}"
            self._answered.notify_all()
        for process in list(self._processes.values()):
            process.notify()
        # Whoever sends or receives is let go, too.
        threading.Thread(target=self._channel.close, daemon=True).start()


class RemoteCounters:
    """A broker's counters as its machine's agent reads them."""

    def __init__(self, machine: RemoteMachine, url: str) -> None:
        self._machine = machine
        self._url = url

    def fetch(self, deadline_s: float) -> dict[str, Any]:
        """See Counters."""
        left_s = max(0.0, deadline_s - time.monotonic())
        said = self._machine.ask(partial(Read, url=self._url, timeout_s=left_s))(left_s)
        if not isinstance(said, Counted):
            raise TimeoutError(self._machine.lost or "timed out")
        if said.counters is None:
            raise OSError(said.error)
        return said.counters

    def interrupt(self) -> None:
        """See Counters: it ends with its deadline."""

    def close(self) -> None:
        """See Counters."""
        self._machine.order(Forget(self._url))
