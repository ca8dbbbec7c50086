"""Pages of the documentation, and the blocks of code in them.

A block is run as it stands unless a comment in front of it says otherwise:

    <!-- test: not run: REASON -->                      its commands are only parsed
    <!-- test: background until ready -->               it goes on until the page ends; so does a broker
    <!-- test: background until subscribed -->          likewise; it subscribes to a subject
    <!-- test: background until subscribed, prints X -->  likewise, and has printed X when the page ends
    <!-- test: prints X -->                             it prints X
    <!-- test: pytest -->                               its tests pass
    <!-- test: setup ... -->                            commands that readers need not type, run in its place
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.servers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCS = ROOT / "docs"
_MADE = ("benchmarks/2", "notebooks/0")
"""Pages that programs write, whose code others have run."""
_PART = re.compile(
    r"^<!-- test: (?P<mark>.*?)-->$|^```(?P<language>[\w{}-]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_SETUP = "setup\n"


@dataclass(frozen=True)
class Block:
    """A block of code, with what its comment says."""

    page: str
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def place(self) -> str:
        """Where a reader finds it."""
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return not self.mark.startswith("not run: ")

    @property
    def file(self) -> str | None:
        """The name in the comment that it begins with, under which readers save it."""
        match = re.match(r"# ([\w-]+\.(?:toml|py|conf))\b", self.text)
        return match[1] if match else None

    @property
    def commands(self) -> list[str]:
        """Its lines, with continued ones joined and comments left out."""
        lines = re.sub(r"\\\n\s*", " ", self.text).splitlines()
        return [line for line in lines if line and not line.startswith("#")]


def pages() -> list[Path]:
    """README and the pages of the site that people write."""
    found = [page for page in DOCS.rglob("*.md") if not page.relative_to(DOCS).as_posix().startswith(_MADE)]
    return [ROOT / "README.md", *sorted(found)]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order, and the commands that prepare for them."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    found = []
    mark = ""
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["mark"] is not None:
            mark = part["mark"].rstrip()
            if mark.startswith(_SETUP):
                found.append(Block(name, line, "sh", mark.removeprefix(_SETUP)))
                mark = ""
            continue
        if not part["language"].startswith("{"):  # a directive of the site
            found.append(Block(name, line, part["language"], part["text"], mark))
        mark = ""
    assert not mark, f"{name}: a mark without a block"
    return found
