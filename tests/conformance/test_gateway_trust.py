"""The gateway does not trust services: a service cannot answer requests to another service."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.conformance.test_gateway import acall, arrived, connect
from tests.conformance.test_http import Caller
from tests.nats_client import flush
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.msg import Msg

    from tests.servers import Broker

CALLERS = 20
BALANCE = b"POST /v1/request/bank.balance?timeout=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


def dropped(broker: Broker) -> int:
    """Count the replies that no request waited for."""
    reasons = broker.conservation()["dropped"]
    total: int = reasons["unsubscribed"] + reasons["closed"]
    return total


async def test_variations_of_a_reply_subject_have_no_receiver(broker: Broker) -> None:
    """Well-formed ones are counted as dropped replies, all others as messages without a receiver."""
    client = await connect(broker)
    requests: list[Msg] = []

    async def keep(message: Msg) -> None:
        requests.append(message)

    await client.subscribe("gateway.forged", cb=keep)
    await flush(client)
    pending = asyncio.create_task(acall(broker, "POST", "/v1/request/gateway.forged", b"x"))
    await arrived(requests)
    genuine = requests[0].reply
    prefix, address = genuine.rsplit(".", 1)
    shard, slot, generation, token = address.split("-")
    assert len(token) == 16
    before = dropped(broker)
    possible = [
        f"{shard}-{slot}-{generation}-{int(token, 16) ^ 1:016x}",
        f"{shard}-{slot}-{generation}-{0:016x}",
        f"{shard}-{slot}-{int(generation, 16) + 1:x}-{token}",
        f"{shard}-{int(slot, 16) + 12345:x}-{generation}-{token}",
        f"{shard}-ffffffff-ffffffff-{token}",
    ]
    impossible = [
        f"{shard}-{slot}-{generation}",
        f"{shard}-{slot}-{generation}-{token[1:]}",
        f"{shard}-{slot}-{generation}-0{token}",
        f"ffff-{slot}-{generation}-{token}",
        f"{address}-0",
        f"{address}.0",
        "x-y-z-0123456789abcdef",
    ]
    for one in possible + impossible:
        await client.publish(f"{prefix}.{one}", b"forged")
    await flush(client)
    # A connection that does not wait for a reply itself may send one.
    await client.publish(genuine, b"genuine")
    answer, body = await pending
    assert (answer.status, body) == (200, b"genuine")
    await client.publish(genuine, b"again")
    await client.close()
    await asyncio.to_thread(wait_until, lambda: dropped(broker) == before + len(possible) + 1)


def guesses(seen: list[str]) -> Iterator[str]:
    """Reply subjects of other requests, as they would be if something in them could be worked out."""
    prefix = seen[0].rsplit(".", 1)[0]
    tokens = [int(subject.rsplit("-", 1)[1], 16) for subject in seen]
    numbers = {token + step for token in tokens for step in (-1, 0, 1)}
    numbers |= {after + (after - before) for before, after in itertools.pairwise(tokens)}
    # Small ones, too: each number was once one more than the one before.
    ends = [f"{number % 2**64:016x}" for number in numbers] + [f"{number:x}" for number in range(2 * CALLERS)]
    for shard, slot, generation in itertools.product(range(2), range(CALLERS + 10), range(12)):
        for end in ends:
            yield f"{prefix}.{shard:x}-{slot:x}-{generation:x}-{end}"


async def test_a_service_cannot_answer_the_requests_of_another(broker: Broker) -> None:
    """One that serves `weather.now` tries what it can derive from its own requests on `bank.balance`."""
    bank, thief = await connect(broker), await connect(broker)
    held: list[Msg] = []
    seen: list[str] = []

    async def hold(message: Msg) -> None:
        held.append(message)

    async def serve(message: Msg) -> None:
        seen.append(message.reply)
        await message.respond(b"sunny")

    await bank.subscribe("bank.balance", cb=hold)
    await thief.subscribe("weather.now", cb=serve)
    await asyncio.gather(flush(bank), flush(thief))
    for _ in range(4):
        answer, body = await acall(broker, "POST", "/v1/request/weather.now")
        assert (answer.status, body) == (200, b"sunny")
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(broker.http)) for _ in range(CALLERS)]
        for caller in callers:
            caller.send(BALANCE)
        await arrived(held, CALLERS)
        await acall(broker, "POST", "/v1/request/weather.now")
        for subject in guesses(seen):
            await thief.publish(subject, b"0 forged")
        await flush(thief)
        for message in held:
            await message.respond(b"1000 genuine")
        await flush(bank)
        answers = [await asyncio.to_thread(caller.answer) for caller in callers]
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"1000 genuine")] * CALLERS
    await bank.close()
    await thief.close()


async def test_identity_fields_of_callers_are_not_forwarded(broker: Broker) -> None:
    """Neither as a proxy would say it, nor in the fields that NATS gives a meaning to."""
    client = await connect(broker)
    subscription = await client.subscribe("gateway.identity")
    await flush(client)
    withheld = {
        "Authorization": "Bearer x", "Proxy-Authorization": "Basic x", "Cookie": "a=b", "X-Api-Key": "x",
        "X-Auth-Request-User": "root", "X-User-Id": "0", "Remote-User": "root", "X-Remote-Groups": "admin",
        "X-Forwarded-User": "root", "x-forwarded-for": "127.0.0.1", "Forwarded": "for=127.0.0.1",
        "X-Real-IP": "127.0.0.1", "X-Client-Cert": "x", "SSL-Client-Verify": "SUCCESS", "Client-Cert": ":x:",
        "Nats-Msg-Id": "1", "Nats-Service-Error": "x",
    }  # fmt: skip
    passed = {"X-Trace": "1", "Traceparent": "00-0-0-00", "Idempotency-Key": "2"}
    for action in ("publish", "request"):
        answer, _ = await acall(
            broker, "POST", f"/v1/{action}/gateway.identity?timeout=0.1", b"x", withheld | passed
        )
        assert answer.status in {202, 504}
        assert (await subscription.next_msg(5)).headers == passed
    await client.close()


GUARD = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}


async def test_fields_of_replies_that_affect_the_origin_are_removed(broker: Broker) -> None:
    """A service's answer is data: it sets nothing for the address that it comes from."""
    client = await connect(broker)
    withheld = {
        "Set-Cookie": "session=x", "Clear-Site-Data": '"*"', "Strict-Transport-Security": "max-age=1",
        "Alt-Svc": "h3=':1'", "WWW-Authenticate": "Basic", "Location": "https://evil.example", "Refresh": "0",
        "Content-Security-Policy": "sandbox allow-scripts", "X-Content-Type-Options": "x",
        "Permissions-Policy": "x", "Report-To": "{}", "NEL": "{}", "SourceMap": "/x",
        "X-Frame-Options": "DENY",
        "Service-Worker-Allowed": "/", "Cross-Origin-Resource-Policy": "cross-origin", "Server-Timing": "x",
        "Timing-Allow-Origin": "*", "Origin-Agent-Cluster": "?0", "Content-Encoding": "gzip",
        "X-Accel-Redirect": "/etc/passwd", "Proxy-Authenticate": "Basic",
    }  # fmt: skip
    passed = {
        "Content-Type": "text/html", "ETag": '"1"', "Cache-Control": "no-cache", "Link": '</2>; rel="next"',
        "X-Total-Count": "7", "Request-Id": "8",
    }  # fmt: skip

    async def reply(message: Msg) -> None:
        await client.publish(message.reply, b"<script>alert(1)</script>", headers=withheld | passed)

    await client.subscribe("gateway.page", cb=reply)
    await flush(client)
    answer, body = await acall(broker, "POST", "/v1/request/gateway.page")
    assert (answer.status, body) == (200, b"<script>alert(1)</script>")
    fields = {name.lower(): value for name, value in answer.getheaders()}
    del fields["date"], fields["content-length"]
    assert fields == {name.lower(): value for name, value in passed.items()} | GUARD
    assert len(answer.getheaders()) == len(fields) + 2, "no field twice"
    await client.close()


