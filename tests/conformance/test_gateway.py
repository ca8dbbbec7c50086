"""Gateway: request, publish and subscribe over HTTP, with NATS clients on the other side."""

from __future__ import annotations

import asyncio
import base64
import json
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any, Self

import nats
import pytest

from tests.conformance.test_http import Caller
from tests.nats_client import flush
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.msg import Msg

    from tests.servers import Broker

Fields = dict[str, str]


def call(
    broker: Broker, method: str, path: str, body: bytes | None = None, fields: Fields | None = None
) -> tuple[HTTPResponse, bytes]:
    """One call on a connection of its own."""
    connection = HTTPConnection(*broker.http, timeout=20)
    try:
        connection.request(method, path, body, fields or {})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def publish(broker: Broker, *messages: tuple[str, bytes]) -> None:
    """One after the other on one connection: those of different publishers may overtake each other."""
    connection = HTTPConnection(*broker.http, timeout=20)
    for subject, body in messages:
        connection.request("POST", f"/v1/publish/{subject}", body)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (202, b"")
    connection.close()


async def arrived(messages: list[Msg], count: int = 1) -> None:
    """Wait until so many have come."""
    await asyncio.to_thread(wait_until, lambda: len(messages) >= count)


async def acall(*arguments: Any, **options: Any) -> tuple[HTTPResponse, bytes]:
    return await asyncio.to_thread(call, *arguments, **options)


def problem(answer: HTTPResponse, body: bytes) -> str:
    """The detail of a problem, whose form is checked."""
    assert answer.getheader("Content-Type") == "application/problem+json"
    document = json.loads(body)
    assert set(document) == {"type", "title", "status", "detail"}
    assert document["status"] == answer.status
    detail: str = document["detail"]
    return detail


async def connect(broker: Broker) -> nats.NATS:
    return await nats.connect(broker.url("tcp"))


async def test_a_request_and_its_reply(broker: Broker) -> None:
    client = await connect(broker)

    async def reply(message: Msg) -> None:
        await message.respond(message.data[::-1])

    await client.subscribe("gateway.reverse", cb=reply)
    await flush(client)
    answer, body = await acall(broker, "POST", "/v1/request/gateway.reverse", b"hello")
    assert (answer.status, body) == (200, b"olleh")
    assert answer.getheader("Content-Type") == "application/octet-stream"
    everything = bytes(range(256)) * 3000
    answer, body = await acall(broker, "POST", "/v1/request/gateway.reverse", everything)
    assert body == everything[::-1]
    answer, body = await acall(broker, "POST", "/v1/request/gateway%2Ereverse")
    assert (answer.status, body) == (200, b"")
    await client.close()


async def test_headers_go_both_ways(broker: Broker) -> None:
    client = await connect(broker)
    seen: list[Msg] = []

    async def reply(message: Msg) -> None:
        seen.append(message)
        fields = {"Content-Type": "text/csv", "X-Answer": "42", "Content-Length": "999", "Connection": "x"}
        await client.publish(message.reply, b"a,b", headers=fields)

    await client.subscribe("gateway.headers", cb=reply)
    await flush(client)
    fields = {"X-Trace": "abc", "Nats-Msg-Id": "7", "Authorization": "secret", "Cookie": "secret"}
    answer, body = await acall(broker, "POST", "/v1/request/gateway.headers?timeout=5", b"x", fields)
    assert (answer.status, body, answer.getheader("Content-Type")) == (200, b"a,b", "text/csv")
    assert answer.getheader("X-Answer") == "42"
    assert answer.getheader("Content-Length") == "3"
    assert seen[0].headers == {"X-Trace": "abc"}
    answer, body = await acall(broker, "POST", "/v1/request/gateway.headers", b"x")
    assert seen[1].headers is None
    await client.close()


async def test_errors_of_services_become_http_errors(broker: Broker) -> None:
    client = await connect(broker)

    async def reply(message: Msg) -> None:
        code, _, body = message.data.decode().partition(":")
        fields = {"Nats-Service-Error": "not today", "Nats-Service-Error-Code": code}
        await client.publish(message.reply, body.encode(), headers=fields)

    await client.subscribe("gateway.service", cb=reply)
    await flush(client)
    for code, status in (("404", 404), ("503", 503), ("200", 500), ("none", 500)):
        answer, body = await acall(broker, "POST", "/v1/request/gateway.service", code.encode())
        assert answer.status == status
        assert problem(answer, body) == "not today"
    answer, body = await acall(broker, "POST", "/v1/request/gateway.service", b"409:as it is")
    assert (answer.status, body) == (409, b"as it is")
    await client.close()


