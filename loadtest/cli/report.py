"""`subjectbus loadtest report`: the reports of a result folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from loadtest.ci.benchmarks import to_bencher, to_github_benchmark
from loadtest.report import artifacts
from loadtest.result.documents import as_document_error
from subjectbus.printable import echo

_FEEDS: dict[str, Callable[[Any], Any]] = {
    "bencher": to_bencher,
    "github-smaller": partial(to_github_benchmark, better="lower"),
    "github-bigger": partial(to_github_benchmark, better="higher"),
}
"""Formats of benchmark feeds."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "markdown", "csv", *_FEEDS]),
    default="html",
    help="html writes the folder's reports anew; the others are printed on standard output. bencher and "
    "github-... are JSON for Bencher and for github-action-benchmark.",
)
def report(folder: Path, form: str) -> None:
    """Make the reports of the result folder DIR anew, or print them.

    Anew means everything that follows from result.json: report.html, report.md, latency.hgrm and
    timeline.parquet. DIR may also be the folder of a search for the capacity, or of repeated runs. Exit
    status: 0, 2 DIR is no result folder of this version, 3 it cannot be written.
    """
    if form == "html":
        artifacts.render_again(folder)
        echo(folder / "report.html")
    elif form in _FEEDS:
        outcome = artifacts.read_outcome(folder)
        with as_document_error(folder):
            feed = msgspec.json.encode(_FEEDS[form](outcome))
        echo(msgspec.json.format(feed, indent=2).decode())
    else:
        echo(artifacts.to_text(folder, "csv" if form == "csv" else "markdown"), nl=False)
