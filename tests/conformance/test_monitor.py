"""Pages of the monitor: their content, their parameters, and the limits on callers."""

from __future__ import annotations

import json
import re
import signal
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.test_http import Caller
from tests.conftest import BROKERS, require_driver
from tests.monitor import TIME, clients, connz, fetch, page
from tests.servers import wait_until
from tests.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.test_http import Answer
    from tests.servers import Broker
    from tests.wire import Wire

PAGES = ("/", "/connz", "/healthz", "/history", "/metrics", "/readyz", "/subjects", "/subsz", "/varz")
MAX_CONNECTIONS = 64


def test_hot_subjects(broker: Broker) -> None:
    with clients(broker, "sender") as [sender]:
        sender.send((b"PUB hot 10\r\n0123456789\r\n" * 3 + b"PUB warm 0\r\n\r\n") * 5000)
        sender.ping()
        found = page(broker, "/subjects")
        assert found["one_in"] == 64
        assert 0 < found["seconds"] < 1e6
        rows = {row["subject"]: row for row in found["subjects"]}
        assert rows["hot"]["msgs_per_s"] > rows["warm"]["msgs_per_s"] > 0
        assert rows["hot"]["bytes_per_s"] == pytest.approx(rows["hot"]["msgs_per_s"] * 10)
        assert rows["warm"]["bytes_per_s"] == 0
        assert 0 < rows["warm"]["share"] < rows["hot"]["share"] <= 1
        assert [row["msgs_per_s"] for row in found["subjects"]] == sorted(
            (row["msgs_per_s"] for row in found["subjects"]), reverse=True
        )
        assert len(page(broker, "/subjects?limit=1")["subjects"]) == 1


@pytest.mark.matrix
@pytest.mark.parametrize("form", BROKERS)
def test_health_and_readiness(form: str, start_broker: Callable[..., Broker]) -> None:
    require_driver(BROKERS[form]["driver"])
    broker = start_broker(**BROKERS[form], lame_duck_grace_s=30, lame_duck_duration_s=0.1)
    assert page(broker, "/healthz") == page(broker, "/readyz") == {"status": "ok"}
    assert page(broker, "/healthz?js-enabled-only=true") == page(broker, "/readyz?a") == {"status": "ok"}
    with clients_that_may_be_cut(broker) as wire:
        broker.process.send_signal(signal.SIGTERM)
        assert b'"ldm":true' in wire.read_line()
        status, fields, body = fetch(broker, "/readyz")
        assert (status, fields["content-type"]) == (503, "application/json")
        assert json.loads(body) == {"status": "unavailable", "error": "draining"}
        assert page(broker, "/healthz") == {"status": "ok"}
        assert "subjectbus_ready 0\n" in fetch(broker, "/metrics")[2].decode()
        assert len(connz(broker)) == 1
    assert broker.wait_status() == 0


@pytest.mark.parametrize("driver", ["epoll", "uring"])
def test_requests_do_not_wait_for_an_ended_shard(driver: str, start_broker: Callable[..., Broker]) -> None:
    require_driver(driver)
    broker = start_broker(driver=driver, shards=2, lame_duck_grace_s=30)
    with ExitStack() as stack:

        def is_on_the_monitors_shard() -> bool:
            wire = open_wire(broker, "tcp")
            wire.handshake()
            [row] = connz(broker)
            stack.callback(wire.close)
            if row["shard"] != 0:
                wire.close()
                wait_until(lambda: connz(broker) == [])
            return bool(row["shard"] == 0)

        wait_until(is_on_the_monitors_shard, what="a client on the first shard")
        broker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: fetch(broker, "/readyz")[0] == 503)
        # The other shard ends meanwhile: it has nobody left.
        for _ in range(50):
            assert len(connz(broker, "sort=idle")) == 1
            assert page(broker, "/subsz")["total"] == 0
    assert broker.wait_status() == 0


@contextmanager
def clients_that_may_be_cut(broker: Broker) -> Iterator[Wire]:
    """A client of a broker that is going to end."""
    with open_wire(broker, "tcp") as wire:
        wire.handshake(protocol=1)
        yield wire


