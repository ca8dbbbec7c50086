"""Makes the result folders that the notebooks read anew: `make notebook-data`.

Server and load have a core each; let nothing else run. Of each result folder only what the notebooks read is
kept. nats-server must be on PATH or where `make setup` puts it.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
DATA = Path("notebooks/data")
"""From the root, where everything runs: folders name no machine's paths."""
KEPT = ("result.json", "capacity.json")
COMMAND = str(Path(sys.executable).with_name("subjectbus"))
SERVER_CPU, LOAD_CPU = "0", "1"
START_TIMEOUT_S = 20.0
MACHINE = "this machine"
HELD = (0, 1)
"""Exit statuses of a run that went to its end."""

Settings = Mapping[str, object]


@dataclass(frozen=True)
class Server:
    """A server that runs already, on a core of its own."""

    process: subprocess.Popen[str]
    ws: str
    http: str
    monitor: str

    def target(self, url: str) -> list[str]:
        """What names it to the load test."""
        return ["--target", url, "--monitor-url", self.monitor, "--server-pid", str(self.process.pid)]


def main() -> None:
    """Records what is asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(RECORDINGS)}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change each scenario"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(RECORDINGS):
        parser.error(f"no recording {', '.join(sorted(unknown))} (choose from {', '.join(RECORDINGS)})")
    for name in arguments.names or RECORDINGS:
        folder = DATA / name
        shutil.rmtree(ROOT / folder, ignore_errors=True)
        RECORDINGS[name](folder, dict(text.split("=", 1) for text in arguments.set))
        size = sum(path.stat().st_size for path in (ROOT / folder).rglob("*") if path.is_file())
        print(f"{folder}: {size / 1000:.0f} kB", flush=True)


def record_single_run(folder: Path, changes: Settings) -> None:
    """Callers of the gateway with one request under way each, and a broker that is stopped twice."""
    settings = {"users": 32, "rate": 2000, "warmup_s": 2, "duration_s": 20, **changes}
    with own_broker() as server, stalls(server.process, first_s=8.0, every_s=6.0, length_s=0.3):
        run("autocomplete", folder, settings, server.target(f"{server.http}/"))


def record_capacity(folder: Path, changes: Settings) -> None:
    """The highest rate that holds an objective, of providers with a known limit.

    Of the probes' own folders the slowest, the one that found the capacity, and the fastest are kept.
    """
    settings = {"users": 200, "provider_rate": 1000, "arrivals": "poisson", "warmup_s": 2, **changes}
    command = [
        "capacity",
        "autocomplete",
        "--slo",
        "latency_us.p99 < 20000",
        "--from",
        "200",
        "--probe-s",
        "20",
    ]
    loadtest(command, folder, settings, ["--broker-cpus", SERVER_CPU, "--load-cpus", LOAD_CPU])
    search = json.loads((ROOT / folder / "capacity.json").read_text(encoding="utf-8"))
    probes = sorted(search["probes"], key=lambda probe: float(probe["rate"]))
    found = [probe for probe in probes if probe["rate"] == search["capacity"] and probe["verdict"] == "holds"]
    kept = {probe["folder"] for probe in (probes[0], *found[-1:], probes[-1])}
    for probe in probes:
        if probe["folder"] not in kept:
            shutil.rmtree(ROOT / folder / probe["folder"])


def record_transports(folder: Path, changes: Settings) -> None:
    """The same requests over each transport."""
    settings = {"calls": 200_000, "sequential_calls": 20_000, **changes}
    run("transports", folder, settings, ["--broker-cpus", SERVER_CPU])


def record_peers(folder: Path, changes: Settings) -> None:
    """The same load on our broker and on nats-server, both targets: an open and a closed loop."""
    loops: dict[str, Settings] = {
        "open": {"users": 5000, "rate": 10_000, "duration_s": 15},
        "closed": {"users": 5000, "rate": 0, "outstanding": 512, "duration_s": 10},
    }
    for loop, settings in loops.items():
        for name, start in (("subjectbus", own_broker), ("nats-server", nats_server)):
            with start() as server:
                run(
                    "autocomplete",
                    folder / f"{name}-{loop}",
                    {**settings, **changes},
                    server.target(f"{server.ws}/"),
                )


def record_million(folder: Path, changes: Settings) -> None:
    """The published run's connections, each proven by a request, at a rate that one core serves at ease."""
    run("migratorydata-2016", folder, {"rate": 20_000, **changes}, ["--broker-cpus", SERVER_CPU])


