"""The pages of experiments, which are about several runs: written beside them, as HTML and as Markdown."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from loadtest.errors import RunError
from loadtest.result.documents import replace_file


def render_page(template: str, **values: Any) -> str:  # noqa: ANN401 - whatever the template shows
    """A self-contained page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loadtest.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["verdict"] = _verdict
    return environment.get_template(template).render(**values)


def write_pages(folder: Path, *, html: str, markdown: str) -> None:
    """`report.html` and `report.md`; RunError when the disk does not take them."""
    write_text(folder / "report.html", html)
    write_text(folder / "report.md", markdown)


def write_text(path: Path, text: str) -> None:
    """Writes a file, whole or not at all; RunError when the disk does not take it."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from error


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and a line for each row; None is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()


def _verdict(holds: bool) -> Markup:  # noqa: FBT001 - a template passes one value
    word = "holds" if holds else "fails"
    return Markup('<span class="{}">{}</span>').format(word, word)
