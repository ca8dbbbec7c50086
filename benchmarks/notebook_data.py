"""Record the result folders that the notebooks read: `make notebook-data`.

Server and load have a core each; run nothing else at the same time. Only files that the notebooks read are
kept. nats-server must be on PATH or where `make setup` puts it.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import LOAD_CPU, SERVER_CPU
from servers import ROOT, Server, nats_server, own_broker

import loadtest
from loadtest.scenario.kinds import Plan

DATA = Path("notebooks/data")
"""Folder of the recordings, relative to the root, so that results contain no path of this machine."""
KEPT = ("result.json", "capacity.json")
MACHINE = "this machine"

Changes = list[str]
"""Changes of each scenario, `KEY=VALUE`."""


def main() -> None:
    """Make the recordings that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(RECORDINGS)}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change each scenario"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(RECORDINGS):
        parser.error(f"no recording {', '.join(sorted(unknown))} (choose from {', '.join(RECORDINGS)})")
    os.chdir(ROOT)
    for name in arguments.names or RECORDINGS:
        folder = DATA / name
        shutil.rmtree(folder, ignore_errors=True)
        RECORDINGS[name](folder, arguments.set)
        clear(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{folder}: {size / 1000:.0f} kB", flush=True)


def record_single_run(folder: Path, changes: Changes) -> None:
    """Record callers of the HTTP gateway with one outstanding request each; stop the broker twice."""
    plan = planned("autocomplete", changes, users=32, rate=2000, warmup_s=2, duration_s=20)
    with own_broker(SERVER_CPU) as server, stalls(server.process, first_s=8.0, every_s=6.0, length_s=0.3):
        loadtest.run(plan, out=folder, load_cpus=LOAD_CPU, progress=True, **target(server, "http"))


def record_capacity(folder: Path, changes: Changes) -> None:
    """Record a search for the highest rate that holds an objective, of providers with a known limit.

    The result folders of three probes are kept: the lowest rate, the capacity, and the highest rate.
    """
    queue = {"users": 200, "provider_rate": 1000, "arrivals": "poisson", "warmup_s": 2}
    search = loadtest.capacity(
        planned("autocomplete", changes, **queue),
        slo="latency_us.p99 < 20000",
        from_rate=200,
        probe_s=20,
        out=folder,
        broker_cpus=SERVER_CPU,
        load_cpus=LOAD_CPU,
        progress=True,
    )
    probes = sorted(search.probes, key=lambda probe: probe.rate)
    found = [probe for probe in probes if probe.rate == search.capacity and probe.verdict == "holds"]
    kept = {probe.folder for probe in (probes[0], *found[-1:], probes[-1])}
    for probe in probes:
        if probe.folder not in kept:
            shutil.rmtree(folder / probe.folder)


def record_transports(folder: Path, changes: Changes) -> None:
    """Record the same requests over each transport."""
    plan = planned("transports", changes, calls=200_000, sequential_calls=20_000)
    loadtest.run(plan, out=folder, broker_cpus=SERVER_CPU, load_cpus=LOAD_CPU, progress=True)


def record_peers(folder: Path, changes: Changes) -> None:
    """Record the same load on this project's broker and on nats-server, in an open and a closed loop."""
    loops: dict[str, Mapping[str, Any]] = {
        "open": {"users": 5000, "rate": 10_000, "duration_s": 15},
        "closed": {"users": 5000, "rate": 0, "outstanding": 512, "duration_s": 10},
    }
    for loop, settings in loops.items():
        plan = planned("autocomplete", changes, **settings)
        for name, start in (("subjectbus", own_broker), ("nats-server", nats_server)):
            with start(SERVER_CPU) as server:
                out = folder / f"{name}-{loop}"
                loadtest.run(plan, out=out, load_cpus=LOAD_CPU, progress=True, **target(server, "ws"))


def record_million(folder: Path, changes: Changes) -> None:
    """Record the published run's connections, each tested by a request, at a rate below one core's limit."""
    plan = planned("migratorydata-2016", changes, rate=20_000)
    loadtest.run(plan, out=folder, broker_cpus=SERVER_CPU, load_cpus=LOAD_CPU, progress=True)


RECORDINGS: dict[str, Callable[[Path, Changes], None]] = {
    "01_single_run": record_single_run,
    "02_capacity": record_capacity,
    "03_transports": record_transports,
    "04_against_peers": record_peers,
    "05_million": record_million,
}


def planned(scenario: str, changes: Changes, **settings: Any) -> Plan:  # noqa: ANN401 - of its keys
    """Return a scenario with settings and then with the changes; its thresholds are removed."""
    return loadtest.load_scenario(
        loadtest.load_scenario(scenario, {"thresholds": [], "max_send_lag_ms": 0, **settings}), changes
    )


def target(server: Server, transport: str) -> dict[str, Any]:
    """Return the arguments that name a server as the target."""
    return {
        "target": f"{server.url(transport)}/",
        "monitor": server.monitor_url,
        "server_pid": server.process.pid,
    }


def clear(folder: Path) -> None:
    """Remove the files that the notebooks do not read, and the names of machines in the others."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in KEPT:
            path.unlink()
        elif path.name == "result.json":
            anonymise(path)


def anonymise(path: Path) -> None:
    """Replace the names of machines in a result."""
    result = json.loads(path.read_text(encoding="utf-8"))
    for host in result["hosts"]:
        host["name"] = MACHINE
    for worker in result["workers"]:
        worker["host"] = MACHINE
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")


@contextmanager
def stalls(
    process: subprocess.Popen[str], *, first_s: float, every_s: float, length_s: float, count: int = 2
) -> Iterator[None]:
    """Stop a process for `length_s` seconds, `count` times, while the block runs."""
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
