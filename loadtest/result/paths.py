"""Dotted paths to the values of a result, such as `latency_us.p99`, which thresholds use."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct, structs

from loadtest.result.schema import Result

_OPEN_TABLES = (
    "scenario",
    "environment",
    "conservation.dropped",
    "achieved.statuses",
    "broker_view.closed",
)


def value_at(result: Result, path: str) -> object:
    """Return the value at a dotted path, or None if the run has no such value."""
    value: object = result
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return value


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of each entry of a table and of the tables within it."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def is_value_path(path: str) -> bool:
    """Return whether a dotted path can lead to a value; in a table of free keys, any key can."""
    if path in value_paths():
        return True
    return any(path.startswith(f"{table}.") for table in _OPEN_TABLES)


def value_paths() -> list[str]:
    """Return every dotted path that leads to a number or a truth value of a result."""
    return _paths_of(Result, "")


def _paths_of(cls: type[Struct], prefix: str) -> list[str]:
    hints = get_type_hints(cls)
    paths: list[str] = []
    for field in structs.fields(cls):
        annotation = hints[field.name]
        alternatives = (
            (annotation,)
            if get_origin(annotation) is not None and not _is_union(annotation)
            else (get_args(annotation) or (annotation,))
        )
        for leaf in alternatives:
            if isinstance(leaf, type) and issubclass(leaf, Struct):
                paths += _paths_of(leaf, f"{prefix}{field.name}.")
            elif leaf in (int, float, bool):
                paths.append(f"{prefix}{field.name}")
    return paths


def _is_union(annotation: object) -> bool:
    return type(None) in get_args(annotation)
