"""Suites that measure HTTP, in the form of `suites`."""

import shutil
from collections import defaultdict
from typing import TYPE_CHECKING

from measure import EPOLL, URING, Figures, Server, median, run_scenario, say, table
from web import Site, find_sites, run_wrk

from loadtest.report.transports import findings, tables
from loadtest.result.reference import PUBLISHED_2014_BYTE

if TYPE_CHECKING:
    from loadtest import Result

_CPU = ("server", "cpu_us_per_request")


def http(rounds: int, connections: int = 256, duration_s: int = 10) -> list[str]:
    """Measure one byte over HTTP with wrk: both drivers, nginx and Undertow."""
    title = f"## One byte over HTTP: wrk, one thread, {connections} connections"
    if not shutil.which("wrk"):
        return [title, "", "wrk is not installed (Debian: apt-get install wrk); nothing was measured."]
    sites, notes = find_sites()
    runs: dict[Site, list[Figures]] = defaultdict(list)
    for number in range(rounds):
        for site in sites:
            say(f"round {number + 1}: one byte over HTTP, {site.name}")
            runs[site].append(run_wrk(site, connections, duration_s))
    rows = [
        [
            site.name,
            f"{median(results, 'requests_per_s'):,.0f}",
            f"{median(results, 'mean_ms'):.2f}",
            f"{median(results, 'p99_ms'):.2f}",
            f"{median(results, 'server_cpu_us_per_request'):.2f}",
        ]
        for site, results in runs.items()
    ]
    published = PUBLISHED_2014_BYTE
    assert published.rate is not None
    assert published.mean_us is not None
    return [
        title,
        "",
        (
            "The request is wrk's own, without pipelining; every server has one thread that serves. Its CPU "
            "time is that of its process and children by the process clock, divided by wrk's requests. "
            f"Published: {published.name}, {published.hardware}: {published.rate:,.0f} requests/s, "
            f"{published.rate / published.cores:,.0f} for each hardware thread, mean "
            f"{published.mean_us / 1000:.3f} ms."
        ),
        "",
        *table(["server", "requests/s", "mean ms", "p99 ms", "server CPU us/request"], rows),
        *(["", *notes] if notes else []),
    ]


def gateway(rounds: int, outstanding: int = 64, duration_s: int = 5) -> list[str]:
    """Measure requests through the HTTP gateway and over WebSocket, in turn."""
    settings = {
        "users": outstanding, "providers": 1, "provider_transport": "tcp", "rate": 0,
        "outstanding": outstanding, "warmup_s": 1, "duration_s": duration_s,
    }  # fmt: skip
    runs: dict[tuple[Server, str], list[Result]] = defaultdict(list)
    for number in range(rounds):
        for server in (URING, EPOLL):
            for transport in ("rest", "ws"):
                say(f"round {number + 1}: gateway, {server.driver}, {transport}")
                run = run_scenario(server, "autocomplete", {**settings, "transport": transport})
                runs[server, transport].append(run)
    rows = []
    for server in (URING, EPOLL):
        pairs = list(zip(runs[server, "rest"], runs[server, "ws"], strict=True))
        ratios = [{"of": median([rest], *_CPU) / median([ws], *_CPU)} for rest, ws in pairs]
        for transport, ratio in (("rest", f"{median(ratios, 'of'):.2f}"), ("ws", "1")):
            results = runs[server, transport]
            rows.append([
                f"{server.title}, {transport}",
                f"{median(results, 'achieved', 'rate'):,.0f}",
                f"{median(results, 'server', 'cpu_us_per_request'):.2f}",
                ratio,
                f"{median(results, 'load', 'requestor_cpu_us_per_request'):.2f}",
                f"{median(results, 'wire', 'total'):.1f}",
            ])  # fmt: skip
    return [
        f"## Requests through the HTTP gateway, {outstanding} callers, connections kept",
        "",
        "Closed loop, each caller with one request in flight, one provider over TCP in both cases.",
        "",
        *table(
            [
                "",
                "requests/s",
                "server CPU us/request",
                "of WebSocket's",
                "client CPU us/request",
                "bytes/request on the wire",
            ],
            rows,
        ),
    ]


def transports(_: int, calls: int = 500_000, sequential_calls: int = 50_000) -> list[str]:
    """Measure the same requests over each transport, and show them beside the published runs of 2014."""
    lines = ["## The same requests over each transport"]
    for server in (URING, EPOLL):
        say(f"transports: {server.title}")
        settings = {"calls": calls, "sequential_calls": sequential_calls}
        result = run_scenario(server, "transports", settings)
        runs = result.transports or []
        for shown in tables(runs):
            title = f"{shown.title[0].lower()}{shown.title[1:]}"
            rows = [[str(cell) for cell in row] for row in shown.rows]
            lines += ["", f"### {server.title}: {title}", "", *table(shown.columns, rows)]
        lines += ["", *(f"- {text}" for text in findings(runs))]
    return lines