def test_history_grows_and_a_client_gets_new_points_only(broker: Broker) -> None:
    def has_points() -> dict[str, Any] | None:
        found = page(broker, "/history?resolution=1")
        return found if len(found["columns"]["connections"]) >= 2 else None

    with clients(broker, "one", transport="ws"):
        found = wait_until(has_points)
        names = {
            *("connections", "connections_tcp", "connections_websocket", "connections_http", "subscriptions"),
            *(f"{name}_per_s" for name in ("opened", "closed", "dropped", "gateway_requests")),
            *(f"{way}_{what}_per_s" for way in ("in", "out") for what in ("msgs", "bytes")),
            *("pending_bytes", "mem_bytes", "cpu_percent", "gateway_in_flight"),
            *(f"mem_{name}_bytes" for name in ("connections", "routing", "buffers", "held")),
            *("gateway_p50_us", "gateway_p99_us"),
            *(f"cpu_percent_shard_{shard}" for shard in range(broker.varz()["shards"])),
        }
        assert set(found["columns"]) == names
        assert len({len(column) for column in found["columns"].values()}) == 1
        assert found["resolution_s"] == 1
        count = len(found["columns"]["connections"])
        assert abs(found["now"] - (found["start"] + count - 1)) <= 2
        assert all(size > 1 << 20 for size in found["columns"]["mem_bytes"])
        last = found["start"] + count - 1

        def is_seen() -> dict[str, Any] | None:
            later = page(broker, f"/history?resolution=1&since={last}")
            assert later["start"] == last + 1
            return later if 1 in later["columns"]["connections_websocket"] else None

        later = wait_until(is_seen)
        at = later["columns"]["connections_websocket"].index(1)
        assert later["columns"]["connections"][at] == 1
        assert later["columns"]["connections_http"][at] == 0
    for resolution in (10, 60):
        found = page(broker, f"/history?resolution={resolution}&since=4102444800")
        assert found["resolution_s"] == resolution
        assert not any(found["columns"].values())
    assert page(broker, "/history").keys() == found.keys()


@pytest.mark.matrix
def test_varz_has_the_state_of_each_shard(broker: Broker) -> None:
    with clients(broker, "one") as [wire]:
        wire.send(b"SUB v.1 1\r\nSUB v.2 2\r\n")
        wire.ping()
        found = wait_until(lambda: found if (found := broker.varz())["subjects"] == 2 else None)
        assert (found["proto"], found["go"], found["routes"]) == (1, "", 0)
        assert (found["host"], found["port"]) == broker.tcp
        assert TIME.fullmatch(found["start"])
        assert found["start"] < found["now"]
        assert re.fullmatch(r"(\d+m)?\d+s", found["uptime"])
        assert found["cpu"] >= 0
        assert sum(found["memory"].values()) == found["mem"]
        assert set(found["memory"]) == {"connections", "routing", "pending", "buffers", "other"}
        assert set(found["gateway"]) == {"in_flight", "requests", "timeouts", "duration_us"}
        assert set(found["gateway"]["duration_us"]) == {"count", "mean", "p50", "p95", "p99", "max_bucket"}
        assert [shard["index"] for shard in found["shard"]] == list(range(found["shards"]))
        assert sum(shard["connections"] for shard in found["shard"]) == 1
        for shard in found["shard"]:
            assert shard["descriptors"]["used"] <= shard["descriptors"]["limit"]
            assert shard["cpu_s"] > 0
            assert shard["cpu_percent"] >= 0
            assert set(shard["accept_queue"]) == {"tcp", "http"}
            assert sum(shard["calls"].values()) > 0


def test_the_console_is_one_page(broker: Broker) -> None:
    status, fields, body = fetch(broker, "/")
    assert (status, fields["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in fields["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    nonces = set(re.findall(rb'<(?:style|script) nonce="(\w+)"', body))
    assert [f"'nonce-{nonce.decode()}'" for nonce in nonces] == [policy["script-src"]]
    assert policy["style-src"] == policy["script-src"]
    assert not re.search(rb'(src|href)="(https?:)?//', body)
    assert fetch(broker, "/")[1]["content-security-policy"] != fields["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/varz?x=1", "x"),
        ("/metrics?name[]=x", "name[]"),
        ("/history?resolution=5", "1, 10, 60"),
        ("/history?since=yesterday", "since"),
        ("/subjects?limit=65", "limit"),
        ("/connz?sort=rtt", "cid, start, subs"),
        ("/connz?limit=1025", "1 to 1024"),
        ("/connz?limit=0", "1 to 1024"),
        ("/connz?limit=", "limit"),
        ("/connz?offset=-1", "offset"),
        ("/connz?offset=4294967296", "offset"),
        ("/connz?subs=maybe", "subs"),
        ("/connz?cid=me", "cid"),
        ("/connz?transport=udp", "websocket"),
        ("/connz?name=%ff", "name"),
        ("/connz?limit=1&limit=2", "limit"),
        ("/connz?acc=x", "acc"),
        ("/subsz?test=a.*", "test"),
        ("/subsz?test=", "test"),
        ("/subsz?sort=cid", "sort"),
    ],
)
def test_bad_parameters_are_named(broker: Broker, path: str, named: str) -> None:
    status, fields, body = fetch(broker, path)
    assert (status, fields["content-type"]) == (400, "application/problem+json")
    problem = json.loads(body)
    assert problem["status"] == 400
    assert named in problem["detail"]


@pytest.mark.parametrize("path", PAGES)
def test_methods(broker: Broker, path: str) -> None:
    status, fields, body = fetch(broker, path, "HEAD")
    assert (status, body) == (200, b"")
    assert int(fields["content-length"]) > 0
    assert fields["content-type"] == fetch(broker, path)[1]["content-type"]
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        status, fields, body = fetch(broker, path, method)
        assert (status, fields["allow"]) == (405, "GET, HEAD"), method
        assert "GET" in json.loads(body)["detail"]


