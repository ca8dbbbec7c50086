"""JSON Schemas of the documents that users write or read, with all descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sphinx.pycode import ModuleAnalyzer

from loadtest.result import broker_view, reference
from loadtest.result import schema as result_schema
from loadtest.scenario.schemas import hosts_schema, scenario_schema
from subjectbus import settings
from subjectbus.schema import broker_schema

if TYPE_CHECKING:
    from collections.abc import Callable

Schema = dict[str, Any]


def _result_schema() -> Schema:
    """Return the schema of result.json; the docstrings of the fields describe the keys."""
    schema = msgspec.json.schema(result_schema.Result)
    for module in (result_schema, broker_view, reference):
        described = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
        for (name, attribute), lines in described.items():
            table = schema["$defs"].get(name)
            if table is None:
                continue
            key = next(
                field.encode_name
                for field in msgspec.structs.fields(getattr(module, name))
                if field.name == attribute
            )
            table["properties"][key]["description"] = " ".join(line.strip() for line in lines).strip()
    return schema


SCHEMAS: dict[str, Callable[[], Schema]] = {
    "broker": broker_schema,
    "scenario": scenario_schema,
    "hosts": hosts_schema,
    "result": _result_schema,
}


def to_json(name: str) -> str:
    """Return a schema as JSON text."""
    return settings.format_schema(SCHEMAS[name]()) + "\n"
