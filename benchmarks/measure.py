"""Runs of the benchmarks: load test, kernel floor and peers, server and load on a core each."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, cast

import servers
from servers import ROOT

import loadtest
from loadtest.sampling.environment import describe_environment

SERVER_CPU, LOAD_CPU = "0", "1"
STALL_PROBE_S = 20.0
STALL_S = 0.01

Figures = dict[str, Any]
"""Figures that a program other than the load test has measured, by name."""


@dataclass(frozen=True)
class Server:
    """Measured server: this project's broker with one of its drivers, or nats-server."""

    name: str
    driver: str | None = None
    """Driver of this project's broker. None for nats-server."""

    @property
    def title(self) -> str:
        """Name for tables."""
        return f"{self.name}, {self.driver}" if self.driver else self.name


URING, EPOLL = Server("subjectbus", "uring"), Server("subjectbus", "epoll")
NATS = Server("nats-server")


def run_scenario(
    server: Server, scenario: str, settings: Mapping[str, Any], target: servers.Server | None = None
) -> loadtest.Result:
    """Run a load test with server and load on a core each, each in processes of their own.

    The scenario's thresholds do not apply.

    Args:
        server: Server to measure.
        scenario: Name of a shipped scenario.
        settings: New values of keys of the scenario.
        target: The server, if it is running already; None starts one for the run.

    Raises:
        SystemExit: The run failed, or did not account for every message.
    """
    driver = {} if server.driver is None else {"load_driver": server.driver}
    changes = {"thresholds": [], **driver, **settings}
    what = f"{server.title}, {scenario}"
    try:
        if server.driver is not None and target is None:
            own = {"broker.driver": server.driver, **changes}
            result = loadtest.run(scenario, broker_cpus=SERVER_CPU, load_cpus=LOAD_CPU, **own)
        else:
            peer = servers.nats_server(SERVER_CPU, max_connections=100_000)
            with peer if target is None else nullcontext(target) as running:
                url = running.url(str(settings.get("transport", "ws")))
                pid = running.process.pid
                result = loadtest.run(scenario, target=url, server_pid=pid, load_cpus=LOAD_CPU, **changes)
    except loadtest.RunError as error:
        raise SystemExit(f"{what}: {error}") from error
    if not result.conservation.holds:
        raise SystemExit(f"{what}: {result.conservation}")
    return result


def run_floor(driver: str, mode: str, *flags: str, **options: object) -> Figures:
    """Run the kernel floor, which moves the same bytes without a protocol (rust_core/benches/floor)."""
    command = [str(floor_executable()), mode, "--driver", driver, *flags]
    command += ["--server-cpu", SERVER_CPU, "--load-cpu", LOAD_CPU]
    for key, value in options.items():
        command += ["--" + key.replace("_", "-"), str(value)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"floor {mode}, {driver}: status {finished.returncode}: {finished.stdout}")
    result: Figures = json.loads(finished.stdout)
    return result


def floor_executable() -> Path:
    """Return the path of the floor's executable, and build it if necessary."""
    command = ["cargo", "build", "--release", "--locked", "--package", "subjectbus-floor"]
    command += ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT / "rust_core", stdout=subprocess.PIPE, text=True, check=True)
    artifacts = [json.loads(line) for line in built.stdout.splitlines()]
    paths = [one["executable"] for one in artifacts if one.get("executable")]
    return Path(paths[-1])


def machine_stalls() -> str:
    """Return a sentence on how often the machine stops a thread that only reads the clock.

    Latencies below the length of such stops say nothing about the server.
    """
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


def machine_facts() -> Iterator[str]:
    """Yield the properties of the machine on which the figures depend, as "name value"."""
    for key, value in describe_environment().items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            yield f"{key} {value}"
    hash_size = _sysctl("net/ipv4/tcp_ehash_entries")
    if hash_size:
        yield f"tcp_ehash_entries {hash_size}"
    if peer := servers.nats_server_command():
        version = subprocess.run([peer, "--version"], capture_output=True, text=True, check=True)
        yield version.stdout.strip()


def _sysctl(name: str) -> str:
    path = Path("/proc/sys") / name
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def median(runs: Iterable[loadtest.Result | Figures], *path: str) -> float:
    """Return the median of one figure over the runs."""
    return statistics.median(float(reduce(_part, path, cast("Any", run))) for run in runs)


def _part(whole: Any, key: str) -> Any:  # noqa: ANN401 - of a result, or of what another program has measured
    return whole[key] if isinstance(whole, dict) else getattr(whole, key)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    columns = list(columns)
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def say(what: str) -> None:
    """Print a line about the progress on standard error."""
    print(what, file=sys.stderr, flush=True)
