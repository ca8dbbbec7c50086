//! Events that wait to be handed out.

use std::collections::VecDeque;

use rustix::io::Errno;

use crate::conn_id::ConnId;
use crate::shrink::give_back;

/// An event of one shard. `R` is the driver's receipt for it.
#[derive(Debug)]
pub(crate) enum Event<R> {
    /// Bytes, the peer's end or a failure, as the driver will tell by the receipt.
    Ready(ConnId, R),
    /// More bytes than the last read has taken.
    Again(ConnId, R),
    /// The socket takes bytes, or an attempt to connect has come to its end.
    Writable(ConnId),
    /// An attempt to connect has come to its end.
    Connected(ConnId, Result<(), Errno>),
    /// The connection has failed.
    Failed(ConnId, Errno),
}

/// Queues of traffic (one of what has been received, one of sockets that take bytes) and one of changes, so
/// that a herd that comes, goes or reads keeps no other connection waiting. A change waits for the traffic
/// that was received before it, so that each connection's own events keep their order. Listeners are in
/// no queue: they take turns, so that a herd at one of them delays no connection to another one.
pub(crate) struct Events<R> {
    received: VecDeque<Event<R>>,
    writable: VecDeque<ConnId>,
    is_turn_of_writable: bool,
    /// Number of events that were taken out of `received`.
    handed_out: u64,
    /// Number of connections in `received` that have more than one read's bytes.
    greedy: usize,
    /// With the number of events in `received` that come before each.
    changes: VecDeque<(u64, Event<R>)>,
    /// Whether a connection may wait to be accepted, by listener.
    acceptable: Vec<bool>,
    /// The listener whose turn it is.
    listener: usize,
}

impl<R> Events<R> {
    pub(crate) fn new() -> Self {
        Self {
            received: VecDeque::new(),
            writable: VecDeque::new(),
            is_turn_of_writable: false,
            handed_out: 0,
            greedy: 0,
            changes: VecDeque::new(),
            acceptable: Vec::new(),
            listener: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event<R>) {
        self.greedy += usize::from(matches!(event, Event::Again(..)));
        self.received.push_back(event);
    }

    pub(crate) fn push_writable(&mut self, id: ConnId) {
        self.writable.push_back(id);
    }

    /// Queue a connection that comes or goes.
    #[inline]
    pub(crate) fn push_change(&mut self, event: Event<R>) {
        let before = self.handed_out + self.received.len() as u64;
        self.changes.push_back((before, event));
    }

    /// Note that a connection may wait to be accepted by this listener.
    pub(crate) fn note_acceptable(&mut self, listener: usize) {
        if listener >= self.acceptable.len() {
            self.acceptable.resize(listener + 1, false);
        }
        self.acceptable[listener] = true;
    }

    /// Return whether a connection may wait to be accepted by a listener that `is_open`.
    pub(crate) fn has_acceptable(&self, is_open: impl Fn(usize) -> bool) -> bool {
        (0..self.acceptable.len()).any(|listener| self.acceptable[listener] && is_open(listener))
    }

    /// Return the next listener in turn where a connection may wait, of those that are `is_open`. It is
    /// forgotten until it is noted again.
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

    /// Return the next traffic: received bytes and sockets that take bytes, in turn.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Event<R>> {
        self.is_turn_of_writable ^= true;
        if (self.is_turn_of_writable || self.received.is_empty())
            && let Some(id) = self.writable.pop_front()
        {
            return Some(Event::Writable(id));
        }
        let event = self.received.pop_front()?;
        self.greedy -= usize::from(matches!(event, Event::Again(..)));
        self.handed_out += 1;
        Some(event)
    }

    /// Return the number of received events that wait.
    #[inline]
    pub(crate) fn received(&self) -> usize {
        self.received.len()
    }

    /// Return the number of waiting connections that have more than one read's bytes.
    #[inline]
    pub(crate) fn greedy(&self) -> usize {
        self.greedy
    }

    /// Return the connection of the received event that is `ahead` events away.
    #[inline]
    pub(crate) fn ahead(&self, ahead: usize) -> Option<ConnId> {
        match self.received.get(ahead)? {
            Event::Ready(id, _) | Event::Again(id, _) => Some(*id),
            _ => None,
        }
    }

    /// Return the next change, unless traffic comes before it.
    pub(crate) fn next_change(&mut self) -> Option<Event<R>> {
        if self.changes.front()?.0 > self.handed_out {
            return None;
        }
        self.changes.pop_front().map(|(_, event)| event)
    }

    /// Return whether no traffic and no change waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty() && self.writable.is_empty() && self.changes.is_empty()
    }

    /// Give memory back after a herd.
    pub(crate) fn shrink(&mut self) {
        give_back(&mut self.received);
        give_back(&mut self.writable);
        give_back(&mut self.changes);
    }

    /// Take everything out, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Event<R>> + '_ {
        self.greedy = 0;
        let writable = self.writable.drain(..).map(Event::Writable);
        let changes = self.changes.drain(..).map(|(_, event)| event);
        self.received.drain(..).chain(writable).chain(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> ConnId {
        ConnId::from_bits(n)
    }

    #[test]
    fn a_change_waits_for_the_bytes_before_it_alone() {
        let mut events = Events::new();
        events.push(Event::Ready(id(1), 'a'));
        events.push_change(Event::Ready(id(1), 'e'));
        events.push_writable(id(3));
        events.push(Event::Ready(id(2), 'b'));
        assert!(events.next_change().is_none());
        assert!(matches!(events.next(), Some(Event::Writable(_))));
        assert!(events.next_change().is_none());
        assert!(matches!(events.next(), Some(Event::Ready(_, 'a'))));
        assert!(matches!(events.next_change(), Some(Event::Ready(_, 'e'))));
        assert!(events.next_change().is_none() && !events.is_empty());
        assert_eq!(events.ahead(0), Some(id(2)));
        assert_eq!(events.drain().count(), 1);
        assert!(events.is_empty());
    }

    #[test]
    fn bytes_and_writable_sockets_take_turns() {
        let mut events = Events::new();
        (0..4).for_each(|n| events.push_writable(id(n)));
        (0..2).for_each(|n| events.push(Event::Again(id(n), ())));
        assert_eq!(events.greedy(), 2);
        let mut order = String::new();
        while let Some(event) = events.next() {
            order.push(match event {
                Event::Writable(_) => 'w',
                _ => 'r',
            });
        }
        assert_eq!(order, "wrwrww");
        assert_eq!(events.greedy(), 0);
    }

    #[test]
    fn a_herd_leaves_no_memory_behind() {
        let mut events = Events::new();
        for n in 0..100_000 {
            events.push(Event::Ready(id(n), ()));
            events.push_writable(id(n));
            events.push_change(Event::Ready(id(n), ()));
        }
        while events.next().is_some() {}
        while events.next_change().is_some() {}
        events.shrink();
        let kept = events.received.capacity() + events.writable.capacity();
        assert_eq!((kept, events.changes.capacity()), (0, 0));
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
