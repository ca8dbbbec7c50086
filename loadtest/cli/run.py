"""`subjectbus loadtest run`: one run of a scenario, or several of the same."""

from pathlib import Path
from typing import Any

import click

from loadtest import api
from loadtest.cli.options import carry_out, running_options


@click.command()
@running_options
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Result folder. Else results/SCENARIO-TIME."
)
@click.option(
    "--repeat",
    "times",
    type=click.IntRange(min=2),
    metavar="N",
    help="Run it N times, into DIR/run-1 and so on, and tell median and spread of each metric.",
)
def run(
    *,
    scenario: str,
    overrides: tuple[str, ...],
    out: Path | None,
    times: int | None,
    **options: Any,  # noqa: ANN401 - click's
) -> int:
    """Run SCENARIO, a shipped one by name or a TOML file.

    Exit status: 0 every threshold, the conservation check, the agreement with the own broker's counters and a
    soak's trends hold, 1 one of them does not, 2 unusable arguments, 3 the run itself failed, with what was
    collected still written.
    """
    if times is None:
        return 0 if carry_out(api.run, scenario, overrides, out, **options).holds else 1
    return 0 if carry_out(api.repeat, scenario, overrides, out, times=times, **options).holds else 1
