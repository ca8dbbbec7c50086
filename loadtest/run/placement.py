"""Who runs where: on this machine, or on the hosts of an inventory."""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from loadtest.errors import HostsFileError, ScenarioError
from loadtest.plan.inventory import HostPlan, Role, deal_processes
from loadtest.plan.scenario import AnyScenario, BroadcastScenario, FetchScenario, Scenario, find_contradiction
from loadtest.processes.child import parse_cpus
from loadtest.processes.launch import Seat
from loadtest.processes.local import LocalMachine
from loadtest.processes.machine import Machine


@dataclass(frozen=True)
class Manned:
    """A host of an inventory, and the machine that it has become."""

    plan: HostPlan
    machine: Machine


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A seat for every process of a run."""

    machines: Sequence[Machine]
    requestors: Sequence[Seat]
    """One for each process that has users."""
    providers: Sequence[Seat]
    """One for each process that answers."""
    brokers: Sequence[Seat] = ()
    """None on a target."""
    broker_addresses: Sequence[str] = ()
    """Where the load reaches each of them."""

    @property
    def is_spread(self) -> bool:
        """Whether other machines take part."""
        return any(machine.address is not None for machine in self.machines)

    def environment(self) -> dict[str, Any]:
        """Facts that figures are seen beside: of the broker's machine; of several, the cores of all."""
        seats = self.brokers or self.requestors[:1]
        machines = {id(seat.machine): seat.machine for seat in seats}
        described = dict(seats[0].machine.environment)
        described["cores"] = sum(int(machine.environment.get("cores", 1)) for machine in machines.values())
        return described

    def roles(self, machine: Machine) -> list[str]:
        """What a machine is for."""
        seats = {
            "broker": self.brokers,
            "requestor": self.requestors,
            "provider": self.providers,
        }
        return [role for role, taken in seats.items() if any(seat.machine is machine for seat in taken)]


def place_here(
    scenario: AnyScenario,
    broker_cpus: frozenset[int] | None,
    load_cpus: frozenset[int] | None,
    *,
    has_target: bool,
) -> Placement:
    """Everything on this machine."""
    machine = LocalMachine()
    load = Seat(machine=machine, cpus=load_cpus)
    return Placement(
        machines=[machine],
        requestors=[load] * _processes(scenario),
        providers=[] if isinstance(scenario, BroadcastScenario | FetchScenario) else [load],
        brokers=[] if has_target else [Seat(machine=machine, cpus=broker_cpus)],
        broker_addresses=[] if has_target else ["127.0.0.1"],
    )


def fit_to_hosts(scenario: AnyScenario, plans: Sequence[HostPlan], *, has_target: bool) -> AnyScenario:
    """The scenario with as many processes as these hosts make it; ScenarioError when it cannot be so."""
    field = "processes" if isinstance(scenario, BroadcastScenario) else "requestors"
    brokers = 0 if has_target else len(_with_role(plans, "broker"))
    if brokers > 1 and isinstance(scenario, BroadcastScenario):
        raise ScenarioError(
            f"scenario {scenario.name} on these hosts: {brokers} brokers, which are not joined: "
            "what one publishes reaches nobody on another"
        )
    counts = deal_processes(_with_role(plans, "requestor"), max(_processes(scenario), brokers))
    scenario = structs.replace(scenario, **{field: sum(counts)})
    if sum(counts) < brokers:
        raise ScenarioError(
            f"scenario {scenario.name} on these hosts: {brokers} brokers for {sum(counts)} requestors"
        )
    if (fault := find_contradiction(scenario)) is not None:
        raise ScenarioError(f"scenario {scenario.name} on these hosts: {fault}")
    for plan in _with_role(plans, "broker") if brokers else []:
        _data_address(plan)
    return scenario


def place_on_hosts(scenario: AnyScenario, hosts: Sequence[Manned], *, has_target: bool) -> Placement:
    """Seats for a scenario that was made to fit these hosts."""
    asking = _with_role([host.plan for host in hosts], "requestor")
    counts = deal_processes(asking, _processes(scenario))
    machines = {host.plan.name: host.machine for host in hosts}
    providers: list[HostPlan] = []
    if isinstance(scenario, Scenario):
        providers = _with_role([host.plan for host in hosts], "provider")[: scenario.providers]
    brokers = [] if has_target else _with_role([host.plan for host in hosts], "broker")
    return Placement(
        machines=list(machines.values()),
        requestors=[
            _seat(plan, machines[plan.name])
            for plan, count in zip(asking, counts, strict=True)
            for _ in range(count)
        ],
        providers=[_seat(plan, machines[plan.name]) for plan in providers],
        brokers=[_seat(plan, machines[plan.name]) for plan in brokers],
        broker_addresses=[_data_address(plan) for plan in brokers],
    )


def _with_role(plans: Sequence[HostPlan], role: Role) -> list[HostPlan]:
    return [plan for plan in plans if role in plan.roles]


def _seat(plan: HostPlan, machine: Machine) -> Seat:
    return Seat(
        machine=machine,
        cpus=parse_cpus(plan.cpus, anywhere=True) if plan.cpus is not None else None,
        sources=plan.sources,
        threads=plan.threads,
        driver=plan.driver,
    )


def _processes(scenario: AnyScenario) -> int:
    return scenario.processes if isinstance(scenario, BroadcastScenario) else scenario.requestors


def _data_address(plan: HostPlan) -> str:
    """Numeric, as the load's engine takes it; HostsFileError when nobody here knows it."""
    name = plan.broker_address
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HostsFileError(
            f'host "{plan.name}": {name}: {error.strerror}; '
            "data_address = the IP address at which the other hosts reach its broker"
        ) from error
    *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(ipaddress.ip_address(str(address[0]).partition("%")[0]))
