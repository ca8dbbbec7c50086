"""What a run asked for beside what it got."""

from loadtest.report.canvas import Table
from loadtest.result.schema import Result

_ABSENT = "-"


def tabulate(result: Result) -> Table:
    """Connections, subjects, rate and time: requested, achieved, and the one as a share of the other."""
    asked, got = result.requested, result.achieved
    events = "requests/s" if result.broadcast is None else "deliveries/s"
    measures: list[tuple[str, float | None, float, int]] = [
        ("connections", asked.connections, got.connections, 0),
        ("subjects", asked.subjects, got.subjects, 0),
        # A broadcast as fast as the server makes it asks for no rate.
        (f"{events}, mean", asked.rate or None, got.rate, 0),
        ("measured time, s", asked.duration_s, result.duration_s, 2),
    ]
    rows = [
        [
            name,
            _ABSENT if wanted is None else f"{wanted:,.{decimals}f}",
            f"{reached:,.{decimals}f}",
            f"{100 * reached / wanted:.2f} %" if wanted else _ABSENT,
        ]
        for name, wanted, reached, decimals in measures
    ]
    return Table(["measure", "requested", "achieved", "share"], rows)
