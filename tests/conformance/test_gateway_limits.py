"""Gateway with callers that misbehave, read slowly or send much."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_gateway import Events, acall, call, connect, problem
from tests.conformance.test_http import BYTE, Caller
from tests.conftest import require_driver
from tests.monitor import pending
from tests.nats_client import flush
from tests.servers import wait_until
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.msg import Msg

    from tests.servers import Broker

POST = b"POST /v1/%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"


def post(path: str, body: bytes) -> bytes:
    return POST % (path.encode(), len(body), body)


@pytest.fixture(params=["epoll", "uring"])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require_driver(name)
    return name


async def test_a_caller_that_does_not_read_its_replies_is_closed(
    start_broker: Callable[..., Broker], driver: str
) -> None:
    """At `max_pending`, not when the write deadline has passed."""
    broker = start_broker(driver=driver, max_pending=2_000_000, max_payload=1_000_000, write_deadline_s=60)
    client = await connect(broker)

    async def reply(message: Msg) -> None:
        await message.respond(b"x" * 900_000)

    await client.subscribe("gateway.large", cb=reply)
    await flush(client)
    with Caller(broker.http) as caller:
        caller.send(post("request/gateway.large", b"") * 100)
        try:
            await asyncio.to_thread(wait_until, lambda: broker.varz()["slow_consumers"] == 1, 30)
        except TimeoutError:
            pytest.fail(f"never cut: {broker.varz()}")
    await client.close()
    broker.wait_idle()
    assert broker.conservation()["dropped"]["slow_consumer"] > 0


async def test_a_message_is_never_longer_than_max_payload(start_broker: Callable[..., Broker]) -> None:
    """Fields that are forwarded count; who has subscribed is not the one to pay for it."""
    broker = start_broker(max_payload=1000, max_pending=1000)
    client = await connect(broker)
    subscription = await client.subscribe("gateway.exact")
    await flush(client)
    path = "/v1/publish/gateway.exact"
    block = len("NATS/1.0\r\nX-A: 123456789\r\n\r\n")
    largest = b"x" * (1000 - block)
    for framing in ({}, {"Transfer-Encoding": "chunked"}):
        fields = {"X-A": "123456789", **framing}
        body = largest + b"x"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if framing else body
        answer, text = await acall(broker, "POST", path, body, fields)
        assert answer.status == 413
        assert "1000 bytes" in problem(answer, text)
    assert broker.varz()["in_msgs"] == 0
    answer, _ = await acall(broker, "POST", path, largest, {"X-A": "123456789"})
    assert answer.status == 202
    assert (await subscription.next_msg(5)).data == largest
    await client.close()


def test_head_of_a_stream_has_no_length_and_does_not_subscribe(broker: Broker) -> None:
    """A stream has no length, so that its head has none either (RFC 9110 section 9.3.2)."""
    before = broker.varz()["total_subscribed"]
    answer, body = call(broker, "HEAD", "/v1/subscribe/a")
    assert (answer.status, body) == (200, b"")
    assert answer.getheader("Content-Type") == "text/event-stream"
    assert answer.getheader("Content-Length") is None
    assert broker.varz()["total_subscribed"] == before


@pytest.mark.parametrize(
    ("subject", "option"),
    [
        ("*.b.c.d.e", "max_subject_tokens"),
        ("*.*.%3E", "max_subject_wildcards"),
        ("s" * 65, "max_subject_length"),
    ],
)
def test_a_stream_obeys_the_limits_of_subscriptions(
    start_broker: Callable[..., Broker], subject: str, option: str
) -> None:
    broker = start_broker(max_subject_tokens=4, max_subject_wildcards=2, max_subject_length=64)
    answer, body = call(broker, "GET", f"/v1/subscribe/{subject}")
    assert answer.status == 400
    assert option in problem(answer, body)
    assert broker.varz()["total_subscribed"] == 0
    with Events(broker, "/v1/subscribe/a.*.c.%3E"):
        assert broker.varz()["subscriptions"] == 1


async def test_fields_named_by_connection_are_not_forwarded(broker: Broker) -> None:
    """RFC 9110 section 7.6.1."""
    client = await connect(broker)
    subscription = await client.subscribe("gateway.hops")
    await flush(client)
    fields = {"Connection": "X-Hop, x-other", "X-Hop": "1", "X-Other": "2", "X-End": "3"}
    await acall(broker, "POST", "/v1/publish/gateway.hops", b"x", fields)
    assert (await subscription.next_msg(5)).headers == {"X-End": "3"}
    await client.close()


async def test_cors_fields_of_a_reply_are_not_forwarded(broker: Broker) -> None:
    client = await connect(broker)

    async def reply(message: Msg) -> None:
        fields = {"Access-Control-Allow-Origin": "*", "access-control-allow-credentials": "true", "X-A": "1"}
        await client.publish(message.reply, b"x", headers=fields)

    await client.subscribe("gateway.origins", cb=reply)
    await flush(client)
    answer, _ = await acall(broker, "POST", "/v1/request/gateway.origins", b"x")
    fields = {name.lower() for name, _ in answer.getheaders()}
    assert "x-a" in fields
    assert not any(name.startswith("access-control-") for name in fields)
    await client.close()


async def test_the_shorter_timeout_counts(broker: Broker) -> None:
    client = await connect(broker)
    await client.subscribe("gateway.silent")
    await flush(client)
    path = "/v1/request/gateway.silent"
    for query, field, seconds in (("20", "0.1", "0.1 s"), ("50ms", "20s", "0.05 s")):
        fields = {"X-Request-Timeout": field}
        answer, body = await acall(broker, "POST", f"{path}?timeout={query}", b"x", fields)
        assert answer.status == 504
        assert seconds in problem(answer, body)
    await client.close()


def test_a_message_to_many_receivers_is_not_overtaken_by_the_next(broker: Broker) -> None:
    """A message to thousands goes by mail; what its caller publishes next does not overtake it."""
    count = 5000
    with Wire(broker) as wire, Caller(broker.http) as caller:
        wire.handshake()
        subscriptions = b"".join(b"SUB gateway.all %d\r\n" % sid for sid in range(1, count + 1))
        wire.send(subscriptions + b"SUB gateway.one 0\r\n")
        wire.ping()
        caller.send(post("publish/gateway.all", b"first") + post("publish/gateway.one", b"second"))
        assert [caller.answer().status for _ in range(2)] == [202, 202]
        seen = set()
        for _ in range(count):
            operation, subject, sid, _ = wire.read_line().split()
            assert (operation, subject) == (b"MSG", b"gateway.all")
            assert wire.read(7) == b"first\r\n"
            seen.add(int(sid))
        assert seen == set(range(1, count + 1))
        wire.expect(b"MSG gateway.one 0 6\r\nsecond\r\n")


async def test_no_100_continue_is_sent_before_the_answer_to_an_earlier_request(broker: Broker) -> None:
    """Nothing of the second answer comes before the first one."""
    client = await connect(broker)
    requests = await client.subscribe("gateway.first")
    await flush(client)
    with Caller(broker.http) as caller:
        head = b"POST /v1/publish/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        expecting = head + b"Expect: 100-continue\r\n\r\n"
        caller.send(post("request/gateway.first", b"") + expecting)
        await (await requests.next_msg(10)).respond(b"reply")
        await flush(client)
        first = await asyncio.to_thread(caller.answer)
        assert (first.status, first.body) == (200, b"reply")
        assert (await asyncio.to_thread(caller.answer)).status == 100
        caller.send(b"hello")
        assert (await asyncio.to_thread(caller.answer)).status == 202
    await client.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("OPTIONS", "/v1/publish/a", 204),
        ("HEAD", "/byte", 200),
        ("GET", "/byte", 200),
        ("HEAD", "/v1/publish/a", 405),
        ("DELETE", "/v1/publish/a", 405),
        ("POST", "/v1/nothing", 404),
    ],
)
def test_unexpected_bodies_are_read_and_not_taken_for_requests(
    broker: Broker, method: str, path: str, status: int
) -> None:
    """They are read, and not taken for the next request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    hidden = BYTE.replace(b"/byte", b"/hidden")
    sized = head + b"Content-Length: %d\r\n\r\n%b" % (len(hidden), hidden)
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
    with Caller(broker.http) as caller:
        for request in (sized, chunked):
            caller.send(request + BYTE)
            assert caller.answer(head_only=method == "HEAD").status == status
            assert caller.answer().body == b"a"


