//! The requests to the monitor that wait.
//!
//! Callers of the monitor share a thread with clients. What they ask for is carried out at the end of
//! turns, for a slice of each, so that clients are served in every turn, however many callers there are
//! and however fast they ask.

use std::collections::VecDeque;
use std::time::Instant;

use reactor::ConnId;

/// Connections of the monitor whose requests wait, the oldest request first.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<ConnId>,
    /// Time of the last turn in which a request did not wait.
    passed: Option<Instant>,
}

impl Queue {
    /// Return whether a request that has just come need not wait. In each turn this is so for one at most.
    pub(crate) fn may_pass(&mut self, now: Instant) -> bool {
        let may_pass = self.waiting.is_empty() && self.passed != Some(now);
        if may_pass {
            self.passed = Some(now);
        }
        may_pass
    }

    /// Return the number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Add a connection whose request waits.
    pub(crate) fn push(&mut self, id: ConnId) {
        self.waiting.push_back(id);
    }

    /// Take the connection whose request has waited longest.
    pub(crate) fn pop(&mut self) -> Option<ConnId> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_request_of_a_turn_passes_when_none_waits() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let later = now + Duration::from_micros(1);
        assert!(queue.may_pass(now) && !queue.may_pass(now));
        assert!(queue.may_pass(later));
        queue.push(ConnId::NONE);
        let later = later + Duration::from_micros(1);
        assert!(!queue.may_pass(later));
        assert_eq!((queue.len(), queue.pop()), (1, Some(ConnId::NONE)));
        assert!(queue.may_pass(later));
    }
}
