"""Tables of the keys of a JSON Schema, in Markdown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Schema = dict[str, Any]

_KIND = "kind"
"""Key whose value selects one of several tables."""
_BOUNDS = (
    ("minimum", "from"),
    ("exclusiveMinimum", "above"),
    ("maximum", "to"),
    ("exclusiveMaximum", "below"),
)


class KeyTables:
    """Tables of one kind of document: a section for each table, followed by the tables within it.

    If a document is one of several tables, the keys that all of them have come first and only once.
    """

    def __init__(self, schema: Schema, elsewhere: dict[str, str], *, is_written: bool) -> None:
        """Take the schema of a document.

        Args:
            schema: The schema, with its tables in `$defs`.
            elsewhere: Names of tables that another page describes, and a link to that page.
            is_written: Whether users write the document, so that defaults matter and TOML has no null.
        """
        self._definitions: dict[str, Schema] = schema["$defs"]
        self._schema = schema
        self._elsewhere = elsewhere
        self._is_written = is_written
        self._paths: dict[str, str] = {}
        """Path of the first key that holds a table, by the table's name."""

    def to_markdown(self) -> str:
        """Return all sections."""
        roots = [self._resolve(choice) for choice in self._schema.get("oneOf", [self._schema])]
        nested = list(self._nested(roots))
        if len(roots) > 1:
            sections = self._kinds(roots)
        else:
            sections = [self._section("Keys", roots[0], roots[0]["properties"])]
        sections += [self._section(_title(path, table), table, table["properties"]) for path, table in nested]
        return "\n\n".join(sections) + "\n"

    def _resolve(self, part: Schema) -> Schema:
        """Return a part of the schema; if it is a reference, the table that it refers to."""
        return self._definitions[_name(part)] if "$ref" in part else part

    def _nested(self, roots: list[Schema]) -> Iterator[tuple[str, Schema]]:
        """Yield the tables within other tables, each once, with the path of the first key that holds it."""
        waiting = [(key, value) for root in roots for key, value in root["properties"].items()]
        while waiting:
            path, value = waiting.pop(0)
            for reference, suffix in _references(value):
                name = _name(reference)
                if name in self._elsewhere or name in self._paths:
                    continue
                self._paths[name] = path + suffix
                table = self._definitions[name]
                yield path + suffix, table
                within = [(f"{path}{suffix}.{key}", inner) for key, inner in table["properties"].items()]
                waiting = [*within, *waiting]

    def _kinds(self, kinds: list[Schema]) -> list[str]:
        """Return a section for the keys that all kinds of the document have, and one for each kind."""
        first, *others = (kind["properties"] for kind in kinds)
        shared = {
            key: value for key, value in first.items() if all(other.get(key) == value for other in others)
        }
        sections = [self._section("Keys of every workload", {}, shared)]
        for kind in kinds:
            workload = kind["properties"]["workload"]["enum"][0]
            own = {key: value for key, value in kind["properties"].items() if key not in shared}
            sections.append(self._section(f"Workload {workload}", kind, own))
        return sections

    def _section(self, title: str, table: Schema, keys: Schema) -> str:
        """Return the heading of a table, its description, and a row for each key."""
        paragraphs = [" ".join(part.split()) for part in table.get("description", "").split("\n\n")]
        columns = ["Key", "Type", *(["Default"] if self._is_written else []), "Meaning"]
        rows = [columns, ["---"] * len(columns)]
        for key, value in keys.items():
            default = "required" if key in table.get("required", []) else _default(value)
            defaults = [default] if self._is_written else []
            rows.append([f"`{key}`", self._type(value), *defaults, self._meaning(value)])
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n\n".join([f"## {title}", *filter(None, paragraphs), "\n".join(lines)])

    def _meaning(self, value: Schema) -> str:
        """Return a key's description, or else the first sentence about the table that the key holds."""
        if "description" in value:
            return str(value["description"])
        for reference, _ in _references(value):
            sentence, stop, _ = self._resolve(reference).get("description", "").partition(". ")
            return " ".join(f"{sentence}{stop}".split("\n\n")[0].split())
        return ""

    def _type(self, value: Schema) -> str:
        """Return the values that a key may have, in words."""
        if "$ref" in value:
            page = self._elsewhere.get(_name(value))
            return f"[table]({page})" if page else f"table, see `{self._paths[_name(value)]}`"
        if "anyOf" in value:
            choices = [
                choice for choice in value["anyOf"] if not self._is_written or choice.get("type") != "null"
            ]
            return _either(self._type(choice) for choice in choices)
        if "enum" in value:
            return _either(f"`{choice}`" for choice in value["enum"])
        return self._plain_type(value)

    def _plain_type(self, value: Schema) -> str:
        """Return the type of a value that is neither a table of this document nor a union."""
        kind: str = value.get("type", "any value")
        if kind == "array":
            return f"list: {self._type(value.get('items', {}))}"
        if kind == "object":
            inner = value.get("additionalProperties")
            return f"map to {self._type(inner)}" if isinstance(inner, dict) else "table"
        return kind + "".join(f" {word} {value[name]:,.12g}" for name, word in _BOUNDS if name in value)


def _name(reference: Schema) -> str:
    name: str = reference["$ref"].rpartition("/")[2]
    return name


def _references(value: Schema) -> Iterator[tuple[Schema, str]]:
    """Yield the references in a key's value, with "[]" if in a list and ".NAME" if in a map."""
    if "$ref" in value:
        yield value, ""
    for choice in value.get("anyOf", []):
        yield from _references(choice)
    for key, suffix in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(value.get(key), dict):
            yield from ((reference, suffix + inner) for reference, inner in _references(value[key]))


def _title(path: str, table: Schema) -> str:
    """Return a table's heading: the path of its key, and its kind if there are several."""
    kind = table["properties"].get(_KIND, {}).get("enum")
    return f"`{path}`, kind {kind[0]}" if kind else f"`{path}`"


def _either(choices: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(choices))


def _default(value: Schema) -> str:
    """Return a key's default in TOML; empty if there is no default or it is an empty value."""
    default = value.get("default")
    if default in (None, "", [], ()) or isinstance(default, dict):
        return ""
    return f"`{json.dumps(default)}`"
