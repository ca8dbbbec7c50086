"""Rates between two snapshots of a broker, measured with the broker's clock."""

import msgspec

from subjectbus.monitoring import Sample


class Rates(msgspec.Struct, frozen=True):
    """Rates per second; `in` counts what clients sent to the broker, `out` what the broker sent to them."""

    seconds: float
    """Time over which the rates are averaged."""
    in_msgs_per_s: float
    in_bytes_per_s: float
    out_msgs_per_s: float
    out_bytes_per_s: float
    dropped_per_s: float


class RateMeter:
    """Computation of rates from successive snapshots."""

    def __init__(self, min_interval_s: float) -> None:
        """Begin without a snapshot.

        Args:
            min_interval_s: Shortest time between two snapshots that gives new rates; over a shorter time they
                would be noise.
        """
        self._min_interval_s = min_interval_s
        self._base: Sample | None = None
        self.rates: Rates | None = None
        """Latest rates. None before the second snapshot of the broker."""
        self.clients: dict[int, tuple[float, float]] = {}
        """Messages per second to and from each connection that is in both snapshots, by CID."""
        self.turns: dict[int, float] = {}
        """Turns per second of each shard, by its index."""

    def add(self, sample: Sample) -> None:
        """Add a snapshot and update the rates; start again if the broker is another one or was restarted."""
        base, now = self._base, sample.varz
        if base is None or base.varz.server_id != now.server_id or base.varz.uptime_s > now.uptime_s:
            self.rates, self.clients, self.turns = None, {}, {}
        else:
            seconds = now.uptime_s - base.varz.uptime_s
            if seconds < self._min_interval_s or not seconds:
                return
            self.rates = _rates(base, sample, seconds)
            self.clients = _clients(base, sample, seconds)
            turned = {shard.index: shard.turns for shard in base.varz.shard}
            self.turns = {
                shard.index: (shard.turns - turned[shard.index]) / seconds
                for shard in now.shard
                if shard.index in turned
            }
        self._base = sample


def _rates(base: Sample, sample: Sample, seconds: float) -> Rates:
    before, now = base.varz, sample.varz
    return Rates(
        seconds=seconds,
        in_msgs_per_s=(now.in_msgs - before.in_msgs) / seconds,
        in_bytes_per_s=(now.in_bytes - before.in_bytes) / seconds,
        out_msgs_per_s=(now.out_msgs - before.out_msgs) / seconds,
        out_bytes_per_s=(now.out_bytes - before.out_bytes) / seconds,
        dropped_per_s=(now.dropped - before.dropped) / seconds,
    )


def _clients(base: Sample, sample: Sample, seconds: float) -> dict[int, tuple[float, float]]:
    before = {client.cid: client for client in base.connz.connections}
    return {
        client.cid: (
            (client.out_msgs - before[client.cid].out_msgs) / seconds,
            (client.in_msgs - before[client.cid].in_msgs) / seconds,
        )
        for client in sample.connz.connections
        if client.cid in before
    }
