"""One worker of a load test in a process of its own (`python -m loadtest.workers.worker`).

Commands arrive as JSON lines on standard input, and events leave as JSON lines on standard output;
`loadtest.workers.messages` defines both. The worker ends when its standard input ends, so none is left
behind.
"""

import signal
import sys
import time

import msgspec

from loadtest.workers.engine import Broadcaster, Provider, Requestor
from loadtest.workers.lines import LineReader
from loadtest.workers.messages import (
    Command,
    Configure,
    Connect,
    Event,
    Failed,
    Finished,
    Phase,
    Reported,
    Start,
    Stop,
)
from subjectbus import limits

_Engine = Requestor | Provider | Broadcaster

_POLL_S = 0.02
_REPORT_EVERY_POLLS = 25


def _emit(event: Event) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
    sys.stdout.buffer.flush()


def _build(command: Configure) -> _Engine:
    if command.requestor is not None:
        return Requestor(command.requestor)
    if command.provider is not None:
        return Provider(command.provider)
    if command.broadcaster is not None:
        return Broadcaster(command.broadcaster)
    raise ValueError("configure: one of requestor, provider and broadcaster is required")


def _handle(engine: _Engine, command: Command) -> None:
    match command:
        case Connect():
            engine.connect()
        case Start(at_ns):
            engine.start(at_ns)
        case Stop():
            engine.stop()
        case Configure():
            raise ValueError("configure: the worker is configured already")


def _finished(engine: _Engine) -> Finished:
    match engine:
        case Requestor():
            return Finished(requestor=engine.result())
        case Provider():
            return Finished(provider=engine.result())
        case Broadcaster():
            return Finished(broadcaster=engine.result())


def _clock_offset_s(command: Configure) -> float:
    """Return the seconds by which this machine's monotonic clock is ahead of the run's clock."""
    config = command.requestor or command.provider or command.broadcaster
    return config.clock_offset_ns / 1e9 if config is not None else 0.0


def _serve(commands: LineReader[Command]) -> None:
    """Handle commands until standard input ends; send snapshots at changes of phase and twice a second."""
    engine: _Engine | None = None
    phase: Phase = "idle"
    polls = 0
    offset_s = 0.0
    try:
        while not commands.ended:
            for command in commands.poll(_POLL_S):
                if engine is None and isinstance(command, Configure):
                    engine, offset_s = _build(command), _clock_offset_s(command)
                elif engine is not None:
                    _handle(engine, command)
            if engine is None:
                continue
            progress = engine.progress()
            polls += 1
            if progress.phase != phase or polls % _REPORT_EVERY_POLLS == 0:
                _emit(Reported(progress, time.monotonic() - offset_s))
            if progress.phase == "done" and phase != "done":
                _emit(_finished(engine))
            phase = progress.phase
    finally:
        if engine is not None:
            engine.close()


def main() -> int:
    """Run the worker; return exit status 0 if standard input ended, 1 after a failure.

    A failure is reported as an event before.
    """
    # The run ends its workers itself, also on Ctrl-C, which the terminal sends to every process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits.raise_descriptor_limit()
    try:
        _serve(LineReader(sys.stdin.fileno(), msgspec.json.Decoder(Command)))
    except BrokenPipeError:
        return 1
    except ValueError as error:
        _emit(Failed(str(error), usage=True))
        return 1
    except (RuntimeError, OSError, msgspec.MsgspecError) as error:
        _emit(Failed(f"{type(error).__name__}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
