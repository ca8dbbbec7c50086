"""The gateway keeps to the description of its API that it serves, and the description to the gateway."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import pytest

from tests.conformance.test_gateway import Events, call, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.msg import Msg

    from tests.servers import Broker

CONFIG = Path(__file__).with_name("schemathesis.toml")


def generate_and_check(broker: Broker) -> str:
    """Run all of schemathesis's checks on what it generates from the served description."""
    url = f"http://{broker.http[0]}:{broker.http[1]}/openapi.json"
    program = [sys.executable, "-m", "schemathesis.cli"]
    done = subprocess.run(
        [*program, "--config-file", str(CONFIG), "--no-color", "run", url, "--checks", "all"],
        cwd=broker.stderr.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_generated_requests_that_nobody_answers(broker: Broker) -> None:
    before = broker.varz()
    assert "No issues found" in generate_and_check(broker)
    after = broker.varz()
    # The generated requests did reach the gateway, rightly and wrongly made ones.
    assert after["no_responders"] - before["no_responders"] > 50
    assert after["in_msgs"] - before["in_msgs"] > 100
    assert after["http_errors"] - before["http_errors"] > 100


async def test_generated_requests_that_are_answered(start_broker: Callable[..., Broker]) -> None:
    """By results, and by a service's errors with a body and without."""
    broker = start_broker(request_timeout_s=0.2)
    client = await nats.connect(broker.url("tcp"))
    answers = 0

    async def reply(message: Msg) -> None:
        nonlocal answers
        if message.reply:
            answers += 1
            error = {"Nats-Service-Error": "no", "Nats-Service-Error-Code": "409"}
            fields = [None, {"Content-Type": "text/plain"}, error, {**error, "Content-Type": "text/plain"}]
            body = message.data if answers % 4 != 3 else b""
            await client.publish(message.reply, body, headers=fields[answers % 4])

    await client.subscribe(">", cb=reply)
    await client.flush()
    await asyncio.to_thread(generate_and_check, broker)
    # Each of the four kinds several times.
    assert answers > 16
    await client.close()


def kinds(document: dict[str, Any], path: str, method: str, status: int) -> list[str]:
    """The media types that the document gives for a status."""
    answer = document["paths"][path][method]["responses"][str(status)]
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return list(answer["content"])


@pytest.fixture
def document(broker: Broker) -> dict[str, Any]:
    answer, body = call(broker, "GET", "/openapi.json")
    assert answer.status == 200
    served: dict[str, Any] = json.loads(body)
    return served


@pytest.mark.parametrize("subject", ["a", "a.*.b", "*", "%3E", "a.%3E", "a%2Fb.c", "a*b.%3Eb", "%C3%A9"])
def test_streams_are_as_described(broker: Broker, document: dict[str, Any], subject: str) -> None:
    (kind,) = kinds(document, "/v1/subscribe/{subject}", "get", 200)
    with Events(broker, f"/v1/subscribe/{subject}?format=raw") as events:
        assert f"\r\nContent-Type: {kind}\r\n".encode() in events.head


@pytest.mark.parametrize(
    "target", ["", "a..b", "%3E.a", "a.%3E.b", "a%20b", "a%00", "a?format=xml", "a?format=raw&format=raw"]
)
def test_refused_streams_are_as_described(broker: Broker, document: dict[str, Any], target: str) -> None:
    answer, body = call(broker, "GET", f"/v1/subscribe/{target}")
    assert answer.status == 400
    assert problem(answer, body)
    assert answer.getheader("Content-Type") in kinds(document, "/v1/subscribe/{subject}", "get", 400)