def test_a_request_without_subscribers_gets_503(broker: Broker) -> None:
    answer, body = call(broker, "POST", "/v1/request/gateway.nobody", b"x")
    assert answer.status == 503
    assert "gateway.nobody" in problem(answer, body)


async def test_a_request_without_a_reply_in_time_gets_504(broker: Broker) -> None:
    """The late reply is dropped and counted; the connection goes on, and gets its own reply.

    When the answer comes: rust_core/crates/simulation/tests/timeouts.rs.
    """
    client = await connect(broker)
    late: list[Msg] = []

    async def keep(message: Msg) -> None:
        late.append(message)

    await client.subscribe("gateway.late", cb=keep)
    await flush(client)
    connection = HTTPConnection(*broker.http, timeout=20)
    before = broker.conservation()["dropped"]["unsubscribed"]
    path = "/v1/request/gateway.late"
    await asyncio.to_thread(connection.request, "POST", path, b"1", {"X-Request-Timeout": "200ms"})
    answer = await asyncio.to_thread(connection.getresponse)
    assert answer.status == 504
    assert "0.2 s" in problem(answer, answer.read())
    await asyncio.to_thread(connection.request, "POST", path + "?timeout=10", b"2")
    await arrived(late, 2)
    await late[0].respond(b"late")
    await late[1].respond(b"in time")
    await late[1].respond(b"again")
    await flush(client)
    answer = await asyncio.to_thread(connection.getresponse)
    assert (answer.status, answer.read()) == (200, b"in time")
    connection.close()
    await client.close()
    wait_until(lambda: broker.conservation()["dropped"]["unsubscribed"] == before + 2)


async def test_many_requests_at_once(broker: Broker) -> None:
    """Each caller gets the reply to its own request."""
    client = await connect(broker)

    async def reply(message: Msg) -> None:
        await message.respond(b"re:" + message.data)

    await client.subscribe("gateway.many", cb=reply)
    await flush(client)

    def series(caller: int) -> int:
        connection = HTTPConnection(*broker.http, timeout=20)
        for number in range(50):
            payload = f"{caller}.{number}".encode()
            connection.request("POST", "/v1/request/gateway.many", payload)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"re:" + payload)
        connection.close()
        return 50

    done = await asyncio.gather(*(asyncio.to_thread(series, caller) for caller in range(20)))
    assert sum(done) == 1000
    await client.close()


