//! Events that wait to be handed out.

use std::collections::VecDeque;

use rustix::io::Errno;

use crate::slab::ConnId;

/// An event of one shard. `R` is the driver's receipt for received bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<R> {
    /// Bytes, the peer's end, a failure or room to write, as the driver will tell by the receipt.
    Ready(ConnId, R),
    /// An attempt to connect has come to its end.
    Connected(ConnId, Result<(), Errno>),
    /// The connection has failed.
    Failed(ConnId, Errno),
    /// Connections wait to be accepted by this listener.
    Acceptable(usize),
}

/// Two queues, so that a herd that comes or goes keeps nobody waiting who is served: one of traffic, and
/// one of changes. A change waits for the traffic that was queued before it, so that each connection's
/// own events keep their order.
pub(crate) struct Events<R> {
    traffic: VecDeque<Event<R>>,
    /// Number of traffic events that were handed out.
    handed_out: u64,
    /// With the number of traffic events that come before each.
    changes: VecDeque<(u64, Event<R>)>,
}

/// Capacity that an empty queue may keep.
const KEPT: usize = 64 * 1024;

impl<R: Copy> Events<R> {
    pub(crate) fn new() -> Self {
        Self {
            traffic: VecDeque::new(),
            handed_out: 0,
            changes: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event<R>) {
        self.traffic.push_back(event);
    }

    /// Queue a connection that comes or goes.
    #[inline]
    pub(crate) fn push_change(&mut self, event: Event<R>) {
        let before = self.handed_out + self.traffic.len() as u64;
        self.changes.push_back((before, event));
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<Event<R>> {
        let event = self.traffic.pop_front()?;
        self.handed_out += 1;
        Some(event)
    }

    /// The connection of the traffic event that is `ahead` events away.
    #[inline]
    pub(crate) fn ahead(&self, ahead: usize) -> Option<ConnId> {
        match self.traffic.get(ahead)? {
            Event::Ready(id, _) => Some(*id),
            _ => None,
        }
    }

    /// The next change, unless traffic comes before it.
    pub(crate) fn next_change(&mut self) -> Option<Event<R>> {
        let (before, event) = *self.changes.front()?;
        if before > self.handed_out {
            return None;
        }
        self.changes.pop_front();
        Some(event)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.traffic.is_empty() && self.changes.is_empty()
    }

    /// Give memory back after a herd.
    pub(crate) fn shrink(&mut self) {
        if self.traffic.is_empty() && self.traffic.capacity() > KEPT {
            self.traffic = VecDeque::new();
        }
        if self.changes.is_empty() && self.changes.capacity() > KEPT {
            self.changes = VecDeque::new();
        }
    }

    /// Take everything out, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Event<R>> + '_ {
        let changes = self.changes.drain(..).map(|(_, event)| event);
        self.traffic.drain(..).chain(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_for_the_traffic_before_it_alone() {
        let id = |n| ConnId::from_bits(n);
        let mut events = Events::new();
        events.push(Event::Ready(id(1), 'a'));
        events.push_change(Event::Ready(id(1), 'e'));
        events.push(Event::Ready(id(2), 'b'));
        assert!(events.next_change().is_none());
        assert!(matches!(events.next(), Some(Event::Ready(_, 'a'))));
        assert!(matches!(events.next_change(), Some(Event::Ready(_, 'e'))));
        assert!(events.next_change().is_none() && !events.is_empty());
        assert_eq!(events.ahead(0), Some(id(2)));
        assert_eq!(events.drain().count(), 1);
    }
}
