"""The summary of repeated runs, rendered: report.html, report.md and the terminal's table."""

from pathlib import Path

from rich.console import Console as Terminal

from loadtest.report import markdown_parts as parts
from loadtest.report.canvas import Table
from loadtest.report.grids import draw_grid
from loadtest.report.losses import LOSSES_NOTE, is_without_loss
from loadtest.report.pages import csv_text, render_page, write_pages
from loadtest.report.reproduce import command_line
from loadtest.report.verdicts import describe_value
from loadtest.result.repeated import FigureSpread, Repeated, RepeatedThreshold

EXPLANATION = (
    "Spread is the distance between the lowest and the highest value, as a share of the median. A threshold "
    f"with == has to hold in every run, any other one for the median of the runs. {LOSSES_NOTE}"
)


def write_repeated(repeated: Repeated, folder: Path) -> None:
    """Writes report.html and report.md of the summary; RunError when the disk does not take them."""
    write_pages(folder, html=render_repeated(repeated), markdown=to_markdown(repeated))


def render_repeated(repeated: Repeated) -> str:
    """The summary's report.html."""
    return render_page(
        "repeated.html.j2",
        repeated=repeated,
        name=repeated.scenario["name"],
        table=tabulate(repeated, each=True),
        thresholds=[(outcome, describe_threshold(outcome)) for outcome in repeated.thresholds],
        explanation=EXPLANATION,
        command=command_line(repeated.command),
    )


def to_markdown(repeated: Repeated) -> str:
    """The summary as Markdown."""
    verdicts = [f"{_word(one.holds)}: {describe_threshold(one)}" for one in repeated.thresholds]
    command = command_line(repeated.command)
    return parts.document(
        [
            [f"# {parts.plain(repeated.scenario['name'])}, {len(repeated.runs)} runs"],
            [f"**Failed:** {parts.plain(repeated.error)}"] if repeated.error else [],
            parts.table(tabulate(repeated, each=True)),
            parts.bullets([*verdicts, *repeated.complaints]),
            [EXPLANATION],
            parts.fence("sh", command) if command else [],
        ]
    )


def to_csv(repeated: Repeated) -> str:
    """A line for each figure: bare numbers in its unit."""
    columns = ["figure", "unit", "median", "min", "max", *repeated.runs]
    rows = [
        [spread.figure.name, spread.figure.unit, spread.median, spread.min, spread.max, *spread.values]
        for spread in repeated.figures
    ]
    return csv_text(columns, rows)


def show_repeated(repeated: Repeated, folder: Path, terminal: Terminal) -> None:
    """The figures as a table, the verdicts, and where everything is."""
    title = f"scenario {repeated.scenario['name']}, {len(repeated.runs)} of {repeated.asked} runs"
    terminal.print(draw_grid(tabulate(repeated), terminal, title=title, wraps=False))
    for outcome in repeated.thresholds:
        _say(terminal, "threshold", describe_threshold(outcome), holds=outcome.holds)
    for text in repeated.complaints:
        _say(terminal, "check", text, holds=False)
    terminal.print(f"result folder: {folder}", highlight=False, markup=False, soft_wrap=True)


def describe_threshold(outcome: RepeatedThreshold) -> str:
    """The objective, what it was judged by, and in how many runs it held."""
    value = describe_value(outcome)
    what = f"median {value}" if outcome.rule == "median" else f"in every run, {value}"
    return f"{outcome.expr} ({what}; holds in {sum(outcome.held)} of {len(outcome.held)} runs)"


def tabulate(repeated: Repeated, *, each: bool = False) -> Table:
    """A row for each figure, with `each` also the value of each run."""
    columns = ["figure", "median", "lowest", "highest", "spread"]
    spreads = [one for one in repeated.figures if not is_without_loss(one.figure, [one])]
    rows = [_row(spread) for spread in spreads]
    if each:
        columns += repeated.runs
        for row, spread in zip(rows, spreads, strict=True):
            row += [spread.figure.text(value) for value in spread.values]
    return Table(columns, rows)


def _row(spread: FigureSpread) -> list[str]:
    share = spread.spread_share
    texts = [spread.figure.text(value) for value in (spread.median, spread.min, spread.max)]
    return [spread.figure.title, *texts, "-" if share is None else f"{100 * share:.1f} %"]


def _say(terminal: Terminal, kind: str, text: str, *, holds: bool) -> None:
    style = "green" if holds else "bold red"
    line = f"{kind:<12} {_word(holds)}  {text}"
    terminal.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def _word(holds: bool) -> str:  # noqa: FBT001 - a truth value is all there is
    return "holds" if holds else "FAILS"
