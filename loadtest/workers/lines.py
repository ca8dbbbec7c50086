"""JSON lines read from a file descriptor."""

import os
import select
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec.json import Decoder

_CHUNK_BYTES = 65536
_T = TypeVar("_T")


class LineReader(Generic[_T]):
    """Reader of values of one type, one JSON line each, which never blocks longer than asked."""

    def __init__(self, descriptor: int, decoder: Decoder[_T]) -> None:
        self._descriptor = descriptor
        self._decoder = decoder
        self._buffer = b""
        self.ended = False
        """Whether the other side has closed its end."""

    def poll(self, timeout_s: float) -> Iterator[_T]:
        """Yield the values received so far, after waiting at most `timeout_s` seconds for the first byte.

        Raises:
            msgspec.MsgspecError: A line is not valid JSON, or not a value of the type.
        """
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not readable:
            return
        chunk = os.read(self._descriptor, _CHUNK_BYTES)
        self.ended = not chunk
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            yield self._decoder.decode(line)
