//! The run's clock, on which all processes of a run agree, on one machine or several.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Number of readings of both clocks. The quickest is used, because the thread may be preempted
/// between two readings.
const READINGS: usize = 8;

/// The run's clock: this machine's CLOCK_MONOTONIC less an offset, which the starter of the run has
/// measured for each machine.
///
/// The run's clock is never read: it converts instants of the shards' clock into nanoseconds and
/// back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    origin: Instant,
    /// CLOCK_MONOTONIC at the origin, in nanoseconds.
    machine_ns: u64,
    offset_ns: i64,
}

impl RunClock {
    /// Make the run's clock for this machine, whose CLOCK_MONOTONIC is `offset_ns` ahead of it.
    pub(crate) fn of_machine(offset_ns: i64) -> Self {
        let readings = (0..READINGS).map(|_| {
            let before = Instant::now();
            let machine_ns = monotonic_ns();
            let took = before.elapsed();
            (took, before + took / 2, machine_ns)
        });
        let (_, origin, machine_ns) = readings
            .min_by_key(|(took, ..)| *took)
            .unwrap_or_else(|| (Duration::ZERO, Instant::now(), monotonic_ns()));
        Self::new(origin, machine_ns, offset_ns)
    }

    /// Make the run's clock where the machine's is `machine_ns` at `origin`, and `offset_ns` ahead of it.
    pub(crate) const fn new(origin: Instant, machine_ns: u64, offset_ns: i64) -> Self {
        Self {
            origin,
            machine_ns,
            offset_ns,
        }
    }

    /// Return nanoseconds of the run's clock at `at`, which is not before the origin.
    #[inline]
    pub(crate) fn ns(self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin).as_nanos() as u64;
        (self.machine_ns + since).saturating_add_signed(self.offset_ns.saturating_neg())
    }

    /// Return the instant at which the run's clock is `ns`, past or to come.
    #[inline]
    pub(crate) fn instant(self, ns: u64) -> Instant {
        let machine_ns = ns.saturating_add_signed(self.offset_ns);
        let ahead = Duration::from_nanos(machine_ns.saturating_sub(self.machine_ns));
        let ago = Duration::from_nanos(self.machine_ns.saturating_sub(machine_ns));
        (self.origin + ahead)
            .checked_sub(ago)
            .unwrap_or(self.origin)
    }
}

/// Return this machine's CLOCK_MONOTONIC.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CLOCK_MONOTONIC counts from the machine's start: neither part is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_NS: i64 = 3600 * SECOND_NS as i64;

    #[test]
    fn an_instant_may_be_past_or_to_come() {
        let origin = Instant::now();
        let clock = RunClock::new(origin, 10 * SECOND_NS, 0);
        let second = Duration::from_secs(1);
        assert_eq!(clock.instant(10 * SECOND_NS), origin);
        assert_eq!(clock.instant(13 * SECOND_NS), origin + 3 * second);
        assert_eq!(clock.instant(9 * SECOND_NS) + second, origin);
        assert_eq!(clock.ns(origin + 3 * second), 13 * SECOND_NS);
    }

    #[test]
    fn clocks_differ_by_their_offsets_and_mean_the_same_instants() {
        let origin = Instant::now();
        let at = origin + Duration::from_nanos(12_345);
        let there = RunClock::new(origin, SECOND_NS, 0);
        let here = RunClock::new(origin, SECOND_NS, -HOUR_NS);
        assert_eq!(here.ns(at), there.ns(at) + HOUR_NS as u64);
        for clock in [there, here] {
            assert_eq!(clock.instant(clock.ns(at)), at);
        }
        assert_eq!(RunClock::new(origin, SECOND_NS, i64::MAX).ns(at), 0);
    }

    #[test]
    fn the_clock_of_a_machine_lies_between_two_readings_of_it() {
        let clock = RunClock::of_machine(-HOUR_NS);
        let (early, now, late) = (monotonic_ns(), Instant::now(), monotonic_ns());
        let ns = clock.ns(now) - HOUR_NS as u64;
        // The error of the clock is at most the time that its quickest reading took.
        let slack = SECOND_NS / 2;
        assert!((early - slack..=late + slack).contains(&ns));
    }
}
