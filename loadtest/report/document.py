"""Documents, the form of all reports: sections of blocks, which each medium renders in its own way.

Run, transports, capacity, repeated and compare say what a report contains; terminal, Markdown and HTML say
how it looks.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

ABSENT = "-"
"""Text of a cell without a value."""


class Reach(IntEnum):
    """Media that show a block: each medium shows its own blocks and the blocks of all media before it."""

    TERMINAL = 1
    TEXT = 2
    """Markdown, after the terminal."""
    PAGE = 3
    """HTML page, after Markdown."""


@dataclass(frozen=True)
class Mark:
    """A cell of a table that is a verdict."""

    text: str
    holds: bool | None
    """Whether the verdict is good. None if it is neither good nor bad."""

    def __str__(self) -> str:
        return self.text


Cell = str | Mark


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a section."""

    reach: Reach = Reach.TEXT

    @property
    def kind(self) -> str:
        """Name of the type, by which renderers choose."""
        return type(self).__name__


@dataclass(frozen=True)
class Text(Block):
    """A paragraph."""

    text: str
    is_note: bool = False
    """Whether the text only explains; shown less prominently."""


@dataclass(frozen=True)
class Bullets(Block):
    """A list of sentences."""

    texts: Sequence[str]
    are_failures: bool = False


@dataclass(frozen=True)
class Outcome(Block):
    """The verdict of the whole report in one line."""

    title: str
    text: str
    holds: bool | None
    """Whether everything holds. None if nothing was judged."""


@dataclass(frozen=True)
class Alert(Block):
    """Warning that a reader must see before all numbers."""

    title: str
    texts: Sequence[str]
    note: str = ""


@dataclass(frozen=True)
class Fact:
    """One number of the headline; the texts below it say what to compare it with."""

    label: str
    value: str
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class Headline(Block):
    """The numbers that matter most."""

    facts: Sequence[Fact]


@dataclass(frozen=True)
class Table(Block):
    """Cells in columns; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    numbers: bool = True
    """Whether the columns after the first one are numbers, aligned to the right."""
    essential: Sequence[int] = ()
    """Columns that a terminal has room for; all if empty."""


@dataclass(frozen=True)
class Verdict:
    """One check and whether it holds."""

    name: str
    detail: str
    holds: bool
    word: str = ""
    """Word of the verdict; "holds" or "fails" if empty."""


@dataclass(frozen=True)
class Verdicts(Block):
    """Checks of one kind."""

    label: str
    """Kind of the checks in one word: "conservation"."""
    columns: tuple[str, str]
    """Headings of the columns of names and details."""
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Code(Block):
    """Text to copy, shown unchanged."""

    language: str
    text: str


@dataclass(frozen=True)
class Links(Block):
    """Sentence with links to other pages: names and relative addresses."""

    text: str
    targets: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A titled part of a document."""

    title: str
    blocks: Sequence[Block]

    @property
    def name(self) -> str:
        """The title as an identifier of the page."""
        return "section-" + "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    sections: Sequence[Section]
    head: Sequence[Block] = field(default=())
    """Blocks before the first section."""

    def within(self, reach: Reach) -> list[tuple[Section | None, list[Block]]]:
        """Return what a medium shows: blocks by section, the head first; sections without blocks left out."""
        parts = [(None, self.head), *((section, section.blocks) for section in self.sections)]
        shown = [(section, [block for block in blocks if block.reach <= reach]) for section, blocks in parts]
        return [(section, blocks) for section, blocks in shown if blocks]


@dataclass(frozen=True)
class Records:
    """Bare values in columns, for CSV; None is an empty cell."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def to_csv(self) -> str:
        """Return a header and a line for each row, without thousands separators and with decimal points."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[_bare(value) for value in row] for row in self.rows])
        return file.getvalue()


def _bare(value: object) -> object:
    return repr(value).removesuffix(".0") if isinstance(value, float) else value