def test_errors_for_unknown_pages_list_the_existing_pages(broker: Broker) -> None:
    for path in ("/routez", "/connz/", "/v1/publish/a"):
        status, _, body = fetch(broker, path)
        assert status == 404
        detail = json.loads(body)["detail"]
        assert all(name in detail for name in PAGES)


def test_requests_that_come_together_are_answered_in_order(broker: Broker) -> None:
    """Also those that the shards are asked for; nothing behind one overtakes it."""
    paths = ["/connz?limit=3", "/healthz", "/subsz", "/subjects", "/connz?sort=x", "/connz"] * 20
    with Caller(broker.monitor) as caller:
        caller.send(b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths))
        for path in paths:
            answer = caller.answer()
            if path == "/connz?sort=x":
                assert answer.status == 400
                continue
            found = json.loads(answer.body)
            assert answer.status == 200
            match path:
                case "/healthz":
                    assert found == {"status": "ok"}
                case "/subsz":
                    assert found["total"] == 0
                case "/subjects":
                    assert found["one_in"] == 64
                case _:
                    assert found["limit"] == (3 if "limit" in path else 1024)
        caller.send(
            b"HEAD /connz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /connz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        head = caller.answer(head_only=True)
        assert int(head.fields["content-length"]) > 0
        assert json.loads(caller.answer().body)["connections"] == []
        caller.send(b"GET /connz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert caller.answer().status == 200
        caller.expect_end()


def test_callers_that_do_not_wait_for_answers_do_not_disturb_others(broker: Broker) -> None:
    for _ in range(3 * MAX_CONNECTIONS):
        with Caller(broker.monitor) as caller:
            caller.send(b"GET /connz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: is_served(broker, "/connz"))


def is_served(broker: Broker, path: str) -> bool:
    """False also where the connection is closed at once, as it is when far too many are there."""
    try:
        return fetch(broker, path)[0] == 200
    except OSError:
        return False


def opened(broker: Broker) -> tuple[Caller, Answer]:
    """A connection to the monitor and its first answer."""
    caller = Caller(broker.monitor)
    try:
        caller.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return caller, caller.answer()
    except BaseException:
        caller.socket.close()
        raise


def test_the_caller_that_was_idle_longest_is_closed_for_a_new_one(broker: Broker) -> None:
    """However many callers there are, a new one is served at once, and those who ask stay."""
    with ExitStack() as stack:
        asking, _ = opened(broker)
        stack.callback(asking.socket.close)
        callers = []
        for count in (MAX_CONNECTIONS, 2 * MAX_CONNECTIONS, 200):
            while len(callers) < count:
                caller, answer = opened(broker)
                stack.callback(caller.socket.close)
                callers.append(caller)
                assert answer.status == 200
                asking.send(b"GET /varz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert asking.answer().status == 200
            assert all(is_served(broker, path) for path in ("/healthz", "/connz"))
        callers[0].expect_end()
        callers[-1].send(b"GET /connz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert callers[-1].answer().status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n"])
def test_callers_that_send_no_request_are_closed_for_new_ones(broker: Broker, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            caller = stack.enter_context(Caller(broker.monitor))
            caller.send(sent)
        assert is_served(broker, "/healthz")
        assert is_served(broker, "/varz")


def test_a_slow_caller_occupies_the_memory_of_one_page_only(start_broker: Callable[..., Broker]) -> None:
    """What it asks for meanwhile waits, and it gets it all in the end."""
    asked = 40
    broker = start_broker(shards=1)
    with clients(broker, "long") as [wire], Caller(broker.monitor) as slow:
        for at in range(0, 4000, 100):
            wire.send("".join(f"SUB {n}.{'x' * 300} {n}\r\n" for n in range(at, at + 100)).encode())
        wire.ping()
        longest = len(fetch(broker, "/connz?subs=1")[2])
        assert longest > 1_000_000
        slow.send(b"GET /connz?subs=1 HTTP/1.1\r\nHost: localhost\r\n\r\n" * asked)
        wait_until(lambda: broker.varz()["pending_bytes"], what="a page that is not taken")
        pending = [broker.varz()["pending_bytes"] for _ in range(100)]
        assert max(pending) < longest + 1000
        for _ in range(asked):
            answer = slow.answer()
            assert answer.status == 200
            assert len(json.loads(answer.body)["connections"]) == 1
    assert broker.varz()["slow_consumers"] == 0


def test_a_caller_that_has_closed_its_sending_side_is_answered(start_broker: Callable[..., Broker]) -> None:
    """As those do who pipe a request through `nc`."""
    broker = start_broker(shards=1)
    for path in ("/healthz", "/varz", "/metrics", "/history", "/"):
        with Caller(broker.monitor) as caller:
            caller.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            caller.socket.shutdown(socket.SHUT_WR)
            assert caller.answer().status == 200, path


def test_pages_larger_than_the_share_of_a_client_are_served(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, max_payload=1024, max_pending=1024)
    with Caller(broker.monitor) as caller:
        for path in ("/metrics", "/varz", "/", "/connz"):
            caller.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert caller.answer().status == 200
    assert len(fetch(broker, "/metrics")[2]) > 1024
    assert broker.varz()["slow_consumers"] == 0