async def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    client = await connect(broker)
    held: list[Msg] = []

    async def reply(message: Msg) -> None:
        held.append(message)
        await message.respond(message.data)

    await client.subscribe("gateway.row", cb=reply)
    await flush(client)
    head = "POST /v1/request/gateway.row HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    payloads = [str(number) for number in range(200)]
    requests = "".join(head % (len(payload), payload) for payload in payloads).encode()

    def exchange() -> list[bytes]:
        with Caller(broker.http) as caller:
            caller.send(requests + b"GET /byte HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return [caller.answer().body for _ in range(201)]

    bodies = await asyncio.to_thread(exchange)
    assert bodies == [payload.encode() for payload in payloads] + [b"a"]
    await client.close()


async def test_a_caller_that_leaves_gets_no_reply(broker: Broker) -> None:
    client = await connect(broker)
    requests: list[Msg] = []

    async def keep(message: Msg) -> None:
        requests.append(message)

    await client.subscribe("gateway.left", cb=keep)
    await flush(client)
    connections = broker.varz()["connections"]
    before = broker.conservation()["dropped"]["closed"]
    with Caller(broker.http) as caller:
        caller.send(b"POST /v1/request/gateway.left HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        await arrived(requests)
    await asyncio.to_thread(wait_until, lambda: broker.varz()["connections"] == connections)
    await requests[0].respond(b"too late")
    await flush(client)
    await client.close()
    wait_until(lambda: broker.conservation()["dropped"]["closed"] == before + 1)


async def test_publish(broker: Broker) -> None:
    client = await connect(broker)
    subscription = await client.subscribe("gateway.news.>")
    await flush(client)
    answer, body = await acall(broker, "POST", "/v1/publish/gateway.news.1", b"one", {"X-N": "1"})
    assert (answer.status, body) == (202, b"")
    message = await subscription.next_msg(5)
    assert (message.subject, message.data, message.headers) == ("gateway.news.1", b"one", {"X-N": "1"})
    assert message.reply == ""
    answer, _ = await acall(broker, "POST", "/v1/publish/gateway.news.%C3%A9%2F%3F", b"two")
    assert answer.status == 202
    message = await subscription.next_msg(5)
    assert (message.subject, message.data) == ("gateway.news.é/?", b"two")
    await client.close()


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/publish/", "empty token"),
        ("/v1/publish/a..b", "empty token"),
        ("/v1/publish/.a", "empty token"),
        ("/v1/publish/a.*", "wildcards"),
        ("/v1/publish/%3E", "wildcards"),
        ("/v1/publish/a%20b", "0x20"),
        ("/v1/publish/a%0D%0APUB%20x", "0x0d"),
        ("/v1/publish/a%", "percent"),
        ("/v1/publish/a%zz", "percent"),
        ("/v1/publish/a/b", "%2F"),
        ("/v1/publish/" + "a" * 5000, "4096"),
        ("/v1/request/a.>", "wildcards"),
        ("/v1/request/a?timeout=", "timeout"),
        ("/v1/request/a?timeout=-1", "timeout"),
        ("/v1/request/a?timeout=1h", "timeout"),
        ("/v1/request/a?timeout=301", "300 seconds"),
        ("/v1/request/a?timeout=1&timeout=2", "parameter"),
    ],
)
def test_bad_addresses(broker: Broker, path: str, detail: str) -> None:
    before = broker.varz()["in_msgs"]
    answer, body = call(broker, "POST", path, b"x")
    assert answer.status == 400
    assert detail in problem(answer, body)
    assert broker.varz()["in_msgs"] == before


