"""Rates between two looks at a broker, by the broker's own clock."""

import msgspec

from subjectbus.monitoring import Sample


class Rates(msgspec.Struct, frozen=True):
    """Per second, averaged over `seconds`; `in` what clients sent, `out` what they were sent."""

    seconds: float
    in_msgs_per_s: float
    in_bytes_per_s: float
    out_msgs_per_s: float
    out_bytes_per_s: float
    dropped_per_s: float


class Meter:
    """Keeps the look that rates are measured from."""

    def __init__(self, least_s: float) -> None:
        """Looks that are nearer together than `least_s` seconds give no new rates: they would be noise."""
        self._least_s = least_s
        self._base: Sample | None = None
        self.rates: Rates | None = None
        """The latest; None before two looks at the same broker."""
        self.clients: dict[int, tuple[float, float]] = {}
        """Messages per second to and from each connection that was on both pages, by id."""
        self.turns: dict[int, float] = {}
        """Turns per second of each shard, by index."""

    def look(self, sample: Sample) -> None:
        """Takes in a look; one at another broker, or at one that has started again, begins anew."""
        base, now = self._base, sample.varz
        if base is None or base.varz.server_id != now.server_id or base.varz.uptime_s > now.uptime_s:
            self.rates, self.clients, self.turns = None, {}, {}
        else:
            seconds = now.uptime_s - base.varz.uptime_s
            if seconds < self._least_s or not seconds:
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
