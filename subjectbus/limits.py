"""Limit on open files (RLIMIT_NOFILE), of which each connection is one."""

import resource

from subjectbus.errors import LimitError

DESCRIPTOR_MARGIN = 100
"""Descriptors that a process needs besides its connections: for listeners, wake-ups, files, libraries."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard limit, which needs no privilege; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptors_allowed() -> int:
    """Return the hard limit: the number of descriptors to which this process and its children may go."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def require_descriptors(user: str, connections: int) -> None:
    """Check that the hard limit allows a number of connections.

    Args:
        user: Name, for the error text, of the process or thread that will have the connections.
        connections: Number of connections.

    Raises:
        LimitError: Connections and margin are more than the hard limit.
    """
    needed, allowed = connections + DESCRIPTOR_MARGIN, descriptors_allowed()
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise LimitError(
            f"descriptor limit too low: {user} needs {needed} open files, but the hard limit is {allowed} "
            "(raise it with ulimit -Hn)"
        )
