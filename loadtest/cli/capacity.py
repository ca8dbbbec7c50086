"""`subjectbus loadtest capacity`: the highest rate that holds the objectives."""

from pathlib import Path
from typing import Any

import click

from loadtest import api
from loadtest.cli.options import carry_out, running_options
from loadtest.experiments.capacity import LEAST_PROBE_S, PRECISIONS


@click.command()
@running_options
@click.option(
    "--slo",
    "slo",
    multiple=True,
    metavar="EXPR",
    help='An objective, "latency_us.p99 < 100000"; repeatable. Else the scenario\'s own thresholds.',
)
@click.option(
    "--from", "from_rate", type=float, metavar="R", help="The lowest rate. Else an eighth of the scenario's."
)
@click.option("--to", "to_rate", type=float, metavar="R", help="The highest rate. Else as high as it goes.")
@click.option(
    "--precision",
    type=click.FloatRange(*PRECISIONS),
    default=0.02,
    show_default=True,
    metavar="SHARE",
    help="How close the rate that holds and the one that fails are brought.",
)
@click.option(
    "--probe-s",
    type=click.FloatRange(min=LEAST_PROBE_S),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Length of each run's measured phase, in seconds.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of an earlier search with the same objectives: fail if the capacity has fallen since.",
)
@click.option(
    "--tolerance",
    type=float,
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="By how much the capacity may be below the baseline's.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the search. Else results/capacity-SCENARIO-TIME.",
)
def capacity(
    *,
    scenario: str,
    overrides: tuple[str, ...],
    out: Path | None,
    **options: Any,  # noqa: ANN401 - click's
) -> int:
    """Find the highest rate of SCENARIO that holds the objectives.

    A rate holds when every objective, the conservation check and the agreement with the own broker's counters
    do, and when at least 99 % of what was planned was answered within the measured phase.

    Exit status: 0 found, 1 not even the lowest rate holds, or the capacity has fallen by more than the
    tolerance, 2 unusable arguments, 3 a run failed or the search was interrupted, with what was found still
    written.
    """
    found = carry_out(api.capacity, scenario, overrides, out, prefix="capacity-", **options)
    return 0 if found.holds else 1
