"""What the scenario planned for each second of the measured phase."""

from collections.abc import Sequence

from loadtest.errors import ScenarioError
from loadtest.plan.scenario import TransportsScenario, scenario_of
from loadtest.result.schema import Interval, Result


def planned_rates(result: Result, seconds: Sequence[Interval]) -> list[float] | None:
    """Requests, or messages published, per second in each; None where replies or the server set the pace.

    Nothing is planned beyond the end of the measured phase, where the last interval may reach. None, too,
    where the result's scenario is not one of this version.
    """
    try:
        scenario = scenario_of(result.scenario)
    except ScenarioError:
        return None
    if isinstance(scenario, TransportsScenario) or not scenario.rate:
        return None
    return [
        scenario.planned(second.start_s, second.end_s) / max(second.end_s - second.start_s, 1e-9)
        for second in seconds
    ]
