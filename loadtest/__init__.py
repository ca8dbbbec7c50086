"""Load tests for servers that speak the NATS client protocol: scenarios, processes, results, reports.

The public API is what notebooks use: `load_run` for frames of a result folder, `read_result`, `load_scenario`
and the types that they return.
"""

from loadtest.frames import CapacitySearch, Run, load_capacity, load_run
from loadtest.plan.scenario import (
    BroadcastScenario,
    FetchScenario,
    Scenario,
    TransportsScenario,
    load_scenario,
    shipped_scenarios,
)
from loadtest.result.schema import Latency, Result, read_result

__all__ = [
    "BroadcastScenario",
    "CapacitySearch",
    "FetchScenario",
    "Latency",
    "Result",
    "Run",
    "Scenario",
    "TransportsScenario",
    "load_capacity",
    "load_run",
    "load_scenario",
    "read_result",
    "shipped_scenarios",
]
