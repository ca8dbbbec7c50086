"""Suites of the benchmarks: each takes the number of rounds and returns its section of the record.

In each round, the alternatives of a comparison run in turn. The speed of a machine changes over time, so
ratios within a round mean more than figures of different minutes.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable

from measure import (
    EPOLL,
    NATS,
    URING,
    Figures,
    Server,
    median,
    run_floor,
    run_scenario,
    say,
    table,
)
from servers import nats_server_command
from suites_hostile import hostile
from suites_http import gateway, http, transports
from suites_watched import watched

from loadtest import Result

SUSTAINED_P99_US = 100_000
"""Largest 99th percentile of the latency, in microseconds, at a sustained rate."""
SUSTAINED_SHARE = 0.99
"""Smallest share of the planned rate that is achieved at a sustained rate."""
EPOLL_MILLION_RATE = 15_000
"""Requested rate for epoll at a million connections, where the broker has 59 and the load 56 threads."""


def cost(rounds: int, users: int = 15_000, outstanding: int = 1024, duration_s: int = 5) -> list[str]:
    """Compare the CPU time per request of broker and load with the kernel floor's, in a closed loop."""
    floors: dict[str, list[Figures]] = defaultdict(list)
    runs: dict[Server, list[Result]] = defaultdict(list)
    settings = {
        "users": users,
        "rate": 0,
        "outstanding": outstanding,
        "warmup_s": 2,
        "duration_s": duration_s,
    }
    for number in range(rounds):
        for server in (URING, EPOLL):
            assert server.driver is not None
            say(f"round {number + 1}: cost, {users:,} users, {server.driver}")
            floor = run_floor(
                server.driver, "relay", connections=users, outstanding=outstanding, duration=duration_s
            )
            floors[server.driver].append(floor)
            runs[server].append(run_scenario(server, "autocomplete", settings))
    rows = []
    for server, results in runs.items():
        assert server.driver is not None
        floor_runs = floors[server.driver]
        rows.append(_floor_row(f"kernel floor, {server.driver}", floor_runs))
        rows.append(_cost_row(server, results, floor_runs))
    return [
        f"## Cost of a request, {users:,} WebSocket users, {outstanding:,} outstanding",
        "",
        (
            "Closed loop. The floor moves the same pattern of bytes, 70 in and 300 back through 16 "
            "providers, with no protocol. Ratios are medians of the rounds' own."
        ),
        "",
        *table(
            [
                "",
                "requests/s",
                "server CPU us/request",
                "of the floor's",
                "load CPU us/request",
                "of the floor's",
                "growth bytes/connection",
                "connections/s",
            ],
            rows,
        ),
    ]


def _floor_row(title: str, runs: list[Figures]) -> list[str]:
    return [
        title,
        f"{median(runs, 'requests_per_s'):,.0f}",
        f"{median(runs, 'server_cpu_us_per_request'):.2f}",
        "1",
        f"{median(runs, 'load_cpu_us_per_request'):.2f}",
        "1",
        f"{median(runs, 'server_rss_bytes_per_connection'):,.0f}",
        f"{median(runs, 'connections_per_s'):,.0f}",
    ]


def _cost_row(server: Server, runs: list[Result], floors: list[Figures]) -> list[str]:
    pairs = list(zip(runs, floors, strict=True))
    ratios = [
        {
            side: median([run], side, "cpu_us_per_request") / floor[f"{side}_cpu_us_per_request"]
            for side in ("server", "load")
        }
        for run, floor in pairs
    ]
    return [
        server.title,
        f"{median(runs, 'achieved', 'rate'):,.0f}",
        f"{median(runs, 'server', 'cpu_us_per_request'):.2f}",
        f"{median(ratios, 'server'):.2f}",
        f"{median(runs, 'load', 'cpu_us_per_request'):.2f}",
        f"{median(ratios, 'load'):.2f}",
        f"{median(runs, 'server', 'rss_growth_bytes_per_connection'):,.0f}",
        f"{_connect_rate(runs):,.0f}",
    ]


def _connect_rate(runs: list[Result]) -> float:
    """Return the median of the connections with a confirmed subscription per second."""
    return statistics.median(map(_connections_per_s, runs))


def _connections_per_s(run: Result) -> float:
    return run.achieved.connections / run.achieved.connect_s


