"""A NATS-protocol publish/subscribe broker for huge numbers of WebSocket connections."""

from subjectbus.config import BrokerConfig
from subjectbus.errors import (
    AddressError,
    BrokerError,
    ConfigError,
    LimitError,
    SubjectbusError,
    UsageError,
)
from subjectbus.server import Server, __version__, resolve_driver

__all__ = [
    "AddressError",
    "BrokerConfig",
    "BrokerError",
    "ConfigError",
    "LimitError",
    "Server",
    "SubjectbusError",
    "UsageError",
    "__version__",
    "resolve_driver",
]
