"""JSON lines of a descriptor."""

import os
import select
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec.json import Decoder

_CHUNK_BYTES = 65536
_T = TypeVar("_T")


class Lines(Generic[_T]):
    """Values of one type, a line each, read without ever blocking longer than asked."""

    def __init__(self, descriptor: int, decoder: Decoder[_T]) -> None:
        self._descriptor = descriptor
        self._decoder = decoder
        self._buffer = b""
        self.ended = False
        """Whether the other side writes no more."""

    def poll(self, timeout_s: float) -> Iterator[_T]:
        """The values that are here, after waiting at most `timeout_s` for the first byte.

        msgspec.MsgspecError when a line is none.
        """
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not readable:
            return
        chunk = os.read(self._descriptor, _CHUNK_BYTES)
        self.ended = not chunk
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            yield self._decoder.decode(line)
