"""Helpers that read reports in each form."""

from types import ModuleType

from loadtest.report import capacity, compare, html, markdown, repeated, run, terminal
from loadtest.report.document import Document, Table
from loadtest.result.capacity import Capacity
from loadtest.result.comparison import Comparison
from loadtest.result.repeated import Repeated
from loadtest.result.schema import Result

Reported = Result | Capacity | Repeated | Comparison
MODULES: dict[type, ModuleType] = {Result: run, Capacity: capacity, Repeated: repeated, Comparison: compare}


def document(what: Reported) -> Document:
    return MODULES[type(what)].to_document(what)


def as_page(what: Reported) -> str:
    return html.render(document(what))


def as_markdown(what: Reported) -> str:
    return markdown.render(document(what))


def as_terminal(what: Reported) -> str:
    return terminal.to_text(document(what))


def as_csv(what: Reported) -> str:
    return MODULES[type(what)].to_records(what).to_csv()


def tables(what: Reported, section: str) -> list[Table]:
    """The tables of a section, by its title; titles may be cut."""
    (found,) = (one for one in document(what).sections if one.title.startswith(section))
    return [block for block in found.blocks if isinstance(block, Table)]


def summary(result: Result) -> dict[str, list[str]]:
    """Return for each metric the values of the run and of the published run, in total and per thread."""
    (table,) = tables(result, "Beside the published run")
    return {str(row[0]): [str(cell) for cell in row[1:]] for row in table.rows}


def charts(what: Reported) -> list[str]:
    """The names of the charts."""
    blocks = [block for section in document(what).sections for block in section.blocks]
    return [block.name for block in blocks if block.kind == "Chart"]
