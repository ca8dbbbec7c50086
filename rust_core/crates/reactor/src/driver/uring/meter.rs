//! Receiving when a ring's buffers run out.
//!
//! A receive that is armed once takes buffers as long as bytes wait, so that one connection that floods may
//! take them all, turn after turn, and leave none for the others. Each connection that has found no
//! buffer is therefore metered until its socket is empty: it receives once at a time, no more than its
//! part of half of the buffers, and in turn with the others that are metered. The other half is left to
//! all connections that have little to say.

use std::collections::VecDeque;

use crate::conn_id::ConnId;

/// Bytes of one metered receive at least: less would cost more to ask for than to receive.
const LEAST: usize = 1024;

/// The metered connections of one ring.
pub(super) struct Meter {
    /// Connections that wait for their turn, oldest first.
    waiting: VecDeque<ConnId>,
    /// Bytes that may be received in a turn.
    quota: usize,
    /// Bytes of one receive at most.
    most: usize,
    /// Bytes of one receive in this turn.
    len: usize,
    /// Bytes that were granted for this turn, and those that have not been handed out yet.
    granted: usize,
    /// Receives that were granted for this turn.
    grants: usize,
}

impl Meter {
    /// Make a meter for a ring with buffers of `most` bytes each, `total` in all.
    pub(super) fn new(total: usize, most: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            quota: total / 2,
            most,
            len: most,
            granted: 0,
            grants: 0,
        }
    }

    /// Begin a turn, while `lent` bytes have not been handed out yet. Return the connections that may ask
    /// for bytes again.
    pub(super) fn begin_turn(&mut self, lent: usize) -> impl Iterator<Item = ConnId> + '_ {
        let all = self.waiting.len() + self.grants;
        self.len = (self.quota / all.max(1)).clamp(LEAST, self.most);
        self.granted = lent;
        self.grants = 0;
        let room = self.quota.saturating_sub(lent) / self.len;
        self.waiting.drain(..room.min(self.waiting.len()))
    }

    /// Return whether metered connections want to receive.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.grants > 0 || !self.waiting.is_empty()
    }

    /// Return how many bytes a connection may receive now; or have it wait for its turn.
    pub(super) fn ask(&mut self, id: ConnId) -> Option<u32> {
        if self.granted + self.len > self.quota {
            self.waiting.push_back(id);
            return None;
        }
        self.granted += self.len;
        self.grants += 1;
        Some(self.len as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> ConnId {
        ConnId::from_bits(n)
    }

    #[test]
    fn all_have_the_same_part_of_half_of_the_buffers() {
        let mut meter = Meter::new(512 * 1024, 32 * 1024);
        assert!(!meter.is_wanted());
        // The first turn does not know how many there will be.
        let first: Vec<_> = (0..20).map(|n| meter.ask(id(n))).collect();
        assert!(first[..8].iter().all(|len| *len == Some(32 * 1024)));
        assert!(first[8..].iter().all(Option::is_none) && meter.is_wanted());
        let again: Vec<_> = meter.begin_turn(0).collect();
        assert_eq!(again, (8..20).map(id).collect::<Vec<_>>());
        for n in (8..20).chain(0..8) {
            assert_eq!(meter.ask(id(n)), Some(256 * 1024 / 20));
        }
        assert_eq!(meter.begin_turn(0).count(), 0);
        assert!(!meter.is_wanted());
    }

    #[test]
    fn more_than_fit_take_turns() {
        let mut meter = Meter::new(128 * 1024, 32 * 1024);
        let mut served = [0; 200];
        let mut wanting: Vec<u64> = (0..200).collect();
        for _ in 0..100 {
            let mut asking: Vec<u64> = meter.begin_turn(0).map(ConnId::to_bits).collect();
            asking.append(&mut wanting);
            for n in asking {
                if meter.ask(id(n)).is_some() {
                    served[n as usize] += 1;
                    wanting.push(n);
                }
            }
        }
        let (least, most) = (served.iter().min(), served.iter().max());
        assert!(least >= Some(&30) && most <= Some(&34), "{served:?}");
    }

    #[test]
    fn bytes_that_wait_to_be_handed_out_count() {
        let mut meter = Meter::new(128 * 1024, 32 * 1024);
        assert_eq!(meter.begin_turn(64 * 1024).count(), 0);
        assert_eq!(meter.ask(id(1)), None);
        assert_eq!(meter.begin_turn(40 * 1024).count(), 0, "too little");
        assert_eq!(meter.begin_turn(32 * 1024).count(), 1);
        assert_eq!(meter.ask(id(1)), Some(32 * 1024));
    }
}
