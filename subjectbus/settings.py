"""Conversion of TOML files and `key=value` texts to typed settings, with errors that name place and key."""

import difflib
import re
import sys
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from subjectbus.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<key>.*)`)?$", re.DOTALL)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or standard input if the path is "-".

    Raises:
        ConfigError: The file cannot be read or parsed; the text names file and line.
    """
    try:
        if path == Path("-"):
            return tomllib.loads(sys.stdin.read())
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: lists or tables are nested too deeply") from error


def convert(cls: type[T], values: Mapping[str, Any], where: str, *, strict: bool = True) -> T:
    """Convert keys and values to a struct.

    Args:
        cls: Type of the struct, which must forbid unknown fields.
        values: Keys and values, with nested tables for nested structs.
        where: Source of the values, such as a file's name, with which each error text begins.
        strict: If false, the text of a number or a truth value is accepted, as in command-line flags.

    Raises:
        ConfigError: A key is unknown (the text suggests the nearest one), or a value has a wrong type or is
            out of range.
    """
    _refuse_unknown_keys(cls, values, where, prefix="")
    try:
        return msgspec.convert(dict(values), cls, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(cls, str(error))}") from error


def merge(base: T, override: T) -> T:
    """Return `base`, changed by the keys that are set in `override` and in its tables."""
    changes = _set_fields(override)
    for name, value in changes.items():
        before = getattr(base, name)
        if isinstance(value, msgspec.Struct) and type(before) is type(value):
            changes[name] = merge(before, value)
    return msgspec.structs.replace(base, **changes)


def keys(cls: type[msgspec.Struct], table: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the annotation of each key of a struct and of its tables, in order.

    Args:
        cls: Type of the struct.
        table: Path of the table that the struct is, with which each path begins.
    """
    for field in msgspec.structs.fields(cls):
        path = (*table, field.encode_name)
        nested = next((leaf for leaf in _leaf_types(field.type) if _is_struct(leaf)), None)
        if nested is None:
            yield path, field.type
        else:
            yield from keys(nested, path)


def format_schema(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema as the text of its file, without a line break at the end."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a suggestion such as `' (did you mean "shards"?)'`, or "" if no known name is similar."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""


def _set_fields(config: msgspec.Struct) -> dict[str, Any]:
    fields = ((name, getattr(config, name)) for name in config.__struct_fields__)
    return {name: value for name, value in fields if value is not msgspec.UNSET}


def _refuse_unknown_keys(
    cls: type[msgspec.Struct], values: Mapping[str, Any], where: str, prefix: str
) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(cls)}
    for key, value in values.items():
        if key == cls.__struct_config__.tag_field:
            continue
        if key not in fields:
            raise ConfigError(f'{where}: unknown key "{prefix}{key}"{suggestion(key, fields)}')
        if isinstance(value, Mapping) and (nested := _struct_for(fields[key], value)) is not None:
            _refuse_unknown_keys(nested, value, where, f"{prefix}{key}.")


def _struct_for(annotation: Any, value: Mapping[str, Any]) -> type[msgspec.Struct] | None:  # noqa: ANN401
    """Return the struct type of a table, chosen by the table's tag if there are several, or None."""
    structs: list[type[msgspec.Struct]] = [leaf for leaf in _leaf_types(annotation) if _is_struct(leaf)]
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            return struct
    return None


def _is_struct(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, msgspec.Struct)


def _leaf_types(annotation: Any) -> list[Any]:  # noqa: ANN401 - any annotation
    """Return the alternatives of an annotation, with `Annotated` and unions unwrapped."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _leaf_types(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [leaf for part in get_args(annotation) for leaf in _leaf_types(part)]
    return [annotation]


def _explain(cls: type[msgspec.Struct], text: str) -> str:
    match = _AT.match(text)
    if match is None or not match["key"]:
        return text.replace("`", "")
    what, key = match["what"], match["key"]
    if (tags := _tags(cls, what, key)) is not None:
        return tags
    if what.startswith("Invalid enum value"):
        return f"{key}: {what[0].lower()}{what[1:]}{_choices(cls, key)}"
    what = what.replace("`", "").replace(" | unset", "").replace(" | null", "")  # TOML has neither
    return f"{key}: {what[0].lower()}{what[1:]}"


def _tags(cls: type[msgspec.Struct], what: str, key: str) -> str | None:
    """Return the error text if the wrong key is the tag of a table, which selects one of several structs."""
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        table, last = key, missing[1]
    else:
        table, _, last = key.rpartition(".")
    leaves = _leaf_types(_annotation(cls, table))
    configs = [leaf.__struct_config__ for leaf in leaves if _is_struct(leaf)]
    tags = [str(config.tag) for config in configs if config.tag_field == last]
    if not tags:
        return None
    fault = "is missing" if missing else what.replace("`", "").lower()
    return f"{table}.{last}: {fault} (choose from {', '.join(tags)})"


def _choices(cls: type[msgspec.Struct], key: str) -> str:
    names = []
    for leaf in _leaf_types(_annotation(cls, key)):
        if get_origin(leaf) is Literal:
            names += [str(choice) for choice in get_args(leaf)]
        elif leaf in (int, float):
            names.append("a number")
    return f" (choose from {', '.join(names)})" if names else ""


def _annotation(cls: type[msgspec.Struct], key: str) -> Any:  # noqa: ANN401 - any annotation
    """Return the annotation of a key such as "broker.shards" or "transports[0]"; None for other keys."""
    annotation: Any = cls
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]", key):
        leaves = _leaf_types(annotation)
        if part.startswith("["):
            annotation = next(
                (get_args(leaf)[0] for leaf in leaves if get_origin(leaf) in (list, tuple)), None
            )
            continue
        nested = next((leaf for leaf in leaves if _is_struct(leaf)), None)
        fields = msgspec.structs.fields(nested) if nested else ()
        annotation = next((field.type for field in fields if field.encode_name == part), None)
    return annotation
