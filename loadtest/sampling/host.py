"""Samples of a whole machine, one a second."""

import time
from pathlib import Path

import psutil

from loadtest.result.schema import HostSample

_SAMPLE_EVERY_S = 1.0
_SNMP = Path("/proc/net/snmp")
_INTERFACES = Path("/sys/class/net")


class HostSampler:
    """Sampler of a whole machine: one sample a second, of the time since the sample before."""

    def __init__(self) -> None:
        self._last = _Snapshot()
        self._next_s = self._last.at_s + _SAMPLE_EVERY_S

    def sample(self) -> HostSample | None:
        """Return a sample of the time since the last one; None if less than a second has passed."""
        if time.monotonic() < self._next_s:
            return None
        now, before = _Snapshot(), self._last
        self._last = now
        # A late sample must not make the next ones early.
        self._next_s = max(self._next_s + _SAMPLE_EVERY_S, now.at_s + _SAMPLE_EVERY_S / 2)
        elapsed = now.at_s - before.at_s
        retransmits = None
        if now.retransmits is not None and before.retransmits is not None:
            retransmits = (now.retransmits - before.retransmits) / elapsed
        total, busy = now.cpu_total_s - before.cpu_total_s, now.cpu_busy_s - before.cpu_busy_s
        return HostSample(
            t_s=now.at_s,
            cpu_percent=100.0 * min(1.0, busy / total) if total > 0 else 0.0,
            memory_used_bytes=now.memory_used_bytes,
            net_in_bps=8 * (now.received - before.received) / elapsed,
            net_out_bps=8 * (now.sent - before.sent) / elapsed,
            context_switches_per_s=(now.context_switches - before.context_switches) / elapsed,
            retransmits_per_s=retransmits,
        )


class _Snapshot:
    """The kernel's counters at one time."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()
        times = psutil.cpu_times()
        # The times of guests are included in user and nice.
        self.cpu_total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        self.cpu_busy_s = self.cpu_total_s - times.idle - getattr(times, "iowait", 0.0)
        memory = psutil.virtual_memory()
        self.memory_used_bytes = int(memory.total - memory.available)
        self.received, self.sent = _interface_bytes()
        self.context_switches = psutil.cpu_stats().ctx_switches
        self.retransmits = _retransmitted_segments()


def _interface_bytes() -> tuple[int, int]:
    """Return the bytes that the machine's network interfaces have received and sent since boot.

    Hardware interfaces are counted if there are any: the traffic of a bridge or a bond goes through them.
    Otherwise all interfaces except loopback are counted.
    """
    counted = {name: counts for name, counts in psutil.net_io_counters(pernic=True).items() if name != "lo"}
    hardware = [name for name in counted if (_INTERFACES / name / "device").exists()]
    carried = [counted[name] for name in hardware or counted]
    return sum(counts.bytes_recv for counts in carried), sum(counts.bytes_sent for counts in carried)


def _retransmitted_segments() -> int | None:
    """Return the TCP segments retransmitted since boot (RFC 4022, tcpRetransSegs).

    Return None instead if the system does not show them.
    """
    try:
        lines = [line.split() for line in _SNMP.read_text(encoding="ascii").splitlines()]
        names, values = (line for line in lines if line[:1] == ["Tcp:"])
        return int(values[names.index("RetransSegs")])
    except (OSError, ValueError):
        return None
