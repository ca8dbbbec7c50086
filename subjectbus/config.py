"""The broker's configuration: one struct is the TOML keys, the flags and their help."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from subjectbus import settings

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Address = str | bool | None | UnsetType

LISTENERS = ("tcp", "http", "monitor")
"""The keys of the listeners' addresses."""

_ADDRESS = {"metavar": "ADDR"}


class _Table(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """A table of keys, of which those that are left out are neither written nor shown."""


class WebSocketConfig(_Table, frozen=True, kw_only=True):
    """The table `[websocket]`."""

    origins: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description='Origin whose pages may connect over WebSocket, "*" for all; may be repeated.',
            extra={"metavar": "ORIGIN"},
        ),
    ] = UNSET


class LimitsConfig(_Table, frozen=True, kw_only=True):
    """The table `[limits]`."""

    connections_per_address: Annotated[
        Count | UnsetType,
        Meta(description="Connections from one address, or from one /64 of IPv6; 0 = no limit."),
    ] = UNSET
    connects_per_s: Annotated[
        Count | UnsetType,
        Meta(description="Connections accepted per second, the others wait; 0 = no limit."),
    ] = UNSET


class BrokerConfig(_Table, frozen=True, kw_only=True):
    """The broker's configuration keys; one that is left out takes the broker's own default.

    Addresses are "host:port"; port 0 lets the system choose. None, false in a file, or "" means no such
    listener.
    """

    tcp: Annotated[Address, Meta(description="NATS clients over TCP.", extra=_ADDRESS)] = UNSET
    http: Annotated[Address, Meta(description="NATS clients over WebSocket, and HTTP.", extra=_ADDRESS)] = (
        UNSET
    )
    monitor: Annotated[Address, Meta(description="Health and counters over HTTP.", extra=_ADDRESS)] = UNSET
    shards: Annotated[
        Count | Literal["auto"] | UnsetType,
        Meta(description="Threads that serve connections.", extra={"metavar": "N|auto"}),
    ] = UNSET
    driver: Annotated[
        Literal["auto", "epoll", "uring"] | UnsetType,
        Meta(description="How the kernel is asked for events.", extra={"metavar": "auto|epoll|uring"}),
    ] = UNSET
    max_connections: Annotated[
        Count | Literal["auto"] | UnsetType,
        Meta(description="Connections beyond this are refused.", extra={"metavar": "N|auto"}),
    ] = UNSET
    echo: Annotated[bool | UnsetType, Meta(description="Serve a plain WebSocket echo at /echo.")] = UNSET
    server_name: Annotated[str | UnsetType, Meta(description="Name in the INFO line.")] = UNSET
    max_payload: Annotated[Count | UnsetType, Meta(description="Largest message, bytes.")] = UNSET
    max_control_line: Annotated[Count | UnsetType, Meta(description="Longest protocol line, bytes.")] = UNSET
    max_pending: Annotated[
        Count | UnsetType,
        Meta(description="Bytes that may wait for one connection before it is a slow consumer."),
    ] = UNSET
    max_memory: Annotated[
        Count | Literal["auto"] | UnsetType,
        Meta(
            description="Bytes that all connections may hold; above, those that hold most are ended. "
            "auto: half of the memory that the process may use.",
            extra={"metavar": "N|auto"},
        ),
    ] = UNSET
    max_subscriptions: Annotated[
        Count | UnsetType, Meta(description="Subscriptions of one connection; 0 = no limit.")
    ] = UNSET
    max_subject_tokens: Annotated[
        Count | UnsetType, Meta(description="Tokens of a subscription's subject with wildcards, 1 to 64.")
    ] = UNSET
    max_subject_wildcards: Annotated[
        Count | UnsetType,
        Meta(description="Wildcard tokens of a subscription's subject, 1 to 64."),
    ] = UNSET
    max_subject_length: Annotated[
        Count | UnsetType, Meta(description="Longest subject of a subscription, bytes.")
    ] = UNSET
    max_sid_length: Annotated[
        Count | UnsetType, Meta(description="Longest SID of a subscription, bytes.")
    ] = UNSET
    ping_interval_s: Annotated[Seconds | UnsetType, Meta(description="Seconds between PINGs; 0 = none.")] = (
        UNSET
    )
    ping_max: Annotated[
        Count | UnsetType, Meta(description="Unanswered PINGs before a connection is stale.")
    ] = UNSET
    write_deadline_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds after which a client that does not take its output fast enough is slow."),
    ] = UNSET
    min_drain_bytes_per_s: Annotated[
        Count | UnsetType,
        Meta(
            description="Bytes per second that such a client must take over this time, unless it takes all "
            "that waited; 0 = any."
        ),
    ] = UNSET
    no_fast_producer_stall: Annotated[
        bool | UnsetType,
        Meta(description="Never stop reading from a publisher for a receiver that falls behind."),
    ] = UNSET
    handshake_timeout_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds until CONNECT, and for a WebSocket handshake or HTTP request."),
    ] = UNSET
    http_idle_timeout_s: Annotated[
        Seconds | UnsetType, Meta(description="Seconds between two HTTP requests of a connection.")
    ] = UNSET
    request_timeout_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds that an HTTP request waits for its reply, unless it says so itself."),
    ] = UNSET
    event_heartbeat_s: Annotated[
        Seconds | UnsetType, Meta(description="Seconds between two signs of life in a stream of events.")
    ] = UNSET
    cors_origins: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description='Origin whose pages may use the HTTP gateway, "*" for all; may be repeated.',
            extra={"metavar": "ORIGIN"},
        ),
    ] = UNSET
    allowed_hosts: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description="Name that HTTP callers may call this host by, besides its addresses and own names; "
            '"*" for all; may be repeated.',
            extra={"metavar": "NAME"},
        ),
    ] = UNSET
    websocket: Annotated[
        WebSocketConfig | UnsetType, Meta(description="Connections of NATS clients over WebSocket.")
    ] = UNSET
    limits: Annotated[LimitsConfig | UnsetType, Meta(description="Bounds on new connections.")] = UNSET
    lame_duck_grace_s: Annotated[
        Seconds | UnsetType, Meta(description="Seconds between the notice of a drain and the first close.")
    ] = UNSET
    lame_duck_duration_s: Annotated[
        Seconds | UnsetType, Meta(description="Seconds over which a drain spreads its closes.")
    ] = UNSET
    log_format: Annotated[
        Literal["text", "json"] | UnsetType,
        Meta(
            description="How the log on standard error is written: logfmt, or an object for each line.",
            extra={"metavar": "text|json"},
        ),
    ] = UNSET
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | UnsetType,
        Meta(
            description="The least grave events that are logged.",
            extra={"metavar": "debug|info|warning|error"},
        ),
    ] = UNSET

    def __post_init__(self) -> None:
        for name in LISTENERS:
            if getattr(self, name) is True:
                raise ValueError(f'{name}: true is not an address, such as "127.0.0.1:0"')

    def to_json(self) -> str:
        """Return the keys that were set, as the JSON object that the broker takes."""
        off = {name: "" for name in LISTENERS if getattr(self, name) in (None, False)}
        return msgspec.json.encode(msgspec.structs.replace(self, **off)).decode()


def load_config(path: Path | None, flags: dict[str, Any]) -> BrokerConfig:
    """The configuration of a TOML file, overridden by flags.

    Args:
        path: The file, "-" for standard input, or None.
        flags: Keys and tables as in the file with the text or truth value of each flag that was given.

    Raises:
        ConfigError: The file cannot be read, or a key or value is not usable.
    """
    override = settings.convert(BrokerConfig, flags, "command line", strict=False)
    if path is None:
        return override
    return settings.merge(settings.convert(BrokerConfig, settings.read_toml(path), str(path)), override)
