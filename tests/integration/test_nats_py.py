"""The ordinary use of nats-py, on each server, over TCP and over WebSocket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from nats.aio.client import Client
from nats.errors import MaxPayloadError, NoRespondersError

from tests.integration.barrier import settle

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from tests.servers import Server

Connect = Callable[..., Awaitable[Client]]

# nats-py hands aiohttp a timeout in a form that aiohttp has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:parameter 'timeout' of type:DeprecationWarning")


async def test_publish_and_subscribe(connect: Connect) -> None:
    publisher, subscriber = await connect(), await connect()
    subscription = await subscriber.subscribe("greet.joe")
    await settle(subscriber)
    await publisher.publish("greet.joe", b"hello", reply="answer.here")
    message = await subscription.next_msg(timeout=5)
    assert (message.subject, message.reply, message.data) == ("greet.joe", "answer.here", b"hello")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("time.*.east", ["time.us.east", "time.eu.east"]),
        ("time.>", ["time.us", "time.us.east", "time.eu.east", "time.us.east.atlanta"]),
        ("*.us", ["time.us"]),
        (">", ["time.us", "time.us.east", "time.eu.east", "time.us.east.atlanta", "other"]),
    ],
)
async def test_wildcards(connect: Connect, pattern: str, expected: list[str]) -> None:
    publisher, subscriber = await connect(), await connect()
    subjects: list[str] = []

    async def collect(message: Msg) -> None:
        subjects.append(message.subject)

    await subscriber.subscribe(pattern, cb=collect)
    done = await subscriber.subscribe("end.of.test.x.y.z")
    await settle(subscriber)
    for subject in ("time.us", "time.us.east", "time.eu.east", "time.us.east.atlanta", "other"):
        await publisher.publish(subject)
    await publisher.publish("end.of.test.x.y.z")
    await done.next_msg(timeout=5)
    await subscriber.drain()
    assert [subject for subject in subjects if not subject.startswith(("end.", "_INBOX."))] == expected


async def test_overlapping_subscriptions_get_a_copy_each(connect: Connect) -> None:
    client = await connect()
    subscriptions = [await client.subscribe(pattern) for pattern in ("a.b", "a.*")]
    await client.publish("a.b", b"x")
    assert [(await each.next_msg(timeout=5)).data for each in subscriptions] == [b"x", b"x"]


async def test_request_and_reply(connect: Connect) -> None:
    requestor, provider = await connect(), await connect()

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await provider.subscribe("upper", cb=answer)
    await settle(provider)
    assert (await requestor.request("upper", b"abc", timeout=5)).data == b"ABC"
    old = await requestor.request("upper", b"old style", timeout=5, old_style=True)
    assert old.data == b"OLD STYLE"


@pytest.mark.matrix
async def test_a_thousand_concurrent_requests(connect: Connect) -> None:
    """Each gets its own answer."""
    requestor = await connect()
    providers = [await connect() for _ in range(4)]
    served: Counter[int] = Counter()

    def provider(index: int) -> Callable[[Msg], Awaitable[None]]:
        async def answer(message: Msg) -> None:
            served[index] += 1
            await message.respond(b"re:" + message.data)

        return answer

    for index, client in enumerate(providers):
        await client.subscribe("service", queue="workers", cb=provider(index))
        await settle(client)
    payloads = [str(n).encode() for n in range(1000)]
    requests = (requestor.request("service", payload, timeout=30) for payload in payloads)
    replies = await asyncio.gather(*requests)
    assert [reply.data for reply in replies] == [b"re:" + payload for payload in payloads]
    assert sum(served.values()) == 1000
    assert len(served) == 4


async def test_no_responders(connect: Connect) -> None:
    client = await connect()
    with pytest.raises(NoRespondersError):
        await client.request("nobody.here", b"?", timeout=5)
    with pytest.raises(NoRespondersError):
        await client.request("nobody.here", b"?", timeout=5, old_style=True)


@pytest.mark.matrix
async def test_queue_group(connect: Connect) -> None:
    """Each message goes to exactly one member, every member gets some, plain ones get all."""
    publisher = await connect()
    members = [await connect() for _ in range(5)]
    received: list[list[bytes]] = [[] for _ in members]
    plain: list[bytes] = []

    def collect(messages: list[bytes]) -> Callable[[Msg], Awaitable[None]]:
        async def append(message: Msg) -> None:
            messages.append(message.data)

        return append

    for member, messages in zip(members, received, strict=True):
        await member.subscribe("jobs", queue="workers", cb=collect(messages))
        await settle(member)
    await members[0].subscribe("jobs", cb=collect(plain))
    await settle(members[0])
    expected = [str(n).encode() for n in range(1000)]
    for payload in expected:
        await publisher.publish("jobs", payload)
    # The barrier of the publisher says that all is routed, theirs that all has arrived.
    await settle(publisher, *members)
    await asyncio.gather(*(member.drain() for member in members))
    assert plain == expected
    assert sorted(chain.from_iterable(received)) == sorted(expected)
    assert all(received)


async def test_headers(connect: Connect) -> None:
    """Both ways, with case, blanks and order kept; a message without headers has none."""
    publisher, subscriber = await connect(), await connect()
    subscription = await subscriber.subscribe("with.headers")
    await settle(subscriber)
    headers = {"Nats-Test": "value", "lower-case": "a b  c", "Empty": "x", "Number": "42"}
    await publisher.publish("with.headers", b"body", headers=headers)
    await publisher.publish("with.headers", b"", headers={"Only": "headers"})
    await publisher.publish("with.headers", b"none")
    messages = [await subscription.next_msg(timeout=5) for _ in range(3)]
    assert [message.headers for message in messages] == [headers, {"Only": "headers"}, None]
    assert [message.data for message in messages] == [b"body", b"", b"none"]


async def test_headers_of_a_reply(connect: Connect) -> None:
    requestor, provider = await connect(), await connect()

    async def answer(message: Msg) -> None:
        assert message.headers is not None
        await provider.publish(message.reply, b"!", headers={"Echo": message.headers["Ask"]})

    await provider.subscribe("service", cb=answer)
    await settle(provider)
    reply = await requestor.request("service", b"?", timeout=5, headers={"Ask": "this"})
    assert (reply.data, reply.headers) == (b"!", {"Echo": "this"})


@pytest.mark.matrix
async def test_drain_of_a_subscription(connect: Connect) -> None:
    """What was published before the drain arrives, in order; nothing comes after it."""
    publisher, subscriber = await connect(), await connect()
    received: list[int] = []

    async def collect(message: Msg) -> None:
        received.append(int(message.data))

    subscription = await subscriber.subscribe("drained", cb=collect)
    await settle(subscriber)
    for n in range(2000):
        await publisher.publish("drained", str(n).encode())
    await settle(publisher)
    await subscription.drain()  # type: ignore[no-untyped-call]
    await publisher.publish("drained", b"9999")
    await settle(publisher)
    await settle(subscriber)
    assert received == list(range(2000))


@pytest.mark.matrix
async def test_drain_of_connections_with_messages_in_flight(connect: Connect) -> None:
    """Several subscribers drain while messages are under way: all that was flushed arrives."""
    publisher = await connect()
    subscribers = [await connect() for _ in range(6)]
    received: list[list[int]] = [[] for _ in subscribers]

    def collect(numbers: list[int]) -> Callable[[Msg], Awaitable[None]]:
        async def append(message: Msg) -> None:
            numbers.append(int(message.data))

        return append

    for subscriber, numbers in zip(subscribers, received, strict=True):
        await subscriber.subscribe("flight", cb=collect(numbers))
        await settle(subscriber)
    for n in range(3000):
        await publisher.publish("flight", str(n).encode())
    await settle(publisher)
    await asyncio.gather(*(subscriber.drain() for subscriber in subscribers))
    assert all(subscriber.is_closed for subscriber in subscribers)
    assert received == [list(range(3000))] * 6


@pytest.mark.matrix
async def test_drain_of_a_publisher(connect: Connect) -> None:
    """Drain flushes what was published just before."""
    publisher, subscriber = await connect(), await connect()
    subscription = await subscriber.subscribe("last.words")
    await settle(subscriber)
    for n in range(1000):
        await publisher.publish("last.words", str(n).encode())
    await publisher.drain()
    received = [int((await subscription.next_msg(timeout=5)).data) for _ in range(1000)]
    assert received == list(range(1000))


async def test_auto_unsubscribe(connect: Connect) -> None:
    """Exactly the maximum, and the server forgets the subscription then."""
    client = await connect()
    received: list[bytes] = []

    async def collect(message: Msg) -> None:
        received.append(message.data)

    subscription = await client.subscribe("few", cb=collect)
    await subscription.unsubscribe(limit=5)
    for n in range(20):
        await client.publish("few", str(n).encode())
    await settle(client)
    with pytest.raises(NoRespondersError):
        await client.request("few", b"?", timeout=5)
    assert received == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("size", [1024 * 1024 - 1, 1024 * 1024])
async def test_payload_of_a_megabyte(connect: Connect, size: int) -> None:
    publisher, subscriber = await connect(), await connect()
    assert publisher.max_payload == 1024 * 1024
    subscription = await subscriber.subscribe("large")
    await settle(subscriber)
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await publisher.publish("large", payload)
    assert (await subscription.next_msg(timeout=10)).data == payload


async def test_payload_above_the_maximum(connect: Connect, transport: str) -> None:
    """nats-py refuses it by what INFO said; told another limit, it is cut off by the server."""
    client = await connect()
    with pytest.raises(MaxPayloadError):
        await client.publish("large", bytes(client.max_payload + 1))
    closed = asyncio.Event()

    async def on_close() -> None:
        closed.set()

    deceived = await connect(closed_cb=on_close)
    deceived._max_payload *= 2
    await deceived.publish("large", bytes(client.max_payload + 1))
    await asyncio.wait_for(closed.wait(), 10)
    if transport == "tcp":  # over WebSocket the client puts the end of the stream in its place
        assert str(deceived.last_error).lower() == "nats: maximum payload violation"
    await settle(client)


@pytest.mark.matrix
async def test_burst_in_order(connect: Connect) -> None:
    """20,000 messages from one connection to another, none lost, none overtaken."""
    publisher, subscriber = await connect(), await connect()
    count = 20_000
    received: list[int] = []
    done = asyncio.Event()

    async def collect(message: Msg) -> None:
        received.append(int(message.data))
        if len(received) == count:
            done.set()

    await subscriber.subscribe("burst", cb=collect, pending_msgs_limit=count, pending_bytes_limit=1 << 30)
    await settle(subscriber)
    for n in range(count):
        await publisher.publish("burst", str(n).encode())
    await asyncio.wait_for(done.wait(), 50)
    assert received == list(range(count))


async def test_no_echo(connect: Connect) -> None:
    quiet, other = await connect(no_echo=True), await connect()
    own, others = await quiet.subscribe("said"), await other.subscribe("said")
    await settle(other)
    await quiet.publish("said", b"by quiet")
    assert (await others.next_msg(timeout=5)).data == b"by quiet"
    await other.publish("said", b"by other")
    assert (await own.next_msg(timeout=5)).data == b"by other"
    assert (await others.next_msg(timeout=5)).data == b"by other"


async def test_verbose_and_pedantic(connect: Connect) -> None:
    """+OK lines in the stream disturb nothing."""
    client = await connect(verbose=True, pedantic=True)
    subscription = await client.subscribe("a.*")
    for n in range(100):
        await client.publish(f"a.{n}", b"x", headers={"N": str(n)})
    await settle(client)
    subjects = [(await subscription.next_msg(timeout=5)).subject for _ in range(100)]
    assert subjects == [f"a.{n}" for n in range(100)]


@pytest.mark.matrix
async def test_many_connections(connect: Connect) -> None:
    """Every one of 200 connections reaches every other, whatever shard it is on."""
    clients = await asyncio.gather(*(connect() for _ in range(200)))
    subscriptions = [await client.subscribe("all") for client in clients]
    await settle(*clients)
    for n in (0, 99, 199):
        await clients[n].publish("all", str(n).encode())
        await settle(clients[n])
    expected = {b"0", b"99", b"199"}
    for subscription in subscriptions:
        assert {(await subscription.next_msg(timeout=10)).data for _ in range(3)} == expected


@pytest.mark.matrix
async def test_round_trips_between_every_pair(connect: Connect) -> None:
    """With a dozen connections, several pairs are on different shards: all can call each other."""
    clients = await asyncio.gather(*(connect() for _ in range(12)))

    def provider(index: int) -> Callable[[Msg], Awaitable[None]]:
        async def answer(message: Msg) -> None:
            await message.respond(b"%d" % index)

        return answer

    for index, client in enumerate(clients):
        await client.subscribe(f"node.{index}", cb=provider(index))
        await settle(client)
    for client in clients:
        replies = [await client.request(f"node.{n}", timeout=5) for n in range(12)]
        assert [int(reply.data) for reply in replies] == list(range(12))


@pytest.mark.matrix
async def test_transports_meet(connect: Connect, server: Server, transport: str) -> None:
    """A WebSocket client and a TCP client share one space of subjects."""
    other = await connect(server.url("ws" if transport == "tcp" else "tcp"))
    client = await connect()

    async def answer(message: Msg) -> None:
        await message.respond(message.data)

    await other.subscribe("across", cb=answer)
    await settle(other)
    assert (await client.request("across", b"over", timeout=5)).data == b"over"
