//! Time that several processes of one machine agree on.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC, which is the same for every process of a machine, and another on
/// every other machine.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // It counts from the machine's start: neither part is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time `ns` of [`monotonic_ns`], past or to come.
pub(crate) fn instant_of(ns: u64) -> Instant {
    let (clock, now) = (monotonic_ns(), Instant::now());
    let ahead = Duration::from_nanos(ns.saturating_sub(clock));
    let ago = Duration::from_nanos(clock.saturating_sub(ns));
    (now + ahead).checked_sub(ago).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_may_be_past_or_to_come() {
        let (now, second) = (monotonic_ns(), Duration::from_secs(1));
        let (past, future) = (
            instant_of(now - 5_000_000_000),
            instant_of(now + 60_000_000_000),
        );
        assert!(past + 4 * second < Instant::now() && Instant::now() + second < future);
    }
}
