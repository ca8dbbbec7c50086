"""The limit on open files (RLIMIT_NOFILE): each connection is one."""

import resource

from subjectbus.errors import LimitError

DESCRIPTOR_MARGIN = 100
"""Descriptors that a process needs besides its connections: listeners, wake-ups, files, libraries."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit to the hard one, which needs no privilege; returns the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptors_allowed() -> int:
    """Descriptors that this process and its children may raise their limit to."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def require_descriptors(who: str, connections: int) -> None:
    """Refuses what cannot work.

    Args:
        who: The process that will hold the connections, for the error text.
        connections: How many it will hold.

    Raises:
        LimitError: Connections and margin are more than the hard limit.
    """
    needed, allowed = connections + DESCRIPTOR_MARGIN, descriptors_allowed()
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise LimitError(
            f"descriptor limit too low: {who} needs {needed} open files, {allowed} allowed (see ulimit -Hn)"
        )
