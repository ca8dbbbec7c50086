"""Tables on the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console as Terminal
from rich.table import Table as Grid
from rich.text import Text

from loadtest.report.canvas import Table
from subjectbus.printable import printable


def draw_grid(
    table: Table, terminal: Terminal, *, title: str = "", wraps: bool = True, bold_red: Sequence[int] = ()
) -> Grid:
    """The first column is text, the others are figures; `bold_red` are rows.

    All texts are taken as they are: rich would read its own markup in strings.
    """
    grid = Grid(
        box=box.SIMPLE_HEAD if terminal.is_terminal else box.ASCII2,
        title=Text(printable(title)) if title else None,
    )
    for number, column in enumerate(table.columns):
        grid.add_column(
            Text(printable(column)), justify="right" if number else "left", no_wrap=not (number and wraps)
        )
    for number, row in enumerate(table.rows):
        grid.add_row(
            *(Text(printable(text)) for text in row), style="bold red" if number in bold_red else None
        )
    return grid
