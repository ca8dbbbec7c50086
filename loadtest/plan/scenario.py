"""Scenarios: what is run, typed; shipped ones by name, others from a TOML file, `--set` on top."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs, to_builtins

from loadtest.errors import ScenarioError
from loadtest.plan.profile import Constant, Profile, area, find_fault
from subjectbus import BrokerConfig, settings
from subjectbus.errors import ConfigError

Count = Annotated[int, Meta(ge=1)]
Users = Annotated[int, Meta(ge=1, le=16_000_000)]  # the engine's most
Bytes = Annotated[int, Meta(ge=16)]  # the engine's id and what makes damage visible
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]

Transport = Literal["ws", "tcp", "rest", "rest-new"]
HttpTransport = Literal["rest", "rest-new"]
Calls = Annotated[int, Meta(ge=0, lt=2**32)]

Percent = Annotated[float, Meta(ge=0, le=1e6)]

_SEEDS = 2**64  # more than msgspec's bounds can say
_LISTED_MESSAGES = 1_000_000  # by each process, so that what each received can be put together


class GrowthLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a soak allows each series to grow by: percent per hour of what it was when judging began."""

    broker_rss_bytes: Percent = 5.0
    broker_descriptors: Percent = 2.0
    broker_connections: Percent = 2.0
    broker_cpu_percent: Percent = 50.0
    load_rss_bytes: Percent = 50.0
    """Higher than the broker's: the load keeps a histogram for each second, a few megabytes an hour."""
    p50_us: Percent = 100.0
    p99_us: Percent = 100.0


class SoakPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a long run is judged: whether anything grows from period to period."""

    period_s: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    """Time between two samples."""
    growth_percent_per_hour: GrowthLimits = GrowthLimits()


class ProviderDelay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Providers that stall from time to time."""

    delay_ms: Annotated[float, Meta(gt=0, le=3_600_000)]
    """How much later than at once the replies leave to requests that arrive in a stall."""
    for_s: Annotated[float, Meta(ge=0.001)]
    """Length of a stall."""
    every_s: Annotated[float, Meta(ge=0.001)]
    """From the beginning of one stall to that of the next; the first one begins with the warm-up."""


