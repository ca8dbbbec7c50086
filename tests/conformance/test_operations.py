"""Every form of the client's operations, fed whole, byte by byte, and with trailing data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire import Wire, connect_line, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Server

HEADERS = b"NATS/1.0\r\nBar: Baz\r\n\r\n"

#: name: (what the client sends after a quiet handshake with headers, what it must get back)
VECTORS: dict[str, tuple[bytes, bytes]] = {
    "publish to itself": (b"SUB a 1\r\nPUB a 2\r\nhi\r\nUNSUB 1\r\n", b"MSG a 1 2\r\nhi\r\n"),
    "reply subject": (
        b"SUB a 1\r\nPUB a _INBOX.x 2\r\nhi\r\nUNSUB 1\r\n",
        b"MSG a 1 _INBOX.x 2\r\nhi\r\n",
    ),
    "empty payload": (b"SUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1\r\n", b"MSG a 1 0\r\n\r\n"),
    "payload that looks like operations": (
        b"SUB a 1\r\nPUB a 17\r\nPING\r\nPUB a 0\r\n\r\n\r\nUNSUB 1\r\n",
        b"MSG a 1 17\r\nPING\r\nPUB a 0\r\n\r\n\r\n",
    ),
    "lower case": (b"sub a 1\r\npub a 2\r\nhi\r\nunsub 1\r\n", b"MSG a 1 2\r\nhi\r\n"),
    "mixed case": (b"sUb a 1\r\nPuB a 2\r\nhi\r\nuNsUb 1\r\n", b"MSG a 1 2\r\nhi\r\n"),
    "tabs": (b"SUB\ta\t1\r\nPUB\ta\t2\r\nhi\r\nUNSUB\t1\r\n", b"MSG a 1 2\r\nhi\r\n"),
    "several blanks": (
        b"SUB \t a  \t 1  \r\nPUB   a \t\t 2 \r\nhi\r\nUNSUB   1 \r\n",
        b"MSG a 1 2\r\nhi\r\n",
    ),
    "bare line feeds": (b"SUB a 1\nPUB a 2\nhi\r\nUNSUB 1\n", b"MSG a 1 2\r\nhi\r\n"),
    "sid that is no number": (b"SUB a x-y.z\r\nPUB a 1\r\n!\r\nUNSUB x-y.z\r\n", b"MSG a x-y.z 1\r\n!\r\n"),
    "sid of zeros": (b"SUB a 007\r\nPUB a 1\r\n!\r\nUNSUB 007\r\n", b"MSG a 007 1\r\n!\r\n"),
    "queue group": (b"SUB a workers 1\r\nPUB a 1\r\n!\r\nUNSUB 1\r\n", b"MSG a 1 1\r\n!\r\n"),
    "headers": (
        b"SUB a 1\r\nHPUB a 22 24\r\n" + HEADERS + b"hi\r\nUNSUB 1\r\n",
        b"HMSG a 1 22 24\r\n" + HEADERS + b"hi\r\n",
    ),
    "headers and reply": (
        b"SUB a 1\r\nhpub a r.s 22 22\r\n" + HEADERS + b"\r\nUNSUB 1\r\n",
        b"HMSG a 1 r.s 22 22\r\n" + HEADERS + b"\r\n",
    ),
    "header block is opaque": (
        b"SUB a 1\r\nHPUB a 5 8\r\n\xff\x00\r\nzabc\r\nUNSUB 1\r\n",
        b"HMSG a 1 5 8\r\n\xff\x00\r\nzabc\r\n",
    ),
    "concrete subject is delivered": (
        b"SUB a.* 1\r\nSUB a.> 2\r\nUNSUB 2\r\nPUB a.b 1\r\n!\r\nUNSUB 1\r\n",
        b"MSG a.b 1 1\r\n!\r\n",
    ),
    "subject of raw bytes": (
        b"SUB \xc3\xa4.\xff 1\r\nPUB \xc3\xa4.\xff 1\r\n!\r\nUNSUB 1\r\n",
        b"MSG \xc3\xa4.\xff 1 1\r\n!\r\n",
    ),
    "nobody listens": (b"PUB nobody 2\r\nhi\r\n", b""),
    "unknown sid is no error": (b"UNSUB 99\r\nUNSUB 99 5\r\n", b""),
    "ping": (b"PING\r\nping\r\nPiNg\n", b"PONG\r\n" * 3),
    "pong, ok and info are taken in silence": (b'PONG\r\n+OK\r\nINFO {"proto":1}\r\n', b""),
    "carriage return and line feed in the payload": (
        b"SUB a 1\r\nPUB a 4\r\n\r\n\r\n\r\nUNSUB 1\r\n",
        b"MSG a 1 4\r\n\r\n\r\n\r\n",
    ),
}


@pytest.fixture(params=VECTORS)
def vector(request: pytest.FixtureRequest) -> tuple[bytes, bytes]:
    return VECTORS[request.param]


def test_an_operation_in_one_piece(connect: Callable[..., Wire], vector: tuple[bytes, bytes]) -> None:
    sent, answer = vector
    wire = connect(headers=True)
    wire.send(sent + b"PING\r\n")
    wire.expect(answer + b"PONG\r\n")


def test_byte_by_byte(connect: Callable[..., Wire], vector: tuple[bytes, bytes]) -> None:
    sent, answer = vector
    wire = connect(headers=True)
    wire.send_bytewise(sent + b"PING\r\n")
    wire.expect(answer + b"PONG\r\n")


def test_with_trailing_data(connect: Callable[..., Wire], vector: tuple[bytes, bytes]) -> None:
    """The operation twice, then the start of another: the tail waits for its rest."""
    sent, answer = vector
    wire = connect(headers=True)
    wire.send(sent + sent + b"PING\r\nPI")
    wire.expect(answer + answer + b"PONG\r\n")
    wire.send(b"NG\r\n")
    wire.expect(b"PONG\r\n")


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_split_anywhere(connect: Callable[..., Wire], cut: int) -> None:
    """Two slices meet at any byte, inside a control line, a payload or a line end."""
    stream = b"SUB foo.* 7\r\nPUB foo.bar a.reply 11\r\nhello world\r\nPING\r\nPONG\r\n"
    wire = connect()
    wire.send(stream[:cut])
    wire.send(stream[cut:])
    wire.expect(b"MSG foo.bar 7 a.reply 11\r\nhello world\r\nPONG\r\n")


def test_one_write_holds_everything(server: Server, transport: str) -> None:
    """CONNECT, SUB, PUB and PING in one slice, before INFO was even read."""
    with open_wire(server, transport) as wire:
        wire.send(connect_line() + b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        wire.read_info()
        wire.expect(b"MSG a 1 2\r\nhi\r\nPONG\r\n")


def test_connect_may_be_omitted(server: Server, transport: str) -> None:
    """A terminal user gets verbose, pedantic and echo."""
    with open_wire(server, transport) as wire:
        wire.read_info()
        wire.send(b"SUB a 1\r\n")
        wire.expect(b"+OK\r\n")
        wire.send(b"PUB a 2\r\nhi\r\nPUB a.* 0\r\n\r\nPING\r\n")
        wire.expect(b"+OK\r\nMSG a 1 2\r\nhi\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\nPONG\r\n")


def test_size_with_leading_zeros(connect: Callable[..., Wire]) -> None:
    """Whether the zeros come back is left to the server (nats-server copies them)."""
    wire = connect()
    wire.send(b"SUB a 1\r\nPUB a 002\r\nhi\r\n")
    *fields, size = wire.read_line().split()
    assert (fields, int(size)) == ([b"MSG", b"a", b"1"], 2)
    wire.expect(b"hi\r\n")
