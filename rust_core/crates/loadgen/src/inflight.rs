//! Requests of one thread that wait for their replies, and a record of the latest ones that have
//! ended.
//!
//! Requests are numbered in the order of sending. A ring of slots, indexed by the low bits of that
//! number, holds the latest requests. A slot is reused only after its request has ended. Timeouts
//! are found in order of sending, so that each request is checked once.
//!
//! In an open loop the ring has room for all requests of a timeout. If it is full, sending waits
//! for the oldest. In a closed loop the rate is unknown, and the ring is a few times as large as
//! the number outstanding. Numbers whose slots still wait are skipped there: one lost reply does
//! not block the others.

use std::time::Duration;

/// Most requests that one thread can remember: 512 MiB of slots.
pub(crate) const MAX_CAPACITY: usize = 1 << 24;

/// Slots for each outstanding request of a closed loop; with this many few numbers are skipped.
const SLOTS_PER_OUTSTANDING: usize = 4;

const MIN_CAPACITY: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    /// Its reply came, or an error did.
    Ended,
    TimedOut,
}

/// One request; 32 bytes, because there is a slot for every request of the last `timeout_s`.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Time when it was due, in nanoseconds since the start.
    planned: u64,
    /// Time when it was sent, in nanoseconds since the start.
    sent: u64,
    /// High bits of its number: how often the slot had been used before.
    generation: u32,
    user: u32,
    /// Distance to the number of the same user's previous request; 0 if out of range.
    previous: u32,
    provider: u16,
    state: State,
}

const FREE: Slot = Slot {
    planned: 0,
    sent: 0,
    generation: 0,
    user: 0,
    previous: 0,
    provider: 0,
    state: State::Free,
};

/// Kind of a reply, as its request's slot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// The first reply to a waiting request, which ends with it.
    Awaited {
        /// Time when the request was due, in nanoseconds since the start.
        planned: u64,
        /// Time when it was sent, in nanoseconds since the start.
        sent: u64,
    },
    /// The request has ended before.
    Duplicate,
    /// The request has timed out before, or ended so long ago that it was forgotten.
    Late,
    /// No such request was sent by this user.
    Unmatched,
}

/// Return the number of slots for `wanted` requests, within the limits.
fn capacity(wanted: usize) -> usize {
    wanted.clamp(MIN_CAPACITY, MAX_CAPACITY).next_power_of_two()
}

/// Requests in flight of one thread.
#[derive(Debug)]
pub(crate) struct Inflight {
    slots: Box<[Slot]>,
    /// One more than the number of each user's latest request; 0 for a user without any.
    latest: Box<[u64]>,
    /// No request below this number waits.
    oldest: u64,
    /// Number of the next request.
    next: u64,
    waiting: u64,
    /// Requests that may wait at once, in a closed loop.
    window: Option<u64>,
    timeout: u64,
}

impl Inflight {
    /// Make a ring for an open loop of `rate` requests a second of `users` users.
    pub(crate) fn open(rate: f64, timeout: Duration, users: u32) -> Self {
        let wanted = (rate * (timeout.as_secs_f64() + 1.0)).ceil() as usize;
        Self::with_capacity(capacity(wanted), timeout, users)
    }

    /// Make a ring for a closed loop of `outstanding` requests of `users` users.
    pub(crate) fn closed(outstanding: u32, timeout: Duration, users: u32) -> Self {
        let wanted = (outstanding as usize).saturating_mul(SLOTS_PER_OUTSTANDING);
        Self {
            window: Some(outstanding.into()),
            ..Self::with_capacity(capacity(wanted), timeout, users)
        }
    }

    fn with_capacity(capacity: usize, timeout: Duration, users: u32) -> Self {
        Self {
            slots: vec![FREE; capacity].into_boxed_slice(),
            latest: vec![0; users as usize].into_boxed_slice(),
            oldest: 0,
            next: 0,
            waiting: 0,
            window: None,
            timeout: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Let all waiting requests time out.
    pub(crate) fn expire_all(&mut self) {
        self.timeout = 0;
    }

    /// Return the number of requests that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Return the number that the next request gets.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Return whether the ring has no room for another request.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        match self.window {
            Some(window) => self.waiting >= window,
            None => self.next - self.oldest >= self.slots.len() as u64,
        }
    }

