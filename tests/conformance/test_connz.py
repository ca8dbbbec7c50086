"""`/connz` and `/subsz`: connections and subscriptions of all shards, in order and page by page."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.conformance.test_http import Caller
from tests.monitor import TIME, clients, connz, fetch, page
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Broker
    from tests.wire import Wire


def test_a_connection_is_shown_as_nats_server_shows_it(broker: Broker) -> None:
    with clients(broker, "me") as [wire]:
        wire.send(b"SUB a.b 1\r\nSUB a.* 2\r\nPUB a.b 5\r\nhello\r\nPUB x 3\r\nabc\r\n")
        for sid in sorted(wire.read_line() + wire.read(7) for _ in range(2)):
            assert re.fullmatch(rb"MSG a\.b [12] 5\r\nhello\r\n", sid)
        wire.ping()
        found = page(broker, "/connz")
        assert {name: found[name] for name in ("num_connections", "total", "offset", "limit")} == {
            "num_connections": 1,
            "total": 1,
            "offset": 0,
            "limit": 1024,
        }
        assert found["server_id"] == broker.varz()["server_id"]
        assert TIME.fullmatch(found["now"])
        [row] = found["connections"]
        host, port = wire.socket.getsockname()
        wanted = {
            "kind": "Client",
            "type": "nats",
            "ip": host,
            "port": port,
            "rtt": "",
            "in_msgs": 2,
            "in_bytes": 8,
            "out_msgs": 2,
            "out_bytes": 10,
            "pending_bytes": 0,
            "subscriptions": 2,
            "name": "me",
            "lang": "python",
            "version": "1.2",
        }
        assert {name: row[name] for name in wanted} == wanted
        assert row["shard"] in range(broker.varz()["shards"])
        assert TIME.fullmatch(row["start"])
        assert row["start"] <= row["last_activity"] <= found["now"]
        assert re.fullmatch(r"\d+s", row["uptime"])
        assert re.fullmatch(r"\d+s", row["idle"])
        assert "subscriptions_list" not in row
        [row] = connz(broker, f"subs=1&cid={row['cid']}")
        assert sorted(row["subscriptions_list"]) == ["a.*", "a.b"]
    wait_until(lambda: connz(broker) == [])


def test_each_row_names_the_transport(broker: Broker) -> None:
    with (
        clients(broker, "plain"),
        clients(broker, "socket", transport="ws"),
        Caller(broker.http) as caller,
    ):
        caller.send(b"GET /byte HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert caller.answer().body == b"a"
        for wanted, names in {
            "nats": ["plain"],
            "tcp": ["plain"],
            "websocket": ["socket"],
            "http": [""],
        }.items():
            rows = connz(broker, f"transport={wanted}")
            assert [row["name"] for row in rows] == names
        assert sorted(row["type"] for row in connz(broker)) == ["http", "nats", "websocket"]
        transports = broker.varz()["transports"]
        assert {name: transports[name]["connections"] for name in transports} == {
            "tcp": 1,
            "websocket": 1,
            "http": 1,
        }
    wait_until(lambda: connz(broker) == [])


@contextmanager
def clients_on_all_shards(broker: Broker) -> Iterator[list[Wire]]:
    """Connect 12 clients or more, until each shard has one; the kernel chooses the shard."""
    shards = broker.varz()["shards"]
    with ExitStack() as stack:
        wires: list[Wire] = []

        def is_enough() -> bool:
            (wire,) = stack.enter_context(clients(broker, f"c{len(wires) % 5}"))
            wires.append(wire)
            return len(wires) >= 12 and len({row["shard"] for row in connz(broker)}) == shards

        wait_until(is_enough, what="a client on each shard")
        yield wires


SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "cid": lambda row: row["cid"],
    "start": lambda row: (row["start"], row["cid"]),
    "subs": lambda row: (-row["subscriptions"], row["cid"]),
    "pending": lambda row: (-row["pending_bytes"], row["cid"]),
    "msgs_to": lambda row: (-row["out_msgs"], row["cid"]),
    "msgs_from": lambda row: (-row["in_msgs"], row["cid"]),
    "bytes_to": lambda row: (-row["out_bytes"], row["cid"]),
    "bytes_from": lambda row: (-row["in_bytes"], row["cid"]),
    "idle": lambda row: (row["last_activity"], row["cid"]),
    "uptime": lambda row: (row["start"], row["cid"]),
}


@pytest.mark.matrix
def test_pages_of_all_shards_are_in_order(broker: Broker) -> None:
    with clients_on_all_shards(broker) as wires:
        for n, wire in enumerate(wires):
            subjects = b"".join(b"SUB s.%d.%d %d\r\n" % (n % 4, sid, sid) for sid in range(n % 4))
            messages = b"PUB s.1.0 %d\r\n%b\r\n" % (n, b"x" * n) * (n % 3)
            wire.send(subjects + messages + b"PING\r\n")
        for wire in wires:
            while wire.read_line() != b"PONG\r\n":
                pass
        # What came behind a PONG may be under way still.
        wait_until(lambda: connz(broker, "sort=msgs_to") == connz(broker, "sort=msgs_to"))
        for sort, key in SORTS.items():
            rows = connz(broker, f"sort={sort}")
            assert [row["cid"] for row in rows] == [row["cid"] for row in sorted(rows, key=key)], sort
            pages = [connz(broker, f"sort={sort}&offset={offset}&limit=5") for offset in range(0, 80, 5)]
            paged = [row["cid"] for rows in pages for row in rows]
            assert paged == [row["cid"] for row in rows], sort
        by_last = connz(broker, "sort=last")
        assert [row["last_activity"] for row in by_last] == sorted(
            (row["last_activity"] for row in by_last), reverse=True
        )
        assert page(broker, "/connz?limit=3&offset=2")["total"] == len(wires)
        assert connz(broker, "offset=4294967295") == []
        named = connz(broker, "name=c3")
        assert {row["name"] for row in named} == {"c3"}
        assert len(named) == len([n for n in range(len(wires)) if n % 5 == 3])
        assert page(broker, "/connz?name=c3&limit=1")["total"] == len(named)
        assert connz(broker, "name=c") == connz(broker, "cid=0") == []


def test_unread_output_of_a_client_is_pending(broker: Broker) -> None:
    with clients(broker, "slow", "quick", "sender") as [slow, quick, sender]:
        slow.send(b"SUB much 1\r\n")
        slow.ping()
        quick.send(b"SUB little 1\r\n")
        quick.ping()
        payload = bytes(1 << 20)
        for _ in range(16):
            sender.send(b"PUB much %d\r\n%b\r\n" % (len(payload), payload))
        sender.ping()
        rows = wait_until(lambda: [row for row in connz(broker, "sort=pending") if row["pending_bytes"]])
        assert [row["name"] for row in rows] == ["slow"]
        varz = broker.varz()
        assert varz["memory"]["pending"] == varz["pending_bytes"] > 0
        assert sum(shard["pending_bytes"] for shard in varz["shard"]) > 0
        for _ in range(16):
            slow.read_line()
            slow.read(len(payload) + 2)


@pytest.mark.matrix
def test_subscriptions_of_all_shards(broker: Broker) -> None:
    before = page(broker, "/subsz")
    with clients_on_all_shards(broker) as wires:
        for n, wire in enumerate(wires):
            wire.send(b"SUB all 1\r\nSUB one.%d 2\r\nSUB one.* workers 3\r\nUNSUB 1 7\r\n" % n)
            wire.ping()
        wires[0].send(b"PUB all 2\r\nhi\r\n")
        for wire in wires:
            assert wire.read_line() + wire.read(4) == b"MSG all 1 2\r\nhi\r\n"
        count = 3 * len(wires)
        found = page(broker, "/subsz")
        assert found["num_subscriptions"] == found["total"] == count
        assert found["num_inserts"] - before["num_inserts"] == count
        assert found["num_matches"] - before["num_matches"] == 1
        assert found["max_fanout"] >= len(wires)
        assert found["avg_fanout"] > 0
        assert "subscriptions_list" not in found
        cids = sorted(row["cid"] for row in connz(broker))
        everything = page(broker, "/subsz?subs=1")["subscriptions_list"]
        assert sorted(row["cid"] for row in everything) == sorted(cids * 3)
        to_all = page(broker, "/subsz?subs=1&test=all")
        assert to_all["total"] == len(wires)
        assert to_all["subscriptions_list"] == [
            {"subject": "all", "cid": cid, "msgs": 1, "max": 7} for cid in cids
        ]
        to_one = page(broker, "/subsz?subs=1&test=one.3")["subscriptions_list"]
        assert [row["cid"] for row in to_one if row.get("qgroup") == "workers"] == cids
        assert [row["subject"] for row in to_one if "qgroup" not in row] == ["one.3"]
        pages = [page(broker, f"/subsz?subs=1&limit=7&offset={at}") for at in range(0, 7 * count, 7)]
        assert [row for one in pages for row in one["subscriptions_list"]] == everything


def test_very_many_subscriptions_of_one_connection(broker: Broker) -> None:
    """More than are looked at in one turn."""
    count = 10_000
    with clients(broker, "many", "few") as [many, few]:
        many.send(b"".join(b"SUB m.%d %d\r\n" % (sid, sid) for sid in range(count)))
        many.ping()
        few.send(b"SUB m.7 1\r\n")
        few.ping()
        assert page(broker, "/subsz")["total"] == count + 1
        found = page(broker, "/subsz?subs=1&test=m.7")
        assert [row["subject"] for row in found["subscriptions_list"]] == ["m.7", "m.7"]
        rows = page(broker, f"/subsz?subs=1&offset={count - 500}")["subscriptions_list"]
        # Which of the two clients comes first is for the kernel to say: rows are in the shards' order.
        subjects = [f"m.{sid}" for sid in range(count)]
        orders = [*subjects, "m.7"], ["m.7", *subjects]
        assert [row["subject"] for row in rows] in [order[count - 500 :] for order in orders]
        [row] = connz(broker, "name=many&subs=1")
        assert sorted(row["subscriptions_list"]) == sorted(f"m.{sid}" for sid in range(count))
        assert row["subscriptions_left_out"] == 0


#: Bytes of JSON that a page has at most.
LONGEST_PAGE = 2 << 20
#: Bytes of JSON that all lists of subjects of a page have at most.
LONGEST_LISTS = 1 << 20


def long_subject(n: int) -> str:
    """Return a subject of more than 1,000 bytes, near the limit, which JSON makes six times as long."""
    return f"{n}." + "\x01" * 1000


def shown(text: str, longest: int) -> str:
    """Return a text truncated like in pages: as much as fits into `longest` bytes of JSON."""
    cut = text[: longest + 1]
    while len(json.dumps(cut, ensure_ascii=False).encode()) - 2 > longest:
        cut = cut[:-1]
    return cut if cut == text else f"{cut}…"


def test_pages_have_a_limited_size_whatever_clients_subscribe_to(broker: Broker) -> None:
    count = 2000
    with clients(broker, "long", "short") as [long, short]:
        for at in range(0, count, 100):
            subs = (f"SUB {long_subject(n)} {long_subject(n)[:300]} {n}\r\n" for n in range(at, at + 100))
            long.send("".join(subs).encode())
        long.ping()
        wanted = "y" * 1000
        short.send(f"SUB a 1\r\nSUB {wanted} 2\r\n".encode())
        short.ping()
        status, _, body = fetch(broker, "/connz?subs=1")
        assert status == 200
        assert len(body) < LONGEST_PAGE
        rows = {row["name"]: row for row in json.loads(body)["connections"]}
        assert sorted(rows["short"]["subscriptions_list"]) == ["a", shown(wanted, 256)]
        assert rows["short"]["subscriptions_left_out"] == 0
        # The other one has its half of the page.
        row = rows["long"]
        listed = row["subscriptions_list"]
        assert LONGEST_LISTS // 3 < len(json.dumps(listed)) <= LONGEST_LISTS
        assert row["subscriptions"] == count == len(listed) + row["subscriptions_left_out"]
        assert set(listed) <= {shown(long_subject(n), 256) for n in range(count)}
        # On a page of its own all fit.
        [row] = connz(broker, f"subs=1&cid={row['cid']}")
        assert sorted(row["subscriptions_list"]) == sorted(shown(long_subject(n), 256) for n in range(count))
        assert row["subscriptions_left_out"] == 0
        status, _, body = fetch(broker, "/subsz?subs=1")
        assert status == 200
        assert len(body) < LONGEST_PAGE
        found = json.loads(body)
        assert found["total"] == count + 2
        assert len(found["subscriptions_list"]) == found["limit"] == 1024
        named = {row["subject"]: row for row in found["subscriptions_list"]}
        assert shown(long_subject(17), 256) in named
        assert named[shown(long_subject(17), 256)]["qgroup"] == shown(long_subject(17)[:300], 256)
        found = page(broker, f"/subsz?subs=1&test={wanted}")
        assert [row["subject"] for row in found["subscriptions_list"]] == [shown(wanted, 256)]


def test_connections_share_the_size_of_a_page(broker: Broker) -> None:
    """Every connection has an equal part, and what others leave of theirs."""
    names = [f"c{n}" for n in range(8)]
    with clients(broker, *names) as wires:
        for wire in wires:
            wire.send("".join(f"SUB {'x' * 1000}.{n} {n}\r\n" for n in range(600)).encode())
            wire.ping()
        rows = connz(broker, "subs=1")
        assert [row["subscriptions_list"][0] for row in rows] == ["x" * 256 + "…"] * len(rows)
        least = LONGEST_LISTS // len(rows) // 262
        for row in rows:
            assert least - 1 <= len(row["subscriptions_list"]) < 600
            assert len(row["subscriptions_list"]) + row["subscriptions_left_out"] == 600
        lists = [row["subscriptions_list"] for row in rows]
        everything = json.dumps(lists, ensure_ascii=False, separators=(",", ":"))
        assert len(everything.encode()) <= LONGEST_LISTS + 16 * len(rows)


def test_long_texts_of_clients_are_truncated(broker: Broker) -> None:
    name = "\x01" * 100
    with clients(broker, name):
        # It is found by its whole name all the same.
        [row] = connz(broker, f"name={quote(name)}")
        assert row["name"] == shown(name, 128) == "\x01" * 21 + "…"
