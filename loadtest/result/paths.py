"""Dotted paths to the values of a result, as thresholds name them."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct, structs

from loadtest.result.schema import Result

_FREE_TABLES = (
    "scenario",
    "environment",
    "conservation.dropped",
    "achieved.statuses",
    "broker_view.closed",
)


def value_at(result: Result, path: str) -> object:
    """The value at a dotted path; None where the run has none."""
    value: object = result
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return value


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table and of those within it, by their dotted paths."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def is_value_path(path: str) -> bool:
    """Whether a dotted path can lead to a value; the keys of free tables are not known ahead."""
    if path in value_paths():
        return True
    return any(path.startswith(f"{table}.") for table in _FREE_TABLES)


def value_paths() -> list[str]:
    """Every dotted path that leads to a number or a truth value of a result."""
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
