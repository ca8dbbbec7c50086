"""What a run says while it goes and when it is over; on standard error, so that output can be piped.

Nobody has to listen: once the terminal or the pipe has gone it is silent, and the run goes on.
"""

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console as Terminal
from rich.progress import BarColumn, TaskID, TextColumn

from loadtest.engine.messages import Progress
from loadtest.plan.scenario import BroadcastScenario, Plan, Scenario, TransportsScenario
from loadtest.report.canvas import Table
from loadtest.report.comparison import (
    compare,
    describe_agreement,
    describe_difference,
    describe_trend,
    explain_latency,
    is_closed_loop,
)
from loadtest.report.grids import draw_grid
from loadtest.report.live import LiveBars, WorkerRow
from loadtest.report.transports import explain, findings, tables
from loadtest.result.schema import Result, Sample
from subjectbus.printable import printable_lines

_PLAIN_WIDTH = 100
_PACE_S = 10.0
_BARS = {"connected": "connecting", "swept": "sweep"}
"""The bar of a phase, where that is another one's."""


class Screen(Terminal):
    """A terminal that prints strings without what a terminal acts on.

    It falls silent when its reader has gone, whatever rich is doing at the time.
    """

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - rich's
        """Print as rich does, strings made printable."""
        texts = (printable_lines(one) if isinstance(one, str) else one for one in objects)
        super().print(*texts, **options)

    def on_broken_pipe(self) -> None:
        """Not the program's end, which it is for rich."""
        self._fall_silent()

    def _check_buffer(self) -> None:
        # All writing is in here. A terminal that was closed is an error other than a broken pipe, and would
        # leave rich's live display half begun if it came out.
        try:
            super()._check_buffer()
        except OSError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self.quiet = True
        # Python would fail to flush at exit what is still buffered, with status 120.
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