async def test_browsers_do_not_run_answers_as_pages(broker: Broker) -> None:
    """A browser that is led to one runs nothing of it, and makes nothing else of it than its type says."""
    client = await connect(broker)

    async def reply(message: Msg) -> None:
        await message.respond(b"x")

    await client.subscribe("gateway.plain", cb=reply)
    await flush(client)
    calls = [
        ("POST", "/v1/request/gateway.plain", 200),
        ("POST", "/v1/request/gateway.nobody", 503),
        ("POST", "/v1/publish/gateway.plain", 202),
        ("POST", "/v1/publish/", 400),
        ("OPTIONS", "/v1/publish/gateway.plain", 204),
        ("HEAD", "/v1/subscribe/gateway.plain", 200),
        ("GET", "/v1/request/gateway.plain", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/openapi.json", 200),
    ]
    for method, path, status in calls:
        answer, _ = await acall(broker, method, path)
        assert answer.status == status, path
        assert {name: answer.getheader(name) for name in GUARD} == GUARD, path
    with Caller(broker.http) as caller:
        caller.send(b"GET /v1/subscribe/a HTTP/1.1\r\nHost: a b\r\n\r\n")
        refusal = caller.answer()
    assert (refusal.status, refusal.fields["x-content-type-options"]) == (400, "nosniff")
    answer, body = await acall(broker, "GET", "/byte")
    assert body == b"a"
    # The baseline of measurements, and a constant.
    assert {name.lower() for name, _ in answer.getheaders()} == {"date", "content-type", "content-length"}
    await client.close()