    /// Note a request that was due at `planned` and is sent at `sent`, and return its number. Must
    /// not be called while [full](Self::is_full).
    #[inline]
    pub(crate) fn begin(&mut self, user: u32, provider: u16, planned: u64, sent: u64) -> u64 {
        debug_assert!(!self.is_full());
        let mut seq = self.next;
        while self.slots[self.place(seq).0].state == State::Waiting {
            seq += 1;
        }
        let mut previous = 0;
        if let Some(latest) = self.latest.get_mut(user as usize) {
            if *latest > 0 {
                previous = u32::try_from(seq + 1 - *latest).unwrap_or(0);
            }
            *latest = seq + 1;
        }
        let (index, generation) = self.place(seq);
        self.slots[index] = Slot {
            planned,
            sent,
            generation,
            user,
            previous,
            provider,
            state: State::Waiting,
        };
        self.next = seq + 1;
        self.waiting += 1;
        seq
    }

    /// Return the kind of a reply to request `seq` that `user` received. A waiting request ends
    /// with it.
    #[inline]
    pub(crate) fn end(&mut self, seq: u64, user: u32) -> ReplyKind {
        if seq >= self.next {
            return ReplyKind::Unmatched;
        }
        let (index, generation) = self.place(seq);
        let slot = &mut self.slots[index];
        if slot.generation != generation {
            return ReplyKind::Late;
        }
        if slot.user != user {
            return ReplyKind::Unmatched;
        }
        match slot.state {
            State::Waiting => {
                slot.state = State::Ended;
                self.waiting -= 1;
                ReplyKind::Awaited {
                    planned: slot.planned,
                    sent: slot.sent,
                }
            }
            State::TimedOut => ReplyKind::Late,
            State::Ended | State::Free => ReplyKind::Duplicate,
        }
    }

    /// End the latest waiting request of `user`, to `provider` if that is known, and return its
    /// number. For status messages, which have no id: a server sends them at once, so the latest
    /// request is meant.
    pub(crate) fn end_latest(&mut self, user: u32, provider: Option<u16>) -> Option<u64> {
        let mut seq = self.latest.get(user as usize)?.checked_sub(1)?;
        while seq >= self.oldest {
            let (index, generation) = self.place(seq);
            let slot = &mut self.slots[index];
            if slot.generation != generation {
                break;
            }
            let is_meant = provider.is_none_or(|provider| provider == slot.provider);
            if slot.state == State::Waiting && is_meant {
                slot.state = State::Ended;
                self.waiting -= 1;
                return Some(seq);
            }
            if slot.previous == 0 {
                break;
            }
            seq = seq.checked_sub(slot.previous.into())?;
        }
        None
    }

    /// Return the number of `user`'s latest request.
    #[inline]
    pub(crate) fn latest(&self, user: u32) -> Option<u64> {
        self.latest.get(user as usize)?.checked_sub(1)
    }

    /// Return the user of request `seq`, which must still be in its slot.
    pub(crate) fn user(&self, seq: u64) -> u32 {
        self.slots[self.place(seq).0].user
    }

    /// Return whether a request of `user` waits. Also true if unknown: a slot since the user's last
    /// request was reused while an older request still waits.
    pub(crate) fn is_awaited(&self, user: u32) -> bool {
        let mut next = self.latest.get(user as usize).copied().unwrap_or(0);
        while next > self.oldest {
            let seq = next - 1;
            let (index, generation) = self.place(seq);
            let slot = &self.slots[index];
            if slot.generation != generation || slot.state == State::Waiting {
                return true;
            }
            if slot.previous == 0 {
                break;
            }
            next = next.saturating_sub(slot.previous.into());
        }
        false
    }

    /// Return the next request that has waited for the timeout at `now`; it waits no longer.
    #[inline]
    pub(crate) fn expire(&mut self, now: u64) -> Option<u64> {
        while self.oldest < self.next {
            let seq = self.oldest;
            let (index, generation) = self.place(seq);
            let slot = &mut self.slots[index];
            if slot.generation != generation || slot.state != State::Waiting {
                self.oldest += 1;
            } else if slot.sent.saturating_add(self.timeout) <= now {
                slot.state = State::TimedOut;
                self.oldest += 1;
                self.waiting -= 1;
                return Some(seq);
            } else {
                break;
            }
        }
        None
    }

