"""Who does what: each process's share of the users and of the load."""

from msgspec import structs

from loadtest.engine.messages import (
    BroadcasterConfig,
    EngineConfig,
    ProviderConfig,
    RequestorConfig,
    UsersConfig,
)
from loadtest.plan.profile import Constant, segments
from loadtest.plan.scenario import AnyScenario, BroadcastScenario, FetchScenario, Scenario

_LEAST_BYTES = 16  # of a request, where none has any


def _part(total: int, index: int, parts: int) -> tuple[int, int]:
    """Where part `index` of `total` begins, and how much it is."""
    first = total * index // parts
    return first, total * (index + 1) // parts - first


def _share(scenario: AnyScenario, engine: EngineConfig, index: int, processes: int) -> UsersConfig:
    """The users of process `index`, and what is the same for all `processes`."""
    first, users = _part(scenario.users, index, processes)
    is_constant = isinstance(scenario.profile, Constant)
    profile = () if is_constant else tuple(segments(scenario.profile, scenario.duration_s))
    return UsersConfig(
        **structs.asdict(engine),
        users=users,
        first_user=first,
        threads=scenario.threads,
        connect_rate=scenario.connect_rate / processes,
        connect_in_flight=scenario.connect_in_flight,
        warmup_s=scenario.warmup_s,
        duration_s=scenario.duration_s,
        timeout_s=scenario.timeout_s,
        arrivals=scenario.arrivals,
        profile=profile,
    )


def share_requests(scenario: Scenario | FetchScenario, engine: EngineConfig, index: int) -> RequestorConfig:
    """Requestor `index`'s users and its part of the load."""
    share = _share(scenario, engine, index, scenario.requestors)
    asks = scenario if isinstance(scenario, Scenario) else None
    return RequestorConfig(
        **structs.asdict(share),
        providers=asks.providers if asks else 1,
        rate=scenario.rate * share.users / scenario.users,
        outstanding=_part(scenario.outstanding, index, scenario.requestors)[1],
        calls=_part(scenario.calls, index, scenario.requestors)[1],
        fetch=asks is None,
        sweep=asks is not None and asks.sweep,
        request_bytes=asks.request_bytes if asks else _LEAST_BYTES,
        reply_bytes=scenario.reply_bytes,
        seed=(scenario.seed + index) % 2**64,
        churn_rate=asks.churn_rate * share.users / asks.users if asks else 0.0,
        phase=index / scenario.requestors,
    )


def share_providers(
    scenario: Scenario, engine: EngineConfig, index: int = 0, processes: int = 1
) -> ProviderConfig:
    """Those of provider process `index`, and their part of what all together may answer."""
    first, providers = _part(scenario.providers, index, processes)
    delay = scenario.provider_delay
    return ProviderConfig(
        **structs.asdict(engine),
        providers=providers,
        first_provider=first,
        reply_bytes=scenario.reply_bytes,
        threads=min(scenario.provider_threads, providers),
        rate=scenario.provider_rate * providers / scenario.providers,
        delay_s=delay.delay_ms / 1000 if delay else 0.0,
        delay_for_s=delay.for_s if delay else 0.0,
        delay_every_s=delay.every_s if delay else 0.0,
    )


def share_broadcast(scenario: BroadcastScenario, engine: EngineConfig, index: int) -> BroadcasterConfig:
    """Broadcaster `index`'s users; the first one has the publishers. All follow the same plan."""
    return BroadcasterConfig(
        **structs.asdict(_share(scenario, engine, index, scenario.processes)),
        subjects=scenario.subjects,
        publishers=0 if index else scenario.publishers,
        rate=scenario.rate,
        outstanding=scenario.outstanding,
        message_bytes=scenario.message_bytes,
        seed=scenario.seed,
        list_messages=scenario.processes > 1,
    )
