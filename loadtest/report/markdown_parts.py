"""What Markdown reports are made of: texts that stay texts, lists, tables and code."""

import re
from collections.abc import Iterable, Iterator

from loadtest.report.canvas import Table

_SPECIAL = re.compile(r"[\\`*\[\]|~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_BLOCK = re.compile(r"^(\d{0,9})([#+=)>-]|\.(?=\s|$))")


def plain(text: object) -> str:
    """On one line, with nothing that Markdown or HTML would take for its own within a line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(str(text).split()))


def paragraph(text: object) -> str:
    """The same for a line of its own, which nothing at its beginning makes another block."""
    return _BLOCK.sub(r"\1\\\2", plain(text))


def bullets(texts: Iterable[object]) -> list[str]:
    """A line for each text."""
    return [f"- {paragraph(text)}" for text in texts]


def table(content: Table, *, numbers: bool = True) -> Iterator[str]:
    """Its lines; the first column is text, the others are figures unless told otherwise."""
    columns = [plain(text) for text in content.columns]
    yield f"| {' | '.join(columns)} |"
    yield "| --- |" + (" ---: |" if numbers else " --- |") * (len(columns) - 1)
    for row in content.rows:
        yield f"| {' | '.join(plain(text) for text in row)} |"


def fence(language: str, text: str) -> Iterator[str]:
    """The text as code, whatever is in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    yield f"{marks}{language}"
    yield text.rstrip("\n")
    yield marks


def document(sections: Iterable[Iterable[str]]) -> str:
    """The lines of all sections that have any, an empty one between two of them; it ends with a newline."""
    texts = ("\n".join(section) for section in sections)
    return "\n\n".join(text for text in texts if text) + "\n"