def test_requests_beyond_the_budget_of_a_turn_are_answered_later(
    start_broker: Callable[..., Broker], driver: str
) -> None:
    """Requests that are put off are answered in later turns, all of them."""
    broker = start_broker(driver=driver, shards=1)
    count = 3000
    with Caller(broker.http) as caller:
        caller.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * count + BYTE)
        bodies = {caller.answer().body for _ in range(count)}
        assert len(bodies) == 1
        assert count * len(bodies.pop()) > 4 << 20
        assert caller.answer().body == b"a"


def test_a_publisher_is_stalled_for_a_slow_receiver(start_broker: Callable[..., Broker], driver: str) -> None:
    """And nothing of what it sends is lost or put in another order.

    The receiver may be on another shard, which holds the publisher up when it has read its mail. When busy,
    it would find more than `max_pending` in there, unless the test waits for the mail to be read.
    """
    broker = start_broker(driver=driver, max_pending=8_000_000, max_payload=500_000, write_deadline_s=100)
    with Events(broker, "/v1/subscribe/gateway.slow") as events, Caller(broker.http) as caller:
        payloads = [b"%03d" % number + b"x" * 400_000 for number in range(60)]
        published = 0
        while broker.varz()["stalled_clients"] == 0:
            caller.send(post("publish/gateway.slow", payloads[published]))
            assert caller.answer().status == 202
            published += 1
            wait_until(lambda: pending(broker)["mail"] == 0)
        try:
            for payload in payloads[:published]:
                assert events.next()[1] == "data: " + payload.decode()
        except AssertionError as error:
            error.add_note(f"{published} published, connections closed: {broker.varz()['closed']}")
            raise
        caller.send(post("publish/gateway.slow", b"last"))
        assert caller.answer().status == 202
        assert events.next() == [f"id: {published + 1}", "data: last"]


