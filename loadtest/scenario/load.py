"""Loading of scenarios: shipped ones by name, others by path, changed by `KEY=VALUE` overrides."""

import math
import os
import reprlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from loadtest.errors import ScenarioError
from loadtest.scenario.contradictions import find_contradiction
from loadtest.scenario.kinds import WORKLOADS, Plan
from subjectbus import settings
from subjectbus.errors import ConfigError

_SEEDS = 2**64  # checked here because the bounds of msgspec end at 2**63


def shipped_scenarios() -> dict[str, str]:
    """Return the description of each scenario in the package, by its name."""
    return {name: str(_read_table(file).get("description", "")) for name, file in _shipped_files().items()}


def load_scenario(
    scenario: str | os.PathLike[str] | Plan, overrides: Iterable[str] | Mapping[str, Any] = ()
) -> Plan:
    """Load a scenario, change keys of it, and check it.

    Args:
        scenario: Name of a shipped scenario, path of a TOML file, or a scenario.
        overrides: New values of keys: texts `KEY=VALUE`, as `--set` takes them, whose value is TOML or else a
            string; or values by key. The key of a value in a table is dotted, such as "broker.shards".

    Raises:
        ScenarioError: The scenario does not exist, a key is unknown (the text suggests the nearest one), a
            value cannot be used, or keys contradict each other.
    """
    table, where = _read(scenario)
    _check(table, where)
    for key, value, label in _overrides(overrides):
        _override(table, key, value, label)
        _check(table, label)
    complete = _convert(table, where)
    if (fault := find_contradiction(complete)) is not None:
        raise ScenarioError(f"{where}: {fault}")
    return complete


def scenario_of(table: Mapping[str, Any]) -> Plan:
    """Return the scenario that a result was made with, from the table `scenario` of the result.

    Raises:
        ScenarioError: The table is not a scenario of this version.
    """
    return _convert(dict(table), "the result's scenario")


def to_plain(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return new values of keys as numbers, texts, lists and tables that TOML has.

    Raises:
        ScenarioError: A value is none of these, nor a number of another library.
    """
    plain = {}
    for key, value in overrides.items():
        try:
            plain[key] = to_builtins(value, enc_hook=_to_number)
        except TypeError as error:
            raise ScenarioError(f"{key}: {error}") from error
    return plain


def _to_number(value: object) -> int | float:
    """Return a number of another library, such as NumPy, as Python's."""
    match value:
        case Integral():
            return int(value)
        case Real():
            return float(value)
    raise TypeError(f"expected a value that TOML has, got {type(value).__name__}")


def _read(scenario: str | os.PathLike[str] | Plan) -> tuple[dict[str, Any], str]:
    """Return the keys of a scenario, including its name, and the source of the keys for messages."""
    if isinstance(scenario, Struct):
        name = scenario.name or "scenario"
        return {**to_builtins(scenario), "name": name}, f"scenario {name}"
    if not isinstance(scenario, str | os.PathLike):
        raise ScenarioError(f"scenario: expected a name, a path or a scenario, got {type(scenario).__name__}")
    path = Path(scenario)
    if path.suffix == ".toml" or path.parent != Path() or not isinstance(scenario, str):
        try:
            return {"name": path.stem, **settings.read_toml(path)}, os.fspath(scenario)
        except ConfigError as error:
            raise ScenarioError(str(error)) from error
    return _read_shipped(scenario)


def _read_shipped(name: str) -> tuple[dict[str, Any], str]:
    known = _shipped_files()
    if name not in known:
        hint = settings.suggestion(name, known) or f" (choose from {', '.join(known)}, or name a .toml file)"
        raise ScenarioError(f'no scenario "{name}"{hint}')
    return {"name": name, **_read_table(known[name])}, f"scenario {name}"


def _shipped_files() -> dict[str, Traversable]:
    """Return the file of each scenario in the package, by its name."""
    entries = sorted((files("loadtest") / "scenarios").iterdir(), key=lambda entry: entry.name)
    return {entry.name.removesuffix(".toml"): entry for entry in entries if entry.name.endswith(".toml")}


def _read_table(file: Traversable) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _overrides(overrides: Iterable[str] | Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield key, value and label, for messages, of each override."""
    if isinstance(overrides, Mapping):
        for key, value in to_plain(overrides).items():
            yield key, value, f"{key}={reprlib.repr(value)}"
        return
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ScenarioError(f'--set "{text}": expected KEY=VALUE')
        yield key.strip(), _value(value.strip()), f"--set {text}"


def _override(table: dict[str, Any], key: str, value: object, label: str) -> None:
    *tables, last = key.split(".")
    for part in tables:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ScenarioError(f'{label}: "{part}" is not a table')
    table[last] = value


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # not TOML, too many digits, or nested too deeply
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def _check(table: dict[str, Any], where: str) -> None:
    """Raise ScenarioError for an unusable key; required keys may be missing, since overrides may add them."""
    try:
        _convert(table, where)
    except ScenarioError as error:
        if "missing required field" not in str(error):
            raise


def _convert(table: dict[str, Any], where: str) -> Plan:
    kind = _kind(table, where)
    try:
        scenario = settings.convert(kind, table, where)
    except ConfigError as error:
        raise ScenarioError(str(error)) from error
    if (found := _find_infinite(to_builtins(scenario))) is not None:
        raise ScenarioError(f"{where}: {found[0]}: expected a finite number, got {found[1]}")
    if scenario.name in (".", "..") or "/" in scenario.name or not scenario.name.isprintable():
        raise ScenarioError(f"{where}: name: expected a name that a file can have, got {scenario.name!r}")
    if scenario.seed >= _SEEDS:
        raise ScenarioError(f"{where}: seed: expected int < 2**64")
    return scenario


def _find_infinite(table: dict[str, Any], prefix: str = "") -> tuple[str, float] | None:
    """Return the dotted key and the value of the first number that is infinite or not a number, or None."""
    for key, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{prefix}{key}", value
        if isinstance(value, dict) and (found := _find_infinite(value, f"{prefix}{key}.")) is not None:
            return found
    return None


def _kind(table: dict[str, Any], where: str) -> type[Plan]:
    """Return the type for the table's workload.

    Raises:
        ScenarioError: The workload is unknown, or a key belongs to another workload.
    """
    workload = table.get("workload", "request")
    kind = next((kind for name, kind in WORKLOADS.items() if name == workload), None)
    if kind is None:
        choices = ", ".join(WORKLOADS)
        raise ScenarioError(f"{where}: workload: {workload!r} is not a workload (choose from {choices})")
    others = {key for other in WORKLOADS.values() for key in other.__struct_fields__}
    for key in table:
        if key in others - set(kind.__struct_fields__):
            raise ScenarioError(f'{where}: {key}: not a key of the workload "{workload}"')
    return kind
