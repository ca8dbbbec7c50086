//! Replies that wait so that they do not overtake messages which are under way by mail.
//!
//! A client takes a `PONG` for the sign that everything published before has arrived: what it has
//! published itself, what another client had acknowledged by a `PONG` of its own (the fence), and, after
//! an `UNSUB`, that nothing more comes for the subscription (the barrier). Messages between shards, and
//! those with very many receivers, go by mail; the `PONG` waits until that mail has been handed out.

use std::collections::VecDeque;

use crate::subscriptions::SubscriptionId;

/// The replies of one connection that wait: in order, in groups that wait for one thing each.
#[derive(Default)]
pub(crate) struct HeldReplies {
    groups: VecDeque<Group>,
    /// The first group's ticket; they are consecutive.
    first_ticket: u32,
}

/// Replies that wait for one event.
struct Group {
    until: Until,
    /// Subscriptions that are removed when the wait is over.
    handles: Vec<SubscriptionId>,
    /// `PONG`, `+OK` and `-ERR` in their order.
    replies: Vec<u8>,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// A barrier that is not sent yet, so that more `UNSUB`s may share it.
    OpenBarrier,
    /// A barrier that has not come back from so many shards.
    Barrier(u32),
    /// Mail up to this mark has been handed out.
    Mark(u64),
}

impl HeldReplies {
    /// Add a subscription that has left to the barrier that is not sent yet.
    pub(crate) fn add_leaving(&mut self, handle: SubscriptionId) {
        match self.open_barrier() {
            Some(n) => self.groups[n].handles.push(handle),
            None => self.begin(Until::OpenBarrier, vec![handle]),
        }
    }

    /// Close the open barrier, which waits for `shards` answers; return its ticket.
    pub(crate) fn close_barrier(&mut self, shards: u32) -> Option<u32> {
        let open = self.open_barrier()?;
        self.groups[open].until = Until::Barrier(shards);
        Some(self.first_ticket.wrapping_add(open as u32))
    }

    /// Return the group of the barrier that is not sent yet; there is one at most.
    fn open_barrier(&self) -> Option<usize> {
        let is_open = |group: &Group| group.until == Until::OpenBarrier;
        self.groups.iter().rposition(is_open)
    }

    /// Note one shard's answer to the barrier with this ticket.
    pub(crate) fn note_passed(&mut self, ticket: u32) {
        let index = ticket.wrapping_sub(self.first_ticket) as usize;
        if let Some(group) = self.groups.get_mut(index)
            && let Until::Barrier(shards) = &mut group.until
        {
            *shards = shards.saturating_sub(1);
        }
    }

    /// Let what follows wait for a mark.
    pub(crate) fn wait_for(&mut self, mark: u64) {
        let until = Until::Mark(mark);
        if self.groups.back().is_none_or(|group| group.until != until) {
            self.begin(until, Vec::new());
        }
    }

    /// Append a reply behind those that wait; false when none does.
    pub(crate) fn append(&mut self, reply: &[u8]) -> bool {
        match self.groups.back_mut() {
            Some(group) => group.replies.extend_from_slice(reply),
            None => return false,
        }
        true
    }

    /// Take out the oldest group if its wait is over: its subscriptions and its replies.
    pub(crate) fn next_done(
        &mut self,
        has_passed: impl FnOnce(u64) -> bool,
    ) -> Option<(Vec<SubscriptionId>, Vec<u8>)> {
        let is_done = match self.groups.front()?.until {
            Until::OpenBarrier => false,
            Until::Barrier(shards) => shards == 0,
            Until::Mark(mark) => has_passed(mark),
        };
        if !is_done {
            return None;
        }
        let group = self.groups.pop_front()?;
        self.first_ticket = self.first_ticket.wrapping_add(1);
        Some((group.handles, group.replies))
    }

    /// Return all replies in their order, done or not.
    pub(crate) fn replies(&self) -> impl Iterator<Item = &[u8]> {
        self.groups.iter().map(|group| group.replies.as_slice())
    }

    /// Return the bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.replies().map(<[u8]>::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn begin(&mut self, until: Until, handles: Vec<SubscriptionId>) {
        self.groups.push_back(Group {
            until,
            handles,
            replies: Vec::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(held: &mut HeldReplies, passed: u64) -> Vec<Vec<u8>> {
        let next = || held.next_done(|mark| mark <= passed);
        std::iter::from_fn(next)
            .map(|(_, replies)| replies)
            .collect()
    }

    #[test]
    fn replies_wait_for_their_mark_and_for_those_before() {
        let mut held = HeldReplies::default();
        assert!(!held.append(b"now"));
        held.wait_for(7);
        assert!(held.append(b"a"));
        held.wait_for(7);
        held.append(b"b");
        held.wait_for(9);
        held.append(b"c");
        assert_eq!(held.len(), 3);
        assert!(done(&mut held, 6).is_empty());
        assert_eq!(done(&mut held, 8), [b"ab"]);
        assert_eq!(done(&mut held, 9), [b"c"]);
        assert!(held.is_empty());
    }

    #[test]
    fn unsubscriptions_of_one_read_share_a_barrier() {
        let mut held = HeldReplies::default();
        let handle = |slot| SubscriptionId::new(slot, 0);
        held.add_leaving(handle(1));
        held.add_leaving(handle(2));
        held.append(b"pong");
        let first = held.close_barrier(2);
        assert_eq!((first, held.close_barrier(2)), (Some(0), None));
        held.wait_for(3);
        held.add_leaving(handle(3));
        held.wait_for(4);
        held.append(b"pong");
        let second = held.close_barrier(1);
        assert_eq!(second, Some(2));
        held.note_passed(2);
        held.note_passed(0);
        assert!(held.next_done(|_| true).is_none(), "one shard is missing");
        held.note_passed(0);
        let handles: Vec<_> = std::iter::from_fn(|| held.next_done(|_| true))
            .map(|(handles, _)| handles)
            .collect();
        assert_eq!(
            handles,
            [vec![handle(1), handle(2)], vec![], vec![handle(3)], vec![]]
        );
    }
}
