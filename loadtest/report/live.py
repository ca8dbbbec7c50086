"""Console of a running load test, on standard error, so that standard output can be piped.

If the terminal or the pipe closes, the console prints nothing more and the run continues.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import box
from rich.console import RenderableType
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

from loadtest.report import terminal
from loadtest.report.run import to_document
from loadtest.report.terminal import Screen
from loadtest.result.schema import Result, Sample
from loadtest.runner.view import WorkerRow
from loadtest.scenario.kinds import BroadcastScenario, Plan, Scenario, TransportsScenario
from loadtest.workers.messages import Progress

_PLAIN_WIDTH = 100
_PACE_S = 10.0
_FEWEST = 3
"""Smallest number of processes for which the console shows a table of them."""
_BARS = {"connected": "connecting", "swept": "sweep"}
"""Names of bars that differ from the name of the phase."""


class LiveBars(Bars):
    """Bars with a table of the processes below them, if there are more than a few."""

    rows: Sequence[WorkerRow] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the parts that rich draws: the bars, and the table if there is one."""
        yield from super().get_renderables()
        if len(self.rows) >= _FEWEST:
            yield _draw(self.rows)


def _draw(rows: Sequence[WorkerRow]) -> Table:
    """Return the table of the processes."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("process", "host", "phase"):
        table.add_column(name, no_wrap=True)
    for name in ("connections", "sent", "received", "lost", "mean, ms", "max, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        progress = row.progress
        lost = progress.timed_out + progress.errors + progress.disconnected
        # Providers count the requests that they answer, and have no latencies.
        times = (progress.mean_us, progress.max_us) if progress.max_us else ()
        table.add_row(
            row.name,
            row.host,
            "lost" if row.is_lost else progress.phase,
            f"{progress.connections:,}",
            f"{progress.sent or progress.published:,}",
            f"{progress.received or progress.delivered:,}",
            f"{lost:,}" if lost else "-",
            *(f"{us / 1000:.2f}" for us in times),
            style="bold red" if row.is_lost else None,
        )
    return table


class _Pace:
    """Growth of a count over the last seconds."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, int]] = deque()

    def add(self, at_s: float, count: int) -> float | None:
        """Add a value; return the growth per second, or None if there is no earlier value or no growth."""
        self._values.append((at_s, count))
        while at_s - self._values[0][0] > _PACE_S:
            self._values.popleft()
        since_s, before = self._values[0]
        return (count - before) / (at_s - since_s) if at_s > since_s and count > before else None


class Console:
    """Display of a run: a bar for each phase on a terminal, one line a second elsewhere, nothing if quiet.

    It is a context manager; the bars are updated inside its context.
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
        """Show a sample, the progress of all workers together, and the row of each worker."""
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
        """Return the connections so far, their rate and the estimated time until all are open, as text."""
        wanted = int(self._totals["connecting"])
        figures = [f"{sample.connections:,} of {wanted:,} connections"]
        rate = self._pace.add(sample.t_s, sample.connections)
        if rate is not None:
            left_s = (wanted - sample.connections) / rate
            figures += [f"{rate:,.0f}/s", f"ETA {left_s:,.0f} s"]
        return "  ".join([*figures, *_server_cpu(sample)])

    def of_part(self, scenario: Scenario) -> "Console":
        """Announce one of several runs by its name and return its console."""
        self.announce(scenario.name)
        return Console(scenario, quiet=self._quiet)

    def announce(self, text: str) -> None:
        """Print a line about the current activity."""
        self._terminal.print(text, highlight=False, markup=False, soft_wrap=True)

    def conclude(self, result: Result, folder: Path) -> None:
        """Print the report and the path of the result folder."""
        terminal.show(to_document(result), self._terminal)
        self.announce(f"result folder: {folder}")

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