RECORDINGS: dict[str, Callable[[Path, Settings], None]] = {
    "01_single_run": record_single_run,
    "02_capacity": record_capacity,
    "03_transports": record_transports,
    "04_against_peers": record_peers,
    "05_million": record_million,
}


def run(scenario: str, folder: Path, settings: Settings, arguments: list[str]) -> None:
    """One run of the load test; thresholds are no matter here."""
    settings = {"thresholds": "[]", **settings}
    loadtest(["run", scenario], folder, settings, ["--load-cpus", LOAD_CPU, *arguments])


def loadtest(command: list[str], folder: Path, settings: Settings, arguments: list[str]) -> None:
    """A command with a result folder, of which only what is read stays; SystemExit where it failed."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [COMMAND, "loadtest", *command, "--out", str(folder), *words, *arguments], cwd=ROOT, check=False
    )
    if done.returncode not in HELD:
        raise SystemExit(f"{folder}: exit status {done.returncode}")
    for path in (ROOT / folder).rglob("*"):
        if path.is_file() and path.name not in KEPT:
            path.unlink()
        elif path.name == "result.json":
            anonymise(path)


def anonymise(path: Path) -> None:
    """What a machine is called is no matter of the run."""
    result = json.loads(path.read_text(encoding="utf-8"))
    for host in result["hosts"]:
        host["name"] = MACHINE
    for worker in result["workers"]:
        worker["host"] = MACHINE
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")


@contextmanager
def own_broker() -> Iterator[Server]:
    """Our broker, started as a user starts it."""
    ports = [word for name in ("tcp", "http", "monitor") for word in (f"--{name}", "127.0.0.1:0")]
    with pinned([COMMAND, "serve", *ports]) as process:
        assert process.stdout is not None
        _, *fields = process.stdout.readline().split()  # the ready line, or nothing when it ended
        addresses = dict(field.split("=") for field in fields)
        if "http" not in addresses:
            raise SystemExit("the broker did not start")
        http = addresses["http"]
        yield Server(process, f"ws://{http}", f"http://{http}", f"http://{addresses['monitor']}")


@contextmanager
def nats_server() -> Iterator[Server]:
    """nats-server, as it comes, on ports that it chooses itself."""
    installed = ROOT / ".cache" / "go" / "bin" / "nats-server"
    found = shutil.which("nats-server") or (str(installed) if installed.exists() else None)
    if found is None:
        raise SystemExit("nats-server is not installed: `make setup` installs it where Go is")
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:-1", http: "127.0.0.1:-1", ports_file_dir: "{name}"\n'
            'websocket { listen: "127.0.0.1:-1", no_tls: true }\n'
        )
        with pinned([found, "-c", str(config)]) as process:
            ports = _read_ports(Path(name), process)
            ws, monitor = (urlsplit(ports[key][0]).netloc for key in ("websocket", "monitoring"))
            yield Server(process, f"ws://{ws}", "", f"http://{monitor}")


def _read_ports(folder: Path, process: subprocess.Popen[str]) -> dict[str, list[str]]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (found := list(folder.glob("*.ports"))):
        if time.monotonic() > deadline or process.poll() is not None:
            raise SystemExit("nats-server did not start")
        time.sleep(0.05)
    ports: dict[str, list[str]] = json.loads(found[0].read_text(encoding="utf-8"))
    return ports


@contextmanager
def pinned(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A server on the server's core, ended at the end."""
    process = subprocess.Popen(
        ["taskset", "-c", SERVER_CPU, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def stalls(
    process: subprocess.Popen[str], *, first_s: float, every_s: float, length_s: float, count: int = 2
) -> Iterator[None]:
    """Stops a process for a while, again and again, beside whatever happens."""
    over = threading.Event()

    def stall() -> None:
        wait_s = first_s
        for _ in range(count):
            if over.wait(wait_s):
                return
            process.send_signal(signal.SIGSTOP)
            time.sleep(length_s)
            process.send_signal(signal.SIGCONT)
            wait_s = every_s

    thread = threading.Thread(target=stall)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
