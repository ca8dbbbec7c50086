"""Load tests for servers that speak the NATS client protocol: scenarios, processes, results, reports.

The public API is what notebooks use: `load_run` for frames of a result folder, `read_result`, `load_scenario`
and the types that they return.
"""

from typing import TYPE_CHECKING

from loadtest.plan.scenario import (
    BroadcastScenario,
    FetchScenario,
    Scenario,
    TransportsScenario,
    load_scenario,
    shipped_scenarios,
)
from loadtest.result.schema import Latency, Result, read_result

if TYPE_CHECKING:
    from loadtest.frames import CapacitySearch, Run, load_capacity, load_run

_FRAMES = ("CapacitySearch", "Run", "load_capacity", "load_run")

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


def __getattr__(name: str) -> object:
    """Frames, whose libraries the processes of a run do without (PEP 562)."""
    if name not in _FRAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from loadtest import frames  # noqa: PLC0415

    return getattr(frames, name)
