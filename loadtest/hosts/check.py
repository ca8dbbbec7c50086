"""Whether hosts are fit for a run: within reach, of this build, and large enough for a scenario."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from msgspec import Struct

from loadtest.errors import HostError
from loadtest.hosts.connection import Connection
from loadtest.hosts.facts import Facts, gather_facts
from loadtest.hosts.identity import build_id
from loadtest.hosts.install import find_installed, install
from loadtest.hosts.interpreter import find_python
from loadtest.plan.inventory import HostPlan, Inventory, deal_processes
from loadtest.plan.scenario import AnyScenario, BroadcastScenario
from loadtest.processes.child import parse_cpus
from subjectbus.limits import DESCRIPTOR_MARGIN

_MOST_AT_ONCE = 32
_CLOCK_TOLERANCE_S = 1.0

Build = Literal["there", "installed", "missing"]


class HostReport(Struct, kw_only=True):
    """What was found out about one host."""

    name: str
    address: str
    roles: tuple[str, ...]
    is_reachable: bool = False
    build: Build | None = None
    """Whether the build was there, has been installed now, or is missing; None where that is not known."""
    python: str | None = None
    """Path of the interpreter that runs it there."""
    facts: Facts | None = None
    problems: list[str] = []
    """Why it is not fit."""
    warnings: list[str] = []
    """What may disturb a run."""

    @property
    def is_fit(self) -> bool:
        """Whether it can take part."""
        return not self.problems


class Share(Struct, frozen=True):
    """What a scenario asks of a host that has users."""

    connections: int
    """All that leave from it."""
    of_thread: int
    """Those of each thread, at most."""
    destinations: int = 1
    """Brokers that they lead to, to each of which a port can lead at the same time."""


def check_hosts(
    inventory: Inventory, scenarios: Sequence[AnyScenario], say: Callable[[str], None], *, may_install: bool
) -> list[HostReport]:
    """Looks at all hosts at once.

    Args:
        inventory: The hosts.
        scenarios: What each should be large enough for.
        say: Is told of what takes some time, from several threads.
        may_install: Whether a missing build is installed.

    Returns:
        A report for each host, in their order.
    """
    hosts = inventory.hosts

    def check(host: HostPlan) -> HostReport:
        shares = [shares_of(scenario, inventory).get(host.name) for scenario in scenarios]
        return _check(host, list(zip(scenarios, shares, strict=True)), say, may_install=may_install)

    with ThreadPoolExecutor(min(len(hosts), _MOST_AT_ONCE)) as threads:
        return list(threads.map(check, hosts))


def shares_of(scenario: AnyScenario, inventory: Inventory) -> dict[str, Share]:
    """What each host with users has of them, by its name."""
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
    host: HostPlan,
    shares: Sequence[tuple[AnyScenario, Share | None]],
    say: Callable[[str], None],
    *,
    may_install: bool,
) -> HostReport:
    report = HostReport(name=host.name, address=host.address, roles=host.roles)
    try:
        with Connection(host) as connection:
            connection.open()
            report.is_reachable = True
            _find_build(connection, report, say, may_install=may_install)
            report.facts = gather_facts(connection, report.python or find_python(connection).executable)
    except HostError as error:
        report.problems.append(error.what)
        return report
    report.problems += find_problems(host, report.facts, shares)
    report.warnings += find_warnings(report.facts)
    return report


def _find_build(
    connection: Connection, report: HostReport, say: Callable[[str], None], *, may_install: bool
) -> None:
    found = find_installed(connection)
    if found is not None:
        report.build, report.python = "there", found.python
        return
    python = find_python(connection)
    if may_install:
        report.python = install(connection, python, say)
        report.build = "installed"
        return
    report.build = "missing"
    report.problems.append(f"build {build_id()} is not installed (--install does it)")


def find_problems(
    host: HostPlan, facts: Facts, shares: Sequence[tuple[AnyScenario, Share | None]]
) -> list[str]:
    """Why the host cannot do what it is planned for."""
    problems = []
    if host.driver == "uring" and facts.io_uring is False:
        problems.append(f'driver = "uring": {facts.io_uring_reason}')
    wanted = parse_cpus(host.cpus, anywhere=True) if host.cpus else frozenset()
    if missing := sorted(wanted - set(facts.cpus)):
        problems.append(f"cpus: no processor {', '.join(map(str, missing))} there, or not for this user")
    if facts.foreign_sources:
        problems.append(f"sources: {', '.join(facts.foreign_sources)} is no address of this host")
    for scenario, share in shares:
        if share is not None:
            problems += _too_small(host, facts, scenario, share)
    return list(dict.fromkeys(problems))


def _too_small(host: HostPlan, facts: Facts, scenario: AnyScenario, share: Share) -> list[str]:
    found = []
    addresses = max(len(host.sources or scenario.sources), 1)
    allowed = facts.port_count * addresses * share.destinations
    if share.connections > allowed:
        ports = "ports {} to {}".format(*facts.ports)
        found.append(
            f"too few ports: {scenario.name} needs {share.connections:,} connections from it, {ports} allow "
            f"{allowed:,}: more sources =, a wider net.ipv4.ip_local_port_range or more hosts"
        )
    needed = share.of_thread + DESCRIPTOR_MARGIN
    # With io_uring the limit holds for each ring, of which a thread has as many as it needs.
    is_limited = _driver(host, facts, scenario) == "epoll" and facts.descriptors >= 0
    if is_limited and needed > facts.descriptors:
        found.append(
            f"descriptor limit too low: {scenario.name} needs {needed:,} open files in each thread there, "
            f"{facts.descriptors:,} allowed (ulimit -Hn): more threads =, processes = or hosts"
        )
    return found


def _driver(host: HostPlan, facts: Facts, scenario: AnyScenario) -> str:
    wanted = host.driver or scenario.load_driver
    if wanted == "auto":
        return "uring" if facts.io_uring else "epoll"
    return wanted


def find_warnings(facts: Facts) -> list[str]:
    """What does not prevent a run."""
    clock = facts.clock
    if abs(clock.offset_s) - clock.error_s <= _CLOCK_TOLERANCE_S:
        return []
    direction = "ahead" if clock.offset_s > 0 else "behind"
    apart = f"its wall clock is {abs(clock.offset_s):.1f} s {direction}"
    return [f"{apart}: a run measures and corrects that, but its logs will not fit (set up NTP)"]
