"""`subjectbus loadtest report`: the report of a run that is over."""

from pathlib import Path
from typing import Literal

import click

from loadtest.report import artifacts
from loadtest.report.experiments import find_experiment
from loadtest.report.markdown import to_markdown
from loadtest.report.spreadsheet import to_csv
from loadtest.result.schema import read_result
from subjectbus.printable import echo


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "markdown", "csv"]),
    default="html",
    help="html writes the folder's reports anew; the others are printed on standard output.",
)
def report(folder: Path, form: Literal["html", "markdown", "csv"]) -> None:
    """Make the reports of the result folder DIR anew, or print them.

    Anew means everything that follows from result.json: report.html, report.md, latency.hgrm and
    timeline.parquet. DIR may also be the folder of a search for the capacity, or of repeated runs. Exit
    status: 0, 2 DIR is no result folder of this version, 3 it cannot be written.
    """
    experiment = find_experiment(folder)
    if form == "html":
        if experiment is not None:
            experiment.render_again()
        else:
            artifacts.render_again(folder)
        echo(folder / "report.html")
        return
    if experiment is not None:
        echo(experiment.to_text(form), nl=False)
        return
    result = read_result(folder)
    render = to_markdown if form == "markdown" else to_csv
    with artifacts.blaming(folder / "result.json"):
        text = render(result)
    echo(text, nl=False)
