"""The recorded benchmark: server on one core, load on another, peers in turn, medians of several rounds.

Run with `make bench`. Writes a dated record with the machine's facts to docs/benchmarks.
"""

import argparse
import fcntl
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERVER_CPU, LOAD_CPU = "0", "1"
USERS = 15_000
START_TIMEOUT_S = 20.0
STALL_PROBE_S = 20.0
STALL_S = 0.01

Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One line of the record."""

    server: str
    transport: str
    rate: int
    note: str = ""


CASES = [
    Case("subjectbus", "ws", 60_000, "the bar: p99 under 100 ms, 1.5 KB, 20,000 connections/s"),
    Case("subjectbus", "tcp", 60_000),
    Case("subjectbus", "ws", 20_000),
    Case("nats-server", "ws", 20_000),
    Case("nats-server", "tcp", 20_000),
]


COLUMNS = [
    "server", "transport", "planned/s", "achieved/s", "mean ms", "p99 ms", "max ms", "timed out, errors",
    "server CPU us/request", "load CPU us/request", "resident MB", "growth bytes/connection",
    "connections/s",
]  # fmt: skip


def main() -> None:
    """Runs every case once a round, then writes the record."""
    arguments = parse_arguments()
    lock = ROOT / ".cache" / "benchmark.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        # Two timed runs at once would measure each other.
        fcntl.flock(held, fcntl.LOCK_EX)
        stalls = machine_stalls()
        results: dict[Case, list[Result]] = {}
        peer = find_nats_server()
        cases = [case for case in CASES if case.server == "subjectbus" or peer]
        for number in range(arguments.rounds):
            for case in cases:
                print(f"round {number + 1}: {title(case)}", file=sys.stderr)
                results.setdefault(case, []).append(run(case, arguments.duration, peer))
    record = render(results, peer, stalls)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{datetime.now(UTC):%Y-%m-%d}-autocomplete.md"
    path.write_text(record, encoding="utf-8")
    print(record)
    print(f"written to {path}", file=sys.stderr)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=int, default=10, help="seconds of each measured phase")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    return parser.parse_args()


def title(case: Case) -> str:
    """A case as text."""
    return f"{case.server}, {case.transport}, {case.rate:,} requests/s planned"


def find_nats_server() -> str | None:
    """nats-server's path: on PATH, or where `make setup` puts it."""
    installed = ROOT / ".cache" / "go" / "bin" / "nats-server"
    return shutil.which("nats-server") or (str(installed) if installed.exists() else None)


def machine_stalls() -> str:
    """How long the machine itself stops a thread that only looks at the clock: no latency means more."""
    gaps, last, end = [], time.perf_counter(), time.perf_counter() + STALL_PROBE_S
    while last < end:
        now = time.perf_counter()
        if now - last > STALL_S:
            gaps.append(now - last)
        last = now
    longest = max(gaps, default=0.0) * 1000
    return (
        f"With nothing else running, a thread that only looked at the clock for {STALL_PROBE_S:.0f} s was "
        f"stopped {len(gaps)} times for more than {STALL_S * 1000:.0f} ms, at most for {longest:.0f} ms."
    )


