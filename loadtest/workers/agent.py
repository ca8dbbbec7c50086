"""Agent: starts and supervises a run's processes on a remote machine (`python -m loadtest.workers.agent`).

Orders arrive as JSON lines on standard input, and events leave as JSON lines on standard output, so an SSH
channel is enough. `loadtest.workers.agent_messages` defines both. If standard input ends or is silent for too
long, the agent kills every process that it has started, and then exits. If the agent itself is killed, the
kernel kills its processes (`loadtest.workers.child`). So no process is left behind.
"""

import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from functools import partial

import msgspec
import psutil

from loadtest.errors import RunError
from loadtest.sampling.host import HostSampler
from loadtest.sampling.monitor import Counters
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
from loadtest.workers.lines import LineReader
from loadtest.workers.local import LocalMachine, LocalProcess
from loadtest.workers.machine import Program
from subjectbus import MonitorError

_POLL_S = 0.02
_FLUSH_TIMEOUT_S = 1.0
_BEHIND_BYTES = 1 << 20
_MAX_UNWRITTEN_BYTES = 64 << 20


class _Outbox:
    """Queue of events, written by a thread of its own, so that no order waits for a blocked channel."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self.broken = False
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def send(self, event: AgentEvent) -> None:
        line = msgspec.json.encode(event) + b"\n"
        with self._changed:
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait until less than 64 MiB are unwritten, or until the channel is broken."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < _MAX_UNWRITTEN_BYTES or self.broken)

    @property
    def is_behind(self) -> bool:
        """Whether more than 1 MiB is unwritten."""
        return self._bytes > _BEHIND_BYTES

    def close(self) -> None:
        """Write the remaining events and end the thread; give up after 1 s."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(_FLUSH_TIMEOUT_S)

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
        self._outbox = _Outbox()
        self._machine = LocalMachine()
        self._processes: dict[int, LocalProcess] = {}
        self._counters: dict[str, Counters] = {}
        self._counter_orders: queue.SimpleQueue[ReadCounters | CloseCounters] = queue.SimpleQueue()

    def serve(self) -> None:
        """Handle orders until standard input ends, the channel breaks or the run is silent for too long."""
        orders = LineReader(sys.stdin.fileno(), msgspec.json.Decoder(Order))
        addresses = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
        self._outbox.send(Ready(dict(self._machine.environment), sorted(addresses)))
        threading.Thread(target=self._read_counters, daemon=True).start()
        sampler = HostSampler()
        last_order_s = time.monotonic()
        try:
            while not (orders.ended or self._outbox.broken):
                for order in orders.poll(_POLL_S):
                    self._handle(order)
                    # Time of the end of handling: orders that arrived meanwhile have not been read yet.
                    last_order_s = time.monotonic()
                if time.monotonic() - last_order_s > SILENCE_S:
                    break
                self._report_ended()
                if (sample := sampler.sample()) is not None:
                    self._outbox.send(HostSampled(sample))
        finally:
            for process in self._processes.values():
                process.kill()
            self._outbox.close()

    def _handle(self, order: Order) -> None:
        match order:
            case Heartbeat(sent_s):
                self._outbox.send(HeartbeatAnswered(sent_s, time.monotonic()))
            case Launch():
                self._launch(order)
            case ReadCounters() | CloseCounters():
                self._counter_orders.put(order)
            case MeasureProcess():
                self._outbox.send(self._measure(order))
            case Input() | EndInput() | Terminate() | Kill():
                if (process := self._processes.get(order.process)) is not None:
                    self._apply(process, order)

    def _apply(self, process: LocalProcess, order: Input | EndInput | Terminate | Kill) -> None:
        match order:
            case Input(_, text):
                try:
                    process.send(text.encode())
                except OSError:
                    return  # the event `Ended` reports it
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
                    output=partial(self._send_line, number, error=False),
                    errors=partial(self._send_line, number, error=True),
                )
            )
        except RunError as error:
            self._outbox.send(Started(number, error=str(error)))
            return
        self._processes[number] = process
        self._outbox.send(Started(number, process.pid))

    def _send_line(self, number: int, line: bytes, *, error: bool) -> None:
        if error and self._outbox.is_behind:
            return  # drop the line: results and heartbeats come first
        self._outbox.wait_for_room()
        self._outbox.send(OutputLine(number, line.decode("utf-8", "replace"), error))

    def _report_ended(self) -> None:
        for number, process in list(self._processes.items()):
            if (status := process.poll()) is not None:
                del self._processes[number]
                self._outbox.send(Ended(number, status))

    def _measure(self, order: MeasureProcess) -> ProcessMeasured:
        process = self._processes.get(order.process)
        if process is None:
            return ProcessMeasured(order.request_id)
        if order.descriptors:
            return ProcessMeasured(order.request_id, descriptors=process.count_descriptors())
        usage = process.request_usage()()
        if usage is None:
            return ProcessMeasured(order.request_id)
        return ProcessMeasured(order.request_id, usage.at_s, usage.cpu_s, usage.rss_bytes)

    def _read_counters(self) -> None:
        """Read brokers' counters in a thread of its own: a silent broker must not delay other orders."""
        while True:
            order = self._counter_orders.get()
            if isinstance(order, CloseCounters):
                if (counters := self._counters.pop(order.url, None)) is not None:
                    counters.close()
                continue
            if order.url not in self._counters:
                self._counters[order.url] = self._machine.open_counters(order.url)
            self._outbox.send(_fetch_counters(order, self._counters[order.url]))


def _fetch_counters(order: ReadCounters, counters: Counters) -> CountersRead:
    try:
        return CountersRead(order.request_id, counters.fetch(timeout_s=order.timeout_s))
    except MonitorError as error:
        return CountersRead(order.request_id, error=str(error))


def main() -> None:
    """Run the agent, and exit at once when it ends, without waiting for events that cannot be written.

    The exit status is 0, or 1 after an unreadable order.
    """
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
