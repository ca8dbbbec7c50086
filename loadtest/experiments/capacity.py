"""The search for the highest rate that holds the objectives: its plan, and the loop around its probes."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from loadtest.errors import ScenarioError
from loadtest.experiments.judgement import LEAST_SHARE, judge_probe
from loadtest.experiments.search import Search
from loadtest.experiments.single import RunInto
from loadtest.plan.scenario import AnyScenario, Plan, TransportsScenario
from loadtest.processes.interrupts import Interrupts
from loadtest.report.canvas import figure_text
from loadtest.result.capacity import FILE, Capacity, Ending, Probe, Purpose
from loadtest.result.documents import write_document
from loadtest.result.thresholds import Threshold, parse_thresholds
from loadtest.sampling.environment import describe_environment
from subjectbus import UsageError

_FIRST_SHARE = 1 / 8  # doubling meets the scenario's own rate again

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """What is searched, where and how closely."""

    scenario: AnyScenario
    objectives: Sequence[Threshold]
    from_rate: float
    to_rate: float | None
    precision: float
    probe_s: float
    target: str | None = None
    command: Sequence[str] = ()

    def probe(self, rate: float) -> AnyScenario:
        """The scenario of one probe."""
        exprs = tuple(objective.expr for objective in self.objectives)
        return structs.replace(self.scenario, rate=rate, duration_s=self.probe_s, thresholds=exprs, soak=None)


def plan_search(
    plan: Plan,
    slos: Iterable[str],
    *,
    from_rate: float | None,
    to_rate: float | None,
    precision: float,
    probe_s: float,
) -> SearchPlan:
    """The search for a scenario's capacity; without `slos` its own thresholds are the objectives.

    Raises:
        UsageError: A scenario without a rate, or bounds that leave nothing to search.
    """
    where = f"scenario {plan.name}"
    if isinstance(plan, TransportsScenario) or plan.outstanding:
        raise ScenarioError(
            f"{where}: a search for the capacity needs an open loop, with rate= and no outstanding="
        )
    lowest = plan.rate * _FIRST_SHARE if from_rate is None else from_rate
    for name, value in (("--from", lowest), ("--to", to_rate)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name}: expected a rate above 0, got {value:g}")
    if to_rate is not None and to_rate < lowest:
        raise UsageError(f"--to: {to_rate:g} is below the lowest rate, {lowest:g}")
    return SearchPlan(
        scenario=plan,
        objectives=parse_thresholds(tuple(slos) or plan.thresholds),
        from_rate=lowest,
        to_rate=to_rate,
        precision=precision,
        probe_s=probe_s,
    )


def find_capacity(
    plan: SearchPlan, folder: Path, run_into: RunInto, interrupts: Interrupts, tell: Tell
) -> Capacity:
    """Probes until the edge is found, writing capacity.json after each; a Ctrl-C keeps what was found."""
    return _Loop(plan, folder, run_into, interrupts, tell).run()


class _Loop:
    def __init__(
        self, plan: SearchPlan, folder: Path, run_into: RunInto, interrupts: Interrupts, tell: Tell
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._run_into = run_into
        self._interrupts = interrupts
        self._tell = tell
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
        """One probe, or the end."""
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
        self._tell(f"probe {number}: {describe_step(rate, purpose, self._search)}")
        result = self._run_into(self._plan.probe(rate), self._folder / name)
        self._environment = result.environment
        probe = judge_probe(
            result,
            self._plan.objectives,
            number=number,
            folder=name,
            purpose=purpose,
            interrupted=self._interrupts.count > 0,
        )
        self._tell(describe_outcome(probe))
        return probe

    def _write(self, ending: Ending) -> Capacity:
        plan, held = self._plan, self._search.held
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
            explanation=self._explain(ending),
            capacity=held,
            capacity_achieved=holding[-1].achieved_rate if holding else None,
            fails_at=self._search.failed,
            probes=list(self._probes),
            environment=self._environment,
            command=list(plan.command),
        )
        if self._probes:
            write_document(capacity, self._folder / FILE)
        return capacity

    def _explain(self, ending: Ending) -> str:
        held, failed = self._search.held, self._search.failed
        so_far = "no rate held so far" if held is None else f"{held:,.10g}/s held so far"
        match ending:
            case "found":
                return f"{held:,.10g}/s holds the objectives, {failed:,.10g}/s does not: {self._why(failed)}"
            case "at_most":
                return f"{held:,.10g}/s holds the objectives, and nothing above it was to be tried (--to)"
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
    """What is tried, and why."""
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
    """The verdict of a probe in a line, with its reasons."""
    latency = f", p99 {figure_text(probe.latency_us.p99 / 1000)} ms" if probe.latency_us else ""
    figures = f"achieved {probe.achieved_rate:,.0f}/s{latency}"
    text = f"probe {probe.number}: {probe.rate:,.10g}/s {probe.verdict}: {figures}"
    return "; ".join([text, *probe.reasons])