def run(case: Case, duration_s: int, peer: str | None) -> Result:
    """One run of the load test; its result.json."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result"
        command = [
            str(Path(sys.executable).parent / "subjectbus"), "loadtest", "run", "autocomplete", "--quiet",
            "--out", str(out), "--load-cpus", LOAD_CPU,
            "--set", f"users={USERS}", "--set", f"rate={case.rate}", "--set", f"duration_s={duration_s}",
            "--set", f"transport={case.transport}",
        ]  # fmt: skip
        if case.server == "subjectbus":
            status = subprocess.run([*command, "--broker-cpus", SERVER_CPU], check=False).returncode
        else:
            assert peer is not None
            with nats_server(peer, Path(folder)) as (process, ports):
                scheme = {"ws": "ws", "tcp": "nats"}[case.transport]
                target = f"{scheme}://127.0.0.1:{ports[case.transport]}"
                command += ["--target", target, "--server-pid", str(process.pid)]
                status = subprocess.run(command, check=False).returncode
        if status not in (0, 1):
            raise SystemExit(f"{title(case)}: the run failed with status {status}")
        result: Result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        if not result["conservation"]["holds"]:
            raise SystemExit(f"{title(case)}: {result['conservation']}")
        return result


@contextmanager
def nats_server(binary: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """A pinned nats-server with room for the connections, on ports that it chooses itself."""
    config = folder / "nats.conf"
    config.write_text(
        f'host: "127.0.0.1", port: -1, ports_file_dir: "{folder}", max_connections: 100000\n'
        'websocket { host: "127.0.0.1", port: -1, no_tls: true }\n'
    )
    process = subprocess.Popen(
        ["taskset", "-c", SERVER_CPU, binary, "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := list(folder.glob("*.ports"))):
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("nats-server did not start")
            time.sleep(0.05)
        urls = json.loads(found[0].read_text(encoding="utf-8"))
        yield process, {"tcp": port(urls["nats"]), "ws": port(urls["websocket"])}
    finally:
        process.terminate()
        process.wait()


def port(urls: list[str]) -> int:
    """The port of the first URL."""
    return int(urls[0].rsplit(":", 1)[1])


def render(results: dict[Case, list[Result]], peer: str | None, stalls: str) -> str:
    """The record as Markdown."""
    environment = next(iter(results.values()))[0]["environment"]
    rounds = len(next(iter(results.values())))
    conditions = (
        f"Medians of {rounds} rounds, the cases in turn within each round. Server on core {SERVER_CPU}, "
        f"providers and requestor to core {LOAD_CPU}; loopback; 32-byte requests, 256-byte replies, 16 "
        "providers, open loop, latency from the planned send time. Resident memory is the server's peak in "
        "the measured phase, Python included, and what it grew by for each connection. Connections/s "
        "count from the first attempt to the last confirmed subscription. Made by `make bench`."
    )
    lines = [
        f"# Autocomplete workload, {USERS:,} users, {datetime.now(UTC):%Y-%m-%d}",
        "",
        conditions,
        "",
        "Machine: " + ", ".join(f"{key} {value}" for key, value in facts(environment, peer)) + f". {stalls}",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
    ]
    for case, runs in results.items():
        figures = [
            f"{median(runs, 'achieved', 'rate'):,.0f}",
            f"{median(runs, 'latency_us', 'mean') / 1000:.2f}",
            f"{median(runs, 'latency_us', 'p99') / 1000:.2f}",
            f"{median(runs, 'latency_us', 'max') / 1000:.1f}",
            f"{sum(one['achieved']['timed_out'] + one['achieved']['errors'] for one in runs):,}",
            f"{median(runs, 'server', 'cpu_us_per_request'):.1f}",
            f"{median(runs, 'load', 'cpu_us_per_request'):.1f}",
            f"{median(runs, 'server', 'rss_bytes') / 1e6:.1f}",
            f"{median(runs, 'server', 'rss_growth_bytes_per_connection'):,.0f}",
            f"{statistics.median(connect_rate(one) for one in runs):,.0f}",
        ]
        lines.append(f"| {case.server} | {case.transport} | {case.rate:,} | " + " | ".join(figures) + " |")
    notes = [f"- {title(case)}: {case.note}." for case in results if case.note]
    return "\n".join([*lines, "", *notes]) + "\n"


def facts(environment: dict[str, Any], peer: str | None) -> Iterator[tuple[str, object]]:
    """What the figures depend on."""
    for key, value in environment.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            yield key, value
    if peer:
        version = subprocess.run([peer, "--version"], capture_output=True, text=True, check=True)
        yield "peer", version.stdout.strip()


def median(runs: list[Result], *path: str) -> float:
    """The median of one figure over the rounds."""
    values = []
    for one in runs:
        value: Any = one
        for key in path:
            value = value[key]
        values.append(float(value))
    return statistics.median(values)


def connect_rate(result: Result) -> float:
    """Connections established per second, both ends on this machine."""
    return float(result["achieved"]["connections"] / result["achieved"]["connect_s"])


if __name__ == "__main__":
    main()
