"""Delivery: which clients get a message, in which form, and how often."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from tests.wire import Wire

Connect = Callable[..., Wire]
pytestmark = pytest.mark.matrix
HEADERS = b"NATS/1.0\r\nX: 1\r\nx: 2\r\nX: 3\r\n\r\n"


def publish(subject: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
    fields = [b"PUB", subject, *([reply] if reply else []), str(len(payload)).encode()]
    return b" ".join(fields) + b"\r\n" + payload + b"\r\n"


def message(subject: bytes, sid: bytes, payload: bytes = b"") -> bytes:
    return b"MSG %b %b %d\r\n%b\r\n" % (subject, sid, len(payload), payload)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (b"a", [b"a"], [b"A", b"a.b", b"b", b"aa"]),
        (b"a.b", [b"a.b"], [b"a", b"a.b.c", b"a.B", b"a.*"]),
        (b"*", [b"a", b"*", b">"], [b"a.b"]),
        (b"a.*", [b"a.b", b"a.*"], [b"a", b"a.b.c", b"b.b"]),
        (b"*.b", [b"a.b", b"x.b"], [b"b", b"a.c", b"a.b.c"]),
        (b"a.*.c", [b"a.b.c", b"a.c.c"], [b"a.c", b"a.b.d", b"a.b.c.d"]),
        (b"*.*", [b"a.b"], [b"a", b"a.b.c"]),
        (b">", [b"a", b"a.b", b"a.b.c.d"], []),
        (b"a.>", [b"a.b", b"a.b.c", b"a.>"], [b"a", b"b.a"]),
        (b"*.>", [b"a.b", b"a.b.c"], [b"a"]),
        (b"a.*.>", [b"a.b.c", b"a.b.c.d"], [b"a", b"a.b"]),
        (b"a*", [b"a*"], [b"a", b"ab", b"a.b"]),
        (b"a.b>", [b"a.b>"], [b"a.b", b"a.b.c", b"a.bb"]),
    ],
)
def test_wildcards(connect: Connect, pattern: bytes, matching: list[bytes], others: list[bytes]) -> None:
    """A pattern gets exactly what it matches; wildcards count only alone in a token."""
    wire = connect()
    wire.send(b"SUB " + pattern + b" 1\r\n")
    wire.send(b"".join(map(publish, [*others, *matching])) + b"PING\r\n")
    wire.expect(b"".join(message(subject, b"1") for subject in matching) + b"PONG\r\n")


def test_a_copy_for_each_subscription(connect: Connect) -> None:
    """Three overlapping subscriptions of one connection make three copies."""
    wire = connect()
    wire.send(b"SUB a.b 1\r\nSUB a.* 2\r\nSUB > 3\r\n" + publish(b"a.b", b"x"))
    copies = sorted(wire.read(len(message(b"a.b", b"1", b"x"))) for _ in range(3))
    assert copies == [message(b"a.b", sid, b"x") for sid in (b"1", b"2", b"3")]
    wire.ping()


def test_messages_reach_another_connection_in_order(connect: Connect) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.send(b"SUB n.* 1\r\n")
    subscriber.ping()
    numbers = [str(n).encode() for n in range(2000)]
    publisher.send(b"".join(publish(b"n." + n, n) for n in numbers))
    subscriber.expect(b"".join(message(b"n." + n, b"1", n) for n in numbers))


def test_echo_is_off(connect: Connect) -> None:
    """A connection without echo never gets its own, in a queue group another member does."""
    quiet, other = connect(echo=False), connect()
    quiet.send(b"SUB a 1\r\nSUB a group 2\r\n")
    quiet.ping()
    other.send(b"SUB a 3\r\nSUB a group 4\r\n")
    other.ping()
    quiet.send(publish(b"a", b"own") * 20 + b"PING\r\n")
    quiet.expect(b"PONG\r\n")
    lines = b"".join(other.read_line() for _ in range(80))
    assert lines.count(message(b"a", b"3", b"own")) == 20
    assert lines.count(message(b"a", b"4", b"own")) == 20


def test_verbose(connect: Connect) -> None:
    """+OK for each operation but PING, errors in their place."""
    wire = connect_verbose(connect)
    wire.send(b"SUB a 1\r\nSUB a..b 2\r\nUNSUB 1\r\nUNSUB 9\r\nPUB a 0\r\n\r\nPING\r\n")
    wire.expect(b"+OK\r\n-ERR 'Invalid Subject'\r\n+OK\r\n+OK\r\n+OK\r\nPONG\r\n")


def test_verbose_with_headers(connect: Connect) -> None:
    wire = connect_verbose(connect, headers=True)
    wire.send(b"HPUB a %d %d\r\n%b\r\nPING\r\n" % (len(HEADERS), len(HEADERS), HEADERS))
    wire.expect(b"+OK\r\nPONG\r\n")


def connect_verbose(connect: Connect, **fields: object) -> Wire:
    """A later CONNECT turns verbose on, and is the first to be answered so."""
    wire = connect(**fields)
    wire.send(b'CONNECT {"verbose":true,"headers":true,"pedantic":false}\r\n')
    wire.expect(b"+OK\r\n")
    return wire


def test_a_later_connect_drops_subscriptions(connect: Connect) -> None:
    wire = connect()
    wire.send(b"SUB a 1\r\n" + publish(b"a"))
    wire.expect(message(b"a", b"1"))
    wire.send(b'CONNECT {"verbose":false,"pedantic":false}\r\n' + publish(b"a") + b"PING\r\n")
    wire.expect(b"PONG\r\n")


def test_duplicate_sid_is_ignored(connect: Connect) -> None:
    """The first subscription stays."""
    wire = connect()
    wire.send(b"SUB a 1\r\nSUB b 1\r\n" + publish(b"b") + publish(b"a") + b"PING\r\n")
    wire.expect(message(b"a", b"1") + b"PONG\r\n")
    wire.send(b"UNSUB 1\r\nSUB b 1\r\n" + publish(b"a") + publish(b"b") + b"PING\r\n")
    wire.expect(message(b"b", b"1") + b"PONG\r\n")


UNSUBSCRIBING = [
    b"UNSUB 1", b"UNSUB 1 0", b"unsub\t1",
    # Everything that is not a number of one to nine digits.
    b"UNSUB 1 -1", b"UNSUB 1 +5", b"UNSUB 1 x", b"UNSUB 1 5x", b"UNSUB 1 1000000000",
    b"UNSUB 1 0000000005", b"UNSUB 1 99999999999999999999",
]  # fmt: skip


@pytest.mark.parametrize("unsub", UNSUBSCRIBING)
def test_unsubscribe_at_once(connect: Connect, unsub: bytes) -> None:
    wire = connect()
    wire.send(b"SUB a 1\r\n" + publish(b"a") + unsub + b"\r\n" + publish(b"a") + b"PING\r\n")
    wire.expect(message(b"a", b"1") + b"PONG\r\n")


def test_unsubscribe_after_a_maximum(connect: Connect) -> None:
    """Exactly three in all, counted from the subscription on."""
    wire = connect()
    wire.send(b"SUB a 1\r\n" + publish(b"a") + b"UNSUB 1 3\r\n" + publish(b"a") * 9 + b"PING\r\n")
    wire.expect(message(b"a", b"1") * 3 + b"PONG\r\n")
    wire.send(b"SUB a 1\r\n" + publish(b"a") + b"PING\r\n")
    wire.expect(message(b"a", b"1") + b"PONG\r\n")


def test_the_largest_maximum(connect: Connect) -> None:
    wire = connect()
    wire.send(b"SUB a 1\r\nUNSUB 1 999999999\r\n" + publish(b"a") * 3 + b"PING\r\n")
    wire.expect(message(b"a", b"1") * 3 + b"PONG\r\n")


def test_unsubscribe_when_the_maximum_has_passed(connect: Connect) -> None:
    wire = connect()
    wire.send(b"SUB a 1\r\n" + publish(b"a") * 3 + b"UNSUB 1 2\r\n" + publish(b"a") + b"PING\r\n")
    wire.expect(message(b"a", b"1") * 3 + b"PONG\r\n")


def test_the_maximum_may_be_raised(connect: Connect) -> None:
    wire = connect()
    wire.send(b"SUB a 1\r\nUNSUB 1 1\r\nUNSUB 1 2\r\n" + publish(b"a") * 5 + b"PING\r\n")
    wire.expect(message(b"a", b"1") * 2 + b"PONG\r\n")


def test_unsubscribe_maximum_across_connections(connect: Connect) -> None:
    """Not one more than the maximum, from several publishers."""
    subscriber, publishers = connect(), [connect() for _ in range(4)]
    subscriber.send(b"SUB a 1\r\nUNSUB 1 10\r\nSUB end 2\r\n")
    subscriber.ping()
    for publisher in publishers:
        publisher.send(publish(b"a") * 10)
        publisher.ping()
    subscriber.expect(message(b"a", b"1") * 10)
    publishers[0].send(publish(b"a") + publish(b"end"))
    subscriber.expect(message(b"end", b"2"))


def test_queue_group_takes_one(connect: Connect) -> None:
    """Each message goes to exactly one member, and every member gets some."""
    members = [connect() for _ in range(4)]
    publisher = connect()
    for wire in members:
        wire.send(b"SUB jobs.* group 1\r\nSUB end 2\r\n")
        wire.ping()
    numbers = [str(n).encode() for n in range(400)]
    publisher.send(b"".join(publish(b"jobs." + n, n) for n in numbers) + publish(b"end"))
    taken = [read_messages_until_end(wire) for wire in members]
    assert sorted(chain.from_iterable(taken)) == sorted(message(b"jobs." + n, b"1", n) for n in numbers)
    assert all(taken)


def read_messages_until_end(wire: Wire) -> list[bytes]:
    messages = []
    while (line := wire.read_line()) != b"MSG end 2 0\r\n":
        messages.append(line + wire.read_line())
    wire.read_line()
    return messages


def test_members_of_a_group_drain_under_load_without_loss(connect: Connect) -> None:
    """UNSUB, then PING: a message given to a member reaches it before the PONG, so none is lost.

    Members leave one after another while others publish; a message that comes after the PONG
    would find a client that has gone.
    """
    members, publishers = [connect() for _ in range(6)], [connect() for _ in range(3)]
    for member in members:
        member.send(b"SUB load group 1\r\n")
        member.ping()
    taken: list[bytes] = []
    for number, member in enumerate(members[:-1]):
        for publisher in publishers:
            publisher.send(b"".join(publish(b"load", b"%d" % number) for _ in range(300)))
        member.send(b"UNSUB 1\r\nPING\r\n")
        while (line := member.read_line()) != b"PONG\r\n":
            taken.append(line + member.read_line())
        publishers[0].send(publish(b"load", b"after") * 10)
        publishers[0].ping()
        member.ping()
    for publisher in publishers:
        publisher.ping()
    last = members[-1]
    expected = 5 * (3 * 300 + 10)
    while len(taken) < expected:
        taken.append(last.read_line() + last.read_line())
    assert taken.count(message(b"load", b"1", b"after")) == 50
    assert all(taken.count(message(b"load", b"1", b"%d" % n)) == 900 for n in range(5))


def test_queue_groups_and_plain_subscriptions_each_get_a_copy(connect: Connect) -> None:
    wire = connect()
    wire.send(b"SUB a 1\r\nSUB a g 2\r\nSUB a g 3\r\nSUB a h 4\r\nSUB a.* g 5\r\n")
    wire.send(publish(b"a") + b"PING\r\n")
    received = []
    while (line := wire.read_line()) != b"PONG\r\n":
        received.append(line.split()[2] if line != b"\r\n" else b"")
    sids = sorted(sid for sid in received if sid)
    assert len(sids) == 3
    assert {b"1", b"4"} < set(sids)


def test_queue_group_spans_patterns(connect: Connect) -> None:
    """Members of a group on different matching patterns compete."""
    wire = connect()
    wire.send(b"SUB foo.* g 1\r\nSUB foo.bar g 2\r\n" + publish(b"foo.bar") * 200 + b"PING\r\n")
    received = b""
    while not received.endswith(b"PONG\r\n"):
        received += wire.receive()
    counts = [received.count(message(b"foo.bar", sid)) for sid in (b"1", b"2")]
    assert sum(counts) == 200
    assert all(counts)


def test_headers_are_removed_for_clients_without_header_support(connect: Connect) -> None:
    """A subscriber without headers gets the payload alone, one with them gets the block as sent."""
    plain, rich, publisher = connect(), connect(headers=True), connect(headers=True)
    for wire in (plain, rich):
        wire.send(b"SUB a 1\r\n")
        wire.ping()
    size = len(HEADERS)
    publisher.send(b"HPUB a re.ply %d %d\r\n%b\r\n" % (size, size + 2, HEADERS + b"hi"))
    plain.expect(b"MSG a 1 re.ply 2\r\nhi\r\n")
    rich.expect(b"HMSG a 1 re.ply %d %d\r\n%b\r\n" % (size, size + 2, HEADERS + b"hi"))


def no_responders(reply: bytes, sid: bytes, subject: bytes) -> bytes:
    block = b"NATS/1.0 503\r\nNats-Subject: " + subject + b"\r\n\r\n"
    assert len(block) == 32 + len(subject)
    return b"HMSG %b %b %d %d\r\n%b\r\n" % (reply, sid, len(block), len(block), block)


def test_no_responders(connect: Connect) -> None:
    """A request that nobody gets is answered with 503 at once, byte for byte."""
    wire = connect(headers=True, no_responders=True)
    wire.send(b"SUB _INBOX.me.* 7\r\n" + publish(b"no.body", b"?", b"_INBOX.me.1") + b"PING\r\n")
    wire.expect(no_responders(b"_INBOX.me.1", b"7", b"no.body") + b"PONG\r\n")


def test_no_responders_to_a_request_with_headers(connect: Connect) -> None:
    wire = connect(headers=True, no_responders=True)
    size = len(HEADERS)
    wire.send(b"SUB in 7\r\nHPUB nobody in %d %d\r\n%b\r\n" % (size, size, HEADERS) + b"PING\r\n")
    wire.expect(no_responders(b"in", b"7", b"nobody") + b"PONG\r\n")


def test_a_publisher_that_did_not_ask_gets_no_503(connect: Connect) -> None:
    """Neither without no_responders, nor without a reply, nor to another's inbox, nor to a group."""
    without = connect(headers=True)
    without.send(b"SUB in 7\r\n" + publish(b"nobody", b"", b"in") + b"PING\r\n")
    without.expect(b"PONG\r\n")
    asking = connect(headers=True, no_responders=True)
    asking.send(
        b"SUB mine 1\r\nSUB grouped g 2\r\n"
        + publish(b"nobody")
        + publish(b"nobody", b"", b"in")
        + publish(b"nobody", b"", b"grouped")
        + b"PING\r\n"
    )
    asking.expect(b"PONG\r\n")
    without.ping()


