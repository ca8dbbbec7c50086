"""Facts about the machine without which a result cannot be interpreted."""

import os
import platform
import resource
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from subjectbus import __version__

_SYSCTLS = (
    "fs/nr_open",
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_child_ehash_entries",
    "net/ipv4/tcp_ehash_entries",
    "net/ipv4/tcp_mem",
)


def _sysctl(name: str) -> int | str | None:
    try:
        text = " ".join(Path("/proc/sys", name).read_text(encoding="ascii").split())
    except OSError:
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "subjectbus": __version__}
    for name in ("hdrhistogram", "psutil"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def describe_environment() -> dict[str, Any]:
    """Return cores, processor, memory, kernel, limits and versions; None for unknown values."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "cores": os.cpu_count() or 1,
        "cores_usable": len(os.sched_getaffinity(0)),
        "cpu_model": _cpu_model(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "system": platform.platform(),
        "limits": {"nofile_soft": soft, "nofile_hard": hard},
        "sysctl": {name.replace("/", "."): _sysctl(name) for name in _SYSCTLS},
        "versions": _package_versions(),
    }
