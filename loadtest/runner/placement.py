"""Places for the processes of a run: on this machine, or on the hosts of an inventory."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from loadtest.errors import HostsFileError, ScenarioError
from loadtest.scenario.contradictions import find_contradiction
from loadtest.scenario.cpus import parse_cpus
from loadtest.scenario.inventory import HostPlan, Role, deal_processes
from loadtest.scenario.kinds import AnyScenario, BroadcastScenario, FetchScenario, Scenario
from loadtest.scenario.names import resolve
from loadtest.workers.local import LocalMachine
from loadtest.workers.machine import Machine
from loadtest.workers.processes import Slot


@dataclass(frozen=True)
class HostBinding:
    """A host of an inventory, with the machine that stands for it in a run."""

    plan: HostPlan
    machine: Machine


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A slot for every process of a run."""

    machines: Sequence[Machine]
    requestors: Sequence[Slot]
    """One slot for each process with users: requestors or broadcasters."""
    providers: Sequence[Slot]
    """One slot for each provider process; empty if the scenario has no providers."""
    brokers: Sequence[Slot] = ()
    """One slot for each broker of the run; empty for a target."""
    broker_addresses: Sequence[str] = ()
    """Address of each broker, as the workers reach it."""

    @property
    def is_spread(self) -> bool:
        """Whether other machines take part in the run."""
        return any(machine.address is not None for machine in self.machines)

    def environment(self) -> dict[str, Any]:
        """Return facts about the broker's machine; `cores` is the sum if brokers run on several machines."""
        slots = self.brokers or self.requestors[:1]
        machines = {id(slot.machine): slot.machine for slot in slots}
        described = dict(slots[0].machine.environment)
        described["cores"] = sum(int(machine.environment.get("cores", 1)) for machine in machines.values())
        return described

    def roles(self, machine: Machine) -> list[str]:
        """Return the roles of a machine."""
        slots_by_role = {
            "broker": self.brokers,
            "requestor": self.requestors,
            "provider": self.providers,
        }
        return [
            role for role, slots in slots_by_role.items() if any(slot.machine is machine for slot in slots)
        ]


def place_here(
    scenario: AnyScenario,
    broker_cpus: frozenset[int] | None,
    load_cpus: frozenset[int] | None,
    *,
    has_target: bool,
) -> Placement:
    """Place all processes on this machine."""
    machine = LocalMachine()
    load = Slot(machine=machine, cpus=load_cpus)
    return Placement(
        machines=[machine],
        requestors=[load] * _process_count(scenario),
        providers=[] if isinstance(scenario, BroadcastScenario | FetchScenario) else [load],
        brokers=[] if has_target else [Slot(machine=machine, cpus=broker_cpus)],
        broker_addresses=[] if has_target else ["127.0.0.1"],
    )


def fit_to_hosts(scenario: AnyScenario, plans: Sequence[HostPlan], *, has_target: bool) -> AnyScenario:
    """Return the scenario with the number of processes that these hosts give it.

    Raises:
        ScenarioError: The scenario cannot be run on these hosts.
        HostsFileError: The address of a broker's host cannot be resolved here.
    """
    field = "processes" if isinstance(scenario, BroadcastScenario) else "requestors"
    brokers = 0 if has_target else len(_with_role(plans, "broker"))
    if brokers > 1 and isinstance(scenario, BroadcastScenario):
        raise ScenarioError(
            f"scenario {scenario.name} on these hosts: {brokers} brokers, which are not joined: "
            "a message published on one does not reach the users of another; give one host the role broker"
        )
    counts = deal_processes(_with_role(plans, "requestor"), max(_process_count(scenario), brokers))
    scenario = structs.replace(scenario, **{field: sum(counts)})
    if sum(counts) < brokers:
        raise ScenarioError(
            f"scenario {scenario.name} on these hosts: {brokers} brokers need as many requestors, "
            f"not {sum(counts)}"
        )
    if (contradiction := find_contradiction(scenario)) is not None:
        raise ScenarioError(f"scenario {scenario.name} on these hosts: {contradiction}")
    for plan in _with_role(plans, "broker") if brokers else []:
        _resolve_data_address(plan)
    return scenario


def place_on_hosts(scenario: AnyScenario, hosts: Sequence[HostBinding], *, has_target: bool) -> Placement:
    """Place the processes of a scenario that `fit_to_hosts` has returned for these hosts."""
    requestor_hosts = _with_role([host.plan for host in hosts], "requestor")
    counts = deal_processes(requestor_hosts, _process_count(scenario))
    machines = {host.plan.name: host.machine for host in hosts}
    providers: list[HostPlan] = []
    if isinstance(scenario, Scenario):
        providers = _with_role([host.plan for host in hosts], "provider")[: scenario.providers]
    brokers = [] if has_target else _with_role([host.plan for host in hosts], "broker")
    return Placement(
        machines=list(machines.values()),
        requestors=[
            _slot(plan, machines[plan.name])
            for plan, count in zip(requestor_hosts, counts, strict=True)
            for _ in range(count)
        ],
        providers=[_slot(plan, machines[plan.name]) for plan in providers],
        brokers=[_slot(plan, machines[plan.name]) for plan in brokers],
        broker_addresses=[_resolve_data_address(plan) for plan in brokers],
    )


def _with_role(plans: Sequence[HostPlan], role: Role) -> list[HostPlan]:
    return [plan for plan in plans if role in plan.roles]


def _slot(plan: HostPlan, machine: Machine) -> Slot:
    return Slot(
        machine=machine,
        cpus=parse_cpus(plan.cpus, allow_any=True) if plan.cpus is not None else None,
        sources=plan.sources,
        threads=plan.threads,
        driver=plan.driver,
    )


def _process_count(scenario: AnyScenario) -> int:
    return scenario.processes if isinstance(scenario, BroadcastScenario) else scenario.requestors


def _resolve_data_address(plan: HostPlan) -> str:
    """Return the IP address at which other hosts reach a broker's host: the engine takes no names.

    Raises:
        HostsFileError: The name cannot be resolved here.
    """
    name = plan.broker_address
    try:
        _, address = resolve(name)
    except OSError as error:
        raise HostsFileError(
            f'host "{plan.name}": {name}: {error.strerror}; '
            "set data_address to the IP address at which the other hosts reach its broker"
        ) from error
    return str(ipaddress.ip_address(address.partition("%")[0]))