    /// Return the earliest time at which [`expire`](Self::expire) may find a request, in
    /// nanoseconds since the start. Call it after `expire`: ended requests make the returned time
    /// too early, never too late.
    #[inline]
    pub(crate) fn expires_at(&self) -> Option<u64> {
        let (index, _) = self.place(self.oldest);
        (self.oldest < self.next).then(|| self.slots[index].sent.saturating_add(self.timeout))
    }

    /// Return the slot and generation of a request.
    #[inline]
    fn place(&self, seq: u64) -> (usize, u32) {
        let capacity = self.slots.len() as u64;
        // Both fit: the capacity is a power of two of at most 24 bits.
        (
            (seq & (capacity - 1)) as usize,
            (seq >> capacity.trailing_zeros()) as u32,
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const TIMEOUT: u64 = 1_000;

    fn ring(capacity: usize, users: u32) -> Inflight {
        Inflight::with_capacity(capacity, Duration::from_nanos(TIMEOUT), users)
    }

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<Slot>(), 32);
    }

    #[test]
    fn capacity_covers_the_timeout() {
        let inflight = Inflight::open(10_000.0, Duration::from_secs(10), 1);
        assert_eq!(inflight.slots.len(), 131_072);
        assert_eq!(
            Inflight::open(1.0, Duration::from_secs(1), 1).slots.len(),
            MIN_CAPACITY
        );
    }

    #[test]
    fn every_verdict() {
        let mut inflight = ring(4, 2);
        let first = inflight.begin(0, 0, 10, 20);
        let second = inflight.begin(1, 0, 30, 40);
        assert_eq!((first, second, inflight.waiting()), (0, 1, 2));
        assert_eq!(inflight.end(first, 1), ReplyKind::Unmatched);
        assert_eq!(inflight.end(2, 0), ReplyKind::Unmatched);
        assert_eq!(inflight.end(u64::MAX, 0), ReplyKind::Unmatched);
        assert_eq!(
            inflight.end(first, 0),
            ReplyKind::Awaited {
                planned: 10,
                sent: 20
            }
        );
        assert_eq!(inflight.end(first, 0), ReplyKind::Duplicate);
        assert_eq!(inflight.expires_at(), Some(20 + TIMEOUT));
        assert_eq!(inflight.expire(39 + TIMEOUT), None);
        assert_eq!(inflight.expires_at(), Some(40 + TIMEOUT));
        assert_eq!(inflight.expire(40 + TIMEOUT), Some(second));
        assert_eq!(inflight.expire(u64::MAX), None);
        assert_eq!(inflight.end(second, 1), ReplyKind::Late);
        assert_eq!((inflight.waiting(), inflight.expires_at()), (0, None));
    }

    #[test]
    fn wraps_around_and_forgets_only_what_has_ended() {
        let mut inflight = ring(4, 1);
        for seq in 0..4 {
            assert_eq!(inflight.begin(0, 0, seq, seq), seq);
        }
        assert!(inflight.is_full());
        assert!(matches!(inflight.end(1, 0), ReplyKind::Awaited { .. }));
        assert_eq!(inflight.expire(5), None);
        assert!(inflight.is_full(), "the oldest still waits");
        assert!(matches!(inflight.end(0, 0), ReplyKind::Awaited { .. }));
        assert_eq!(inflight.expire(5), None);
        assert!(!inflight.is_full());
        assert_eq!(inflight.begin(0, 0, 50, 60), 4);
        assert_eq!(inflight.end(0, 0), ReplyKind::Late, "its slot was reused");
        assert_eq!(
            inflight.end(4, 0),
            ReplyKind::Awaited {
                planned: 50,
                sent: 60
            }
        );
    }

    #[test]
    fn a_user_is_awaited_as_long_as_any_request_waits() {
        let mut inflight = ring(8, 3);
        assert!(!inflight.is_awaited(0) && !inflight.is_awaited(7));
        let [first, _, third] = [0, 1, 0].map(|user| inflight.begin(user, 0, 0, 0));
        assert!(inflight.is_awaited(0) && inflight.is_awaited(1) && !inflight.is_awaited(2));
        inflight.end(third, 0);
        assert!(inflight.is_awaited(0));
        inflight.end(first, 0);
        assert!(!inflight.is_awaited(0) && inflight.is_awaited(1));
        while inflight.expire(TIMEOUT).is_some() {}
        assert!(!inflight.is_awaited(1));
    }

