"""RFC 6455: legal frames work, and illegal frames get the right close code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    StreamEndError,
    WebSocketWire,
    connect_line,
    frame,
    mask,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Broker, Server

CONNECT = connect_line()


@pytest.fixture
def wire(server: Server) -> Iterator[WebSocketWire]:
    """A handshaken connection to each server: what the RFC allows works on both."""
    with WebSocketWire(server) as wire:
        wire.handshake()
        yield wire


@pytest.fixture
def strict(broker: Broker) -> Iterator[WebSocketWire]:
    """A handshaken connection to our broker, which is stricter than nats-server."""
    with WebSocketWire(broker) as wire:
        wire.handshake()
        yield wire


def expect_close(wire: WebSocketWire, code: int) -> None:
    """Check that a close frame with this code comes, whole and last."""
    opcode, payload = wire.read_frame()
    assert (opcode, int.from_bytes(payload[:2])) == (CLOSE, code)
    payload[2:].decode()
    with pytest.raises(StreamEndError):
        wire.read_frame()


def header(first: int, second: int, extended: bytes = b"") -> bytes:
    """A hand-made frame header with a zero mask where the mask bit is set."""
    return bytes([first, second]) + extended + (bytes(4) if second & 0x80 else b"")


def test_operations_split_over_fragments(wire: WebSocketWire) -> None:
    """A message in fragments, with control frames between them, is one stream."""
    wire.send_raw(frame(BINARY, b"SUB a 1\r\nPU", fin=False))
    wire.send_raw(frame(PING, b"between"))
    wire.send_raw(frame(CONTINUATION, b"B a 2\r", fin=False))
    wire.send_raw(frame(CONTINUATION, b"", fin=False))
    wire.send_raw(frame(CONTINUATION, b"\nhi\r\n"))
    assert wire.read_frame() == (PONG, b"between")
    wire.expect(b"MSG a 1 2\r\nhi\r\n")


def test_operation_split_over_messages(wire: WebSocketWire) -> None:
    """Message boundaries mean nothing to the stream; empty messages neither."""
    for part in (b"SU", b"B a 1\r", b"", b"\nPUB a 2\r\nh", b"i\r\n"):
        wire.send(part)
    wire.expect(b"MSG a 1 2\r\nhi\r\n")


def test_several_frames_in_one_segment(wire: WebSocketWire) -> None:
    wire.send_raw(frame(BINARY, b"SUB a 1\r\n") + frame(BINARY, b"PUB a 0\r\n\r\n") * 3)
    wire.expect(b"MSG a 1 0\r\n\r\n" * 3)


def test_frames_byte_by_byte(wire: WebSocketWire) -> None:
    """Header, extended length, mask and payload may each be torn apart."""
    stream = frame(BINARY, b"SUB a 1\r\nPUB a 200\r\n" + b"x" * 200 + b"\r\n")
    stream += frame(BINARY, b"PING\r\n") + frame(PING, b"p")
    for i in range(len(stream)):
        wire.send_raw(stream[i : i + 1])
    wire.expect(b"MSG a 1 200\r\n" + b"x" * 200 + b"\r\nPONG\r\n")
    assert wire.pongs == [b"p"] or wire.read_frame() == (PONG, b"p")


def test_text_frames_carry_the_stream(wire: WebSocketWire) -> None:
    """Text is accepted, also with a character torn over two fragments; answers are binary."""
    wire.send_raw(frame(TEXT, b"SUB \xc3", fin=False) + frame(CONTINUATION, b"\xa4 1\r\n"))
    wire.send_raw(frame(TEXT, "PUB ä 2\r\nhi\r\n".encode()))
    assert wire.read_frame() == (BINARY, "MSG ä 1 2\r\nhi\r\n".encode())


@pytest.mark.parametrize("size", [0, 1, 125])
def test_ping_is_answered_with_its_payload(wire: WebSocketWire, size: int) -> None:
    payload = os.urandom(size)
    wire.send_raw(frame(PING, payload))
    assert wire.read_frame() == (PONG, payload)


def test_an_unrequested_pong_is_ignored(wire: WebSocketWire) -> None:
    wire.send_raw(frame(PONG, b"hello") + frame(PONG, b""))
    wire.ping()


@pytest.mark.parametrize("size", [60_000, 70_000, 1024 * 1024])
def test_long_frames(wire: WebSocketWire, size: int) -> None:
    """Payload lengths of 16 and of 64 bits, unmasked correctly over many reads."""
    payload = os.urandom(size)
    wire.send(b"SUB a 1\r\nPUB a %d\r\n%b\r\n" % (size, payload))
    wire.expect(b"MSG a 1 %d\r\n%b\r\n" % (size, payload))


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 3000, 4999])
def test_close_is_answered(strict: WebSocketWire, code: int) -> None:
    strict.send_raw(frame(CLOSE, code.to_bytes(2) + b"bye"))
    expect_close(strict, code)


def test_close_without_a_code(strict: WebSocketWire) -> None:
    strict.send_raw(frame(CLOSE, b""))
    opcode, payload = strict.read_frame()
    assert opcode == CLOSE
    assert payload in (b"", (1000).to_bytes(2))
    with pytest.raises(StreamEndError):
        strict.read_frame()


def test_nothing_is_handled_after_close(server: Server) -> None:
    with WebSocketWire(server) as witness, WebSocketWire(server) as wire:
        witness.handshake()
        witness.send(b"SUB a 1\r\n")
        witness.ping()
        wire.handshake()
        wire.send_raw(frame(CLOSE, (1000).to_bytes(2)) + frame(BINARY, b"PUB a 0\r\n\r\n"))
        wire.read_to_end()
        witness.ping()


#: name: bytes that break the framing rules (RFC 6455 sections 5 and 7.4): close code 1002
PROTOCOL_ERRORS = {
    "RSV1": frame(BINARY, b"PING\r\n", rsv=4),
    "RSV2": frame(BINARY, b"PING\r\n", rsv=2),
    "RSV3": frame(BINARY, b"PING\r\n", rsv=1),
    "RSV1 on a ping": frame(PING, b"", rsv=4),
    **{f"opcode {opcode:#x}": frame(opcode, b"") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "not masked": frame(BINARY, b"PING\r\n", masked=False),
    "ping that is not masked": frame(PING, b"", masked=False),
    "5 bytes with a 16-bit length": header(0x82, 0xFE, (5).to_bytes(2)) + b"PING\n",
    "5 bytes with a 64-bit length": header(0x82, 0xFF, (5).to_bytes(8)) + b"PING\n",
    "65535 bytes with a 64-bit length": header(0x82, 0xFF, (65535).to_bytes(8)),
    "length with the top bit": header(0x82, 0xFF, (1 << 63).to_bytes(8)),
    "ping of 126 bytes": frame(PING, b"x" * 126),
    "close of 126 bytes": frame(CLOSE, (1000).to_bytes(2) + b"x" * 124),
    "fragmented ping": frame(PING, b"", fin=False),
    "fragmented close": frame(CLOSE, b"", fin=False),
    "continuation of nothing": frame(CONTINUATION, b"PING\r\n"),
    "continuation after the end": (
        frame(BINARY, b"", fin=False) + frame(CONTINUATION, b"") + frame(CONTINUATION, b"")
    ),
    "new message within a message": frame(BINARY, b"", fin=False) + frame(BINARY, b""),
    "text within a binary message": frame(BINARY, b"", fin=False) + frame(TEXT, b""),
    "close of one byte": frame(CLOSE, b"\x03"),
    **{
        f"close code {code}": frame(CLOSE, code.to_bytes(2))
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)
    },
}


@pytest.mark.parametrize("name", PROTOCOL_ERRORS)
def test_protocol_error(strict: WebSocketWire, name: str) -> None:
    strict.send_raw(PROTOCOL_ERRORS[name])
    expect_close(strict, 1002)


@pytest.mark.parametrize("name", PROTOCOL_ERRORS)
def test_protocol_error_byte_by_byte(strict: WebSocketWire, name: str) -> None:
    """The same verdict when the bytes trickle in; what comes after it need not be taken."""
    try:
        for byte in PROTOCOL_ERRORS[name]:
            strict.send_raw(bytes([byte]))
    except ConnectionError:
        pass
    expect_close(strict, 1002)


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"\xc3\x28",
        b"\xed\xa0\x80",  # a surrogate
        b"\xf4\x90\x80\x80",  # beyond U+10FFFF
        b"\xc0\xaf",  # longer than needed
        b"PUB a 2\r\nhi\xc3",  # ends within a character
    ],
)
def test_text_that_is_not_utf_8_is_refused(strict: WebSocketWire, payload: bytes) -> None:
    strict.send_raw(frame(TEXT, payload))
    expect_close(strict, 1007)


def test_text_fails_at_the_first_impossible_byte(strict: WebSocketWire) -> None:
    """No need to wait for the end of the message."""
    strict.send_raw(frame(TEXT, b"PING\xc3", fin=False) + frame(CONTINUATION, b"\x28", fin=False))
    expect_close(strict, 1007)


def test_a_close_reason_that_is_not_utf_8_is_refused(strict: WebSocketWire) -> None:
    strict.send_raw(frame(CLOSE, (1000).to_bytes(2) + b"\xff"))
    expect_close(strict, 1007)


def test_oversized_message(strict: WebSocketWire) -> None:
    """Refused on its header, before its payload was sent."""
    strict.send_raw(header(0x82, 0xFF, (1 << 40).to_bytes(8)))
    expect_close(strict, 1009)


def test_binary_is_not_checked_for_utf_8(wire: WebSocketWire) -> None:
    wire.send(b"SUB a 1\r\nPUB a 2\r\n\xff\xfe\r\n")
    wire.expect(b"MSG a 1 2\r\n\xff\xfe\r\n")


def test_every_mask_and_alignment(wire: WebSocketWire) -> None:
    """Payloads at every offset of the word, with masks of zeros, ones and random bits."""
    wire.send(b"SUB a 1\r\n")
    for size in range(40):
        payload = os.urandom(size)
        stream = b"PUB a %d\r\n%b\r\n" % (size, payload)
        for key in (bytes(4), b"\xff" * 4, os.urandom(4)):
            wire.send_raw(bytes([0x82, 0x80 | len(stream)]) + key + mask(stream, key))
            wire.expect(b"MSG a 1 %d\r\n%b\r\n" % (size, payload))