def test_a_request_with_a_responder_gets_no_503(connect: Connect) -> None:
    requestor, provider = connect(headers=True, no_responders=True), connect()
    provider.send(b"SUB s g 1\r\n")
    provider.ping()
    requestor.send(b"SUB in 7\r\n" + publish(b"s", b"?", b"in"))
    provider.expect(b"MSG s 1 in 1\r\n?\r\n")
    provider.send(publish(b"in", b"!"))
    requestor.expect(message(b"in", b"7", b"!"))
    requestor.ping()


def test_subscriptions_of_closed_clients_are_removed(connect: Connect) -> None:
    """Once a subscriber's connection has ended, its subject has no responders again."""
    requestor, provider = connect(headers=True, no_responders=True), connect()
    provider.send(b"SUB s 1\r\n")
    provider.ping()
    provider.send(b"nonsense\r\n")
    provider.read_to_end()
    requestor.send(b"SUB in 7\r\n")
    for _ in range(1000):
        requestor.send(publish(b"s", b"?", b"in") + b"PING\r\n")
        if requestor.read_line() != b"PONG\r\n":
            break
    else:
        raise AssertionError("the closed subscriber still counts as one")


def test_a_large_fan_out_keeps_its_order(connect: Connect) -> None:
    """Nothing that its publisher sends later overtakes a message to thousands of receivers."""
    publisher, receivers = connect(), [connect() for _ in range(5)]
    for receiver in receivers:
        receiver.send(b"".join(b"SUB big %d\r\n" % sid for sid in range(1000)) + b"SUB small last\r\n")
        receiver.ping()
    publisher.send(publish(b"big", b"1") + publish(b"small", b"2") + publish(b"big", b"3") + b"PING\r\n")
    publisher.expect(b"PONG\r\n")
    for receiver in receivers:
        expect_each(receiver, b"1")
        receiver.expect(message(b"small", b"last", b"2"))
        expect_each(receiver, b"3")
        receiver.ping()
    own = receivers[0]
    own.send(publish(b"big", b"4") + b"UNSUB 7\r\nPING\r\n")
    expect_each(own, b"4")
    own.expect(b"PONG\r\n")


def expect_each(receiver: Wire, payload: bytes) -> None:
    """Check that each of its 1,000 subscriptions gets the message once, in any order."""
    expected = {message(b"big", b"%d" % sid, payload) for sid in range(1000)}
    assert {receiver.read_line() + receiver.read_line() for _ in range(1000)} == expected
