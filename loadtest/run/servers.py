"""The servers of a run, its own brokers or a target, and how the load connects to them."""

from typing import Literal

from msgspec import structs

from loadtest.engine.messages import EngineConfig
from loadtest.plan.scenario import AnyScenario, FetchScenario, Scenario
from loadtest.plan.target import Target
from loadtest.processes.launch import Broker, Fleet
from loadtest.run.placement import Placement
from loadtest.sampling.monitor import Counters, JoinedCounters
from subjectbus import BrokerConfig, UsageError, settings

_SPARE_CONNECTIONS = 100


class Servers:
    """The servers. The processes with users are dealt to them in turn; providers are connected to each."""

    def __init__(self, scenario: AnyScenario, target: Target | None) -> None:
        self._scenario = scenario
        self._target = target
        self._brokers: list[Broker] = []

    def launch(self, placement: Placement, fleet: Fleet) -> None:
        """Starts the run's own brokers, into the fleet, and waits until all of them are ready."""
        connections = self._scenario.connections
        room = BrokerConfig(max_connections=connections + _SPARE_CONNECTIONS)
        config = settings.merge(room, self._scenario.broker)
        seats = list(zip(placement.brokers, placement.broker_addresses, strict=True))
        for number, (seat, address) in enumerate(seats, 1):
            name = f"broker {number}" if len(seats) > 1 else "broker"
            fleet.brokers.append(Broker(config, seat, connections, address=address, name=name))
        for broker in fleet.brokers:
            broker.wait_ready()
        self._brokers = fleet.brokers

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._brokers) or 1

    def user_engine(self, process: int) -> EngineConfig:
        """How the users of a process connect."""
        path = self._scenario.path if isinstance(self._scenario, FetchScenario) else "/"
        if self._target is None:
            listener = self._listener(process % self.count, self._scenario.transport)
            return self._engine(listener, listener, path)
        if self._target.path != "/":
            path = self._target.path
        return self._engine(self._target.address, self._target.host, path)

    def provider_engine(self, server: int) -> EngineConfig:
        """How providers connect to a server; to a target's http:// address, over WebSocket."""
        scenario = self._scenario
        own: Literal["ws", "tcp"] = "tcp" if scenario.transport == "tcp" else "ws"
        wanted = scenario.provider_transport if isinstance(scenario, Scenario) else None
        if self._target is None:
            listener = self._listener(server, wanted or own)
            engine = self._engine(listener, listener, "/")
        else:
            engine = self._engine(self._target.address, self._target.host, self._target.path)
        return structs.replace(engine, transport=wanted or own)

    def open_counters(self) -> tuple[Counters, str]:
        """The counters of the own brokers, as one, and their URLs."""
        urls = [f"http://{self._listener(index, 'monitor')}" for index in range(self.count)]
        parts = [broker.machine.open_counters(url) for broker, url in zip(self._brokers, urls, strict=True)]
        return parts[0] if len(parts) == 1 else JoinedCounters(parts), ", ".join(urls)

    def _listener(self, server: int, use: str) -> str:
        """An own broker's address for a transport, or of its monitor."""
        name = {"tcp": "tcp", "monitor": "monitor"}.get(use, "http")
        addresses = self._brokers[server].addresses
        if name not in addresses:
            raise UsageError(f"scenario {self._scenario.name}: broker.{name}: the run needs this listener")
        return addresses[name]

    def _engine(self, address: str, host: str, path: str) -> EngineConfig:
        scenario = self._scenario
        return EngineConfig(
            transport=scenario.transport,
            address=address,
            host=host,
            path=path,
            driver=scenario.load_driver,
            sources=scenario.sources,
        )