class _Base(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every scenario has."""

    name: str = ""
    description: str = ""
    warmup_s: Seconds = 5.0
    duration_s: Positive = 20.0
    """Length of the measured phase."""
    timeout_s: Positive = 10.0
    """How long a reply, or after the end a delivery, is waited for."""
    seed: Annotated[int, Meta(ge=0)] = 1
    """Makes every random choice repeatable."""
    load_driver: Literal["auto", "epoll", "uring"] = "auto"
    """How the load asks the kernel; the broker's own is `broker.driver`."""
    thresholds: tuple[str, ...] = ()
    """Objectives such as "latency_us.p99 < 100000"; each that does not hold makes the run fail."""
    broker: BrokerConfig = BrokerConfig()
    """Configuration of the run's own broker; without effect on a target."""


class _Common(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every scenario of one load has."""

    users: Users
    """Connections of users."""
    rate: Annotated[float, Meta(ge=0)] = 0.0
    """Requests, or messages published, per second, all together: an open loop. 0 with `outstanding`."""
    outstanding: Annotated[int, Meta(ge=0)] = 0
    """Requests, or messages, that are always outstanding, all together: a closed loop. 0 with `rate`."""
    arrivals: Literal["uniform", "poisson"] = "uniform"
    """Planned times of an open loop: evenly spaced, or with exponential gaps."""
    profile: Profile = Constant()
    """How the rate of an open loop changes over the measured phase, in multiples of `rate`."""
    threads: Count = 1
    """Threads of each process that has users."""
    sources: tuple[str, ...] = ()
    """Addresses of this host to connect from, in turn, where one has too few ports; on loopback there are
    always enough."""
    connect_rate: Annotated[float, Meta(ge=0)] = 0.0
    """Connections per second; 0 = as fast as `connect_in_flight` lets them."""
    connect_in_flight: Count = 512
    connect_timeout_s: Positive = 300.0
    """The connect phase fails when it takes longer."""
    monitor: str = ""
    """Where a target tells its counters, `http://HOST:PORT`, to be set beside the engine's; without effect on
    the run's own broker, which always does."""
    soak: SoakPlan | None = None
    """Also judge whether memory, descriptors, latency or processor time grow."""

    def planned(self, start_s: float, end_s: float) -> float:
        """Return the number of requests, or published messages, due in a part of the measured phase.

        Args:
            start_s: Seconds from the start of the measured phase; what is before it is cut off.
            end_s: Likewise; what is after its end is cut off.

        0 for a closed loop, which has no plan.
        """
        return self.rate * area(self.profile, self.duration_s, start_s, end_s)


class Scenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The benchmark workload: users that ask, providers that answer, in an open or a closed loop.

    Every user is a connection subscribed to its own subject; provider K is subscribed to /s/K.
    """

    workload: Literal["request"] = "request"
    transport: Transport = "ws"
    """How users ask: the NATS protocol over WebSocket or TCP, or HTTP on connections that are kept (rest) or
    made for each request (rest-new). Over HTTP each user has one request under way at most."""
    provider_transport: Literal["ws", "tcp"] | None = None
    """How providers answer; None: as users ask, and over WebSocket where these speak HTTP."""
    calls: Calls = 0
    """Measured requests after which a closed loop ends; `duration_s` is then only the longest it may take."""
    providers: Count = 16
    """Connections that answer."""
    sweep: bool = False
    """Before the warm-up every user makes one request, in order; all must be answered."""
    request_bytes: Bytes = 32
    reply_bytes: Bytes = 256
    requestors: Count = 1
    """Processes that share the users and the load."""
    provider_threads: Count = 1
    provider_rate: Annotated[float, Meta(ge=0, le=1e8)] = 0.0
    """Requests per second that all providers together answer at most, one after the other: a queue with one
    server. 0 = no limit."""
    provider_delay: ProviderDelay | None = None
    """Stalls of the providers: a latency of known size."""
    churn_rate: Annotated[float, Meta(ge=0)] = 0.0
    """Connections per second, all users together, that are closed and established again while requests go
    on: from the warm-up to the end of the measured phase, nobody's with a request outstanding."""

    @property
    def connections(self) -> int:
        """Users and providers."""
        return self.users + self.providers


class BroadcastScenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broadcast workload: each message goes to all users of its subject.

    User N is subscribed to /b/{N mod subjects}; messages are published on the subjects in turn.
    """

    workload: Literal["broadcast"] = "broadcast"
    transport: Literal["ws", "tcp"] = "ws"
    subjects: Count = 1
    publishers: Count = 1
    """Connections that publish; a subject always has the same one, which keeps its messages in order."""
    message_bytes: Annotated[int, Meta(ge=24)] = 100  # a number, a time and what makes damage visible
    processes: Count = 1
    """Processes that share the users."""

    @property
    def connections(self) -> int:
        """Users and publishers."""
        return self.users + self.publishers


class FetchScenario(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The baseline of HTTP: users fetch a page over and over, with no providers and no subjects."""

    workload: Literal["http-byte"] = "http-byte"
    transport: HttpTransport = "rest"
    path: str = "/byte"
    """What is fetched from the own broker, or from a target whose URL names no path."""
    reply_bytes: Annotated[int, Meta(ge=0)] = 1
    """Size that the page must have."""
    calls: Calls = 0
    """As of requests."""
    requestors: Count = 1
    """Processes that share the users and the load."""

    @property
    def connections(self) -> int:
        """Users."""
        return self.users


class TransportsScenario(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same requests over each transport, one after the other: by one caller, then by many at once.

    Each of these runs is one of the workload "request", in a closed loop, on a broker of its own, with one
    provider over TCP.
    """

    workload: Literal["transports"] = "transports"
    transports: Annotated[tuple[Transport, ...], Meta(min_length=1)] = ("rest-new", "rest", "ws", "tcp")
    calls: Count = 2_000_000
    """Measured requests of each run with `outstanding` callers."""
    sequential_calls: Annotated[int, Meta(ge=0)] = 200_000
    """The same with one caller; 0 leaves these runs out."""
    outstanding: Annotated[int, Meta(ge=2)] = 64
    """Callers, each with a connection and one request under way."""
    request_bytes: Bytes = 32
    reply_bytes: Bytes = 256

    @property
    def connections(self) -> int:
        """Callers and the provider."""
        return self.outstanding + 1

    def runs(self) -> list[Scenario]:
        """The runs in their order."""
        plans = [(1, self.sequential_calls), (self.outstanding, self.calls)]
        return [
            Scenario(
                name=f"{transport}, {callers} at once" if callers > 1 else f"{transport}, one caller",
                transport=transport,
                provider_transport="tcp",
                users=callers,
                outstanding=callers,
                calls=calls,
                providers=1,
                warmup_s=self.warmup_s,
                duration_s=self.duration_s,
                timeout_s=self.timeout_s,
                seed=self.seed,
                request_bytes=self.request_bytes,
                reply_bytes=self.reply_bytes,
                load_driver=self.load_driver,
                broker=self.broker,
            )
            for callers, calls in plans
            if calls
            for transport in self.transports
        ]


AnyScenario = Scenario | BroadcastScenario | FetchScenario
"""What one run is made of."""
Plan = AnyScenario | TransportsScenario
"""What a scenario file describes."""
_WORKLOADS: dict[str, type[Plan]] = {
    "request": Scenario,
    "broadcast": BroadcastScenario,
    "http-byte": FetchScenario,
    "transports": TransportsScenario,
}


def is_http(scenario: AnyScenario) -> bool:
    """Whether users speak HTTP."""
    return scenario.transport in ("rest", "rest-new")


def shipped_scenarios() -> dict[str, str]:
    """Name and description of every scenario in the package."""
    folder = files("loadtest") / "scenarios"
    tables = {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }
    return {name: str(table.get("description", "")) for name, table in sorted(tables.items())}


def load_scenario(name: str, overrides: Iterable[str] = ()) -> Plan:
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
    _check(table, where)
    for text in overrides:
        _override(table, text)
        _check(table, f"--set {text}")
    scenario = _convert(table, where)
    if (fault := find_contradiction(scenario)) is not None:
        raise ScenarioError(f"{where}: {fault}")
    return scenario


def scenario_of(table: Mapping[str, Any]) -> Plan:
    """The scenario that a result tells of; ScenarioError when it is none of this version."""
    return _convert(dict(table), "the result's scenario")


def with_transport(scenario: Plan, transport: Literal["ws", "tcp", "rest"]) -> AnyScenario:
    """The scenario as a target's scheme makes it run.

    Raises:
        ScenarioError: The workload cannot be run so.
    """
    where = f"scenario {scenario.name}"
    match scenario:
        case TransportsScenario():
            raise ScenarioError(f"{where}: compares the transports of its own broker, and takes no target")
        case FetchScenario() if transport != "rest":
            raise ScenarioError(f"{where}: fetches over HTTP, and needs a target http://HOST:PORT")
        case BroadcastScenario() if transport == "rest":
            raise ScenarioError(f"{where}: broadcasts need a target nats:// or ws://")
        case Scenario() if transport == "rest" and scenario.provider_transport == "tcp":
            raise ScenarioError(f"{where}: provider_transport: a target http:// is reached over WebSocket")
        case Scenario(transport="rest" | "rest-new" as http) if transport != "rest":
            raise ScenarioError(f"{where}: transport: {http} needs a target http://HOST:PORT")
    if transport == "rest" and is_http(scenario):
        return scenario
    return structs.replace(scenario, transport=transport)


def find_contradiction(scenario: Plan) -> str | None:
    """What keys say against each other; None when nothing."""
    if isinstance(scenario, TransportsScenario):
        return None
    fault = _find_loop_contradiction(scenario) or find_fault(scenario.profile, scenario.duration_s)
    if fault is not None:
        return fault
    if isinstance(scenario, BroadcastScenario):
        return _find_broadcast_contradiction(scenario)
    return _find_request_contradiction(scenario)


def _find_loop_contradiction(scenario: AnyScenario) -> str | None:
    if (scenario.rate > 0) == (scenario.outstanding > 0):
        how_many = "both are given" if scenario.rate else "neither is given"
        return (
            f"rate, outstanding: {how_many}; an open loop has a rate, a closed loop a number outstanding,"
            " and the other one is 0"
        )
    if scenario.outstanding and scenario.arrivals != "uniform":
        return f"arrivals: a closed loop has no planned times to be {scenario.arrivals}"
    if scenario.outstanding and not isinstance(scenario.profile, Constant):
        return 'profile: a closed loop has no rate that could change; give a rate, or the kind "constant"'
    return None


def _find_request_contradiction(scenario: Scenario | FetchScenario) -> str | None:
    if scenario.requestors > scenario.users:
        return f"requestors: {scenario.requestors} processes for {scenario.users} users"
    threads = scenario.requestors * scenario.threads
    users, outstanding, calls = scenario.users, scenario.outstanding, scenario.calls
    churns = isinstance(scenario, Scenario) and scenario.churn_rate > 0
    over_http = is_http(scenario)
    delay = scenario.provider_delay if isinstance(scenario, Scenario) else None
    faults = (
        (
            delay is not None and delay.for_s > delay.every_s,
            f"provider_delay.for_s: {delay.for_s:g} is more than every_s, {delay.every_s:g}" if delay else "",
        ),
        (
            calls > 0 and not outstanding,
            "calls: only a closed loop ends after a number of requests; give outstanding and no rate",
        ),
        (0 < calls < threads, f"calls: {calls} for {threads} requestor threads, which share them"),
        (
            over_http and outstanding > users,
            f"outstanding: {outstanding} with {users} users, who have one each over HTTP",
        ),
        (churns and over_http, "churn_rate: churn is not possible over HTTP: use ws or tcp"),
        (
            churns and users < 2 * threads,
            f"churn_rate: {users} users on {threads} requestor threads; each needs two",
        ),
        (
            0 < outstanding < threads,
            f"outstanding: {outstanding} for {threads} requestor threads, which share it",
        ),
    )
    return next((text for is_fault, text in faults if is_fault), None)


def _find_broadcast_contradiction(scenario: BroadcastScenario) -> str | None:
    users, subjects, processes = scenario.users, scenario.subjects, scenario.processes
    messages = scenario.planned(0, scenario.duration_s)
    faults = (
        (processes > users, f"processes: {processes} processes for {users} users"),
        (subjects > users, f"subjects: {subjects} subjects for {users} users"),
        (
            scenario.publishers > subjects,
            f"publishers: {scenario.publishers} for {subjects} subjects, which have one publisher each",
        ),
        (
            processes > 1 and scenario.outstanding > 0,
            "outstanding: a closed loop needs all users in one process; use threads",
        ),
        (
            processes > 1 and messages > _LISTED_MESSAGES,
            f"processes: several follow {_LISTED_MESSAGES:,} messages, not {messages:,.0f}; use threads",
        ),
    )
    return next((text for is_fault, text in faults if is_fault), None)


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


def _check(table: dict[str, Any], where: str) -> None:
    """Check the keys that are there; others may still come."""
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
        raise ScenarioError(f"{where}: name: expected a file's name, got {scenario.name!r}")
    if scenario.seed >= _SEEDS:
        raise ScenarioError(f"{where}: seed: expected int < 2**64")
    return scenario


def _find_infinite(table: dict[str, Any], prefix: str = "") -> tuple[str, float] | None:
    """The first number that is none, with its key."""
    for key, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{prefix}{key}", value
        if isinstance(value, dict) and (found := _find_infinite(value, f"{prefix}{key}.")) is not None:
            return found
    return None


def _kind(table: dict[str, Any], where: str) -> type[Plan]:
    """The type of the table's workload; ScenarioError when a key belongs to another one's."""
    workload = table.get("workload", "request")
    kind = next((kind for name, kind in _WORKLOADS.items() if name == workload), None)
    if kind is None:
        raise ScenarioError(f"{where}: workload: {workload!r} is none (choose from {', '.join(_WORKLOADS)})")
    others = {key for other in _WORKLOADS.values() for key in other.__struct_fields__}
    for key in table:
        if key in others - set(kind.__struct_fields__):
            raise ScenarioError(f'{where}: {key}: no key of the workload "{workload}"')
    return kind
