"""Runs side by side, rendered: as a page, as Markdown, as CSV and on the terminal."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console as Terminal

from loadtest.report import markdown_parts as parts
from loadtest.report.canvas import Chart, Table
from loadtest.report.compare_charts import Curve, draw_percentiles
from loadtest.report.grids import draw_grid
from loadtest.report.losses import LOSSES_NOTE, is_without_loss
from loadtest.report.pages import csv_text, render_page
from loadtest.result.figures import Figure
from loadtest.result.repeated import FigureSpread

Verdict = Literal["baseline", "same", "better", "worse", "within spread", "not judged", "missing", "absent"]
_PLAIN_WIDTH = 160
_MARKS = {"better": "better", "worse": "WORSE", "within spread": "within spread", "missing": "MISSING"}
_BAD = (_MARKS["worse"], _MARKS["missing"])


@dataclass(frozen=True)
class Cell:
    """A figure of one side."""

    spread: FigureSpread | None
    """None where it does not have the figure."""
    change: float | None
    """Its median against the baseline's, as a share; infinite from 0, None without one of the two."""
    verdict: Verdict


@dataclass(frozen=True)
class Row:
    """A figure of all sides, the baseline first."""

    figure: Figure
    cells: Sequence[Cell]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs, or repeated runs, side by side."""

    names: Sequence[str]
    """Of the sides, the baseline first."""
    runs: Sequence[int]
    """How often each side was run."""
    rows: Sequence[Row]
    tolerance: float
    """The share by which a judged figure may be worse."""
    regressions: Sequence[str]
    """A sentence each; none when everything is in order."""
    differences: Sequence[str]
    """In scenarios and environments: what the sides cannot be blamed for."""
    curves: Sequence[Curve] = ()


def explain(comparison: Comparison) -> str:
    """What the verdicts mean."""
    baseline, tolerance = comparison.names[0], 100 * comparison.tolerance
    text = (
        f"Changes are against {baseline}; worse by more than {tolerance:g} % is a regression. A change "
        "without a word is smaller, or of a figure that is there to be seen and not judged. "
        f"{LOSSES_NOTE}"
    )
    if max(comparison.runs) == 1:
        return text
    return (
        f"{text} Of repeated runs the medians are compared; lowest and highest value are in brackets. A "
        "change no larger than what lies between these, on either side, is within the spread: no regression."
    )


def render_comparison(comparison: Comparison) -> str:
    """A self-contained page."""
    chart: Chart | None = draw_percentiles(comparison.curves)
    return render_page(
        "compare.html.j2",
        comparison=comparison,
        explanation=explain(comparison),
        table=tabulate(comparison),
        chart=chart,
    )


def to_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown."""
    regressions = [f"- **Regression:** {parts.plain(text)}" for text in comparison.regressions]
    return parts.document(
        [
            [f"# {parts.plain(', '.join(comparison.names))}"],
            regressions or ["No regression."],
            parts.table(tabulate(comparison)),
            [parts.plain(explain(comparison))],
            ["What differs besides:"] if comparison.differences else [],
            parts.bullets(comparison.differences),
        ]
    )


def to_csv(comparison: Comparison) -> str:
    """A line for each figure and side: bare numbers in the figure's unit."""
    rows: list[list[object]] = []
    for row in comparison.rows:
        for name, runs, cell in zip(comparison.names, comparison.runs, row.cells, strict=True):
            spread = cell.spread
            values = [spread.median, spread.min, spread.max] if spread else [None, None, None]
            rows.append([row.figure.name, row.figure.unit, name, runs, *values, cell.change, cell.verdict])
    columns = ["figure", "unit", "run", "runs", "median", "min", "max", "change", "verdict"]
    return csv_text(columns, rows)


def show_comparison(comparison: Comparison, terminal: Terminal) -> None:
    """The table, what differs, and the regressions."""
    table = tabulate(comparison)
    worse = [number for number, row in enumerate(table.rows) if any(text.endswith(_BAD) for text in row)]
    terminal.print(draw_grid(table, terminal, bold_red=worse), highlight=False)
    for text in [explain(comparison), *(f"differs: {text}" for text in comparison.differences)]:
        terminal.print(text, highlight=False, markup=False, soft_wrap=True)


def to_text(comparison: Comparison) -> str:
    """What the terminal shows, as plain text."""
    file = io.StringIO()
    show_comparison(comparison, Terminal(file=file, width=_PLAIN_WIDTH))
    return file.getvalue()


def tabulate(comparison: Comparison) -> Table:
    """A row for each figure, two columns for each side but the baseline, which has one."""
    baseline, *others = comparison.names
    columns = ["figure", baseline, *(text for name in others for text in (name, "change"))]
    rows = []
    for row in comparison.rows:
        if is_without_loss(row.figure, [cell.spread for cell in row.cells]):
            continue
        first, *rest = row.cells
        texts = [row.figure.title, _value(row.figure, first)]
        for cell in rest:
            texts += [_value(row.figure, cell), _change(cell)]
        rows.append(texts)
    return Table(columns, rows)


def _value(figure: Figure, cell: Cell) -> str:
    spread = cell.spread
    if spread is None:
        return "-"
    text = figure.text(spread.median)
    if spread.spread:
        text += f" ({figure.text(spread.min)} to {figure.text(spread.max)})"
    return text


def _change(cell: Cell) -> str:
    if cell.change is None:
        return _MARKS.get(cell.verdict, "-")
    share = "from 0" if cell.change == float("inf") else f"{100 * cell.change:+.1f} %"
    mark = _MARKS.get(cell.verdict)
    return f"{share} {mark}" if mark else share
