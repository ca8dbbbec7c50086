"""The gateway keeps to the description of its API that it serves, and the description to the gateway."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.test_gateway import Events, call, problem
from tests.wire import StreamEndError, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_generated_requests_without_a_responder_match_the_description(broker: Broker) -> None:
    before = broker.varz()
    assert "No issues found" in generate_and_check(broker)
    after = broker.varz()
    # The generated requests did reach the gateway, rightly and wrongly made ones.
    assert after["no_responders"] - before["no_responders"] > 50
    assert after["in_msgs"] - before["in_msgs"] > 100
    assert after["http_errors"] - before["http_errors"] > 100


ERROR = b"Nats-Service-Error: no\r\nNats-Service-Error-Code: 409\r\n"
TEXT = b"Content-Type: text/plain\r\n"
#: What the service answers with in turn: results and errors, with a media type and without.
HEADERS = (b"", TEXT, ERROR, ERROR + TEXT)


def answer_everything(wire: Wire) -> int:
    """Answer every request until the connection ends, and return how many there were.

    Not with a client library: a generated subject may hold a vertical tab, which does not end a field.
    nats-py ends its connection over that, and the request waits until schemathesis gives up.
    """
    answers = 0
    with contextlib.suppress(StreamEndError):
        while True:
            operation, *fields = wire.read_line().removesuffix(b"\r\n").split(b" ")
            if operation not in (b"MSG", b"HMSG"):
                continue
            has_headers = operation == b"HMSG"
            body = wire.read(int(fields[-1]) + 2)[int(fields[-2]) if has_headers else 0 : -2]
            if len(fields) == 3 + has_headers:
                continue  # without a reply subject: a reply, or published
            answers += 1
            block = b"NATS/1.0\r\n" + HEADERS[answers % 4] + b"\r\n"
            body = body if answers % 4 != 3 else b""
            sizes = b" %d %d\r\n" % (len(block), len(block) + len(body))
            wire.send(b"HPUB " + fields[2] + sizes + block + body + b"\r\n")
    return answers


def test_generated_requests_with_a_responder_match_the_description(
    start_broker: Callable[..., Broker],
) -> None:
    """By results, and by a service's errors with a body and without."""
    broker = start_broker(request_timeout_s=0.2)
    with Wire(broker) as wire, ThreadPoolExecutor() as threads:
        wire.handshake(headers=True)
        wire.send(b"SUB > 1\r\n")
        wire.ping()
        wire.socket.settimeout(None)
        answering = threads.submit(answer_everything, wire)
        try:
            generate_and_check(broker)
        finally:
            wire.socket.shutdown(socket.SHUT_RDWR)
        # Each of the four kinds several times.
        assert answering.result() > 16


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
