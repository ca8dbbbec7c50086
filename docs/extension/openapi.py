"""Sections and tables of the broker's OpenAPI document, in Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "rust_core" / "crates" / "broker" / "src" / "http" / "openapi.json"
"""Path of the document that is compiled into the broker and served at /openapi.json."""

Document = dict[str, Any]


def to_markdown() -> str:
    """Return a section for each operation, and a section for errors."""
    document: Document = json.loads(SOURCE.read_text(encoding="utf-8"))
    sections = [
        _operation(document, f"{method.upper()} {path}", operation, shared.get("parameters", []))
        for path, shared in document["paths"].items()
        for method, operation in shared.items()
        if method != "parameters"
    ]
    return "\n\n".join(sections) + "\n"


def _operation(document: Document, title: str, operation: Document, shared: list[Document]) -> str:
    parts = [f"### {title}", f"{operation['summary']}."]
    if operation.get("description"):
        parts.append(operation["description"])
    parameters = [_resolved(document, one) for one in [*shared, *operation.get("parameters", [])]]
    if parameters:
        rows = ["| Parameter | In | Meaning |", "|---|---|---|"]
        rows += [
            f"| `{one['name']}` | {one['in']} | {_cell(one.get('description', ''))} |" for one in parameters
        ]
        parts.append("\n".join(rows))
    if "requestBody" in operation:
        parts.append(f"Body: {_resolved(document, operation['requestBody'])['description']}")
    rows = ["| Status | Meaning |", "|---|---|"]
    meanings: dict[str, list[str]] = {}
    for status, response in operation["responses"].items():
        meanings.setdefault(_resolved(document, response)["description"], []).append(status)
    rows += [f"| {', '.join(statuses)} | {_cell(meaning)} |" for meaning, statuses in meanings.items()]
    parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _resolved(document: Document, part: Document) -> Document:
    """Return a part of the document; if it is a reference, the part that it refers to."""
    if "$ref" not in part:
        return part
    found: Any = document
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    result: Document = found
    return result


def _cell(text: str) -> str:
    """Return a text as a table's cell, with angle brackets and stars escaped."""
    for character in "|*<>":
        text = text.replace(character, f"\\{character}")
    return text
