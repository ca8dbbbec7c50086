"""Configuration of the broker: one struct defines the TOML keys, the flags and their help."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from subjectbus import settings

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Address = str | bool | None | UnsetType

LISTENERS = ("tcp", "http", "monitor")
"""Names of the listeners, which are the keys of their addresses."""

_ADDRESS = {"metavar": "ADDR"}


class _Table(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Base of tables of keys; keys that are not set are neither encoded nor shown."""


class WebSocketConfig(_Table, frozen=True, kw_only=True):
    """Keys of the table `[websocket]`."""

    origins: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description='Origin whose pages may connect over WebSocket; "*" allows all; may be repeated.',
            extra={"metavar": "ORIGIN"},
        ),
    ] = UNSET


class LimitsConfig(_Table, frozen=True, kw_only=True):
    """Keys of the table `[limits]`."""

    connections_per_address: Annotated[
        Count | UnsetType,
        Meta(description="Most connections from one IPv4 address or IPv6 /64 network; 0 = no limit."),
    ] = UNSET
    connects_per_s: Annotated[
        Count | UnsetType,
        Meta(description="Most connections accepted per second, further ones wait; 0 = no limit."),
    ] = UNSET


class BrokerConfig(_Table, frozen=True, kw_only=True):
    """Configuration keys of the broker; a key that is not set has the broker's default.

    Addresses are "host:port"; port 0 lets the system choose a port. None, false in a file, or "" turns the
    listener off.
    """

    tcp: Annotated[
        Address, Meta(description="Address of the listener for NATS clients over TCP.", extra=_ADDRESS)
    ] = UNSET
    http: Annotated[
        Address,
        Meta(description="Address of the listener for WebSocket clients and HTTP callers.", extra=_ADDRESS),
    ] = UNSET
    monitor: Annotated[
        Address, Meta(description="Address of the monitor: health and counters over HTTP.", extra=_ADDRESS)
    ] = UNSET
    shards: Annotated[
        Count | Literal["auto"] | UnsetType,
        Meta(
            description="Number of threads that serve connections; auto = one for each processor, or more "
            "if max_connections needs them.",
            extra={"metavar": "N|auto"},
        ),
    ] = UNSET
    driver: Annotated[
        Literal["auto", "epoll", "uring"] | UnsetType,
        Meta(
            description="Kernel interface for network events; auto = io_uring if the kernel permits it.",
            extra={"metavar": "auto|epoll|uring"},
        ),
    ] = UNSET
    max_connections: Annotated[
        Count | Literal["auto"] | UnsetType,
        Meta(
            description="Most connections at a time; further ones are refused.", extra={"metavar": "N|auto"}
        ),
    ] = UNSET
    echo: Annotated[bool | UnsetType, Meta(description="Serve a plain WebSocket echo at /echo.")] = UNSET
    server_name: Annotated[
        str | UnsetType, Meta(description="Name of the broker, which clients see in INFO.")
    ] = UNSET
    max_payload: Annotated[Count | UnsetType, Meta(description="Size of the largest message, in bytes.")] = (
        UNSET
    )
    max_control_line: Annotated[
        Count | UnsetType, Meta(description="Length of the longest protocol line, in bytes.")
    ] = UNSET
    max_pending: Annotated[
        Count | UnsetType,
        Meta(description="Backlog, in bytes, above which a client is disconnected as a slow consumer."),
    ] = UNSET
    max_memory: Annotated[
        Count | Literal["auto"] | UnsetType,
        Meta(
            description="Memory of all connections, in bytes, above which the largest ones are disconnected; "
            "auto = half of the memory that the process may use.",
            extra={"metavar": "N|auto"},
        ),
    ] = UNSET
    max_subscriptions: Annotated[
        Count | UnsetType, Meta(description="Most subscriptions of one connection; 0 = no limit.")
    ] = UNSET
    max_subject_tokens: Annotated[
        Count | UnsetType, Meta(description="Most tokens of a wildcard subscription's subject, 1 to 64.")
    ] = UNSET
    max_subject_wildcards: Annotated[
        Count | UnsetType,
        Meta(description="Most wildcard tokens of a subscription's subject, 1 to 64."),
    ] = UNSET
    max_subject_length: Annotated[
        Count | UnsetType, Meta(description="Length of the longest subject of a subscription, in bytes.")
    ] = UNSET
    max_sid_length: Annotated[
        Count | UnsetType, Meta(description="Length of the longest SID of a subscription, in bytes.")
    ] = UNSET
    ping_interval_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds of silence after which a client gets a PING; 0 = never."),
    ] = UNSET
    ping_max: Annotated[
        Count | UnsetType, Meta(description="Unanswered PINGs after which a client is disconnected.")
    ] = UNSET
    write_deadline_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds after which a client that reads too slowly is a slow consumer."),
    ] = UNSET
    min_drain_bytes_per_s: Annotated[
        Count | UnsetType,
        Meta(
            description="Bytes per second that a client must read over the write deadline, unless it reads "
            "its whole backlog; 0 = any."
        ),
    ] = UNSET
    no_fast_producer_stall: Annotated[
        bool | UnsetType,
        Meta(description="Never pause a publisher whose messages fill the backlog of a receiver."),
    ] = UNSET
    handshake_timeout_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds in which a client must send CONNECT, its handshake or its HTTP request."),
    ] = UNSET
    http_idle_timeout_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds after which an HTTP connection without a request is closed."),
    ] = UNSET
    request_timeout_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds that an HTTP request waits for its reply, unless it sets its own timeout."),
    ] = UNSET
    event_heartbeat_s: Annotated[
        Seconds | UnsetType, Meta(description="Seconds between two heartbeats in a stream of events.")
    ] = UNSET
    cors_origins: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description='Origin whose pages may use the HTTP gateway; "*" allows all; may be repeated.',
            extra={"metavar": "ORIGIN"},
        ),
    ] = UNSET
    allowed_hosts: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description="Host name that HTTP requests may use, besides this host's addresses and names; "
            '"*" allows all; may be repeated.',
            extra={"metavar": "NAME"},
        ),
    ] = UNSET
    websocket: Annotated[
        WebSocketConfig | UnsetType, Meta(description="Settings of NATS clients over WebSocket.")
    ] = UNSET
    limits: Annotated[LimitsConfig | UnsetType, Meta(description="Limits on new connections.")] = UNSET
    lame_duck_grace_s: Annotated[
        Seconds | UnsetType,
        Meta(description="Seconds from the notice of a drain to the first disconnection."),
    ] = UNSET
    lame_duck_duration_s: Annotated[
        Seconds | UnsetType, Meta(description="Seconds over which a drain spreads the disconnections.")
    ] = UNSET
    log_format: Annotated[
        Literal["text", "json"] | UnsetType,
        Meta(
            description="Format of the log on standard error: key=value pairs, or one JSON object per line.",
            extra={"metavar": "text|json"},
        ),
    ] = UNSET
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | UnsetType,
        Meta(
            description="Lowest level of the events that are logged.",
            extra={"metavar": "debug|info|warning|error"},
        ),
    ] = UNSET

    def __post_init__(self) -> None:
        for name in LISTENERS:
            if getattr(self, name) is True:
                raise ValueError(f'{name}: true is not an address, such as "127.0.0.1:0"')

    def to_json(self) -> str:
        """Return the keys that are set, as the JSON object that the extension expects."""
        off = {name: "" for name in LISTENERS if getattr(self, name) in (None, False)}
        return msgspec.json.encode(msgspec.structs.replace(self, **off)).decode()


def load_config(path: Path | None, flags: dict[str, Any]) -> BrokerConfig:
    """Return the configuration of a TOML file, overridden by flags.

    Args:
        path: Path of the file; "-" for standard input; None for flags alone.
        flags: Text or truth value of each flag that was given, in the keys and tables of the file.

    Raises:
        ConfigError: The file cannot be read, or a key or value cannot be used.
    """
    override = settings.convert(BrokerConfig, flags, "command line", strict=False)
    if path is None:
        return override
    return settings.merge(settings.convert(BrokerConfig, settings.read_toml(path), str(path)), override)
