"""Load tests for servers that speak the NATS client protocol: scenarios, processes, results, reports.

The public API is what notebooks use: `load_run` for frames of a result folder, `read_result`, `load_scenario`
and the types that they return.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

#: The module of each public name.
_MODULES = {
    **dict.fromkeys(("CapacitySearch", "Run", "load_capacity", "load_run"), "loadtest.frames"),
    **dict.fromkeys(("Latency", "Result", "read_result"), "loadtest.result.schema"),
    **dict.fromkeys(
        (
            "BroadcastScenario",
            "FetchScenario",
            "Scenario",
            "TransportsScenario",
            "load_scenario",
            "shipped_scenarios",
        ),
        "loadtest.plan.scenario",
    ),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562): the command line needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
