//! Time that all processes of a run agree on, whichever machines they are on.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The run's clock: this machine's CLOCK_MONOTONIC, which is the same for every process of it and
/// another on every other machine, less an offset that whoever started the run has measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    offset_ns: i64,
}

impl Clock {
    /// `offset_ns` is this machine's CLOCK_MONOTONIC less the run's clock.
    pub(crate) const fn new(offset_ns: i64) -> Self {
        Self { offset_ns }
    }

    /// Nanoseconds.
    #[inline]
    pub(crate) fn now(self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        // It counts from the machine's start: neither part is negative.
        let monotonic = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        monotonic.saturating_add_signed(self.offset_ns.saturating_neg())
    }

    /// The time `ns` of this clock, past or to come.
    pub(crate) fn instant_of(self, ns: u64) -> Instant {
        let (clock, now) = (self.now(), Instant::now());
        let ahead = Duration::from_nanos(ns.saturating_sub(clock));
        let ago = Duration::from_nanos(clock.saturating_sub(ns));
        (now + ahead).checked_sub(ago).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn an_instant_may_be_past_or_to_come() {
        let (clock, second) = (Clock::default(), Duration::from_secs(1));
        let now = clock.now();
        let (past, future) = (
            clock.instant_of(now - 5 * SECOND_NS),
            clock.instant_of(now + 60 * SECOND_NS),
        );
        assert!(past + 4 * second < Instant::now() && Instant::now() + second < future);
    }

    #[test]
    fn clocks_differ_by_their_offsets_and_mean_the_same_instants() {
        let hour = 3600 * SECOND_NS;
        let (own, behind) = (Clock::new(-(hour as i64)), Clock::new(0));
        let (early, there, late) = (behind.now(), own.now(), behind.now());
        assert!((early + hour..=late + hour).contains(&there));
        let (one, other) = (own.instant_of(there), behind.instant_of(there - hour));
        let apart = one.max(other) - one.min(other);
        assert!(apart < Duration::from_millis(500), "{apart:?}");
        assert_eq!(Clock::new(i64::MAX).now(), 0);
    }
}
