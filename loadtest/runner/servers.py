"""The servers of a run, its own brokers or a target, and the way in which workers connect to them."""

from functools import partial
from typing import Literal

from msgspec import structs

from loadtest.runner.placement import Placement
from loadtest.sampling.monitor import Counters, JoinedCounters
from loadtest.scenario.kinds import AnyScenario, FetchScenario, Scenario
from loadtest.scenario.target import Target
from loadtest.workers.messages import EngineConfig
from loadtest.workers.processes import BrokerProcess, RunProcesses
from subjectbus import BrokerConfig, UsageError, settings

_SPARE_CONNECTIONS = 100


class Servers:
    """The servers. Processes with users are assigned to them in turn; providers connect to each of them."""

    def __init__(self, scenario: AnyScenario, target: Target | None) -> None:
        self._scenario = scenario
        self._target = target
        self._brokers: list[BrokerProcess] = []

    def launch(self, placement: Placement, processes: RunProcesses) -> None:
        """Start the run's brokers, add them to `processes`, and wait until all of them are ready.

        Raises:
            UsageError: A broker's configuration is invalid.
            RunError: A broker cannot be started, or was not ready in time.
        """
        connections = self._scenario.connections
        defaults = BrokerConfig(max_connections=connections + _SPARE_CONNECTIONS)
        config = settings.merge(defaults, self._scenario.broker)
        slots = list(zip(placement.brokers, placement.broker_addresses, strict=True))
        for number, (slot, address) in enumerate(slots, 1):
            name = f"broker {number}" if len(slots) > 1 else "broker"
            start = partial(BrokerProcess, config, slot, connections, address=address, name=name)
            processes.add_broker(start)
        for broker in processes.brokers:
            broker.wait_ready()
        self._brokers = processes.brokers

    @property
    def count(self) -> int:
        """Number of servers."""
        return len(self._brokers) or 1

    def user_engine(self, process: int) -> EngineConfig:
        """Return the engine configuration of the users in process number `process`, from 0."""
        path = self._scenario.path if isinstance(self._scenario, FetchScenario) else "/"
        if self._target is None:
            listener = self._listener_address(process % self.count, self._scenario.transport)
            return self._engine_config(listener, listener, path)
        if self._target.path != "/":
            path = self._target.path
        return self._engine_config(self._target.address, self._target.host, path)

    def provider_engine(self, server: int) -> EngineConfig:
        """Return the engine configuration of a server's providers; HTTP targets get WebSocket providers."""
        scenario = self._scenario
        default: Literal["ws", "tcp"] = "tcp" if scenario.transport == "tcp" else "ws"
        transport = (scenario.provider_transport if isinstance(scenario, Scenario) else None) or default
        if self._target is None:
            listener = self._listener_address(server, transport)
            engine = self._engine_config(listener, listener, "/")
        else:
            engine = self._engine_config(self._target.address, self._target.host, self._target.path)
        return structs.replace(engine, transport=transport)

    def open_counters(self) -> tuple[Counters, str]:
        """Return the counters of all brokers, summed up, and the URLs of their monitors."""
        urls = [f"http://{self._listener_address(index, 'monitor')}" for index in range(self.count)]
        parts = [broker.machine.open_counters(url) for broker, url in zip(self._brokers, urls, strict=True)]
        return parts[0] if len(parts) == 1 else JoinedCounters(parts), ", ".join(urls)

    def _listener_address(self, server: int, purpose: str) -> str:
        """Return the address of a broker's listener for a transport, or for its monitor.

        Raises:
            UsageError: The broker's configuration has switched off the listener.
        """
        name = {"tcp": "tcp", "monitor": "monitor"}.get(purpose, "http")
        addresses = self._brokers[server].addresses
        if name not in addresses:
            raise UsageError(f"scenario {self._scenario.name}: broker.{name}: the run needs this listener")
        return addresses[name]

    def _engine_config(self, address: str, host: str, path: str) -> EngineConfig:
        scenario = self._scenario
        return EngineConfig(
            transport=scenario.transport,
            address=address,
            host=host,
            path=path,
            driver=scenario.load_driver,
            sources=scenario.sources,
        )
