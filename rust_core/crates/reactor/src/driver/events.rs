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
}

/// Two queues, so that a herd that comes or goes keeps nobody waiting who is served: one of traffic, and
/// one of changes. A change waits for the traffic that was queued before it, so that each connection's
/// own events keep their order. Listeners are in no queue: they take turns, so that a herd at one of them
/// keeps nobody waiting who comes to another one.
pub(crate) struct Events<R> {
    traffic: VecDeque<Event<R>>,
    /// Number of traffic events that were handed out.
    handed_out: u64,
    /// With the number of traffic events that come before each.
    changes: VecDeque<(u64, Event<R>)>,
    /// Whether a connection may wait to be accepted, by listener.
    acceptable: Vec<bool>,
    /// The listener whose turn it is.
    listener: usize,
}

/// Capacity that an empty queue may keep.
const KEPT: usize = 64 * 1024;

impl<R: Copy> Events<R> {
    pub(crate) fn new() -> Self {
        Self {
            traffic: VecDeque::new(),
            handed_out: 0,
            changes: VecDeque::new(),
            acceptable: Vec::new(),
            listener: 0,
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

    /// Note that a connection may wait to be accepted by this listener.
    pub(crate) fn note_acceptable(&mut self, listener: usize) {
        if listener >= self.acceptable.len() {
            self.acceptable.resize(listener + 1, false);
        }
        self.acceptable[listener] = true;
    }

    /// Whether a connection may wait to be accepted by a listener that `is_open`.
    pub(crate) fn has_acceptable(&self, is_open: impl Fn(usize) -> bool) -> bool {
        (0..self.acceptable.len()).any(|listener| self.acceptable[listener] && is_open(listener))
    }

    /// The next listener in turn where a connection may wait, of those that are `is_open`. It is forgotten
    /// until it is noted again.
    pub(crate) fn next_acceptable(&mut self, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.acceptable.len();
        let in_turn = (0..count).map(|n| (self.listener + n) % count);
        let listener = in_turn
            .into_iter()
            .find(|listener| self.acceptable[*listener] && is_open(*listener))?;
        self.acceptable[listener] = false;
        self.listener = listener + 1;
        Some(listener)
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

    /// Whether no traffic and no change waits.
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

    #[test]
    fn listeners_take_turns_and_a_paused_one_is_not_forgotten() {
        let mut events: Events<char> = Events::new();
        assert_eq!(events.next_acceptable(|_| true), None);
        (0..3).for_each(|listener| events.note_acceptable(listener));
        assert_eq!(events.next_acceptable(|_| true), Some(0));
        events.note_acceptable(0);
        assert_eq!(events.next_acceptable(|_| true), Some(1));
        assert_eq!(events.next_acceptable(|listener| listener != 2), Some(0));
        assert_eq!(events.next_acceptable(|listener| listener != 2), None);
        assert!(!events.has_acceptable(|listener| listener != 2));
        assert!(events.has_acceptable(|_| true) && events.is_empty());
        assert_eq!(events.next_acceptable(|_| true), Some(2));
        assert!(!events.has_acceptable(|_| true));
    }
}
