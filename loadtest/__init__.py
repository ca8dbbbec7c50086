"""Load tests for servers that speak the NATS client protocol: scenarios, processes, results, reports.

`run`, `repeat`, `capacity` and `compare` do what the commands of the same names do. `load_run` and
`load_capacity` give frames of a result folder, `read_result` its result.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.api import capacity, compare, repeat, run
    from loadtest.errors import (
        HostError,
        HostsFileError,
        ResultError,
        RunError,
        ScenarioError,
        TargetError,
        ThresholdError,
    )
    from loadtest.frames import CapacitySearch, Run, load_capacity, load_run
    from loadtest.result.capacity import Capacity
    from loadtest.result.comparison import Comparison
    from loadtest.result.repeated import Repeated
    from loadtest.result.schema import Latency, Result, Sample, read_result
    from loadtest.scenario.kinds import BroadcastScenario, FetchScenario, Scenario, TransportsScenario
    from loadtest.scenario.load import load_scenario, shipped_scenarios
    from subjectbus.errors import UsageError

#: The public names, by the module that has them.
_NAMES = {
    "loadtest.api": ("capacity", "compare", "repeat", "run"),
    "loadtest.errors": (
        "HostError",
        "HostsFileError",
        "ResultError",
        "RunError",
        "ScenarioError",
        "TargetError",
        "ThresholdError",
    ),
    "loadtest.frames": ("CapacitySearch", "Run", "load_capacity", "load_run"),
    "loadtest.result.capacity": ("Capacity",),
    "loadtest.result.comparison": ("Comparison",),
    "loadtest.result.repeated": ("Repeated",),
    "loadtest.result.schema": ("Latency", "Result", "Sample", "read_result"),
    "loadtest.scenario.kinds": ("BroadcastScenario", "FetchScenario", "Scenario", "TransportsScenario"),
    "loadtest.scenario.load": ("load_scenario", "shipped_scenarios"),
    "subjectbus.errors": ("UsageError",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BroadcastScenario",
    "Capacity",
    "CapacitySearch",
    "Comparison",
    "FetchScenario",
    "HostError",
    "HostsFileError",
    "Latency",
    "Repeated",
    "Result",
    "ResultError",
    "Run",
    "RunError",
    "Sample",
    "Scenario",
    "ScenarioError",
    "TargetError",
    "ThresholdError",
    "TransportsScenario",
    "UsageError",
    "capacity",
    "compare",
    "load_capacity",
    "load_run",
    "load_scenario",
    "read_result",
    "repeat",
    "run",
    "shipped_scenarios",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562): the command line needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List the public names, those among them that are not imported yet."""
    return sorted({*globals(), *__all__})
