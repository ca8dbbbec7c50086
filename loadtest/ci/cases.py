"""Test cases from verdicts: one for each threshold, each check and each judged metric."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadtest.result.capacity import Capacity
from loadtest.result.checks import describe_difference, describe_lateness, describe_trend, describe_value
from loadtest.result.comparison import Comparison, describe_change
from loadtest.result.metrics import SEND_LAG
from loadtest.result.repeated import Repeated
from loadtest.result.schema import Result, ThresholdOutcome
from loadtest.result.thresholds import parse_threshold

Outcome = Result | Repeated | Capacity | Comparison


@dataclass(frozen=True)
class Case:
    """One verdict as a test case."""

    group: str
    """Kind of the case: "run", "threshold", "conservation", "agreement", "soak", "capacity" or "metric"."""
    name: str
    holds: bool
    text: str = ""
    """Judged value in one line; if the case does not hold, the reason."""
    is_error: bool = False
    """Whether the case could not be judged, because the run failed."""

    @property
    def line(self) -> str:
        """Name and judged value."""
        return f"{self.name}: {self.text}" if self.text else self.name


@dataclass(frozen=True)
class Suite:
    """All cases of one command."""

    name: str
    """Scenario, or names of the runs that are compared."""
    cases: Sequence[Case]
    started: str | None = None
    """Start of the command: UTC, ISO 8601. None if nothing was started."""
    duration_s: float = 0.0
    folder: str = ""
    """Result folder. Empty if there is none."""

    @property
    def failed(self) -> list[Case]:
        """Cases that do not hold."""
        return [case for case in self.cases if not case.holds]


def suite_of(outcome: Outcome) -> Suite:
    """Return the cases of a result, of repeated runs, of a search for the capacity, or of a comparison."""
    match outcome:
        case Result():
            cases = list(_of_result(outcome))
            return Suite(outcome.scenario["name"], cases, outcome.started, outcome.duration_s)
        case Repeated():
            return Suite(outcome.scenario["name"], list(_of_repeated(outcome)), outcome.started)
        case Capacity():
            return Suite(
                f"capacity of {outcome.scenario['name']}", list(_of_search(outcome)), outcome.started
            )
        case Comparison():
            return Suite(", ".join(outcome.names), list(_of_comparison(outcome)))


def failed_suite(name: str, error: str) -> Suite:
    """Return the cases of a command that failed without a result."""
    return Suite(name, [_run_case(error)])


def with_error(suite: Suite, error: str) -> Suite:
    """Return a suite with a case for the error; unchanged if it has such a case already."""
    if any(case.is_error for case in suite.cases):
        return suite
    cases = [case for case in suite.cases if case.group != "run"]
    return replace(suite, cases=[_run_case(error), *cases])


def _run_case(error: str | None) -> Case:
    return Case("run", "the run came to its end", error is None, error or "", is_error=error is not None)


def _of_result(result: Result) -> Iterator[Case]:
    yield _run_case(result.error)
    for outcome in result.thresholds:
        yield Case("threshold", outcome.expr, outcome.holds, _describe_threshold(result, outcome))
    yield from _checks(result)


def _describe_threshold(result: Result, outcome: ThresholdOutcome) -> str:
    text = "has no value" if outcome.value is None else f"is {describe_value(outcome)}"
    if outcome.holds or parse_threshold(outcome.expr).path != SEND_LAG:
        return text
    return f"{text}: {describe_lateness(result)}"


def _checks(result: Result) -> Iterator[Case]:
    conservation = result.conservation
    for check in conservation.checks:
        yield Case("conservation", check.name, check.holds, check.detail)
    if all(check.holds for check in conservation.checks):
        yield Case("conservation", "every message is accounted for", conservation.holds)
    for row in result.agreement:
        yield Case("agreement", row.name, row.holds, describe_difference(row))
    if result.soak is not None:
        if result.soak.note:
            yield Case("soak", "it can be judged", holds=False, text=result.soak.note)
        for trend in result.soak.trends:
            yield Case("soak", trend.name, trend.holds, describe_trend(trend))


def _of_repeated(repeated: Repeated) -> Iterator[Case]:
    yield _run_case(repeated.error)
    for outcome in repeated.thresholds:
        rule = "median" if outcome.rule == "median" else "every run"
        held = f"holds in {sum(outcome.held)} of {len(outcome.held)} runs"
        yield Case("threshold", outcome.expr, outcome.holds, f"{rule}: {describe_value(outcome)}, {held}")
    for run in repeated.runs:
        broken = [text for text in repeated.complaints if text.startswith(f"{run}: ")]
        yield Case("conservation", f"{run}: every check", not broken, "; ".join(broken))


def _of_search(search: Capacity) -> Iterator[Case]:
    broke = search.ending in ("failed", "interrupted", "running")
    yield _run_case(search.explanation if broke else None)
    if broke:
        return
    yield Case("capacity", "a rate holds the objectives", search.capacity is not None, search.explanation)
    judged = [probe for probe in search.probes if search.capacity is None or probe.rate == search.capacity]
    for outcome in judged[-1].objectives if judged else ():
        text = f"is {describe_value(outcome)} at {judged[-1].rate:,.10g}/s"
        yield Case("threshold", outcome.expr, outcome.holds, text)
    if search.baseline is not None:
        name = f"at most {100 * search.baseline.tolerance:g} % below the baseline"
        yield Case("capacity", name, search.baseline.holds, search.baseline.text)


def _of_comparison(comparison: Comparison) -> Iterator[Case]:
    known = []
    for number, name in enumerate(comparison.names[1:], 1):
        for row in comparison.rows:
            cell = row.cells[number]
            if cell.verdict in ("not judged", "absent"):
                continue
            worse = describe_change(row, number, comparison.names, comparison.tolerance)
            change = "" if cell.change is None or math.isinf(cell.change) else f"{100 * cell.change:+.1f} %"
            judged_by = f"{change}, {cell.verdict}" if change else cell.verdict
            yield Case("metric", f"{name}: {row.metric.title}", worse is None, worse or judged_by)
            known += [worse] if worse else []
    others = [text for text in comparison.regressions if text not in known]
    yield from (Case("check", text.partition(": ")[0], holds=False, text=text) for text in others)
    if not others:
        yield Case("check", "what holds in the baseline holds elsewhere", holds=True)
