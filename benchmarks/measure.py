"""How the benchmarks are run: load test, kernel floor and peers, each end pinned to a core of its own."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERVER_CPU, LOAD_CPU = "0", "1"
START_TIMEOUT_S = 20.0
STALL_PROBE_S = 20.0
STALL_S = 0.01

Result = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """Who is measured: our broker with one of its drivers, or nats-server."""

    name: str
    driver: str | None = None
    """Our broker's; None for a peer."""

    @property
    def title(self) -> str:
        """The name as a table shows it."""
        return f"{self.name}, {self.driver}" if self.driver else self.name


URING, EPOLL = Server("subjectbus", "uring"), Server("subjectbus", "epoll")
NATS = Server("nats-server")


@dataclass(frozen=True)
class Target:
    """A broker of ours that runs already, pinned to the server's core."""

    url: str
    pid: int

    @property
    def arguments(self) -> list[str]:
        """What names it to the load test."""
        return ["--target", self.url, "--server-pid", str(self.pid)]


def run_scenario(
    server: Server, scenario: str, settings: Mapping[str, object], target: Target | None = None
) -> Result:
    """One run of the load test with server and load on a core each; its result.json.

    The run starts a server of its own unless `target` is given. Thresholds are left to the record: a run
    that holds none of them is measured all the same.
    SystemExit when the run itself failed, or did not account for every message.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result"
        command = [
            str(Path(sys.executable).parent / "subjectbus"), "loadtest", "run", scenario, "--quiet",
            "--out", str(out), "--load-cpus", LOAD_CPU, "--set", "thresholds=[]",
        ]  # fmt: skip
        if server.driver:
            settings = {"load_driver": server.driver, **settings}
            if target is None:
                settings = {"broker.driver": server.driver, **settings}
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        if target:
            status = subprocess.run([*command, *target.arguments], check=False).returncode
        elif server.driver:
            status = subprocess.run([*command, "--broker-cpus", SERVER_CPU], check=False).returncode
        else:
            with nats_server(Path(folder)) as (process, ports):
                transport = str(settings.get("transport", "ws"))
                scheme = {"ws": "ws", "tcp": "nats"}[transport]
                peer = Target(f"{scheme}://127.0.0.1:{ports[transport]}", process.pid)
                command += peer.arguments
                status = subprocess.run(command, check=False).returncode
        if status not in (0, 1):
            raise SystemExit(f"{server.title}, {scenario}: the run failed with status {status}")
        result: Result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        if not result["conservation"]["holds"]:
            raise SystemExit(f"{server.title}, {scenario}: {result['conservation']}")
        return result


def run_floor(driver: str, mode: str, *flags: str, **options: object) -> Result:
    """One run of the kernel floor: the same bytes with no protocol (rust_core/benches/floor)."""
    command = [str(floor_executable()), mode, "--driver", driver, *flags]
    command += ["--server-cpu", SERVER_CPU, "--load-cpu", LOAD_CPU]
    for key, value in options.items():
        command += ["--" + key.replace("_", "-"), str(value)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"floor {mode}, {driver}: status {finished.returncode}: {finished.stdout}")
    result: Result = json.loads(finished.stdout)
    return result


def floor_executable() -> Path:
    """The floor, built where that is still to be done."""
    command = ["cargo", "build", "--release", "--locked", "--package", "subjectbus-floor"]
    command += ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT / "rust_core", stdout=subprocess.PIPE, text=True, check=True)
    artifacts = [json.loads(line) for line in built.stdout.splitlines()]
    paths = [one["executable"] for one in artifacts if one.get("executable")]
    return Path(paths[-1])


def find_nats_server() -> str | None:
    """nats-server's path: on PATH, or where `make setup` puts it."""
    installed = ROOT / ".cache" / "go" / "bin" / "nats-server"
    return shutil.which("nats-server") or (str(installed) if installed.exists() else None)


@contextmanager
def nats_server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """A pinned nats-server with room for the connections, on ports that it chooses itself."""
    binary = find_nats_server()
    assert binary is not None
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
        yield process, {"tcp": _port(urls["nats"]), "ws": _port(urls["websocket"])}
    finally:
        process.terminate()
        process.wait()


def _port(urls: list[str]) -> int:
    return int(urls[0].rsplit(":", 1)[1])


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


def machine_facts() -> Iterator[str]:
    """What the figures depend on, as "name value"."""
    from loadtest.sampling.environment import describe_environment  # noqa: PLC0415 - needs the built project

    for key, value in describe_environment().items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            yield f"{key} {value}"
    hash_size = _sysctl("net/ipv4/tcp_ehash_entries")
    if hash_size:
        yield f"tcp_ehash_entries {hash_size}"
    if peer := find_nats_server():
        version = subprocess.run([peer, "--version"], capture_output=True, text=True, check=True)
        yield version.stdout.strip()


def _sysctl(name: str) -> str:
    path = Path("/proc/sys") / name
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def median(runs: Iterable[Result], *path: str) -> float:
    """The median of one figure over the runs."""
    values = []
    for run in runs:
        value: Any = run
        for key in path:
            value = value[key]
        values.append(float(value))
    return statistics.median(values)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table."""
    columns = list(columns)
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def say(what: str) -> None:
    """Progress, on standard error."""
    print(what, file=sys.stderr, flush=True)
