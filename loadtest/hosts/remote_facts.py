"""Script that reads the properties of a host; it is sent there as text and needs only the standard library.

`python -c TEXT [SOURCE...]` prints one JSON line of facts. Then, for each line on standard input, it prints
the time of the wall clock in nanoseconds, so that two clocks can be compared. It ends with standard input.
"""

import json
import os
import platform
import resource
import socket
import sys
import time
from pathlib import Path


def _memory(key: str) -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    return 0


def _io_uring() -> "tuple[bool | None, str]":
    """Return whether the io_uring driver works, and why not; None if subjectbus is not installed."""
    try:
        from subjectbus import SubjectbusError, resolve_driver  # noqa: PLC0415 - it may be missing
    except ImportError:
        return None, ""
    try:
        resolve_driver("uring")
    except SubjectbusError as error:
        return False, str(error)
    return True, ""


def _is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def facts(sources: "list[str]") -> "dict[str, object]":
    """Return the fields of `loadtest.hosts.facts.Facts`, except the clock."""
    ports = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    available, reason = _io_uring()
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 1,
        "cpus": sorted(os.sched_getaffinity(0)),
        "memory_bytes": _memory("MemTotal"),
        "memory_available_bytes": _memory("MemAvailable"),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "ports": [int(port) for port in ports],
        "io_uring": available,
        "io_uring_reason": reason,
        "foreign_sources": [source for source in sources if not _is_local(source)],
    }


def main() -> None:
    """Print the facts, then the time for each line of standard input."""
    print(json.dumps(facts(sys.argv[1:])), flush=True)  # noqa: T201 - the caller reads standard output
    for _ in sys.stdin:
        print(time.time_ns(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