def test_a_stream_that_is_not_read_is_closed_at_the_write_deadline(
    start_broker: Callable[..., Broker], driver: str
) -> None:
    broker = start_broker(driver=driver, write_deadline_s=0.5, event_heartbeat_s=0.1)
    with Events(broker, "/v1/subscribe/gateway.stuck"):
        published = 0
        while broker.varz()["pending_bytes"] == 0:
            assert call(broker, "POST", "/v1/publish/gateway.stuck", b"x" * 1_000_000)[0].status == 202
            published += 1
            assert published < 50
        wait_until(lambda: broker.varz()["slow_consumers"] == 1)
    broker.wait_idle()
    dropped = broker.conservation()["dropped"]["slow_consumer"]
    assert 0 < dropped <= published


def test_a_drain_does_not_wait_for_a_reply_that_never_comes(
    start_broker: Callable[..., Broker], driver: str
) -> None:
    broker = start_broker(driver=driver, lame_duck_grace_s=0.2, lame_duck_duration_s=0.1)
    with Events(broker, "/v1/subscribe/gateway.void"), Caller(broker.http) as caller:
        # Its receiver is a stream, which never replies.
        caller.send(post("request/gateway.void?timeout=100", b"x"))
        wait_until(lambda: broker.varz()["gateway_requests"] == 1)
        broker.process.terminate()
        caller.expect_end()
    assert broker.process.wait(10) == 0


async def test_short_and_long_timeouts_alternate_on_one_connection(broker: Broker) -> None:
    """A long wait, then a short one on the same connection, then a long one again."""
    client = await connect(broker)
    requests = await client.subscribe("gateway.waits")
    await flush(client)
    with Caller(broker.http) as caller:
        for timeout, status in (("60", 200), ("100ms", 504), ("300", 200), ("50ms", 504)):
            caller.send(post(f"request/gateway.waits?timeout={timeout}", b"x"))
            request = await requests.next_msg(10)
            if status == 200:
                await request.respond(b"here")
                await flush(client)
            assert (await asyncio.to_thread(caller.answer)).status == status
    await client.close()
