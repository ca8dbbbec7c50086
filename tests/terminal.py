"""A command on a terminal of its own: a pseudo-terminal whose screen, keys and size are the test's."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, Any, Self

from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HOME = "\x1b[H"
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs one command; a context manager that leaves no process behind."""

    def __init__(self, command: Sequence[str], columns: int = 120, rows: int = 40) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns, rows)
        self.attributes = termios.tcgetattr(self._slave)
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**environment, "TERM": "xterm-256color"},
        )
        #: All that was written so far.
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        if self._master >= 0:
            os.close(self._master)

    def resize(self, columns: int, rows: int) -> None:
        """The kernel tells the command by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """What closing a terminal's window does."""
        os.close(self._master)
        self._master = -1

    def frame(self) -> list[str]:
        """The lines of the latest picture, without attributes."""
        self._read()
        return _SEQUENCE.sub("", self.output.rpartition(_HOME)[2]).splitlines()

    def wait_for(self, condition: Callable[[list[str]], Any], timeout_s: float = 10.0) -> list[str]:
        """Wait for a picture that meets `condition`, and return it."""
        seen: list[str] = []

        def is_there() -> bool:
            seen[:] = self.frame()
            return bool(condition(seen))

        try:
            wait_until(is_there, timeout_s, "the picture")
        except TimeoutError as error:
            raise TimeoutError("\n".join([str(error), *seen])) from error
        return seen

    def wait_for_text(self, *texts: str, timeout_s: float = 10.0) -> list[str]:
        """Wait for a picture that has all these texts."""
        return self.wait_for(lambda frame: all(text in "\n".join(frame) for text in texts), timeout_s)

    def wait_status(self) -> int:
        """Wait for the end of the command; the exit status, negative for a signal."""

        def has_ended() -> bool:
            self._read()
            return self.process.poll() is not None

        wait_until(has_ended, what="the end of the command")
        self._read()
        return self.process.wait()

    def _read(self) -> None:
        while self._master >= 0 and select.select([self._master], [], [], 0)[0]:
            self.output += os.read(self._master, 65536).decode()
