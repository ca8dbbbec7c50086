"""`subjectbus loadtest hosts check` over real OpenSSH servers, and its conclusions from facts."""

from __future__ import annotations

import io
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from msgspec import structs

from loadtest.errors import HostError
from loadtest.hosts.check import HostReport, find_problems, find_warnings, shares_of
from loadtest.hosts.connection import Connection
from loadtest.hosts.facts import Clock, Facts, compare_clocks, gather_facts
from loadtest.hosts.identity import build_id
from loadtest.scenario.inventory import HostPlan, Inventory, load_inventory
from loadtest.scenario.kinds import BroadcastScenario, Scenario
from subjectbus.cli import main
from tests.hosts.conftest import make_network

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.hosts.network import Network

ROLES = (["broker"], ["requestor"], ["requestor"], ["provider"])
FACTS = Facts(
    python="3.11.7",
    kernel="6.1.0",
    machine="x86_64",
    cores=4,
    cpus=[0, 1, 2, 3],
    memory_bytes=8 << 30,
    memory_available_bytes=4 << 30,
    descriptors=1024,
    ports=(32768, 60999),
    io_uring=False,
    io_uring_reason="the kernel has none",
    foreign_sources=[],
    clock=Clock(0.0, 0.001),
)
HOST = HostPlan(name="b", address="192.0.2.2", roles=("requestor",))


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Check = Callable[..., Done]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the command in this process, as the console script does."""

    def run(path: Path, *options: str) -> Done:
        status = main(["loadtest", "hosts", "check", str(path), *options])
        return Done(status, *capsys.readouterr())

    return run


def test_fit_hosts_are_listed_with_their_properties(network: Network, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "subjectbus", "loadtest", "hosts", "check"]
    done = subprocess.run(
        [*command, network.inventory(ROLES)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for host, roles in zip(network.hosts, ROLES, strict=True):
        assert f"{host.name} ({host.address}): fit: {roles[0]}" in done.stdout
    assert build_id() in done.stdout
    assert done.stdout.count(platform.release()) == 4
    assert done.stdout.count(" ± ") == 4


def test_the_document_has_the_facts_of_each_host(network: Network, check: Check) -> None:
    done = check(network.inventory(ROLES), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["build"], document["fit"]) == (1, build_id(), True)
    assert [host["name"] for host in document["hosts"]] == ["a", "b", "c", "d"]
    for host in document["hosts"]:
        assert host["build"] == "there"
        assert host["python"] == sys.executable
        facts = host["facts"]
        assert facts["kernel"] == platform.release()
        assert facts["cpus"] == sorted(os.sched_getaffinity(0))
        assert facts["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert facts["descriptors"] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        assert facts["clock"]["error_s"] > 0
        # The namespaces share one clock.
        assert abs(facts["clock"]["offset_s"]) <= facts["clock"]["error_s"]


def test_an_unreachable_host_is_reported_along_with_the_others(network: Network, check: Check) -> None:
    path = network.inventory(ROLES)
    address = network.hosts[3].address
    path.write_text(path.read_text().replace(address, f"{address.rpartition('.')[0]}.250"))
    done = check(path, "--json")
    assert done.returncode == 3
    reports = json.loads(done.stdout)["hosts"]
    assert [report["is_reachable"] for report in reports] == [True, True, True, False]
    assert [report["fit"] for report in reports] == [True, True, True, False]
    (problem,) = reports[3]["problems"]
    assert "No route to host" in problem or "port 22: no answer" in problem


def test_an_unknown_host_key_counts_as_unreachable(network: Network, tmp_path: Path, check: Check) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    done = check(network.inventory([["requestor"]], known_hosts=str(empty)))
    assert done.returncode == 3
    assert f"a ({network.hosts[0].address}): error: unknown host key ssh-ed25519 SHA256:" in done.stdout


def test_an_unfit_host_is_named_with_the_reason(network: Network, check: Check) -> None:
    path = network.inventory([["broker"], ["requestor"]], cpus="0,999")
    done = check(path)
    assert done.returncode == 1
    assert f"b ({network.hosts[1].address}): error: cpus: processor 999 does not exist" in done.stdout


def test_the_needs_of_a_scenario_are_compared_with_the_host(network: Network, check: Check) -> None:
    path = network.inventory(ROLES)
    done = check(path, "--scenario", "migratorydata-2016")
    assert done.returncode == 1
    assert (
        done.stdout.count("too few ports: migratorydata-2016 needs 500,000 connections from this host") == 2
    )
    small = ("--set", "users=1000", "--set", "rate=100")
    done = check(path, "--scenario", "migratorydata-2016", *small)
    assert done.returncode == 0, done.stdout


@pytest.mark.process
def test_a_build_that_is_missing_is_installed_unless_unwanted(check: Check) -> None:
    base = Path(sys.base_exec_prefix) / "bin"
    for network in make_network(1, {"PATH": f"{base}:/usr/bin:/bin"}):
        path = network.inventory([["requestor"]], python=None)
        done = check(path, "--no-install")
        assert done.returncode == 1
        assert f"error: build {build_id()} is not installed (--install installs it)" in done.stdout
        assert not (network.hosts[0].home / ".cache").exists()
        done = check(path, "--json")
        assert done.returncode == 0, done.stdout
        assert done.stderr.startswith(f"host a: installing build {build_id()}")
        report = json.loads(done.stdout)["hosts"][0]
        assert report["build"] == "installed"
        assert Path(report["python"]).is_relative_to(network.hosts[0].home)
        assert report["facts"]["io_uring"] is not None
        done = check(path, "--no-install", "--json")
        assert json.loads(done.stdout)["hosts"][0]["build"] == "there"


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("[[hosts]]\nnam = 1\n", (), 'hosts[1]: unknown key "nam" (did you mean "name"?)'),
        ("", (), "hosts: expected tables [[hosts]]"),
        (None, (), "hosts.toml: No such file or directory"),
        ("[[hosts]]\n", ("--set", "users=1"), "--set goes with --scenario"),
    ],
)
def test_bad_input_is_one_line(
    text: str | None, options: tuple[str, ...], said: str, tmp_path: Path, check: Check
) -> None:
    path = tmp_path / "hosts.toml"
    if text is not None:
        path.write_text(text)
    done = check(path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("subjectbus: error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_scenario_is_bad_input(network: Network, check: Check) -> None:
    done = check(network.inventory(ROLES), "--scenario", "migratory")
    assert done.returncode == 2
    assert 'no scenario "migratory"' in done.stderr


def test_sources_that_are_not_the_hosts_are_found(network: Network) -> None:
    own, foreign = network.hosts[0].address, network.hosts[1].address
    path = network.inventory([["requestor"]], sources=[own, foreign, "::1"])
    with Connection(load_inventory(path).hosts[0]) as connection:
        connection.open()
        assert gather_facts(connection, sys.executable).foreign_sources == [foreign]


class Channel:
    """A channel of a host that prints lines, and then its clock whenever it is asked."""

    def __init__(self, *lines: str) -> None:
        self.lines = [*lines, *["1"] * 100]

    def settimeout(self, timeout_s: float) -> None: ...
    def sendall(self, data: bytes) -> None: ...
    def close(self) -> None: ...

    def makefile(self, mode: str) -> io.StringIO:
        return io.StringIO("".join(f"{line}\n" for line in self.lines))

    def makefile_stderr(self, mode: str) -> io.BytesIO:
        return io.BytesIO(b"first\nlast\n")


@pytest.mark.parametrize("line", ["{ welcome }", '{"news": 1}', "{" * 100_000, "Welcome"], ids=range(4))
def test_lines_of_a_login_shell_are_skipped(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    facts = msgspec.json.encode(FACTS).decode()
    connection = Connection(HOST)
    monkeypatch.setattr(connection, "start", lambda _: Channel(line, facts))
    assert gather_facts(connection, "python3").kernel == FACTS.kernel
    monkeypatch.setattr(connection, "start", lambda _: Channel(line))
    with pytest.raises(HostError, match="cannot read the properties of the host: last"):
        gather_facts(connection, "python3")


def test_texts_of_hosts_cannot_control_the_terminal(
    check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hostile = "\x1b]0;owned\x07\u202e\nnew line"
    report = HostReport(
        name="b",
        address="192.0.2.2",
        roles=("requestor",),
        facts=structs.replace(FACTS, kernel=hostile, python=hostile),
        problems=[hostile],
        warnings=[hostile],
    )
    monkeypatch.setattr("loadtest.cli.hosts.check_hosts", lambda *_arguments, **_options: [report])
    path = tmp_path / "hosts.toml"
    path.write_text('[[hosts]]\nname = "b"\naddress = "192.0.2.2"\nroles = ["requestor"]\n')
    done = check(path)
    assert done.returncode == 3
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert r"error: \x1b]0;owned\x07\u202e\nnew line" in done.stdout


def inventory(*hosts: HostPlan) -> Inventory:
    return Inventory(hosts, Path("hosts.toml"))


def named(name: str, **changes: Any) -> HostPlan:
    return structs.replace(HOST, name=name, **changes)


@pytest.mark.parametrize(
    ("hosts", "requestors", "connections"),
    [
        ([named("b"), named("c")], 1, [500, 500]),
        ([named("b"), named("c")], 3, [668, 334]),
        ([named("b", processes=1), named("c", processes=3)], 1, [250, 750]),
        ([named("b", processes=4), named("c")], 9, [448, 560]),
        ([named("a", roles=("broker",)), named("b")], 2, [1000]),
    ],
)
def test_a_check_distributes_users_like_a_run(
    hosts: list[HostPlan], requestors: int, connections: list[int]
) -> None:
    shares = shares_of(Scenario(users=1000, requestors=requestors), inventory(*hosts))
    assert [share.connections for share in shares.values()] == connections


def test_the_share_of_a_thread_depends_on_the_hosts_threads() -> None:
    hosts = inventory(named("b", threads=4), named("c"))
    shares = shares_of(Scenario(users=1000, threads=2), hosts)
    assert [share.per_thread for share in shares.values()] == [125, 250]
    broadcast = BroadcastScenario(users=1000, processes=4, rate=1)
    assert [share.connections for share in shares_of(broadcast, hosts).values()] == [500, 500]


def problems(host: HostPlan, facts: Facts, **scenario: Any) -> Iterable[str]:
    plan = Scenario(**{"name": "test", "users": 100, **scenario})
    return find_problems(host, facts, [(plan, shares_of(plan, inventory(host))[host.name])])


def test_too_few_ports_are_a_problem_that_more_addresses_solve() -> None:
    facts = structs.replace(FACTS, ports=(1000, 1099), descriptors=-1)
    assert problems(HOST, facts, users=100) == []
    (text,) = problems(HOST, facts, users=101)
    assert text.startswith(
        "too few ports: test needs 101 connections from this host, but ports 1000 to 1099 allow 100 ("
    )
    two = structs.replace(HOST, sources=("192.0.2.2", "192.0.2.3"))
    assert problems(two, facts, users=200) == []
    assert len(list(problems(two, facts, users=201))) == 1
    assert problems(HOST, facts, users=200, sources=("192.0.2.2", "192.0.2.3")) == []


def test_a_port_can_lead_to_each_broker() -> None:
    brokers = [named(name, roles=("broker",)) for name in ("x", "y")]
    facts = structs.replace(FACTS, ports=(1000, 1099), descriptors=-1)
    for users, fits in ((200, True), (202, False)):
        plan = Scenario(name="test", users=users)
        share = shares_of(plan, inventory(*brokers, HOST))[HOST.name]
        assert share.connections == users
        assert (find_problems(HOST, facts, [(plan, share)]) == []) is fits


def test_too_few_open_files_are_a_problem_except_with_io_uring() -> None:
    assert problems(HOST, FACTS, users=924) == []
    (text,) = problems(HOST, FACTS, users=925)
    assert text.startswith(
        "descriptor limit too low: test needs 1,025 open files in each thread, but the hard limit is 1,024 ("
    )
    assert problems(HOST, FACTS, users=925, threads=2) == []
    assert problems(HOST, structs.replace(FACTS, descriptors=-1), users=925) == []
    assert problems(HOST, structs.replace(FACTS, io_uring=True), users=925) == []
    assert (
        len(list(problems(HOST, structs.replace(FACTS, io_uring=True), users=925, load_driver="epoll"))) == 1
    )
    assert (
        len(list(problems(named("b", driver="epoll"), structs.replace(FACTS, io_uring=True), users=925))) == 1
    )


def test_keys_of_a_host_must_match_its_properties() -> None:
    assert problems(named("b", cpus="0,2-3"), FACTS) == []
    assert problems(named("b", cpus="2-5"), FACTS) == [
        "cpus: processor 4, 5 does not exist on the host or is not allowed to this user"
    ]
    assert problems(named("b", driver="uring"), FACTS) == ['driver = "uring": the kernel has none']
    foreign = structs.replace(FACTS, foreign_sources=["192.0.2.9"])
    assert problems(HOST, foreign) == ["sources: 192.0.2.9 is not an address of this host"]


def test_a_wrong_clock_is_a_warning() -> None:
    assert find_warnings(FACTS) == []
    assert find_warnings(structs.replace(FACTS, clock=Clock(1.5, 0.6))) == []
    (ahead,) = find_warnings(structs.replace(FACTS, clock=Clock(1.7, 0.6)))
    assert ahead.startswith("the host's wall clock is 1.7 s ahead: ")
    (behind,) = find_warnings(structs.replace(FACTS, clock=Clock(-90.0, 0.1)))
    assert behind.startswith("the host's wall clock is 90.0 s behind: ")


def test_clocks_are_compared_by_the_quickest_exchange() -> None:
    offset, now = 5_000_000_000, 0
    trips = [(9_000, 1_000), (300, 100), (50, 8_000)] * 4

    def here() -> int:
        return now

    def ask() -> int:
        nonlocal now
        there, back = trips.pop()
        now += there
        read = now + offset
        now += back
        return read

    clock = compare_clocks(ask, here)
    assert clock.error_s == pytest.approx(200e-9)
    assert abs(clock.offset_s - 5) <= clock.error_s
    assert clock.offset_s == pytest.approx(5 + 100e-9)


def test_the_clock_of_a_host_is_compared_with_the_local_clock(network: Network) -> None:
    """Across a connection, with a clock that is known to be off: `python` is one that adds an hour."""
    with Connection(load_inventory(network.inventory([["requestor"]])).hosts[0]) as connection:
        connection.open()
        script = network.hosts[0].home / "python"
        late = "import sys, time; now = time.time_ns; time.time_ns = lambda: now() + 3600 * 10**9; "
        late += "text, sys.argv[1:] = sys.argv[1], sys.argv[2:]; exec(text)"
        script.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -P -c "{late}" "$@"\n')
        script.chmod(0o755)
        clock = gather_facts(connection, str(script)).clock
    assert clock.offset_s == pytest.approx(3600, abs=clock.error_s)