def establish(rounds: int, users: int = 15_000) -> list[str]:
    """Compare the connections per second, each with a subscription, with the kernel floor's."""
    settings = {"users": users, "rate": 1000, "warmup_s": 0.2, "duration_s": 1}
    servers = [URING, EPOLL, *([NATS] if nats_server_command() else [])]
    runs: dict[Server, list[Result]] = defaultdict(list)
    floors: dict[str, list[Figures]] = defaultdict(list)
    for number in range(rounds):
        for server in servers:
            say(f"round {number + 1}: establishing {users:,} users, {server.title}")
            runs[server].append(run_scenario(server, "autocomplete", settings))
            if server.driver:
                floor = run_floor(server.driver, "relay", "--greeting", connections=users, duration=1)
                floors[server.driver].append(floor)
    rows = []
    for server, results in runs.items():
        floor_runs = floors[server.driver or "epoll"]
        if server.driver:
            rows.append(_establish_floor_row(server.driver, floor_runs))
        ratios = [
            _connections_per_s(run) / floor["connections_per_s"]
            for run, floor in zip(results, floor_runs, strict=True)
        ]
        rows.append(
            [server.title, f"{_connect_rate(results):,.0f}", f"{statistics.median(ratios):.2f}", "", ""]
        )
    return [
        f"## Establishing {users:,} WebSocket connections",
        "",
        (
            "From the first attempt to the last confirmed subscription. The floor connects and moves the "
            "bytes of both exchanges that a subscription takes, upgrade and `INFO`, then `CONNECT`, `SUB` "
            "and `PONG`, with no protocol. Ratios are medians of the rounds' own; nats-server stands beside "
            "the epoll floor."
        ),
        "",
        *table(
            [
                "",
                "connections/s",
                "of the floor's",
                "server CPU us/connection",
                "load CPU us/connection",
            ],
            rows,
        ),
    ]


def _establish_floor_row(driver: str, runs: list[Figures]) -> list[str]:
    return [
        f"kernel floor, {driver}",
        f"{median(runs, 'connections_per_s'):,.0f}",
        "1",
        f"{median(runs, 'server_cpu_us_per_connection'):.2f}",
        f"{median(runs, 'load_cpu_us_per_connection'):.2f}",
    ]


def sustained(rounds: int) -> list[str]:
    """Find the highest planned rate of a ladder that each server holds, in an open loop."""
    ladders: list[tuple[Server, int, str, tuple[int, ...]]] = [
        (URING, 15_000, "ws", (60_000, 80_000, 100_000, 110_000, 120_000)),
        (EPOLL, 15_000, "ws", (60_000, 80_000, 100_000, 110_000, 120_000)),
        (URING, 1_000, "ws", (150_000, 190_000, 220_000, 240_000)),
        (EPOLL, 1_000, "ws", (150_000, 190_000, 220_000, 240_000)),
    ]
    if nats_server_command():
        ladders.insert(2, (NATS, 15_000, "ws", (10_000, 15_000, 20_000, 25_000, 30_000)))
    rows = []
    for server, users, transport, rates in ladders:
        say(f"sustained rate: {server.title}, {users:,} users")
        before = _floor_rate(server, users)
        held = _climb(rounds, server, users, transport, rates)
        floor = " and ".join(f"{rate:,.0f}" for rate in [*before, *_floor_rate(server, users)])
        rows.append([server.title, f"{users:,}", transport, floor, *held])
    return [
        "## Sustained rates",
        "",
        (
            "Open loop, latency from the planned send time. Sustained: p99 under "
            f"{SUSTAINED_P99_US // 1000} ms and at least {SUSTAINED_SHARE:.0%} of the planned rate, in the "
            "median of the rounds. Each ladder is climbed until a rate is not held. The floor is what the "
            "kernel alone moves in a closed loop with 1,024 outstanding, just before the ladder and just "
            "after it: this machine's own limit in those minutes."
        ),
        "",
        *table(
            [
                "server",
                "users",
                "transport",
                "floor, requests/s",
                "highest rate held",
                "mean ms",
                "p99 ms",
                "max ms",
                "server CPU us/request",
                "load CPU us/request",
                "next rate: p99 ms",
            ],
            rows,
        ),
    ]


def _floor_rate(server: Server, users: int) -> list[float]:
    """Return the requests per second of the kernel floor, as a list; empty for nats-server."""
    if server.driver is None:
        return []
    floor = run_floor(server.driver, "relay", connections=users, outstanding=1024, duration=3)
    return [floor["requests_per_s"]]


