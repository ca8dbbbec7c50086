"""Shares of the users and of the load, one for each worker."""

from msgspec import structs

from loadtest.scenario.kinds import AnyScenario, BroadcastScenario, FetchScenario, Scenario
from loadtest.scenario.profile import Constant, segments
from loadtest.workers.messages import (
    BroadcasterConfig,
    EngineConfig,
    ProviderConfig,
    RequestorConfig,
    UsersConfig,
)

_MIN_REQUEST_BYTES = 16  # smallest size of a request, for engines that send none


def _slice(total: int, index: int, parts: int) -> tuple[int, int]:
    """Return the start and the length of part `index` of `total`, divided into `parts`."""
    first = total * index // parts
    return first, total * (index + 1) // parts - first


def _share(scenario: AnyScenario, engine: EngineConfig, index: int, processes: int) -> UsersConfig:
    """Return the configuration of the users of process `index`, of `processes` in all."""
    first, users = _slice(scenario.users, index, processes)
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
    """Return the configuration of requestor `index`: its users and its part of the load."""
    share = _share(scenario, engine, index, scenario.requestors)
    request_scenario = scenario if isinstance(scenario, Scenario) else None
    return RequestorConfig(
        **structs.asdict(share),
        providers=request_scenario.providers if request_scenario else 1,
        rate=scenario.rate * share.users / scenario.users,
        outstanding=_slice(scenario.outstanding, index, scenario.requestors)[1],
        calls=_slice(scenario.calls, index, scenario.requestors)[1],
        fetch=request_scenario is None,
        sweep=request_scenario is not None and request_scenario.sweep,
        request_bytes=request_scenario.request_bytes if request_scenario else _MIN_REQUEST_BYTES,
        reply_bytes=scenario.reply_bytes,
        seed=(scenario.seed + index) % 2**64,
        churn_rate=request_scenario.churn_rate * share.users / request_scenario.users
        if request_scenario
        else 0.0,
        phase=index / scenario.requestors,
    )


def share_providers(
    scenario: Scenario, engine: EngineConfig, index: int = 0, processes: int = 1
) -> ProviderConfig:
    """Return the configuration of provider process `index`: its providers and its part of the rate limit."""
    first, providers = _slice(scenario.providers, index, processes)
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
    """Return the configuration of broadcaster `index`; only the first one has publishers.

    All broadcasters follow the same plan of messages.
    """
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
