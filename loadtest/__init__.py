"""Load tests for servers that speak the NATS client protocol: scenarios, processes, results, reports.

The public API is what notebooks use: `load_scenario`, `read_result` and the types that they return.
"""

from loadtest.results import Latency, Result, read_result
from loadtest.scenario import BroadcastScenario, Scenario, load_scenario, shipped_scenarios

__all__ = [
    "BroadcastScenario",
    "Latency",
    "Result",
    "Scenario",
    "load_scenario",
    "read_result",
    "shipped_scenarios",
]