class _Pace:
    """How fast a count has grown lately."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def look(self, at_s: float, count: int) -> float | None:
        """Per second over the last seconds; None before two looks, or where nothing has come."""
        self._looks.append((at_s, count))
        while at_s - self._looks[0][0] > _PACE_S:
            self._looks.popleft()
        since_s, before = self._looks[0]
        return (count - before) / (at_s - since_s) if at_s > since_s and count > before else None


class Console:
    """A bar for each phase on a terminal, a line a second elsewhere, nothing when quiet.

    A context manager: the bars are live inside it.
    """

    def __init__(self, scenario: Plan, *, quiet: bool, screen: Screen | None = None) -> None:
        self._terminal = screen or Screen(stderr=True, quiet=quiet)
        self._live = self._terminal.is_terminal
        if not self._live:
            self._terminal.width = max(self._terminal.width, _PLAIN_WIDTH)
        calls = 0 if isinstance(scenario, BroadcastScenario) else scenario.calls
        self._counts_calls = calls > 0
        self._totals = {
            "connecting": float(scenario.connections),
            "sweep": 0.0 if isinstance(scenario, TransportsScenario) else float(scenario.users),
            "warmup": scenario.warmup_s,
            "measuring": float(calls or scenario.duration_s),
        }
        self._bars = LiveBars(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            console=self._terminal,
            auto_refresh=False,
            disable=not self._live or quiet,
        )
        self._tasks: dict[str, TaskID] = {}
        self._pace = _Pace()
        self._quiet = quiet
        self._lost = "missing" if isinstance(scenario, BroadcastScenario) else "timed out"

    def show(self, sample: Sample, progress: Progress, rows: Sequence[WorkerRow]) -> None:
        """One look at the run."""
        is_opening = progress.phase == "connecting"
        figures = self._opening(sample) if is_opening else _figures(sample, self._lost)
        if not self._live:
            line = f"{sample.t_s:7.1f} s  {progress.phase:<10}  {figures}"
            self._terminal.print(line, highlight=False, markup=False, soft_wrap=True)
            return
        if progress.phase == "done":
            return
        self._bars.rows = rows
        name = _BARS.get(progress.phase, progress.phase)
        for other, task in self._tasks.items():
            if other != name and other in self._totals:
                self._bars.update(task, completed=self._totals[other])
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=self._totals.get(name), figures="")
        counted = {"connecting": sample.connections, "sweep": sample.received}
        if self._counts_calls:
            counted["measuring"] = sample.received
        done = float(counted.get(name, progress.elapsed_s))
        self._bars.update(self._tasks[name], completed=done, figures=figures, refresh=True)

    def _opening(self, sample: Sample) -> str:
        """How many connections of how many, how fast, and when all will be there."""
        wanted = int(self._totals["connecting"])
        figures = [f"{sample.connections:,} of {wanted:,} connections"]
        rate = self._pace.look(sample.t_s, sample.connections)
        if rate is not None:
            left_s = (wanted - sample.connections) / rate
            figures += [f"{rate:,.0f}/s", f"ETA {left_s:,.0f} s"]
        return "  ".join([*figures, *_server_cpu(sample)])

    def of_part(self, scenario: Scenario) -> "Console":
        """The console of one of several runs, announced by its name."""
        self.announce(scenario.name)
        return Console(scenario, quiet=self._quiet)

    def announce(self, text: str) -> None:
        """What is done now."""
        self._terminal.print(text, highlight=False, markup=False, soft_wrap=True)

    def conclude(self, result: Result, folder: Path) -> None:
        """The tables, beside the reference where there is one, the verdicts, and where everything is."""
        if result.transports is None:
            self._show_comparison(result)
        else:
            self._show_transports(result)
        achieved = result.achieved
        if achieved.server_errors:
            text = f"errors from the server: {achieved.server_errors:,}, first: {achieved.first_server_error}"
            self._terminal.print(text, style="bold red", highlight=False, markup=False, soft_wrap=True)
        for check in result.conservation.checks:
            self._verdict("conservation", f"{check.name}: {check.detail}", holds=check.holds)
        self._show_agreement(result)
        for outcome in result.thresholds:
            value = "no value" if outcome.value is None else f"{outcome.value:,}"
            self._verdict("threshold", f"{outcome.expr} (is {value})", holds=outcome.holds)
        for trend in result.soak.trends if result.soak else ():
            self._verdict("trend", describe_trend(trend), holds=trend.holds)
        if result.soak and result.soak.note:
            self._verdict("soak", result.soak.note, holds=False)
        self._terminal.print(f"result folder: {folder}", highlight=False, soft_wrap=True, markup=False)

    def _show_agreement(self, result: Result) -> None:
        text = describe_agreement(result)
        if text is None:
            return
        if not result.agreement:
            self._terminal.print(f"{'agreement':<12} {text}", highlight=False, markup=False, soft_wrap=True)
            return
        holds, is_same = (all(getattr(row, one) for row in result.agreement) for one in ("holds", "matches"))
        self._verdict("agreement", text, holds=holds, word=None if is_same or not holds else "differs")
        for row in result.agreement:
            if not row.matches:
                word = "differs" if row.holds else None
                self._verdict("agreement", describe_difference(row), holds=row.holds, word=word)

    def _show_transports(self, result: Result) -> None:
        for title, columns, rows in tables(result.transports or []):
            self._terminal.print(draw_grid(Table(columns, rows), self._terminal, title=title))
        for text in [*findings(result.transports or []), explain(result)]:
            self._terminal.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show_comparison(self, result: Result) -> None:
        published = result.reference
        columns = ["measure", "this run", published.name, "this run, per thread"]
        columns.append(f"{published.label}, per thread")
        rows = [
            [row.measure, row.run, row.reference, row.run_per_core, row.reference_per_core]
            for row in compare(result)
        ]
        title = f"scenario {result.scenario['name']}"
        self._terminal.print(draw_grid(Table(columns, rows), self._terminal, title=title))
        if is_closed_loop(result):
            self._terminal.print(explain_latency(result), highlight=False, markup=False, soft_wrap=True)

    def _verdict(self, kind: str, text: str, *, holds: bool, word: str | None = None) -> None:
        style = "green" if holds else "bold red"
        verdict = word or ("holds" if holds else "FAILS")
        self._terminal.print(
            f"{kind:<12} {verdict}  {text}", style=style, highlight=False, markup=False, soft_wrap=True
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()


def _figures(sample: Sample, lost: str) -> str:
    figures = [f"{sample.connections:,} connections"]
    if sample.sent:
        figures += [
            f"{sample.sent:,} sent",
            f"{sample.received:,} received",
            f"{sample.outstanding:,} outstanding",
            f"mean {sample.mean_us / 1000:.2f} ms",
            f"max {sample.max_us / 1000:.2f} ms",
        ]
    if sample.timed_out or sample.errors:
        figures.append(f"{sample.timed_out:,} {lost}, {sample.errors:,} errors")
    return "  ".join([*figures, *_server_cpu(sample)])


def _server_cpu(sample: Sample) -> list[str]:
    cpu = sample.server_cpu_percent
    return [] if cpu is None else [f"broker {cpu:.0f} % CPU"]
