"""Scenarios: what is run, typed; shipped ones by name, others from a TOML file, `--set` on top."""

import math
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from loadtest.errors import ScenarioError
from subjectbus import BrokerConfig, settings
from subjectbus.errors import ConfigError

Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(ge=16)]  # the engine's id and what makes damage visible
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]

_SEEDS = 2**64  # more than msgspec's bounds can say


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The benchmark workload: users that ask, providers that answer, at a planned rate.

    Every user is a connection subscribed to its own subject; provider K is subscribed to /s/K.
    """

    name: str = ""
    description: str = ""
    transport: Literal["ws", "tcp"] = "ws"
    users: Count
    """Connections that send requests."""
    providers: Count = 16
    """Connections that answer."""
    rate: Positive
    """Requests per second, all users together."""
    arrivals: Literal["uniform", "poisson"] = "uniform"
    """Planned times: evenly spaced, or with exponential gaps."""
    warmup_s: Seconds = 5.0
    duration_s: Positive = 20.0
    """Length of the measured phase."""
    timeout_s: Positive = 10.0
    """A request without a reply for this long counts as timed out."""
    request_bytes: Bytes = 32
    reply_bytes: Bytes = 256
    seed: Annotated[int, Meta(ge=0)] = 1
    """Makes the choice of users and providers repeatable."""
    requestors: Count = 1
    """Processes that share the users and the rate."""
    threads: Count = 1
    """Threads of each requestor."""
    provider_threads: Count = 1
    connect_rate: Annotated[float, Meta(ge=0)] = 0.0
    """Connections per second; 0 = as fast as `connect_in_flight` lets them."""
    connect_in_flight: Count = 512
    connect_timeout_s: Positive = 300.0
    """The connect phase fails when it takes longer."""
    thresholds: tuple[str, ...] = ()
    """Objectives such as "latency_us.p99 < 100000"; each that does not hold makes the run fail."""
    broker: BrokerConfig = BrokerConfig()
    """Configuration of the run's own broker; without effect on a target."""


def shipped_scenarios() -> dict[str, str]:
    """Name and description of every scenario in the package."""
    folder = files("loadtest") / "scenarios"
    tables = {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }
    return {name: str(table.get("description", "")) for name, table in sorted(tables.items())}


def load_scenario(name: str, overrides: Iterable[str] = ()) -> Scenario:
    """The scenario `name`, changed by `KEY=VALUE` texts.

    Args:
        name: A shipped scenario, or the path of a TOML file.
        overrides: Each a key (dotted for a table: "broker.shards") and a TOML value; a value that is no
            TOML is a string.

    Raises:
        ScenarioError: No such scenario, an unknown key (with the nearest known one), an unusable value.
    """
    table, where = _read(name)
    table.setdefault("name", Path(name).stem)
    _convert(table, where)
    for text in overrides:
        _override(table, text)
        _convert(table, f"--set {text}")
    scenario = _convert(table, where)
    if scenario.requestors > scenario.users:
        raise ScenarioError(
            f"{where}: requestors: {scenario.requestors} processes for {scenario.users} users"
        )
    return scenario


def with_transport(scenario: Scenario, transport: Literal["ws", "tcp"]) -> Scenario:
    """The scenario as a target's scheme makes it run."""
    return structs.replace(scenario, transport=transport)


def _read(name: str) -> tuple[dict[str, Any], str]:
    path = Path(name)
    if path.suffix == ".toml" or path.parent != Path():
        try:
            return settings.read_toml(path), name
        except ConfigError as error:
            raise ScenarioError(str(error)) from error
    shipped = files("loadtest") / "scenarios" / f"{name}.toml"
    if not shipped.is_file():
        known = shipped_scenarios()
        hint = settings.suggestion(name, known) or f" (shipped: {', '.join(known)}; or a .toml file)"
        raise ScenarioError(f'no scenario "{name}"{hint}')
    return tomllib.loads(shipped.read_text(encoding="utf-8")), f"scenario {name}"


def _override(table: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ScenarioError(f'--set "{text}": expected KEY=VALUE')
    *tables, last = key.strip().split(".")
    for part in tables:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ScenarioError(f'--set {text}: "{part}" is no table')
    table[last] = _value(value.strip())


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def _convert(table: dict[str, Any], where: str) -> Scenario:
    try:
        scenario = settings.convert(Scenario, table, where)
    except ConfigError as error:
        raise ScenarioError(str(error)) from error
    for key, value in structs.asdict(scenario).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ScenarioError(f"{where}: {key}: expected a finite number, got {value}")
    if scenario.seed >= _SEEDS:
        raise ScenarioError(f"{where}: seed: expected int < 2**64")
    return scenario
