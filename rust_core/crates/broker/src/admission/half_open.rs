//! The connections of one shard that have not introduced themselves, in the order of their coming.

use std::time::Instant;

use reactor::ConnId;

/// The position of a connection in the list, kept with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Nodes whose memory an empty list keeps.
const KEPT: usize = 4096;

struct Node {
    /// [`ConnId::NONE`] while the node is free.
    id: ConnId,
    since: Instant,
    before: u32,
    /// The next node of the list, or the next free one.
    after: u32,
}

/// A list in which each connection can be found by its ticket. All of it takes constant time.
pub(crate) struct HalfOpen {
    nodes: Vec<Node>,
    free: u32,
    first: u32,
    last: u32,
    len: usize,
}

impl HalfOpen {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            first: NONE,
            last: NONE,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Append a connection that has come at `since`, which is never before an earlier one's.
    pub(crate) fn push(&mut self, id: ConnId, since: Instant) -> Ticket {
        let node = Node {
            id,
            since,
            before: self.last,
            after: NONE,
        };
        let index = self.free;
        let index = if index == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let slot = &mut self.nodes[index as usize];
            self.free = slot.after;
            *slot = node;
            index
        };
        match self.last {
            NONE => self.first = index,
            last => self.nodes[last as usize].after = index,
        }
        self.last = index;
        self.len += 1;
        Ticket(index)
    }

    /// Return whether the connection is in the list.
    pub(crate) fn contains(&self, ticket: Ticket, id: ConnId) -> bool {
        let node = self.nodes.get(ticket.0 as usize);
        node.is_some_and(|node| node.id == id)
    }

    /// Take a connection out; false when it is not in the list any more.
    pub(crate) fn remove(&mut self, ticket: Ticket, id: ConnId) -> bool {
        if !self.contains(ticket, id) {
            return false;
        }
        let index = ticket.0;
        let node = &mut self.nodes[index as usize];
        let (before, after) = (node.before, node.after);
        node.id = ConnId::NONE;
        node.after = self.free;
        self.free = index;
        match before {
            NONE => self.first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.nodes[after as usize].before = before,
        }
        self.len -= 1;
        if self.len == 0 && self.nodes.len() > KEPT {
            *self = Self::new();
        }
        true
    }

    /// Take the oldest connection out.
    pub(crate) fn pop(&mut self) -> Option<ConnId> {
        let id = self.nodes.get(self.first as usize)?.id;
        self.remove(Ticket(self.first), id);
        Some(id)
    }

    /// Return the time at which the oldest connection came.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let node = self.nodes.get(self.first as usize)?;
        Some(node.since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn id(n: u64) -> ConnId {
        ConnId::from_bits(n)
    }

    #[test]
    fn the_oldest_comes_first_whatever_is_taken_out() {
        let start = Instant::now();
        let second = |n| start + Duration::from_secs(n);
        let mut list = HalfOpen::new();
        let tickets: Vec<_> = (0..6).map(|n| list.push(id(n), second(n))).collect();
        for n in [0, 3, 5] {
            assert!(list.remove(tickets[n as usize], id(n)));
            assert!(!list.remove(tickets[n as usize], id(n)), "once");
        }
        assert_eq!((list.len(), list.oldest()), (3, Some(second(1))));
        // A later connection in the place of one that has left.
        let ticket = list.push(id(9), second(9));
        assert!(!list.contains(ticket, id(5)) && list.contains(ticket, id(9)));
        let order: Vec<_> = std::iter::from_fn(|| list.pop()).collect();
        assert_eq!(order, [1, 2, 4, 9].map(id));
        assert_eq!((list.len(), list.oldest()), (0, None));
    }

    #[test]
    fn memory_is_given_back_after_a_herd() {
        let now = Instant::now();
        let mut list = HalfOpen::new();
        let last = (0..KEPT as u64 * 2)
            .map(|n| list.push(id(n), now))
            .last()
            .expect("a herd");
        while list.len() > 1 {
            list.pop();
        }
        assert!(list.remove(last, id(KEPT as u64 * 2 - 1)));
        assert_eq!(list.nodes.capacity(), 0);
        list.push(id(1), now);
        assert_eq!(list.pop(), Some(id(1)));
    }
}
