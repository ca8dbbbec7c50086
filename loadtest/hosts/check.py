"""Checks of hosts before a run: each is reachable, has this build and is large enough for a scenario."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Literal

from msgspec import Struct

from loadtest.errors import HostError
from loadtest.hosts.connection import Connection
from loadtest.hosts.facts import Facts, gather_facts
from loadtest.hosts.identity import build_id
from loadtest.hosts.install import find_installed, install
from loadtest.hosts.interpreter import find_python
from loadtest.hosts.parallel import on_each
from loadtest.scenario.cpus import parse_cpus
from loadtest.scenario.inventory import HostPlan, Inventory, deal_processes
from loadtest.scenario.kinds import AnyScenario, BroadcastScenario
from subjectbus.limits import DESCRIPTOR_MARGIN

_CLOCK_TOLERANCE_S = 1.0

Build = Literal["there", "installed", "missing"]


class HostReport(Struct, kw_only=True):
    """Findings about one host."""

    name: str
    address: str
    roles: tuple[str, ...]
    is_reachable: bool = False
    build: Build | None = None
    """State of the build: present before the check, installed by it, or missing. None if unknown."""
    python: str | None = None
    """Path, on the host, of the interpreter that runs the build. None without a build."""
    facts: Facts | None = None
    """Properties of the host. None if they could not be gathered."""
    problems: list[str] = []
    """Reasons why the host is not fit, one line each."""
    warnings: list[str] = []
    """Conditions that may disturb a run, one line each."""

    @property
    def is_fit(self) -> bool:
        """Whether the host can take part in a run."""
        return not self.problems


class Share(Struct, frozen=True):
    """Connections of a scenario that one host with users has to establish."""

    connections: int
    """Connections from the host, in all."""
    per_thread: int
    """Connections of each thread, at most."""
    destinations: int = 1
    """Brokers that the connections lead to. One local port serves a connection to each of them."""


def check_hosts(
    inventory: Inventory,
    scenarios: Sequence[AnyScenario],
    on_progress: Callable[[str], None],
    *,
    may_install: bool,
) -> list[HostReport]:
    """Check all hosts in parallel.

    Args:
        inventory: Hosts to check.
        scenarios: Scenarios that each host should be large enough for.
        on_progress: Called with one line for each step that takes some time, from several threads.
        may_install: Whether a missing build is installed.

    Returns:
        One report for each host, in the order of the inventory.
    """

    def check(connection: Connection) -> HostReport:
        shares = [shares_of(scenario, inventory).get(connection.host.name) for scenario in scenarios]
        needs = list(zip(scenarios, shares, strict=True))
        return _check(connection, needs, on_progress, may_install=may_install)

    with ExitStack() as stack:
        return on_each([stack.enter_context(Connection(host)) for host in inventory.hosts], check)


def shares_of(scenario: AnyScenario, inventory: Inventory) -> dict[str, Share]:
    """Return the share of the connections of each host with users, by the host's name."""
    hosts = inventory.with_role("requestor")
    wanted = scenario.processes if isinstance(scenario, BroadcastScenario) else scenario.requestors
    brokers = max(len(inventory.with_role("broker")), 1)
    counts = deal_processes(hosts, max(wanted, brokers))
    users = math.ceil(scenario.users / max(sum(counts), 1))
    return {
        host.name: Share(
            users * count, math.ceil(users / (host.threads or scenario.threads)), min(count, brokers)
        )
        for host, count in zip(hosts, counts, strict=True)
    }


def _check(
    connection: Connection,
    shares: Sequence[tuple[AnyScenario, Share | None]],
    on_progress: Callable[[str], None],
    *,
    may_install: bool,
) -> HostReport:
    host = connection.host
    report = HostReport(name=host.name, address=host.address, roles=host.roles)
    try:
        connection.open()
        report.is_reachable = True
        _find_build(connection, report, on_progress, may_install=may_install)
        report.facts = gather_facts(connection, report.python or find_python(connection).executable)
    except HostError as error:
        report.problems.append(error.problem)
        return report
    report.problems += find_problems(host, report.facts, shares)
    report.warnings += find_warnings(report.facts)
    return report


def _find_build(
    connection: Connection, report: HostReport, on_progress: Callable[[str], None], *, may_install: bool
) -> None:
    found = find_installed(connection)
    if found is not None:
        report.build, report.python = "there", found.python
        return
    python = find_python(connection)
    if may_install:
        report.python = install(connection, python, on_progress)
        report.build = "installed"
        return
    report.build = "missing"
    report.problems.append(f"build {build_id()} is not installed (--install installs it)")


def find_problems(
    host: HostPlan, facts: Facts, shares: Sequence[tuple[AnyScenario, Share | None]]
) -> list[str]:
    """Return the reasons why the host cannot take its part in a run, one line each; none if it can."""
    problems = []
    if host.driver == "uring" and facts.io_uring is False:
        problems.append(f'driver = "uring": {facts.io_uring_reason}')
    wanted = parse_cpus(host.cpus, allow_any=True) if host.cpus else frozenset()
    if missing := sorted(wanted - set(facts.cpus)):
        numbers = ", ".join(map(str, missing))
        problems.append(
            f"cpus: processor {numbers} does not exist on the host or is not allowed to this user"
        )
    problems += [f"sources: {source} is not an address of this host" for source in facts.foreign_sources]
    for scenario, share in shares:
        if share is not None:
            problems += _find_shortages(host, facts, scenario, share)
    return list(dict.fromkeys(problems))


def _find_shortages(host: HostPlan, facts: Facts, scenario: AnyScenario, share: Share) -> list[str]:
    found = []
    addresses = max(len(host.sources or scenario.sources), 1)
    allowed = facts.port_count * addresses * share.destinations
    if share.connections > allowed:
        ports = "ports {} to {}".format(*facts.ports)
        found.append(
            f"too few ports: {scenario.name} needs {share.connections:,} connections from this host, but "
            f"{ports} allow {allowed:,} (add addresses to sources =, widen net.ipv4.ip_local_port_range, "
            "or add hosts)"
        )
    needed = share.per_thread + DESCRIPTOR_MARGIN
    # With io_uring the limit applies to each ring, and a thread opens as many rings as it needs.
    is_limited = _driver(host, facts, scenario) == "epoll" and facts.descriptors >= 0
    if is_limited and needed > facts.descriptors:
        found.append(
            f"descriptor limit too low: {scenario.name} needs {needed:,} open files in each thread, but the "
            f"hard limit is {facts.descriptors:,} (raise ulimit -Hn, threads = or processes =, or add hosts)"
        )
    return found


def _driver(host: HostPlan, facts: Facts, scenario: AnyScenario) -> str:
    wanted = host.driver or scenario.load_driver
    if wanted == "auto":
        return "uring" if facts.io_uring else "epoll"
    return wanted


def find_warnings(facts: Facts) -> list[str]:
    """Return the conditions that may disturb a run but do not prevent it, one line each."""
    clock = facts.clock
    if abs(clock.offset_s) - clock.error_s <= _CLOCK_TOLERANCE_S:
        return []
    direction = "ahead" if clock.offset_s > 0 else "behind"
    difference = f"the host's wall clock is {abs(clock.offset_s):.1f} s {direction}"
    return [f"{difference}: a run corrects its results for this, but times in logs will differ (set up NTP)"]
