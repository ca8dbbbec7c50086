"""The processes of a run that goes on, a row each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import RenderableType
from rich.progress import Progress as Bars
from rich.table import Table

from loadtest.engine.messages import Progress

_FEWEST = 3  # below that, the figures of all are as good


@dataclass(frozen=True)
class WorkerRow:
    """What one process of the load last said."""

    name: str
    host: str
    progress: Progress
    is_lost: bool = False
    """It says nothing any more."""


class LiveBars(Bars):
    """Bars with a table of the processes below them, where these are more than a few."""

    rows: Sequence[WorkerRow] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """What rich draws."""
        yield from super().get_renderables()
        if len(self.rows) >= _FEWEST:
            yield draw(self.rows)


def draw(rows: Sequence[WorkerRow]) -> Table:
    """The table."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("process", "host", "phase"):
        table.add_column(name, no_wrap=True)
    for name in ("connections", "sent", "received", "lost", "mean, ms", "max, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        progress = row.progress
        lost = progress.timed_out + progress.errors + progress.disconnected
        # Providers count what they answer; they have no latencies.
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
