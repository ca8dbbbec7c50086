"""Who runs where: on this machine, or on the hosts of an inventory."""

import ipaddress
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec import structs

from loadtest.errors import HostError, ScenarioError
from loadtest.plan.inventory import HostPlan, Role
from loadtest.plan.scenario import AnyScenario, BroadcastScenario, FetchScenario, find_contradiction
from loadtest.processes.child import parse_cpus
from loadtest.processes.launch import Seat
from loadtest.processes.local import LocalMachine
from loadtest.processes.machine import Machine

_Scenario = TypeVar("_Scenario", bound=AnyScenario)


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
    broker: Seat | None = None
    """None on a target."""
    broker_address: str = "127.0.0.1"
    """Where the load reaches the broker."""

    @property
    def is_spread(self) -> bool:
        """Whether other machines take part."""
        return any(machine.address is not None for machine in self.machines)

    def roles(self, machine: Machine) -> list[str]:
        """What a machine is for."""
        seats = {
            "broker": [self.broker] if self.broker else [],
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
        broker=None if has_target else Seat(machine=machine, cpus=broker_cpus),
    )


def place_on_hosts(
    scenario: _Scenario, hosts: Sequence[Manned], *, has_target: bool
) -> tuple[_Scenario, Placement]:
    """The scenario with as many processes as the hosts make it, and their seats.

    Raises:
        ScenarioError: The workload cannot be shared so.
        HostError: The broker's address is not known.
    """
    requestors = _seat_requestors(scenario, _with_role(hosts, "requestor"))
    scenario = _with_processes(scenario, len(requestors))
    providers: list[Seat] = []
    if not isinstance(scenario, BroadcastScenario | FetchScenario):
        providers = [_seat(host) for host in _with_role(hosts, "provider")][: scenario.providers]
    broker = None if has_target else _with_role(hosts, "broker")[0]
    placement = Placement(
        machines=[host.machine for host in hosts],
        requestors=requestors,
        providers=providers,
        broker=_seat(broker) if broker else None,
        broker_address=_data_address(broker.plan) if broker else "",
    )
    return scenario, placement


def _with_role(hosts: Sequence[Manned], role: Role) -> list[Manned]:
    return [host for host in hosts if role in host.plan.roles]


def _seat(host: Manned) -> Seat:
    plan = host.plan
    return Seat(
        machine=host.machine,
        cpus=parse_cpus(plan.cpus, anywhere=True) if plan.cpus is not None else None,
        sources=plan.sources,
        threads=plan.threads,
        driver=plan.driver,
    )


def _seat_requestors(scenario: AnyScenario, hosts: Sequence[Manned]) -> list[Seat]:
    """Each host's own number of processes where any has one; else the scenario's, dealt in turn."""
    if any(host.plan.processes is not None for host in hosts):
        counts = [host.plan.processes or 1 for host in hosts]
    else:
        total = max(_processes(scenario), len(hosts))
        counts = [math.ceil((total - index) / len(hosts)) for index in range(len(hosts))]
    return [_seat(host) for host, count in zip(hosts, counts, strict=True) for _ in range(count)]


def _processes(scenario: AnyScenario) -> int:
    return scenario.processes if isinstance(scenario, BroadcastScenario) else scenario.requestors


def _with_processes(scenario: _Scenario, processes: int) -> _Scenario:
    field = "processes" if isinstance(scenario, BroadcastScenario) else "requestors"
    scenario = structs.replace(scenario, **{field: processes})
    if (fault := find_contradiction(scenario)) is not None:
        raise ScenarioError(f"scenario {scenario.name} on these hosts: {fault}")
    return scenario


def _data_address(plan: HostPlan) -> str:
    """Numeric, as the load's engine takes it."""
    name = plan.broker_address
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HostError(plan.name, plan.address, f"data_address {name}: {error.strerror}") from error
    *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(ipaddress.ip_address(str(address[0]).partition("%")[0]))