class Events:
    """A stream of events on a raw connection."""

    def __init__(self, broker: Broker, path: str, fields: str = "") -> None:
        self.caller = Caller(broker.http)
        self.caller.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
        while b"\r\n\r\nretry: 2000\n\n" not in self.caller.received:
            self.caller.fill()
        self.head, _, self.caller.received = self.caller.received.partition(b"\r\n\r\nretry: 2000\n\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.caller.__exit__()

    def next(self) -> list[str]:
        """The lines of the next event, heartbeats left out."""
        while True:
            while b"\n\n" not in self.caller.received:
                self.caller.fill()
            event, _, self.caller.received = self.caller.received.partition(b"\n\n")
            if event != b":":
                return event.decode().split("\n")


def test_events(broker: Broker) -> None:
    with Events(broker, "/v1/subscribe/gateway.stream.*") as events:
        assert events.head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Type: text/event-stream\r\n" in events.head
        payloads = (b"one", b"", b"two\nlines", b"a\r\nb", b"\xff\x00")
        publish(broker, *(("gateway.stream.x", payload) for payload in payloads))
        assert events.next() == ["id: 1", "data: one"]
        assert events.next() == ["id: 2", "data: "]
        assert events.next() == ["id: 3", "data: two", "data: lines"]
        for number, payload in ((4, b"a\r\nb"), (5, b"\xff\x00")):
            assert events.next() == [
                f"id: {number}", "event: base64", f"data: {base64.b64encode(payload).decode()}",
            ]  # fmt: skip
        publish(broker, ("gateway.other.x", b"not for it"), ("gateway.stream.y", b"six"))
        assert events.next() == ["id: 6", "data: six"]


def test_events_in_json(broker: Broker) -> None:
    with Events(broker, "/v1/subscribe/gateway.%3E?format=json") as events:
        call(broker, "POST", "/v1/publish/gateway.json.1", b'{"a":\r\n1}', {"X-A": "b"})
        first = events.next()
        publish(broker, ("gateway.json.2", b"\xff"))
        assert first[0] == "id: 1"
        assert json.loads(first[1].removeprefix("data: ")) == {
            "subject": "gateway.json.1", "headers": {"X-A": ["b"]}, "data": '{"a":\r\n1}',
        }  # fmt: skip
        second = json.loads(events.next()[1].removeprefix("data: "))
        assert second == {"subject": "gateway.json.2", "data_base64": "/w=="}


def test_heartbeats(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(event_heartbeat_s=0.2)
    with Events(broker, "/v1/subscribe/a") as events:
        while events.caller.received.count(b":\n\n") < 3:
            events.caller.fill()


def test_a_stream_that_ends_is_unsubscribed(broker: Broker) -> None:
    before = broker.varz()["subscriptions"]
    with Events(broker, "/v1/subscribe/gateway.ends"):
        wait_until(lambda: broker.varz()["subscriptions"] == before + 1)
    wait_until(lambda: broker.varz()["subscriptions"] == before)


def test_a_stream_that_is_not_read_is_closed(start_broker: Callable[..., Broker]) -> None:
    """Nobody else notices, and what it lost is counted."""
    broker = start_broker(max_pending=2_000_000, max_payload=1_000_000, write_deadline_s=1)
    with (
        Events(broker, "/v1/subscribe/gateway.flood"),
        Events(broker, "/v1/subscribe/gateway.flood") as reader,
    ):
        for number in range(1, 41):
            assert call(broker, "POST", "/v1/publish/gateway.flood", b"x" * 900_000)[0].status == 202
            assert reader.next()[0] == f"id: {number}"
        wait_until(lambda: broker.varz()["slow_consumers"] == 1)
        conservation = broker.wait_settled()
        assert conservation["dropped"]["slow_consumer"] > 0


def test_requests_of_other_origins_are_refused(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(cors_origins=["https://good.example"])
    good, evil = {"Origin": "https://good.example"}, {"Origin": "https://evil.example"}
    answer, _ = call(broker, "POST", "/v1/publish/a", b"x", good)
    assert (answer.status, answer.getheader("Access-Control-Allow-Origin")) == (202, good["Origin"])
    assert answer.getheader("Vary") == "Origin"
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-trace"}
    answer, _ = call(broker, "OPTIONS", "/v1/request/a", None, good | preflight)
    assert (answer.status, answer.getheader("Access-Control-Allow-Methods")) == (204, "POST")
    for method, path in (("POST", "/v1/publish/a"), ("GET", "/v1/subscribe/a"), ("OPTIONS", "/v1/publish/a")):
        before = broker.varz()["in_msgs"]
        answer, body = call(broker, method, path, b"x" if method == "POST" else None, evil)
        assert answer.status == 403
        assert "cors_origins" in problem(answer, body)
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert broker.varz()["in_msgs"] == before
    host = f"{broker.http[0]}:{broker.http[1]}"
    answer, _ = call(broker, "POST", "/v1/publish/a", b"x", {"Origin": f"http://{host}"})
    assert (answer.status, answer.getheader("Access-Control-Allow-Origin")) == (202, None)


def test_the_api_serves_its_description(broker: Broker) -> None:
    answer, body = call(broker, "GET", "/openapi.json")
    assert answer.status == 200
    document = json.loads(body)
    assert document["openapi"].startswith("3.1")
    assert {"/v1/request/{subject}", "/v1/publish/{subject}", "/v1/subscribe/{subject}"} <= set(
        document["paths"]
    )


def test_a_drain_ends_streams_and_answers_waiting_requests(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(lame_duck_grace_s=1.0, lame_duck_duration_s=0.1)

    async def scenario() -> tuple[int, bytes]:
        client = await connect(broker)
        requests: list[Msg] = []

        async def keep(message: Msg) -> None:
            requests.append(message)

        await client.subscribe("gateway.drain", cb=keep)
        await flush(client)
        pending = asyncio.create_task(acall(broker, "POST", "/v1/request/gateway.drain", b"x"))
        await arrived(requests)
        broker.process.terminate()
        await asyncio.to_thread(wait_until, lambda: broker.varz()["draining"])
        await requests[0].respond(b"still here")
        await flush(client)
        answer, body = await pending
        assert answer.getheader("Connection") == "close"
        await client.close()
        return answer.status, body

    with Events(broker, "/v1/subscribe/gateway.drain.events") as events:
        assert asyncio.run(scenario()) == (200, b"still here")
        events.caller.socket.settimeout(10)
        while events.caller.socket.recv(1000):
            pass
    assert broker.process.wait(10) == 0