    #[test]
    fn in_a_closed_loop_one_that_waits_holds_nothing_up() {
        let timeout = Duration::from_nanos(1_000_000);
        let mut inflight = Inflight::closed(2, timeout, 2);
        let lost = inflight.begin(0, 7, 0, 0);
        let laps = 3 * inflight.slots.len() as u64;
        let mut last = lost;
        for now in 1..laps {
            assert!(!inflight.is_full());
            let seq = inflight.begin(1, 0, now, now);
            assert!(seq > last, "numbers follow the order of sending");
            assert!(inflight.is_full());
            assert_eq!(inflight.expire(now), None);
            assert_eq!(inflight.expires_at(), Some(1_000_000));
            let verdict = inflight.end(seq, 1);
            assert_eq!(
                verdict,
                ReplyKind::Awaited {
                    planned: now,
                    sent: now
                }
            );
            last = seq;
        }
        // While this request waits, the other user's reused slots leave the answer open.
        assert!(inflight.is_awaited(0));
        assert_eq!(inflight.expire(1_000_000), Some(lost));
        assert_eq!(inflight.expire(1_000_000), None);
        assert!(!inflight.is_awaited(0) && !inflight.is_awaited(1));
        assert_eq!(inflight.end(lost, 0), ReplyKind::Late);
        assert_eq!((inflight.expire(u64::MAX), inflight.waiting()), (None, 0));
    }

    #[test]
    fn an_answer_without_an_id_ends_the_latest_request_that_it_can_mean() {
        let mut inflight = ring(8, 2);
        inflight.begin(0, 1, 0, 0);
        inflight.begin(1, 1, 0, 0);
        inflight.begin(0, 2, 0, 0);
        inflight.begin(0, 1, 0, 0);
        inflight.begin(0, 3, 0, 0);
        assert_eq!(inflight.end_latest(0, Some(1)), Some(3));
        assert_eq!(inflight.end_latest(0, Some(1)), Some(0));
        assert_eq!(inflight.end_latest(0, Some(1)), None);
        assert_eq!(inflight.end_latest(0, None), Some(4));
        assert_eq!(inflight.end_latest(0, None), Some(2));
        assert_eq!(inflight.end_latest(0, None), None);
        assert_eq!(inflight.end_latest(7, None), None);
        assert_eq!(inflight.waiting(), 1);
        assert_eq!(inflight.end(3, 0), ReplyKind::Duplicate);
    }

    proptest! {
        /// Each request ends exactly once, in any order of events.
        #[test]
        fn every_request_ends_once(
            window in prop::option::of(1u64..12),
            steps in prop::collection::vec((0u8..4, 0u64..40, 0u32..3), 1..400),
        ) {
            let mut inflight = Inflight { window, ..ring(16, 3) };
            let mut begun = 0;
            let (mut now, mut ended) = (0, std::collections::HashSet::new());
            for (what, number, user) in steps {
                now += number * 5;
                match what {
                    0 => if !inflight.is_full() {
                        inflight.begin(user, (number % 2) as u16, now, now);
                        begun += 1;
                    },
                    1 => {
                        let seq = inflight.next().saturating_sub(number);
                        if let ReplyKind::Awaited { .. } = inflight.end(seq, user) {
                            prop_assert!(ended.insert(seq));
                        }
                    }
                    2 => if let Some(seq) = inflight.end_latest(user, Some((number % 2) as u16)) {
                        prop_assert!(ended.insert(seq));
                    },
                    _ => while let Some(seq) = inflight.expire(now) {
                        prop_assert!(ended.insert(seq));
                    },
                }
                prop_assert_eq!(begun - ended.len() as u64, inflight.waiting());
                prop_assert!(inflight.waiting() <= window.unwrap_or(16));
            }
            while let Some(seq) = inflight.expire(u64::MAX) {
                prop_assert!(ended.insert(seq));
            }
            prop_assert_eq!(begun, ended.len() as u64);
        }
    }
}