def _climb(rounds: int, server: Server, users: int, transport: str, rates: tuple[int, ...]) -> list[str]:
    held: list[str] = ["none", "", "", "", "", ""]
    for rate in rates:
        settings = {"users": users, "rate": rate, "transport": transport, "warmup_s": 2, "duration_s": 6}
        runs = [run_scenario(server, "autocomplete", settings) for _ in range(rounds)]
        p99, achieved = median(runs, "latency_us", "p99"), median(runs, "achieved", "rate")
        if p99 >= SUSTAINED_P99_US or achieved < SUSTAINED_SHARE * rate:
            return [*held, f"{p99 / 1000:,.1f} at {rate:,} ({achieved:,.0f} achieved)"]
        held = [
            f"{rate:,}",
            f"{median(runs, 'latency_us', 'mean') / 1000:.2f}",
            f"{p99 / 1000:.1f}",
            f"{median(runs, 'latency_us', 'max') / 1000:.0f}",
            f"{median(runs, 'server', 'cpu_us_per_request'):.1f}",
            f"{median(runs, 'load', 'cpu_us_per_request'):.1f}",
        ]
    return [*held, "not tried"]


def fanout(rounds: int) -> list[str]:
    """Compare the deliveries per second, from one publisher to 1,000 subscribers, with the floor's."""
    settings = {
        "users": 1000, "message_bytes": 100, "rate": 0, "outstanding": 16, "warmup_s": 2, "duration_s": 5,
    }  # fmt: skip
    servers = [URING, EPOLL, *([NATS] if nats_server_command() else [])]
    runs: dict[Server, list[Result]] = defaultdict(list)
    floors: dict[str, list[Figures]] = defaultdict(list)
    for number in range(rounds):
        for server in servers:
            say(f"round {number + 1}: fan-out, {server.title}")
            runs[server].append(run_scenario(server, "broadcast", settings))
            if server.driver:
                floor = run_floor(
                    server.driver, "fanout", connections=1000, bytes=130, outstanding=16, publish_duration=4
                )
                floors[server.driver].append(floor)
    rows = [
        [
            f"kernel floor, {driver}",
            f"{median(results, 'deliveries_per_s'):,.0f}",
            f"{median(results, 'server_cpu_us_per_delivery'):.3f}",
            f"{median(results, 'load_cpu_us_per_delivery'):.3f}",
        ]
        for driver, results in floors.items()
    ]
    rows += [
        [
            server.title,
            f"{median(results, 'broadcast', 'deliveries_per_s'):,.0f}",
            f"{1e6 / median(results, 'broadcast', 'deliveries_per_broker_cpu_s'):.3f}",
            f"{median(results, 'load', 'cpu_us_per_request'):.3f}",
        ]
        for server, results in runs.items()
    ]
    return [
        "## Fan-out: one publisher, 1,000 subscribers, 100 bytes, 16 messages outstanding",
        "",
        *table(["", "deliveries/s", "server CPU us/delivery", "load CPU us/delivery"], rows),
    ]


def idle(_: int) -> list[str]:
    """Measure processor time and memory of 100,000 connections that send almost nothing."""
    rows = []
    for server in (URING, EPOLL):
        settings = {"users": 100_000, "rate": 1, "warmup_s": 1, "duration_s": 20}
        if server is EPOLL:
            settings["threads"] = 8
        say(f"idle: {server.title}")
        result = run_scenario(server, "autocomplete", settings)
        used = median([result], "server", "cpu_percent") * result.environment["cores"]
        rows.append([
            server.title,
            f"{used:.2f}",
            f"{median([result], 'server', 'rss_growth_bytes_per_connection'):,.0f}",
            f"{_connect_rate([result]):,.0f}",
        ])  # fmt: skip
    return [
        "## Idle: 100,000 WebSocket connections, one request a second in all",
        "",
        *table(["", "% of a core", "growth bytes/connection", "connections/s"], rows),
    ]


