"""Report of a comparison of runs."""

from loadtest.report.charts.distribution import compare_percentiles
from loadtest.report.document import (
    ABSENT,
    Block,
    Bullets,
    Cell,
    Document,
    Fact,
    Headline,
    Mark,
    Outcome,
    Reach,
    Records,
    Section,
    Table,
    Text,
)
from loadtest.result import comparison as result
from loadtest.result.comparison import Comparison
from loadtest.result.metrics import HEADLINE, LOSSES_NOTE, Metric

_WORDS = {"better": "better", "worse": "WORSE", "within spread": "within spread", "missing": "MISSING"}
_GOOD = {"better": True, "worse": False, "missing": False}


def to_document(comparison: Comparison) -> Document:
    """Return the report of a comparison."""
    sides = [
        f"{name}, {runs} runs" if runs > 1 else name
        for name, runs in zip(comparison.names, comparison.runs, strict=True)
    ]
    head: list[Block] = [Text(" · ".join(sides), is_note=True)]
    if comparison.regressions:
        head += [
            Outcome("Regression", f"worse than {comparison.names[0]}.", holds=False),
            Bullets(comparison.regressions, are_failures=True),
        ]
    else:
        head.append(Outcome("No regression", "", holds=True))
    head.append(Headline(_headline(comparison)))
    chart = compare_percentiles(comparison.curves)
    differences: list[Block] = [Text("Nothing: scenario and environment are the same.")]
    if comparison.differences:
        differences = [Bullets(comparison.differences, reach=Reach.TERMINAL)]
    return Document(
        ", ".join(comparison.names),
        [
            Section(
                "Metrics",
                [tabulate(comparison), Text(explain(comparison), is_note=True, reach=Reach.TERMINAL)],
            ),
            Section("Distribution", [chart] if chart else []),
            Section("What differs besides", differences),
        ],
        head,
    )


def to_records(comparison: Comparison) -> Records:
    """Return a row for each metric and side, in the metric's unit."""
    rows: list[list[object]] = []
    for row in comparison.rows:
        for name, runs, cell in zip(comparison.names, comparison.runs, row.cells, strict=True):
            spread = cell.spread
            values = [spread.median, spread.min, spread.max] if spread else [None, None, None]
            rows.append([row.metric.path, row.metric.unit, name, runs, *values, cell.change, cell.verdict])
    return Records(["metric", "unit", "run", "runs", "median", "min", "max", "change", "verdict"], rows)


def explain(comparison: Comparison) -> str:
    """Return the meaning of the verdicts, as a paragraph."""
    baseline, tolerance = comparison.names[0], 100 * comparison.tolerance
    text = (
        f"Changes are against {baseline}; worse by more than {tolerance:g} % is a regression. A change "
        "without a word is smaller, or the metric is there to be seen and not judged. "
        f"{LOSSES_NOTE}"
    )
    if max(comparison.runs) == 1:
        return text
    return (
        f"{text} Of repeated runs the medians are compared; lowest and highest value are in brackets. A "
        "change no larger than what lies between these, on either side, is within the spread: no regression."
    )


def tabulate(comparison: Comparison) -> Table:
    """Return a row for each metric, with one column for the baseline and two for each other side."""
    baseline, *others = comparison.names
    columns = ["metric", baseline, *(text for name in others for text in (name, "change"))]
    rows: list[list[Cell]] = []
    for row in comparison.rows:
        if not any(cell.spread.is_shown for cell in row.cells if cell.spread):
            continue
        first, *rest = row.cells
        texts: list[Cell] = [row.metric.title, _value(row.metric, first)]
        for cell in rest:
            texts += [_value(row.metric, cell), _change(cell)]
        rows.append(texts)
    return Table(columns, rows, reach=Reach.TERMINAL)


def _headline(comparison: Comparison) -> list[Fact]:
    facts = []
    for row in comparison.rows:
        if row.metric.path in HEADLINE:
            first, *rest = row.cells
            beside = [
                f"{name}: {_value(row.metric, cell)}"
                for name, cell in zip(comparison.names[1:], rest, strict=True)
            ]
            facts.append(Fact(row.metric.title, _value(row.metric, first), beside))
    return facts


def _value(metric: Metric, cell: result.Cell) -> str:
    spread = cell.spread
    if spread is None:
        return ABSENT
    text = metric.text(spread.median)
    if spread.spread:
        text += f" ({metric.text(spread.min)} to {metric.text(spread.max)})"
    return text


def _change(cell: result.Cell) -> Cell:
    word = _WORDS.get(cell.verdict, "")
    if cell.change is None:
        return Mark(word or ABSENT, _GOOD.get(cell.verdict))
    share = "from 0" if cell.change == float("inf") else f"{100 * cell.change:+.1f} %"
    return Mark(f"{share} {word}".rstrip(), _GOOD.get(cell.verdict))
