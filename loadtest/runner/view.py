"""The interface between a run and its display."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from loadtest.result.schema import Sample
from loadtest.scenario.kinds import Scenario
from loadtest.workers.messages import Progress


@dataclass(frozen=True)
class WorkerRow:
    """Last snapshot of one worker."""

    name: str
    host: str
    progress: Progress
    is_lost: bool = False
    """Whether the worker has ended or its machine is lost, so that no further snapshot will come."""


class View(Protocol):
    """Receiver of a run's progress."""

    def show(self, sample: Sample, progress: Progress, rows: Sequence[WorkerRow]) -> None:
        """Show a sample, the progress of all workers together, and a row for each worker.

        A run calls it at each change of phase and once a second.
        """


class Display(View, AbstractContextManager["Display"], Protocol):
    """The display of a whole run; it is live inside its context."""

    def announce(self, text: str) -> None:
        """Show the current activity, such as "writing results"."""

    def of_part(self, scenario: Scenario) -> "Display":
        """Return the display of one of several runs."""
