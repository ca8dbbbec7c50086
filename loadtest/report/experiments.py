"""The reports of what is more than one run, made anew from its document."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from loadtest.report import capacity as capacity_report
from loadtest.report import repeated as repeated_report
from loadtest.report.artifacts import blaming
from loadtest.result import capacity, repeated

_Document = TypeVar("_Document")


@dataclass(frozen=True)
class Reports(Generic[_Document]):
    """An experiment in a folder, and what can be made of it."""

    folder: Path
    file: str
    document: _Document
    write: Callable[[_Document, Path], None]
    markdown: Callable[[_Document], str]
    csv: Callable[[_Document], str]

    def render_again(self) -> None:
        """Writes report.html and report.md, once both are made.

        Raises:
            ScenarioError: The document has what no experiment writes.
            RunError: The disk does not take them.
        """
        with blaming(self.folder / self.file):
            self.write(self.document, self.folder)

    def to_text(self, form: str) -> str:
        """As "markdown" or as "csv"; ScenarioError when the document has what no experiment writes."""
        with blaming(self.folder / self.file):
            return (self.markdown if form == "markdown" else self.csv)(self.document)


def find_experiment(folder: Path) -> "Reports[capacity.Capacity] | Reports[repeated.Repeated] | None":
    """The search or the repeated runs in the folder; None where there is neither.

    Raises:
        ScenarioError: It cannot be read.
    """
    if (folder / capacity.FILE).exists():
        search = capacity.read_capacity(folder)
        return Reports(
            folder,
            capacity.FILE,
            search,
            capacity_report.write_capacity,
            capacity_report.to_markdown,
            capacity_report.to_csv,
        )
    if (folder / repeated.FILE).exists():
        runs = repeated.read_repeated(folder)
        return Reports(
            folder,
            repeated.FILE,
            runs,
            repeated_report.write_repeated,
            repeated_report.to_markdown,
            repeated_report.to_csv,
        )
    return None
