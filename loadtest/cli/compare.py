"""`subjectbus loadtest compare`: runs side by side, and whether one is worse."""

import sys
from pathlib import Path

import click

from loadtest import api
from loadtest.cli.options import named_as_options
from loadtest.cli.outputs import Outputs, junit_option, require_writable
from loadtest.report import html, markdown, terminal
from loadtest.report.artifacts import write_text
from loadtest.report.compare import to_document, to_records
from loadtest.result.comparison import Comparison
from subjectbus.printable import echo

_FORMS = {"table": terminal.to_text, "markdown": markdown.render, "html": html.render}


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR DIR...")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="By how much a metric may be worse than the first run's.",
)
@click.option(
    "--judge",
    multiple=True,
    metavar="METRIC",
    help="Judge this metric alone, such as latency_us.max; repeatable.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*_FORMS, "csv"]),
    default="table",
    show_default=True,
    help="How the comparison is written.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Else to standard output.")
@junit_option
def compare(
    folders: tuple[Path, ...],
    *,
    tolerance: float,
    judge: tuple[str, ...],
    form: str,
    out: Path | None,
    junit: Path | None,
) -> int:
    """Set runs side by side; the first DIR is the baseline.

    A DIR is the result folder of a run, or that of a repeated one.

    Exit status: 0 no regression, 1 a metric is worse by more than the tolerance, or something held in the
    baseline alone, 2 unusable arguments or folders, 3 a file cannot be written.
    """
    outputs = Outputs(junit)
    with outputs.on_failure("comparison"), named_as_options({"runs": "compare"}):
        if out is not None:
            require_writable("--out", out)
        comparison = api.compare(folders, tolerance=tolerance, judge=judge)
        _write(comparison, form, out)
    for regression in comparison.regressions:
        echo(f"regression: {regression}", err=True)
    outputs.write(comparison)
    return 0 if comparison.holds else 1


def _write(comparison: Comparison, form: str, out: Path | None) -> None:
    document = to_document(comparison)
    if out is None and form == "table" and sys.stdout.isatty():
        terminal.show(document, terminal.Screen())
        return
    text = to_records(comparison).to_csv() if form == "csv" else _FORMS[form](document)
    if out is None:
        echo(text, nl=False)
    else:
        write_text(out, text)
