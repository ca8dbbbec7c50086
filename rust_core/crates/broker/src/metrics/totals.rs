//! Sums of the shards' numbers.

use telemetry::cells::Cells;
use telemetry::key::KeyMap;

use super::shard::ShardMetrics;
use super::table::{Counter, Dropped, Flow, PendingPlace};
use crate::reason::Reason;
use crate::transport::TransportKind;

/// Sums over shards that were read one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    counters: KeyMap<Counter, u64>,
    flows: KeyMap<TransportKind, KeyMap<Flow, u64>>,
    dropped: KeyMap<Dropped, u64>,
    pending: KeyMap<PendingPlace, u64>,
    closed: KeyMap<Reason, u64>,
}

impl Totals {
    pub(crate) fn sum<'a>(shards: impl Iterator<Item = &'a ShardMetrics> + Clone) -> Self {
        let flows =
            |transport| Cells::sum(shards.clone().map(move |shard| &shard.flows[transport]));
        Self {
            counters: Cells::sum(shards.clone().map(|shard| &shard.counters)),
            flows: KeyMap::new(flows),
            dropped: Cells::sum(shards.clone().map(|shard| &shard.dropped)),
            pending: Cells::sum(shards.clone().map(|shard| &shard.pending)),
            closed: Cells::sum(shards.map(|shard| &shard.closed)),
        }
    }

    pub(crate) fn value(&self, counter: Counter) -> u64 {
        self.counters[counter]
    }

    pub(crate) fn closed(&self, reason: Reason) -> u64 {
        self.closed[reason]
    }

    pub(crate) fn dropped(&self, reason: Dropped) -> u64 {
        self.dropped[reason]
    }

    /// Return the messages that wait at a place. Below zero for an instant when a shard was read before
    /// it added and another one after it subtracted.
    pub(crate) fn pending(&self, place: PendingPlace) -> i64 {
        self.pending[place] as i64
    }

    /// Return the count of one transport.
    pub(crate) fn flow(&self, transport: TransportKind, flow: Flow) -> u64 {
        self.flows[transport][flow]
    }

    /// Return the count of all transports.
    pub(crate) fn all(&self, flow: Flow) -> u64 {
        self.flows.iter().map(|(_, flows)| flows[flow]).sum()
    }

    /// Return the connections that were opened; each once, however its transport changed.
    pub(crate) fn opened(&self) -> u64 {
        self.flow(TransportKind::Tcp, Flow::Opened) + self.flow(TransportKind::Http, Flow::Opened)
    }

    /// Return the clients connected now.
    pub(crate) fn connections(&self) -> u64 {
        // The shards are read one after the other, so that a close may be seen before its open.
        self.opened().saturating_sub(self.all(Flow::Closed))
    }

    /// Return the clients connected now over one transport.
    pub(crate) fn connections_over(&self, transport: TransportKind) -> u64 {
        let upgraded = match transport {
            TransportKind::Http => self.flow(TransportKind::WebSocket, Flow::Opened),
            TransportKind::Tcp | TransportKind::WebSocket => 0,
        };
        self.flow(transport, Flow::Opened)
            .saturating_sub(upgraded + self.flow(transport, Flow::Closed))
    }

    /// Return the subscriptions that exist now.
    pub(crate) fn subscriptions(&self) -> u64 {
        self.value(Counter::Subscribed)
            .saturating_sub(self.value(Counter::Unsubscribed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use telemetry::key::Key;

    use super::super::shard::Counts;
    use super::*;

    fn shards<const N: usize>() -> ([Arc<ShardMetrics>; N], [Counts; N]) {
        let shards: [_; N] = std::array::from_fn(|_| Arc::new(ShardMetrics::new()));
        let counts = shards
            .each_ref()
            .map(|shard| Counts::new(Arc::clone(shard)));
        (shards, counts)
    }

    fn totals(shards: &[Arc<ShardMetrics>]) -> Totals {
        Totals::sum(shards.iter().map(|shard| &**shard))
    }

    /// Return the messages that the conservation rule does not account for.
    fn unaccounted(totals: &Totals) -> i64 {
        let dropped = Dropped::ALL.iter().map(|reason| totals.dropped(*reason));
        let pending: i64 = PendingPlace::ALL
            .iter()
            .map(|place| totals.pending(*place))
            .sum();
        let (matched, delivered) = (Counter::Matched, Counter::Delivered);
        let taken = totals.value(delivered) + dropped.sum::<u64>();
        totals.value(matched) as i64 - taken as i64 - pending
    }

    #[test]
    fn totals_sum_shards_and_transports() {
        let (shards, [first, second]) = shards();
        first.add_flow(TransportKind::Tcp, Flow::InMsgs, 1);
        first.add_flow(TransportKind::WebSocket, Flow::InMsgs, 2);
        second.add_flow(TransportKind::WebSocket, Flow::InMsgs, 4);
        second.add_closed(Reason::Stale);
        let totals = totals(&shards);
        assert_eq!(totals.all(Flow::InMsgs), 7);
        assert_eq!(totals.flow(TransportKind::WebSocket, Flow::InMsgs), 6);
        assert_eq!(
            (
                totals.closed(Reason::Stale),
                totals.closed(Reason::Shutdown)
            ),
            (1, 0)
        );
    }

    #[test]
    fn a_message_is_pending_where_it_waits_until_it_is_delivered_or_dropped() {
        let (shards, [sender, receiver]) = shards();
        let pending = || {
            let totals = totals(&shards);
            assert_eq!(unaccounted(&totals), 0);
            (
                totals.pending(PendingPlace::Output),
                totals.pending(PendingPlace::Mail),
            )
        };
        // Five receivers: one on the publisher's shard, four by mail.
        sender.add(Counter::Matched, 5);
        sender.add_sent(TransportKind::Tcp, 0);
        sender.add_posted(4);
        assert_eq!(pending(), (1, 4));
        // One of the four has left, three are sent the message.
        receiver.add_arrived(4);
        receiver.add_dropped(Dropped::Closed, 1);
        (0..3).for_each(|_| receiver.add_sent(TransportKind::Tcp, 0));
        assert_eq!(pending(), (4, 0));
        sender.set_delivered(1);
        receiver.set_delivered(2);
        assert_eq!(pending(), (1, 0));
        receiver.add_unsent(Dropped::SlowConsumer, 1);
        assert_eq!(pending(), (0, 0));
        // Mail that comes back, because its shard has ended.
        sender.add(Counter::Matched, 2);
        sender.add_posted(2);
        sender.add_arrived(2);
        sender.add_dropped(Dropped::Shutdown, 2);
        assert_eq!(pending(), (0, 0));
    }

    #[test]
    fn a_message_that_is_lost_or_counted_twice_breaks_the_rule() {
        let (shards, [counts]) = shards();
        counts.add(Counter::Matched, 1);
        assert_eq!(unaccounted(&totals(&shards)), 1);
        counts.add_sent(TransportKind::Tcp, 0);
        counts.set_delivered(1);
        assert_eq!(unaccounted(&totals(&shards)), 0);
        counts.add_dropped(Dropped::Closed, 1);
        assert_eq!(unaccounted(&totals(&shards)), -1);
    }

    #[test]
    fn an_upgraded_connection_is_one_connection() {
        let (shards, [counts]) = shards();
        counts.add_flow(TransportKind::Http, Flow::Opened, 3);
        counts.add_flow(TransportKind::WebSocket, Flow::Opened, 2);
        counts.add_flow(TransportKind::WebSocket, Flow::Closed, 1);
        counts.add_flow(TransportKind::Tcp, Flow::Opened, 1);
        let totals = totals(&shards);
        let over = |kind| totals.connections_over(kind);
        assert_eq!((totals.opened(), totals.connections()), (4, 3));
        assert_eq!(over(TransportKind::Http), 1);
        assert_eq!(over(TransportKind::WebSocket), 1);
        assert_eq!(over(TransportKind::Tcp), 1);
    }
}