def million(_: int, rate: int = 50_000, duration_s: int = 30) -> list[str]:
    """Establish 1,000,016 connections with a subject each, test each by a request, then load them."""
    say("a million connections: floor")
    floor = run_floor("uring", "relay", connections=1_000_000, outstanding=4096, duration=10, warmup=18)
    rows = []
    for server in (URING, EPOLL):
        say(f"a million connections: {server.title}")
        settings: dict[str, object] = {"rate": rate, "duration_s": duration_s}
        if server is EPOLL:
            # So many threads share two cores that each wakes up for one or two requests only.
            settings |= {"threads": 56, "rate": EPOLL_MILLION_RATE}
        rows.append(_million_row(server, run_scenario(server, "migratorydata-2016", settings)))
    say("a million connections: closed loop")
    closed = {"rate": 0, "outstanding": 4096, "sweep": False, "warmup_s": 5, "duration_s": 10}
    runs = [run_scenario(URING, "migratorydata-2016", closed)]
    return [
        "## A million connections",
        "",
        (
            "1,000,016 WebSocket connections, each with a subscription of its own; a sweep in which "
            "every user makes one request; then the open loop."
        ),
        "",
        *table(
            [
                "server",
                "connections",
                "s to establish",
                "sweep: lost",
                "requests/s",
                "mean ms",
                "p95 ms",
                "p99 ms",
                "max ms",
                "lost",
                "server CPU us/request",
                "growth bytes/connection",
            ],
            rows,
        ),
        "",
        "In a closed loop, 4,096 outstanding:",
        "",
        *table(
            [
                "",
                "requests/s",
                "server CPU us/request",
                "of the floor's",
                "load CPU us/request",
                "of the floor's",
                "growth bytes/connection",
                "connections/s",
            ],
            [_floor_row("kernel floor, uring", [floor]), _cost_row(URING, runs, [floor])],
        ),
    ]


def everybody(_: int, users: int = 1_000_016, message_bytes: int = 100) -> list[str]:
    """Send one message at a time to a million users of one subject; measure rate and spread."""
    say("broadcast to a million: floor")
    # On the wire, a message also has the line of its operation and the header of its frame.
    floor = run_floor(
        "uring", "fanout", connections=users, bytes=message_bytes + 30, outstanding=1, publish_duration=40
    )
    say("broadcast to a million: subjectbus, uring")
    settings = {
        "users": users, "message_bytes": message_bytes, "rate": 0, "outstanding": 1, "warmup_s": 10,
        "duration_s": 60, "timeout_s": 60, "connect_in_flight": 1024, "connect_timeout_s": 1800,
    }  # fmt: skip
    result = run_scenario(URING, "broadcast", settings)
    return [
        f"## Broadcast of {message_bytes} bytes to {users:,} WebSocket users, one message under way",
        "",
        (
            f"{median([result], 'achieved', 'sent'):,.0f} messages, "
            f"{median([result], 'broadcast', 'missing'):,.0f} of their deliveries missing. A message's "
            "spread is the time from its first receipt to its last."
        ),
        "",
        *table(
            [
                "",
                "deliveries/s",
                "spread ms, median",
                "spread ms, max",
                "server CPU us/delivery",
                "load CPU us/delivery",
            ],
            [
                [
                    "kernel floor, uring",
                    f"{floor['deliveries_per_s']:,.0f}",
                    f"{floor['spread_us']['median'] / 1000:,.0f}",
                    f"{floor['spread_us']['max'] / 1000:,.0f}",
                    f"{floor['server_cpu_us_per_delivery']:.3f}",
                    f"{floor['load_cpu_us_per_delivery']:.3f}",
                ],
                [
                    URING.title,
                    f"{median([result], 'broadcast', 'deliveries_per_s'):,.0f}",
                    f"{median([result], 'broadcast', 'spread_us', 'p50') / 1000:,.0f}",
                    f"{median([result], 'broadcast', 'spread_us', 'max') / 1000:,.0f}",
                    f"{1e6 / median([result], 'broadcast', 'deliveries_per_broker_cpu_s'):.3f}",
                    f"{median([result], 'load', 'cpu_us_per_request'):.3f}",
                ],
            ],
        ),
    ]


def _million_row(server: Server, result: Result) -> list[str]:
    achieved, sweep = result.achieved, result.sweep
    assert sweep is not None
    return [
        server.title,
        f"{achieved.connections:,}",
        f"{achieved.connect_s:.1f}",
        f"{sweep.sent - sweep.received:,} of {sweep.sent:,}",
        f"{achieved.rate:,.0f}",
        *(f"{median([result], 'latency_us', key) / 1000:.2f}" for key in ("mean", "p95", "p99", "max")),
        f"{achieved.timed_out + achieved.errors:,}",
        f"{median([result], 'server', 'cpu_us_per_request'):.1f}",
        f"{median([result], 'server', 'rss_growth_bytes_per_connection'):,.0f}",
    ]


Suite = Callable[[int], list[str]]
"""Function that takes the number of rounds and returns a section of the record."""

SUITES: dict[str, Suite] = {
    "cost": cost,
    "establish": establish,
    "sustained": sustained,
    "fanout": fanout,
    "idle": idle,
    "million": million,
    "everybody": everybody,
    "http": http,
    "gateway": gateway,
    "transports": transports,
    "watched": watched,
    "hostile": hostile,
}
