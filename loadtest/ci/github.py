"""Test cases for GitHub Actions: annotations of a step, and Markdown for the summary of its job."""

import re
from collections.abc import Iterator

from loadtest.ci.cases import Case, Suite
from subjectbus.printable import printable

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~&:.@-])")
"""Characters with a meaning in GitHub's Markdown, among them those that make HTML and links.

This includes bare URLs. GitHub looks for e-mail addresses and mentions when the escapes are gone, so these
still become links.
"""


def annotations(suite: Suite) -> Iterator[str]:
    """Yield a workflow command for each case that does not hold."""
    for case in suite.failed:
        title = f"{suite.name}: {case.group}"
        yield f"::error title={_property(title)}::{_data(case.line)}"


def summary(suite: Suite) -> str:
    """Return a section of Markdown: the verdict, and a row for each case, failures first."""
    failed = suite.failed
    verdict = f"**{len(failed)} of {len(suite.cases)} do not hold.**" if failed else "Everything holds."
    cases = sorted(suite.cases, key=lambda case: case.holds)
    rows = [
        f"| {_verdict(case)} | {case.group} | {_cell(case.name)} | {_cell(case.text)} |" for case in cases
    ]
    head = ["| | kind | what | judged by |", "|---|---|---|---|"]
    title = f"{suite.name}, {suite.folder}" if suite.folder else suite.name
    return "\n".join([f"### Load test: {_cell(title)}", "", verdict, "", *head, *rows, "", ""])


def _verdict(case: Case) -> str:
    return "holds" if case.holds else "**FAILS**"


def _cell(text: str) -> str:
    """Return a text as one line, escaped so that Markdown shows its characters unchanged."""
    return _MARKDOWN.sub(r"\\\1", printable(text))


def _data(text: str) -> str:
    """Return a text as the data of a workflow command, escaped so that it cannot begin another command."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
