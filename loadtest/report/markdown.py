"""Documents as Markdown, to paste into an issue, a wiki or a mail."""

import re
from collections.abc import Iterator
from functools import singledispatch

from loadtest.report.document import (
    Alert,
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Headline,
    Links,
    Mark,
    Outcome,
    Reach,
    Table,
    Text,
    Verdicts,
)

_SPECIAL = re.compile(r"[\\`*\[\]|~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_BLOCK = re.compile(r"^(?:(?=[#+=>-])|(\d{1,9})(?=[.)](?:\s|$)))")
_UNSAFE = r"[<>\\\s]"


def render(document: Document) -> str:
    """Return the document as Markdown; it ends with a newline."""
    paragraphs = [f"# {_plain(document.title)}"]
    for section, blocks in document.within(Reach.TEXT):
        if section is not None:
            paragraphs.append(f"## {_plain(section.title)}")
        paragraphs += ["\n".join(part) for block in blocks for part in _parts(block) if part]
    return "\n\n".join(paragraphs) + "\n"


@singledispatch
def _parts(block: Block) -> Iterator[list[str]]:
    """Yield the paragraphs of a block, as lines."""
    raise TypeError(f"Markdown does not show {block.kind}")


@_parts.register
def _(block: Text) -> Iterator[list[str]]:
    yield [_paragraph(block.text)]


@_parts.register
def _(block: Bullets) -> Iterator[list[str]]:
    yield [f"- {_paragraph(text)}" for text in block.texts]


@_parts.register
def _(block: Outcome) -> Iterator[list[str]]:
    if block.title:
        colon = ":" if block.text else ""
        yield [f"**{_plain(block.title)}{colon}** {_plain(block.text)}".rstrip()]
    else:
        yield [_paragraph(block.text)]


@_parts.register
def _(block: Alert) -> Iterator[list[str]]:
    yield [f"**{_plain(block.title)}**"]
    yield [f"- {_paragraph(text)}" for text in block.texts]
    yield [_paragraph(block.note)] if block.note else []


@_parts.register
def _(block: Headline) -> Iterator[list[str]]:
    besides = (f" ({_plain('; '.join(fact.beside))})" if fact.beside else "" for fact in block.facts)
    yield [
        f"- {_plain(fact.label)}: **{_plain(fact.value)}**{beside}"
        for fact, beside in zip(block.facts, besides, strict=True)
    ]


@_parts.register
def _(block: Table) -> Iterator[list[str]]:
    yield [f"### {_plain(block.title)}"] if block.title else []
    rule = "| --- |" + (" ---: |" if block.numbers else " --- |") * (len(block.columns) - 1)
    rows = [f"| {' | '.join(map(_cell, row))} |" for row in block.rows]
    yield [f"| {' | '.join(map(_plain, block.columns))} |", rule, *rows]


@_parts.register
def _(block: Verdicts) -> Iterator[list[str]]:
    lines = []
    for one in block.verdicts:
        word = one.word or ("holds" if one.holds else "**fails**")
        lines.append(f"- {word}: {_plain(': '.join(filter(None, (one.name, one.detail))))}")
    yield lines


@_parts.register
def _(block: Code) -> Iterator[list[str]]:
    # The fence is longer than any run of backticks in the text, whatever the text contains.
    longest = max((len(run) for run in re.findall("`+", block.text)), default=0)
    marks = "`" * max(3, longest + 1)
    yield [f"{marks}{block.language}", block.text.rstrip("\n"), marks]


@_parts.register
def _(block: Links) -> Iterator[list[str]]:
    links = (f"[{_plain(name)}](<{re.sub(_UNSAFE, '', address)}>)" for name, address in block.targets)
    yield [f"{_paragraph(block.text)} {', '.join(links)}"]


def _plain(text: object) -> str:
    """Return the text as one line, escaped so that nothing has a meaning in Markdown or HTML."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(str(text).split()))


def _paragraph(text: object) -> str:
    """Return the text as a paragraph, escaped so that its beginning does not start another block."""
    return _BLOCK.sub(r"\1\\", _plain(text))


def _cell(cell: Cell) -> str:
    is_bad = isinstance(cell, Mark) and cell.holds is False
    return f"**{_plain(cell)}**" if is_bad else _plain(cell)
