"""`subjectbus loadtest compare`: runs side by side, and whether one is worse."""

import sys
from pathlib import Path

import click

from loadtest.experiments.compare import compare_runs, read_sides
from loadtest.report.compare import render_comparison, show_comparison, to_csv, to_markdown, to_text
from loadtest.report.console import Screen
from loadtest.report.pages import write_text
from subjectbus import UsageError
from subjectbus.printable import echo

_LEAST = 2
_FORMS = {"table": to_text, "markdown": to_markdown, "csv": to_csv, "html": render_comparison}


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR DIR...")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="By how much a figure may be worse than the first run's.",
)
@click.option(
    "--judge",
    "judged",
    multiple=True,
    metavar="FIGURE",
    help="Judge this figure alone, such as latency_us.max; repeatable.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_FORMS)),
    default="table",
    show_default=True,
    help="How the comparison is written.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Else to standard output.")
def compare(
    folders: tuple[Path, ...], *, tolerance: float, judged: tuple[str, ...], form: str, out: Path | None
) -> int:
    """Set runs side by side; the first DIR is the baseline.

    A DIR is the result folder of a run, or that of a repeated one.

    Exit status: 0 no regression, 1 a figure is worse by more than the tolerance, or something held in the
    baseline alone, 2 unusable arguments or folders.
    """
    if len(folders) < _LEAST:
        raise UsageError("compare: two result folders or more are needed")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}")
    comparison = compare_runs(read_sides(folders), tolerance / 100, judged)
    if out is not None:
        write_text(out, _FORMS[form](comparison))
    elif form == "table" and sys.stdout.isatty():
        show_comparison(comparison, Screen())
    else:
        echo(_FORMS[form](comparison), nl=False)
    for regression in comparison.regressions:
        echo(f"regression: {regression}", err=True)
    return 1 if comparison.regressions else 0
