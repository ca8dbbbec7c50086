"""A NATS-protocol publish/subscribe broker for huge numbers of WebSocket connections."""

from typing import TYPE_CHECKING

from subjectbus.config import BrokerConfig
from subjectbus.errors import (
    AddressError,
    BrokerError,
    ConfigError,
    LimitError,
    MonitorError,
    SubjectbusError,
    UsageError,
)
from subjectbus.server import Server, __version__, resolve_driver

if TYPE_CHECKING:
    from subjectbus.monitoring import Monitor

__all__ = [
    "AddressError",
    "BrokerConfig",
    "BrokerError",
    "ConfigError",
    "LimitError",
    "Monitor",
    "MonitorError",
    "Server",
    "SubjectbusError",
    "UsageError",
    "__version__",
    "resolve_driver",
]


def __getattr__(name: str) -> object:
    """Import `Monitor` on its first use (PEP 562), since a broker does not need its HTTP client."""
    if name != "Monitor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from subjectbus.monitoring import Monitor  # noqa: PLC0415

    return Monitor
