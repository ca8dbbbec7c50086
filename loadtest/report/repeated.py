"""The report of repeated runs."""

from loadtest.report.document import (
    ABSENT,
    Alert,
    Block,
    Document,
    Fact,
    Headline,
    Links,
    Outcome,
    Reach,
    Records,
    Section,
    Table,
    Text,
    Verdict,
    Verdicts,
)
from loadtest.report.run import reproduction
from loadtest.result.checks import describe_value
from loadtest.result.metrics import HEADLINE, LOSSES_NOTE
from loadtest.result.repeated import MetricSpread, Repeated, RepeatedThreshold

_EXPLANATION = (
    "Spread is the distance between the lowest and the highest value, as a share of the median. A threshold "
    f"with == has to hold in every run, any other one for the median of the runs. {LOSSES_NOTE}"
)


def to_document(repeated: Repeated) -> Document:
    """Return the report of repeated runs."""
    made = f"{len(repeated.runs)} of {repeated.asked} runs"
    target = repeated.target or "own broker, a new one for each run"
    head: list[Block] = [Text(f"{repeated.started} · {target} · {made}", is_note=True)]
    if repeated.error:
        head.append(Outcome("Failed", repeated.error, holds=False))
    elif repeated.holds:
        head.append(Outcome("Everything holds", "thresholds and accounts of all runs.", holds=True))
    else:
        head.append(Outcome("Not everything holds", "see below.", holds=False))
    if repeated.complaints:
        head.append(Alert("Checks that failed:", repeated.complaints))
    shown = [spread for spread in repeated.metrics if spread.is_shown]
    head.append(
        Headline(
            [
                Fact(spread.metric.title, spread.metric.text(spread.median), [_range(spread)])
                for spread in shown
                if spread.metric.path in HEADLINE
            ]
        )
    )
    columns = ["metric", "median", "lowest", "highest", "spread", *repeated.runs]
    each = [[*_row(spread), *map(spread.metric.text, spread.values)] for spread in shown]
    pages = [(run, f"./{run}/report.html") for run in repeated.runs]
    metrics: list[Block] = [
        Table(columns, each, essential=range(5), reach=Reach.TERMINAL),
        Text(_EXPLANATION, is_note=True),
        Links("Each run has its own result folder:", pages, reach=Reach.PAGE),
    ]
    return Document(
        f"{repeated.scenario['name']}, {made}",
        [
            Section("Metrics", metrics),
            Section("Thresholds", _thresholds(repeated)),
            reproduction(repeated),
        ],
        head,
    )


def to_records(repeated: Repeated) -> Records:
    """Return a row for each metric, in the metric's unit."""
    rows = [
        [spread.metric.path, spread.metric.unit, spread.median, spread.min, spread.max, *spread.values]
        for spread in repeated.metrics
    ]
    return Records(["metric", "unit", "median", "min", "max", *repeated.runs], rows)


def _range(spread: MetricSpread) -> str:
    return f"{spread.metric.text(spread.min)} to {spread.metric.text(spread.max)}"


def _row(spread: MetricSpread) -> list[str]:
    share = spread.spread_share
    texts = [spread.metric.text(value) for value in (spread.median, spread.min, spread.max)]
    return [spread.metric.title, *texts, ABSENT if share is None else f"{100 * share:.1f} %"]


def _thresholds(repeated: Repeated) -> list[Block]:
    checks = [Verdict(text, "", holds=False) for text in repeated.complaints]
    blocks: list[Block] = [Text("The scenario has none.")]
    if repeated.thresholds:
        verdicts = [Verdict(one.expr, _judged_by(one), one.holds) for one in repeated.thresholds]
        blocks = [Verdicts("threshold", ("objective", "value"), verdicts, reach=Reach.TERMINAL)]
    return [*blocks, *([Verdicts("check", ("check", ""), checks, reach=Reach.TERMINAL)] if checks else [])]


def _judged_by(outcome: RepeatedThreshold) -> str:
    """Return the rule by which the objective was judged and the number of runs in which it held."""
    value = describe_value(outcome)
    what = f"median {value}" if outcome.rule == "median" else f"in every run, {value}"
    return f"{what}; holds in {sum(outcome.held)} of {len(outcome.held)} runs"
