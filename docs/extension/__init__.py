"""Sphinx extension: pages of the site that are made from the code.

Commands, keys, schemas, the HTTP API and the list of the benchmark records are read from the types and files
that the programs themselves use, so that no page can differ from them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.util.docutils import SphinxDirective

from extension import commands, keys, openapi, records, schemas

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class Keys(SphinxDirective):
    """Directive for the keys of one kind of document, described by its schema."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a table of keys for each table of the document."""
        name = self.arguments[0]
        elsewhere = {} if name == "broker" else {"BrokerConfig": "broker.md"}
        tables = keys.KeyTables(schemas.SCHEMAS[name](), elsewhere, is_written=name != "result")
        return self.parse_text_to_nodes(tables.to_markdown(), allow_section_headings=True)


class Commands(SphinxDirective):
    """Directive for the commands of the command line."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        return self.parse_text_to_nodes(commands.to_markdown(), allow_section_headings=True)


class OpenApi(SphinxDirective):
    """Directive for the endpoints in the broker's OpenAPI document."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each endpoint."""
        self.env.note_dependency(str(openapi.SOURCE))
        return self.parse_text_to_nodes(openapi.to_markdown(), allow_section_headings=True)


class Records(SphinxDirective):
    """Directive for the benchmark records in the folder of the page, newest first."""

    def run(self) -> list[nodes.Node]:
        """Return the table of the records, and the entries for the table of contents."""
        folder = Path(self.env.doc2path(self.env.docname)).parent
        return self.parse_text_to_nodes(records.to_markdown(folder), allow_section_headings=True)


def write_files(app: Sphinx) -> None:
    """Write the schemas and the OpenAPI document into a folder that is copied to the site unchanged."""
    folder = Path(app.doctreedir).parent / "extra" / "schemas"
    folder.mkdir(parents=True, exist_ok=True)
    for name in schemas.SCHEMAS:
        (folder / f"{name}.schema.json").write_text(schemas.to_json(name), encoding="utf-8")
    (folder / "openapi.json").write_text(openapi.SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
    app.config.html_extra_path = [str(folder.parent)]


def prepare_docstring(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Replace the Markdown marks for code in a docstring by the marks of reStructuredText.

    The docstring of a module is left out, because the page introduces the module.
    """
    lines[:] = [] if what == "module" else [_CODE.sub(r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directives; the files are written before the pages are read."""
    app.add_directive("commands", Commands)
    app.add_directive("keys", Keys)
    app.add_directive("openapi", OpenApi)
    app.add_directive("records", Records)
    app.connect("builder-inited", write_files)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)  # before napoleon splits them
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
