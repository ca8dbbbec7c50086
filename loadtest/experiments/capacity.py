"""The search for the highest rate that holds the objectives: its plan, and the loop that runs its probes."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from loadtest.errors import ArgumentError, ScenarioError
from loadtest.experiments.judgement import LEAST_SHARE, judge_probe
from loadtest.experiments.search import Search
from loadtest.result.capacity import FILE, Baseline, Capacity, Ending, Probe, Purpose, read_capacity
from loadtest.result.documents import write_document
from loadtest.result.metrics import number_text
from loadtest.result.thresholds import Threshold, parse_thresholds
from loadtest.runner.single import RunFunction
from loadtest.sampling.environment import describe_environment
from loadtest.scenario.kinds import AnyScenario, Plan, TransportsScenario
from loadtest.workers.interrupts import Interrupts

PRECISIONS = (0.0005, 0.5)
"""The finest and the coarsest precision of a search, as shares."""
LEAST_PROBE_S = 1.0
_ALL_PERCENT = 100
_FIRST_SHARE = 1 / 8  # doubling meets the scenario's own rate again

_LOAD_KEYS = (
    "workload", "transport", "users", "arrivals", "profile", "providers", "request_bytes", "reply_bytes",
    "provider_rate", "provider_delay", "churn_rate", "subjects", "publishers", "message_bytes", "path",
)  # fmt: skip
"""Keys that describe the load, and not how it is made or on what."""

OnProgress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """Plan of a search: scenario, objectives, bounds of the rate and precision."""

    scenario: AnyScenario
    objectives: Sequence[Threshold]
    from_rate: float
    to_rate: float | None
    precision: float
    probe_s: float
    target: str | None = None
    command: Sequence[str] = ()
    baseline: "BaselinePlan | None" = None

    def probe(self, rate: float) -> AnyScenario:
        """Return the scenario of one probe, with the rate, duration and objectives of the search."""
        exprs = tuple(objective.expr for objective in self.objectives)
        # A late load generator alone does not make a rate fail: latencies count from the planned send times.
        # If a rate fails, its reasons name the lateness.
        return structs.replace(
            self.scenario,
            rate=rate,
            duration_s=self.probe_s,
            thresholds=exprs,
            max_send_lag_ms=0.0,
            soak=None,
        )


@dataclass(frozen=True)
class BaselinePlan:
    """Earlier search to compare with."""

    folder: str
    search: Capacity
    tolerance: float
    """Share by which the capacity may be lower."""

    def judge(self, capacity: float | None) -> Baseline:
        """Compare a capacity with the capacity of the earlier search; None counts as 0."""
        before = self.search.capacity or 0.0
        change = (capacity or 0.0) / before - 1
        # Rates are decimal numbers: a capacity lower by exactly the tolerance holds, however it is rounded.
        holds = change >= -self.tolerance - 1e-9
        return Baseline(
            folder=self.folder, capacity=before, tolerance=self.tolerance, change=change, holds=holds
        )


def plan_baseline(baseline: str | os.PathLike[str] | Capacity, tolerance: float) -> BaselinePlan:
    """Return the plan of a comparison with an earlier search.

    Args:
        baseline: Earlier search, or its folder.
        tolerance: Percent by which the capacity may be lower, at least 0.

    Raises:
        UsageError: The search found no capacity or cannot be read, or the tolerance is not a percentage.
    """
    if not 0 <= tolerance < _ALL_PERCENT:
        raise ArgumentError("tolerance", f"expected 0 to 100 %, got {tolerance:g}")
    search = baseline if isinstance(baseline, Capacity) else read_capacity(Path(baseline))
    folder = "" if isinstance(baseline, Capacity) else os.fspath(baseline)
    if not search.capacity:
        raise ArgumentError("baseline", f"{folder or 'the search'} found no capacity: {search.explanation}")
    return BaselinePlan(folder, search, tolerance / _ALL_PERCENT)


def plan_search(
    plan: Plan,
    slos: Iterable[str],
    *,
    from_rate: float | None,
    to_rate: float | None,
    precision: float,
    probe_s: float,
    baseline: BaselinePlan | None = None,
) -> SearchPlan:
    """Return the plan of a search for a scenario's capacity.

    Without `slos`, the scenario's own thresholds are the objectives.

    Raises:
        UsageError: The scenario has no rate, or the bounds leave nothing to search.
    """
    where = f"scenario {plan.name}"
    if isinstance(plan, TransportsScenario) or plan.outstanding:
        raise ScenarioError(
            f"{where}: a search for the capacity needs an open loop, with rate= and no outstanding="
        )
    lowest = plan.rate * _FIRST_SHARE if from_rate is None else from_rate
    for name, value in (("from_rate", lowest), ("to_rate", to_rate)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ArgumentError(name, f"expected a rate above 0, got {value:g}")
    if to_rate is not None and to_rate < lowest:
        raise ArgumentError("to_rate", f"{to_rate:g} is below the lowest rate, {lowest:g}")
    finest, coarsest = PRECISIONS
    if not finest <= precision <= coarsest:
        raise ArgumentError("precision", f"expected a share from {finest} to {coarsest}, got {precision:g}")
    if not (math.isfinite(probe_s) and probe_s >= LEAST_PROBE_S):
        raise ArgumentError("probe_s", f"expected at least {LEAST_PROBE_S:g} s, got {probe_s:g}")
    objectives = parse_thresholds(tuple(slos) or plan.thresholds)
    if baseline is not None:
        _require_comparable(baseline, objectives, precision)
        _require_same_load(baseline, plan, probe_s)
        least = baseline.search.capacity or 0.0
        if to_rate is not None and to_rate < least * (1 - baseline.tolerance):
            raise ArgumentError("to_rate", f"{to_rate:g} is below the baseline's capacity, {least:,.10g}")
    return SearchPlan(
        scenario=plan,
        baseline=baseline,
        objectives=objectives,
        from_rate=lowest,
        to_rate=to_rate,
        precision=precision,
        probe_s=probe_s,
    )


def _require_comparable(baseline: BaselinePlan, objectives: Sequence[Threshold], precision: float) -> None:
    ours, theirs = [one.expr for one in objectives], baseline.search.objectives
    if sorted(ours) != sorted(theirs):
        what = f"{'; '.join(theirs) or 'none'}, and this search {'; '.join(ours) or 'none'}"
        raise ArgumentError("baseline", f"has other objectives: {what}")
    if baseline.tolerance < precision:
        finer = f"{100 * baseline.tolerance:g} % is finer than the search, {100 * precision:g} %"
        raise ArgumentError("tolerance", f"{finer}; a finer precision takes more runs")


def _require_same_load(baseline: BaselinePlan, plan: AnyScenario, probe_s: float) -> None:
    """Check that both searches measure the same load. Brokers and machines may differ.

    Raises:
        UsageError: A key of the load differs.
    """
    ours, theirs = msgspec.to_builtins(plan), baseline.search.scenario
    for key in (key for key in _LOAD_KEYS if ours.get(key) != theirs.get(key)):
        raise ArgumentError("baseline", f"has {key} = {theirs.get(key)}, and this search {ours.get(key)}")
    if probe_s != baseline.search.probe_s:
        what = f"{baseline.search.probe_s:g} s, and this search {probe_s:g} s"
        raise ArgumentError("baseline", f"has probes of another length: {what}")


def find_capacity(
    plan: SearchPlan,
    folder: Path | None,
    run_into: RunFunction,
    interrupts: Interrupts,
    on_progress: OnProgress,
) -> Capacity:
    """Run probes until the capacity is found, and return the search.

    After an interrupt, the search is returned as far as it has come. With a folder, capacity.json is written
    after each probe.
    """
    return _Loop(plan, folder, run_into, interrupts, on_progress).run()


class _Loop:
    def __init__(
        self,
        plan: SearchPlan,
        folder: Path | None,
        run_into: RunFunction,
        interrupts: Interrupts,
        on_progress: OnProgress,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._run_into = run_into
        self._interrupts = interrupts
        self._on_progress = on_progress
        self._search = Search(plan.from_rate, plan.to_rate, plan.precision)
        self._probes: list[Probe] = []
        self._started = datetime.now(UTC)
        self._environment = describe_environment()

    def run(self) -> Capacity:
        ending: Ending = "running"
        try:
            while ending == "running":
                ending = self._advance()
        except KeyboardInterrupt:
            ending = "interrupted"
        return self._write(ending)

    def _advance(self) -> Ending:
        """Run one probe, if any is left to run; return the state of the search."""
        step = self._search.next_rate()
        if step is None:
            if self._search.held is None:
                return "none"
            return "at_most" if self._search.failed is None else "found"
        probe = self._run_probe(*step)
        self._probes.append(probe)
        if probe.verdict == "unfinished":
            return "interrupted" if self._interrupts.count else "failed"
        self._search.note(probe.rate, holds=probe.verdict == "holds")
        self._write("running")
        return "interrupted" if self._interrupts.count else "running"

    def _run_probe(self, rate: float, purpose: Purpose) -> Probe:
        number = len(self._probes) + 1
        name = f"probe-{number:02}-{rate:.12g}"
        self._on_progress(f"probe {number}: {describe_step(rate, purpose, self._search)}")
        folder = None if self._folder is None else self._folder / name
        result = self._run_into(self._plan.probe(rate), folder)
        self._environment = result.environment
        probe = judge_probe(
            result,
            self._plan.objectives,
            number=number,
            folder=name,
            purpose=purpose,
            interrupted=self._interrupts.count > 0,
        )
        self._on_progress(describe_outcome(probe))
        return probe

    def _write(self, ending: Ending) -> Capacity:
        plan, held = self._plan, self._search.held
        is_over = ending in ("found", "at_most", "none")
        baseline = plan.baseline.judge(held) if is_over and plan.baseline is not None else None
        explanation = self._explain(ending)
        holding = [probe for probe in self._probes if probe.verdict == "holds" and probe.rate == held]
        capacity = Capacity(
            scenario=msgspec.to_builtins(plan.scenario),
            target=plan.target,
            started=self._started.isoformat(timespec="milliseconds"),
            objectives=[objective.expr for objective in plan.objectives],
            least_share=LEAST_SHARE,
            from_rate=plan.from_rate,
            to_rate=plan.to_rate,
            precision=plan.precision,
            probe_s=plan.probe_s,
            ending=ending,
            explanation=explanation if baseline is None else f"{explanation}; {baseline.text}",
            baseline=baseline,
            capacity=held,
            capacity_achieved=holding[-1].achieved_rate if holding else None,
            fails_at=self._search.failed,
            probes=list(self._probes),
            environment=self._environment,
            command=list(plan.command),
        )
        if self._probes and self._folder is not None:
            write_document(capacity, self._folder / FILE)
        return capacity

    def _explain(self, ending: Ending) -> str:
        held, failed = self._search.held, self._search.failed
        so_far = "no rate held so far" if held is None else f"{held:,.10g}/s held so far"
        match ending:
            case "found":
                return f"{held:,.10g}/s holds the objectives, {failed:,.10g}/s does not: {self._why(failed)}"
            case "at_most":
                return f"{held:,.10g}/s holds the objectives, and nothing above it was to be tried (to_rate)"
            case "none":
                return f"not even the lowest rate, {failed:,.10g}/s, holds: {self._why(failed)}"
            case "failed":
                last = self._probes[-1]
                return f"{last.reasons[0]} (at {last.rate:,.10g}/s; {so_far})"
            case "interrupted":
                return f"interrupted; {so_far}"
        return f"not over; {so_far}"

    def _why(self, rate: float | None) -> str:
        failures = [probe for probe in self._probes if probe.rate == rate and probe.verdict == "fails"]
        return failures[-1].reasons[0] if failures else "-"


def describe_step(rate: float, purpose: Purpose, search: Search) -> str:
    """Return the rate that is tried next and the reason for it, as text."""
    held, failed = search.held, search.failed
    match purpose:
        case "growth" if held is None:
            return f"{rate:,.10g}/s, the lowest"
        case "growth":
            return f"{rate:,.10g}/s, as {held:,.10g}/s holds"
        case "bisection":
            return f"{rate:,.10g}/s, between {held:,.10g}/s that holds and {failed:,.10g}/s that does not"
    return f"{rate:,.10g}/s once more, to see whether that was chance"


def describe_outcome(probe: Probe) -> str:
    """Return the verdict of a probe as one line, with its reasons."""
    latency = f", p99 {number_text(probe.latency_us.p99 / 1000)} ms" if probe.latency_us else ""
    figures = f"achieved {probe.achieved_rate:,.0f}/s{latency}"
    text = f"probe {probe.number}: {probe.rate:,.10g}/s {probe.verdict}: {figures}"
    return "; ".join([text, *probe.reasons])
