"""A run's hand on another machine: `python -m loadtest.processes.agent`.

Orders come as JSON lines on standard input, what it has to say leaves as JSON lines on standard output
(`loadtest.processes.agent_messages` has both): an SSH channel is all that it needs. When the channel ends, or
nothing comes over it any more, every process that it has started is killed, and then it ends: none is ever
left behind. Should it be killed itself, the kernel kills them (`loadtest.processes.child`).
"""

import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from functools import partial
from http.client import HTTPException

import msgspec
import psutil

from loadtest.engine.lines import Lines
from loadtest.errors import RunError
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
from loadtest.processes.local import LocalMachine, LocalProcess
from loadtest.processes.machine import Program
from loadtest.sampling.host import HostSampler
from loadtest.sampling.monitor import Counters, describe_failure

_POLL_S = 0.02
_END_S = 1.0
_MUCH_UNWRITTEN_BYTES = 1 << 20
_MOST_UNWRITTEN_BYTES = 64 << 20


class _Voice:
    """Writes what is said from a thread of its own: no order ever waits for a channel that is stuck."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self.broken = False
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def say(self, said: Said) -> None:
        line = msgspec.json.encode(said) + b"\n"
        with self._changed:
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """For those who may wait, so that what is not written yet stays within bounds."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < _MOST_UNWRITTEN_BYTES or self.broken)

    @property
    def is_behind(self) -> bool:
        """Whether much is not written yet."""
        return self._bytes > _MUCH_UNWRITTEN_BYTES

    def close(self) -> None:
        """Everything is written, if that is possible soon."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(_END_S)

    def _write(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._lines or self._is_closing)
                    if not self._lines:
                        return
                    line = self._lines.popleft()
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                with self._changed:
                    self._bytes -= len(line)
                    self._changed.notify_all()
        except OSError:
            with self._changed:
                self.broken = True
                self._changed.notify_all()


class _Agent:
    def __init__(self) -> None:
        self._voice = _Voice()
        self._machine = LocalMachine()
        self._processes: dict[int, LocalProcess] = {}
        self._counters: dict[str, Counters] = {}
        self._questions: queue.SimpleQueue[Read | Forget] = queue.SimpleQueue()

    def serve(self) -> None:
        """Until the run's end."""
        orders = Lines(sys.stdin.fileno(), msgspec.json.Decoder(Order))
        addresses = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
        self._voice.say(Hello(dict(self._machine.environment), sorted(addresses)))
        threading.Thread(target=self._read_counters, daemon=True).start()
        sampler = HostSampler()
        heard_s = time.monotonic()
        try:
            while not (orders.ended or self._voice.broken):
                for order in orders.poll(_POLL_S):
                    self._obey(order)
                    # After it: what came while it was obeyed has not been looked for yet.
                    heard_s = time.monotonic()
                if time.monotonic() - heard_s > SILENCE_S:
                    break
                self._note_ended()
                if (sample := sampler.sample()) is not None:
                    self._voice.say(Sampled(sample))
        finally:
            for process in self._processes.values():
                process.kill()
            self._voice.close()

    def _obey(self, order: Order) -> None:
        match order:
            case Beat(sent_s):
                self._voice.say(Answered(sent_s, time.monotonic()))
            case Launch():
                self._launch(order)
            case Read() | Forget():
                self._questions.put(order)
            case Measure():
                self._voice.say(self._measure(order))
            case Input() | EndInput() | Terminate() | Kill():
                if (process := self._processes.get(order.process)) is not None:
                    self._act(process, order)

    def _act(self, process: LocalProcess, order: Input | EndInput | Terminate | Kill) -> None:
        match order:
            case Input(_, text):
                try:
                    process.send(text.encode())
                except OSError:
                    return  # its end is told, too
            case EndInput():
                process.end_input()
            case Terminate():
                process.terminate()
            case Kill():
                process.kill()

    def _launch(self, order: Launch) -> None:
        number = order.process
        try:
            process = self._machine.start(
                Program(
                    module=order.module,
                    cpus=None if order.cpus is None else frozenset(order.cpus),
                    output=partial(self._tell, number, error=False),
                    errors=partial(self._tell, number, error=True),
                )
            )
        except RunError as error:
            self._voice.say(Started(number, error=str(error)))
            return
        self._processes[number] = process
        self._voice.say(Started(number, process.pid))

    def _tell(self, number: int, line: bytes, *, error: bool) -> None:
        if error and self._voice.is_behind:
            return  # what matters more has to get through
        self._voice.wait_for_room()
        self._voice.say(Wrote(number, line.decode("utf-8", "replace"), error))

    def _note_ended(self) -> None:
        for number, process in list(self._processes.items()):
            if (status := process.poll()) is not None:
                del self._processes[number]
                self._voice.say(Ended(number, status))

    def _measure(self, order: Measure) -> Measured:
        process = self._processes.get(order.process)
        if process is None:
            return Measured(order.question)
        if order.descriptors:
            return Measured(order.question, descriptors=process.count_descriptors())
        usage = process.ask_usage()()
        if usage is None:
            return Measured(order.question)
        return Measured(order.question, usage.at_s, usage.cpu_s, usage.rss_bytes)

    def _read_counters(self) -> None:
        """A broker that does not answer keeps nobody waiting but those who want its counters."""
        while True:
            order = self._questions.get()
            if isinstance(order, Forget):
                if (counters := self._counters.pop(order.url, None)) is not None:
                    counters.close()
                continue
            if order.url not in self._counters:
                self._counters[order.url] = self._machine.open_counters(order.url)
            self._voice.say(_answer(order, self._counters[order.url]))


def _answer(order: Read, counters: Counters) -> Counted:
    try:
        return Counted(order.question, counters.fetch(time.monotonic() + order.timeout_s))
    except (OSError, HTTPException, ValueError) as error:
        return Counted(order.question, error=describe_failure(error))


def main() -> None:
    """Exits with 0, at once: what is still to be said to a channel that is stuck is not waited for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _Agent().serve()
    except msgspec.MsgspecError as error:
        sys.stderr.write(f"unreadable order: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
