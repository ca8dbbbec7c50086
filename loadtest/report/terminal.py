"""Documents on the terminal: tables in full, a line for each verdict, text and item."""

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console as Terminal
from rich.table import Table as Grid
from rich.text import Text as Plain

from loadtest.report.document import (
    Block,
    Bullets,
    Cell,
    Document,
    Mark,
    Outcome,
    Reach,
    Table,
    Text,
    Verdict,
    Verdicts,
)
from subjectbus.printable import printable, printable_lines

_PLAIN_WIDTH = 160
_BAD = "bold red"


class Screen(Terminal):
    """Terminal that prints strings without control characters.

    If the terminal or the pipe closes, it prints nothing more, whatever rich is doing at that time.
    """

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - rich's
        """Print like rich, with strings made printable."""
        texts = (printable_lines(one) if isinstance(one, str) else one for one in objects)
        super().print(*texts, **options)

    def on_broken_pipe(self) -> None:
        """Print nothing more; rich would end the program."""
        self._fall_silent()

    def _check_buffer(self) -> None:
        # All output is written here. A closed terminal raises another error than a closed pipe does. If that
        # error left this method, rich's live display would be started in part only.
        try:
            super()._check_buffer()
        except OSError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self.quiet = True
        # Python would fail to flush the buffer at exit, with status 120.
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


def show(document: Document, terminal: Terminal) -> None:
    """Print the blocks of the document that are for terminals.

    The first table has the title of the document. The head comes last, next to the prompt of the shell.
    """
    title = document.title
    parts = document.within(Reach.TERMINAL)
    for section, blocks in sorted(parts, key=lambda part: part[0] is None):
        for block in blocks:
            if section is not None and isinstance(block, Bullets) and not block.are_failures:
                _print_line(f"{section.title}:", terminal)
            _print(block, terminal, title)
            if isinstance(block, Table):
                title = ""


def to_text(document: Document) -> str:
    """Return the document as plain text, as a wide terminal shows it."""
    file = io.StringIO()
    # Named, since FORCE_COLOR makes rich take every file for a terminal.
    show(document, Screen(file=file, width=_PLAIN_WIDTH, force_terminal=False))
    return file.getvalue()


def _print(block: Block, terminal: Terminal, title: str) -> None:
    match block:
        case Table():
            terminal.print(_grid(block, terminal, block.title or title), highlight=False)
        case Verdicts():
            for verdict in block.verdicts:
                _print_verdict(block.label, verdict, terminal)
        case Text():
            _print_line(block.text, terminal)
        case Outcome():
            _print_line(": ".join(filter(None, (block.title, block.text))), terminal)
        case Bullets():
            for text in block.texts:
                _print_line(f"- {text}", terminal, _BAD if block.are_failures else None)
        case _:
            raise TypeError(f"a terminal does not show {block.kind}")


def _print_verdict(label: str, verdict: Verdict, terminal: Terminal) -> None:
    word = verdict.word or ("holds" if verdict.holds else "FAILS")
    text = ": ".join(filter(None, (verdict.name, verdict.detail)))
    _print_line(f"{label:<12} {word}  {text}", terminal, "green" if verdict.holds else _BAD)


def _print_line(text: str, terminal: Terminal, style: str | None = None) -> None:
    terminal.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _grid(table: Table, terminal: Terminal, title: str) -> Grid:
    """Return a table of rich, in which texts are not taken as rich's markup."""
    grid = Grid(
        box=box.SIMPLE_HEAD if terminal.is_terminal else box.ASCII2,
        title=Plain(printable(title)) if title else None,
    )
    chosen = table.essential or range(len(table.columns))
    for number in chosen:
        column = table.columns[number]
        justify = "right" if number and table.numbers else "left"
        grid.add_column(Plain(printable(column)), justify=justify, no_wrap=not number)  # type: ignore[arg-type]
    for row in table.rows:
        cells = (Plain(printable(str(row[number]))) for number in chosen)
        grid.add_row(*cells, style=_BAD if _is_bad(row) else None)
    return grid


def _is_bad(row: Sequence[Cell]) -> bool:
    return any(isinstance(cell, Mark) and cell.holds is False for cell in row)
