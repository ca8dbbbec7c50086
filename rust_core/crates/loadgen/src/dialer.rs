//! The order and pace in which connections are established. First attempts are made in order and
//! failed attempts are repeated after a pause, within limits of number and rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::rng::Rng;

/// Attempts for one connection before the connect phase has failed.
pub(crate) const MAX_ATTEMPTS: u8 = 10;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Connections in the making at once if the configuration has no limit.
const IN_FLIGHT: u32 = 64;
/// Longest part of a paced start that may be caught up with at once after a delay.
const CATCH_UP: Duration = Duration::from_millis(20);

/// A connection to be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    /// Member that gets the connection, counted from 0 within the thread.
    pub(crate) member: u32,
    /// Number of attempts that have failed before.
    pub(crate) failed: u8,
}

/// Connections of one thread that are still to be established.
#[derive(Debug)]
pub(crate) struct Dialer {
    fresh: Range<u32>,
    again: BinaryHeap<Reverse<(Instant, Attempt)>>,
    in_flight: u32,
    max_in_flight: u32,
    /// Time between two attempts; zero for no pacing.
    gap: Duration,
    next: Instant,
}

impl Dialer {
    /// Make a dialer for `members` connections from `now` on, at most `max_in_flight` at once and
    /// `rate` a second. A rate of 0 means no limit.
    pub(crate) fn new(members: u32, max_in_flight: u32, rate: f64, now: Instant) -> Self {
        let gap = if rate > 0.0 {
            Duration::from_secs_f64(rate.recip())
        } else {
            Duration::ZERO
        };
        Self {
            fresh: 0..members,
            again: BinaryHeap::new(),
            in_flight: 0,
            max_in_flight,
            gap,
            next: now,
        }
    }

    /// Make a dialer for `members` connections from `now` on, without a limit of the rate.
    pub(crate) fn unpaced(members: u32, now: Instant) -> Self {
        Self::new(members, IN_FLIGHT, 0.0, now)
    }

    /// Return the number of connections that are to be begun for the first time.
    pub(crate) fn members(&self) -> u32 {
        self.fresh.end - self.fresh.start
    }

    /// Return a connection to be begun at `now`.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Attempt> {
        if self.in_flight >= self.max_in_flight || self.next > now {
            return None;
        }
        let attempt = match self.again.peek() {
            Some(Reverse((at, attempt))) if *at <= now => {
                let attempt = *attempt;
                self.again.pop();
                attempt
            }
            _ => Attempt {
                member: self.fresh.next()?,
                failed: 0,
            },
        };
        self.in_flight += 1;
        if !self.gap.is_zero() {
            let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
            self.next = self.next.max(earliest) + self.gap;
        }
        Some(attempt)
    }

    /// Return when [`poll`](Self::poll) may next have something that no other event brings forward.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        if self.in_flight >= self.max_in_flight {
            return None;
        }
        if !self.fresh.is_empty() {
            return Some(self.next);
        }
        self.again.peek().map(|Reverse((at, _))| self.next.max(*at))
    }

    /// Note that an attempt has succeeded or failed.
    pub(crate) fn end_attempt(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Plan the attempt after one that failed at `now`. Pauses double up to a limit; a random part
    /// keeps connections that were refused together from coming back together.
    pub(crate) fn retry(&mut self, attempt: Attempt, now: Instant, rng: &mut Rng) {
        let doubled = FIRST_PAUSE.saturating_mul(1 << attempt.failed.min(16));
        let pause = doubled
            .min(LONGEST_PAUSE)
            .mul_f64(0.5 + 0.5 * rng.fraction());
        let failed = attempt.failed.saturating_add(1);
        self.again
            .push(Reverse((now + pause, Attempt { failed, ..attempt })));
    }

    /// Plan a connection at once for a member whose last one was closed on purpose.
    pub(crate) fn redial(&mut self, member: u32, now: Instant) {
        let failed = 0;
        self.again.push(Reverse((now, Attempt { member, failed })));
    }

    /// Begin nothing more.
    pub(crate) fn halt(&mut self) {
        self.fresh = 0..0;
        self.again.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_more_at_once_than_allowed() {
        let now = Instant::now();
        let mut dialer = Dialer::new(5, 2, 0.0, now);
        assert_eq!(
            dialer.poll(now),
            Some(Attempt {
                member: 0,
                failed: 0
            })
        );
        assert_eq!(
            dialer.poll(now),
            Some(Attempt {
                member: 1,
                failed: 0
            })
        );
        assert_eq!((dialer.poll(now), dialer.wakes_at()), (None, None));
        dialer.end_attempt();
        assert!(dialer.wakes_at().unwrap() <= now);
        assert_eq!(
            dialer.poll(now),
            Some(Attempt {
                member: 2,
                failed: 0
            })
        );
        assert_eq!(dialer.poll(now), None);
        dialer.halt();
        dialer.end_attempt();
        assert_eq!((dialer.poll(now), dialer.wakes_at()), (None, None));
    }

    #[test]
    fn no_faster_than_allowed() {
        let start = Instant::now();
        let mut dialer = Dialer::new(1000, 1000, 100.0, start);
        let mut begun = 0;
        for ms in 0..1000 {
            while dialer.poll(start + Duration::from_millis(ms)).is_some() {
                begun += 1;
            }
        }
        assert_eq!(begun, 100);
        // A pause of ten seconds is not made up for.
        let later = start + Duration::from_secs(11);
        let burst = std::iter::from_fn(|| dialer.poll(later)).count();
        assert!((1..=3).contains(&burst), "{burst}");
    }

    #[test]
    fn a_connection_closed_on_purpose_comes_back_at_once() {
        let now = Instant::now();
        let mut dialer = Dialer::new(1, 1, 0.0, now);
        let first = dialer.poll(now).unwrap();
        dialer.end_attempt();
        dialer.redial(first.member, now);
        assert_eq!(dialer.wakes_at(), Some(dialer.next.max(now)));
        assert_eq!(dialer.poll(now), Some(first));
    }

    #[test]
    fn failed_attempts_come_again_after_growing_pauses() {
        let mut now = Instant::now();
        let (mut dialer, mut rng) = (Dialer::new(1, 1, 0.0, now), Rng::new(1));
        let mut attempt = dialer.poll(now).unwrap();
        for failed in 1..=12u8 {
            dialer.end_attempt();
            dialer.retry(attempt, now, &mut rng);
            let longest = FIRST_PAUSE
                .saturating_mul(1 << (failed - 1))
                .min(LONGEST_PAUSE);
            assert_eq!(dialer.poll(now), None);
            assert_eq!(dialer.poll(now + longest.mul_f64(0.49)), None);
            let at = dialer.wakes_at().unwrap();
            assert!(at <= now + longest);
            now = at;
            attempt = dialer.poll(now).unwrap();
            assert_eq!(attempt, Attempt { member: 0, failed });
        }
    }
}
