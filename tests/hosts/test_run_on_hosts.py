"""Whole runs on four hosts: the broker on one, requestors on two, the provider on the fourth."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest
from hdrh.histogram import HdrHistogram

from loadtest import read_result
from loadtest.hosts.machines import open_machines
from loadtest.result.histogram import Histogram
from loadtest.runner.building.result import build_result
from loadtest.runner.execution import Options, run_scenario
from loadtest.runner.placement import HostBinding
from loadtest.scenario.inventory import load_inventory
from loadtest.scenario.load import load_scenario
from loadtest.workers.child import PYTHON
from loadtest.workers.interrupts import Interrupts
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hosts.network import Network

ROLES = [("broker",), ("requestor",), ("requestor",), ("provider",)]
# No objective of speed: the machine may be busy with other tests.
NO_SPEED = ("max_send_lag_ms=0", 'thresholds=["achieved.errors == 0", "achieved.unmatched == 0"]')
SETTINGS = ("users=40", "providers=4", "rate=400", "warmup_s=0.5", *NO_SPEED)
OVERLOAD = "provider_rate=200"
"""So that many requests are outstanding, each for up to its timeout of 10 s."""
GONE_WITHIN_S = 10.0
"""After the signal, or the loss, nothing of a run is left anywhere."""

pytestmark = pytest.mark.timeout(240)


def command(hosts: Path, out: Path, *settings: str) -> list[str]:
    sets = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    run = [*PYTHON, "subjectbus", "loadtest", "run", "autocomplete"]
    return [*run, "--hosts", str(hosts), "--out", str(out), *sets]


class Launched:
    """A running load test, with its output."""

    def __init__(self, hosts: Path, out: Path) -> None:
        self.process = subprocess.Popen(
            command(hosts, out, "duration_s=60", OVERLOAD), stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_measuring(self) -> None:
        wait_until(self._is_measuring, 60, "the measured phase")

    def _is_measuring(self) -> bool:
        assert self.process.poll() is None, self.said
        return sum("measuring" in line for line in list(self.lines)) > 2

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait(self, timeout_s: float) -> int:
        status = self.process.wait(timeout_s)
        self._reader.join(10)
        return status


@contextmanager
def launched(network: Network, out: Path) -> Iterator[Launched]:
    """Yield a run in its measured phase; kill it at the end if it is still running."""
    run = Launched(network.inventory(ROLES), out)
    try:
        run.wait_measuring()
        yield run
    finally:
        run.process.kill()
        run.wait(10)


def left(network: Network) -> dict[str, dict[int, str]]:
    """Return the remaining processes by host."""
    found = {host.name: network.processes(index) for index, host in enumerate(network.hosts)}
    return {name: processes for name, processes in found.items() if processes}


def assert_nothing_is_left(network: Network) -> None:
    try:
        wait_until(lambda: not left(network), GONE_WITHIN_S)
    except TimeoutError:
        pytest.fail(f"left after {GONE_WITHIN_S:g} s: {left(network)}")


def agent(network: Network, index: int) -> int:
    [pid] = [pid for pid, line in network.processes(index).items() if "loadtest.workers.agent" in line]
    return pid


def test_one_command_runs_on_four_hosts(network: Network, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ended = subprocess.run(
        command(network.inventory(ROLES), out, "duration_s=2"),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert not left(network)
    result = read_result(out)
    assert result.holds
    assert [(host.name, host.roles, host.processes, host.lost) for host in result.hosts] == [
        ("a", ["broker"], ["broker"], None),
        ("b", ["requestor"], ["requestor 1"], None),
        ("c", ["requestor"], ["requestor 2"], None),
        ("d", ["provider"], ["provider"], None),
    ]
    asked = [worker for worker in result.workers if worker.latency_us is not None]
    assert [worker.host for worker in asked] == ["b", "c"]
    assert all(worker.received > 0 for worker in asked)
    for count in ("sent", "received"):
        assert getattr(result.achieved, count) == sum(getattr(worker, count) for worker in asked) == 800
    assert result.latency_us.count == sum(worker.latency_us.count for worker in asked) == 800
    assert result.agreement
    assert all(row.matches for row in result.agreement)
    for host in result.hosts:
        # All clocks of this machine are one; how far off it is thought to be at most is known as well.
        assert abs(host.clock_offset_s) <= host.clock_error_s
        assert host.samples
        assert all(sample.memory_used_bytes > 0 for sample in host.samples)
        assert host.environment["cores"] == psutil.cpu_count()
    # The broker's host carried at least what its clients were sent and sent.
    carried = [sample.net_out_bps for sample in result.hosts[0].samples if sample.net_out_bps]
    assert max(carried) > 8 * 400 * 256
    assert result.server.cpu_us_per_request > 0
    assert result.load.cpu_us_per_request > 0
    assert {"report.html", "report.md", "latency.hlog"} <= {path.name for path in out.iterdir()}


SHAPES = {
    "broadcast": (ROLES, ("broadcast", "users=40", "rate=50", "warmup_s=0.5", "max_send_lag_ms=0")),
    "rest": (ROLES, ("autocomplete", *SETTINGS, "transport=rest", "sweep=true")),
    "two brokers": (
        [("broker", "provider"), ("broker",), ("requestor", "provider"), ("requestor",)],
        ("autocomplete", *SETTINGS, "churn_rate=5"),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_workload_is_accounted_for_on_hosts(network: Network, tmp_path: Path, shape: str) -> None:
    roles, (scenario, *settings) = SHAPES[shape]
    sets = [word for setting in (*settings, "duration_s=1") for word in ("--set", setting)]
    run = [*PYTHON, "subjectbus", "loadtest", "run", scenario, "--hosts", str(network.inventory(roles))]
    ended = subprocess.run(
        [*run, *sets, "--out", str(tmp_path / "run"), "--quiet"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not left(network)
    result = read_result(tmp_path / "run")
    assert result.conservation.holds, result.conservation
    assert result.agreement
    assert all(row.matches for row in result.agreement), result.agreement
    users = [worker for worker in result.workers if worker.latency_us is not None]
    assert len({worker.host for worker in users}) == 2
    assert result.achieved.received == sum(worker.received for worker in users) > 0
    if shape == "broadcast":
        assert result.achieved.received == 50 * 40
    if shape == "two brokers":
        # Each broker has all providers, from both of their hosts.
        assert result.requested.connections == 40 + 2 * 4
        assert [host.processes for host in result.hosts[:2]] == [
            ["provider 1", "provider 3", "broker 1"],
            ["broker 2"],
        ]


@pytest.mark.process
def test_a_workload_for_one_machine_is_refused_before_hosts_are_contacted(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    tables = [
        f'[[hosts]]\nname = "{n}"\naddress = "192.0.2.{n}"\nroles = ["broker", "requestor"]\n' for n in (1, 2)
    ]
    hosts.write_text("\n".join(tables), encoding="utf-8")
    for scenario, reason in (
        ("broadcast", "scenario broadcast on these hosts: 2 brokers, which are not joined"),
        ("transports", "--hosts: scenario transports compares transports on one machine"),
        ("autocomplete", f'{hosts}: no host has the role "provider"'),
    ):
        run = [*PYTHON, "subjectbus", "loadtest", "run", scenario, "--hosts", str(hosts)]
        ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert reason in ended.stderr
        assert ended.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["hosts.toml"]


class Silent:
    def show(self, sample, progress, rows) -> None:
        pass


def test_the_merged_histogram_has_the_values_of_all_hosts(network: Network) -> None:
    inventory = load_inventory(network.inventory(ROLES))
    settings = (*SETTINGS, "duration_s=1", "requestors=3")
    scenario = load_scenario("autocomplete", settings)
    with open_machines(inventory.hosts, lambda _: None) as machines, Interrupts() as interrupts:
        hosts = [HostBinding(plan, machine) for plan, machine in zip(inventory.hosts, machines, strict=True)]
        collected = run_scenario(scenario, Options(hosts=hosts), Silent(), interrupts)
    assert collected.error is None
    # Three processes on two hosts: the first host has one more.
    assert [report.host for report in collected.workers] == ["d", "b", "b", "c"]
    result, _ = build_result(collected)
    parts = [HdrHistogram.decode(report.latency.hdr) for report in collected.requestors]
    assert [part.total_count for part in parts] == [report.received for report in collected.requestors]
    alone = Histogram()
    for part in parts:
        for step in part.get_recorded_iterator():
            alone.record(step.value_iterated_to, step.count_added_in_this_iter_step)
    merged = Histogram.merged([result.histograms.latency])
    percentiles = [f"{percent / 10}" for percent in range(1001)]
    assert merged.count == alone.count == sum(part.total_count for part in parts) == 400
    assert merged.values_at(percentiles) == alone.values_at(percentiles)


def test_ctrl_c_ends_all_processes_and_keeps_the_measurements(network: Network, tmp_path: Path) -> None:
    with launched(network, tmp_path / "run") as run:
        assert len(left(network)) == 4
        run.process.send_signal(signal.SIGINT)
        assert_nothing_is_left(network)
        assert run.wait(60) == 3
        assert "interrupted" in run.said
        assert "Traceback" not in run.said
    result = read_result(tmp_path / "run")
    assert result.error == "interrupted"
    assert result.achieved.received > 0
    # What was outstanding is accounted for, by those who were not waited for.
    assert result.achieved.timed_out > 0
    assert not result.missing


def test_nothing_outlives_a_killed_launcher(network: Network, tmp_path: Path) -> None:
    with launched(network, tmp_path / "run") as run:
        run.process.kill()
        assert_nothing_is_left(network)


@pytest.mark.parametrize("index", [0, 2], ids=["broker", "requestor"])
def test_a_lost_link_ends_the_run_and_keeps_the_other_results(
    network: Network, tmp_path: Path, index: int
) -> None:
    with launched(network, tmp_path / "run") as run:
        network.cut(index)
        assert_nothing_is_left(network)
        assert run.wait(60) == 3
        host = network.hosts[index]
        assert f"host {host.name} ({host.address}): lost: " in run.said
        assert "Traceback" not in run.said
    assert_kept(tmp_path / "run", index)


@pytest.mark.parametrize("index", [2, 3], ids=["requestor", "provider"])
def test_a_killed_agent_ends_the_run_and_keeps_the_other_results(
    network: Network, tmp_path: Path, index: int
) -> None:
    with launched(network, tmp_path / "run") as run:
        os.kill(agent(network, index), signal.SIGKILL)
        assert_nothing_is_left(network)
        assert run.wait(60) == 3
        assert "lost: its agent has ended" in run.said
        assert "Traceback" not in run.said
    assert_kept(tmp_path / "run", index)


WORKERS = {2: "requestor 2", 3: "provider"}


def assert_kept(folder: Path, index: int) -> None:
    """Check that the data of the hosts that were not lost is complete."""
    lost = "abcd"[index]
    result = read_result(folder)
    assert result.error.startswith(f"host {lost} (")
    assert [host.name for host in result.hosts if host.lost is not None] == [lost]
    missing = [f"{WORKERS[index]} on host {lost}: no result"] if index in WORKERS else []
    assert result.missing == missing
    names = {"provider", "requestor 1", "requestor 2"} - {WORKERS.get(index)}
    assert {worker.name for worker in result.workers} == names
    users = [worker for worker in result.workers if worker.latency_us is not None]
    assert result.achieved.received == sum(worker.received for worker in users) > 0
    assert not result.holds
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"host {lost} was lost" in page
    assert all(text in page for text in missing)


@pytest.mark.parametrize("fault", ["wrong host key", "no Python"])
def test_a_host_that_cannot_be_used_ends_the_run_before_it_begins(
    network: Network, tmp_path: Path, fault: str
) -> None:
    known = network.hosts[0].known_hosts
    overrides = {}
    if fault == "wrong host key":
        lines = known.read_text(encoding="ascii").splitlines()
        keys = [line.split(" ", 1)[1] for line in lines]
        swapped = [
            f"{line.split(' ', 1)[0]} {key}"
            for line, key in zip(lines, [keys[1], keys[0], *keys[2:]], strict=True)
        ]
        known = tmp_path / "known_hosts"
        known.write_text("\n".join(swapped) + "\n", encoding="ascii")
        overrides["known_hosts"] = str(known)
    else:
        overrides["python"] = "/nowhere/python"
    out = tmp_path / "run"
    ended = subprocess.run(
        command(network.inventory(ROLES, **overrides), out),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 3
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("subjectbus: error: host ")
    assert ("wrong host key" if fault == "wrong host key" else "/nowhere/python") in last
    assert "Traceback" not in ended.stderr
    assert not out.exists()
    assert_nothing_is_left(network)
