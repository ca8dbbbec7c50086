"""List of the benchmark records with their dates, names and subjects, newest first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"(?P<date>\d{4}-\d{2}-\d{2})-(?P<name>.+)\.md")


def to_markdown(folder: Path) -> str:
    """Return a table of the records in a folder, and the table of contents that Sphinx needs.

    Raises:
        ValueError: A file's name does not have the form DATE-NAME.md.
    """
    pages = sorted((page for page in folder.glob("*.md") if page.name != "index.md"), reverse=True)
    rows = ["| Date | Record | About |", "|---|---|---|"]
    entries = []
    for page in pages:
        match = _NAME.fullmatch(page.name)
        if match is None:
            raise ValueError(f"{page}: the name of a record is DATE-NAME.md")
        name = match["name"].replace("-", " ").capitalize()
        rows.append(f"| {match['date']} | [{name}]({page.name}) | {_subject(page)} |")
        entries.append(f"{name}, {match['date']} <{page.stem}>")
    contents = ["```{toctree}", ":hidden:", "", *entries, "```"]
    return "\n".join([*rows, "", *contents]) + "\n"


def _subject(page: Path) -> str:
    """Return the headings of a record's sections, or its title if it has none."""
    headings = re.findall(r"^(#+) (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    (_, title), *others = headings
    sections = [text for level, text in others if level == "##"]
    return "; ".join(sections or [title.rpartition(", ")[0]]).replace("|", "\\|")
