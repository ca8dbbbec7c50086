"""What the scenario planned for each second of the measured phase."""

from collections.abc import Sequence

from loadtest.result.schema import Interval, Result


def planned_rates(result: Result, seconds: Sequence[Interval]) -> list[float] | None:
    """Requests, or messages published, per second in each; None where replies or the server set the pace.

    Nothing is planned beyond the end of the measured phase, where the last interval may reach.
    """
    rate = float(result.scenario.get("rate") or 0.0)
    if not rate:
        return None
    return [rate] * len(seconds)
