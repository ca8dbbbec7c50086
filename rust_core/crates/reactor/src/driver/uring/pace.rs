//! How long to let a batch gather before it is looked at.

use std::time::{Duration, Instant};

/// Completions that are enough for a turn.
pub(super) const BATCH: usize = 64;
/// Longest time that a batch may take to gather.
const LONGEST: Duration = Duration::from_micros(300);
/// Time over which the load is averaged.
const MEMORY_S: f64 = 0.01;
/// Share of its time that a thread works below which it takes everything as it comes.
const RELAXED: f64 = 0.5;
/// From here on it waits as long as it may.
const BUSY: f64 = 0.8;

/// Measures which share of its time a thread works. An idle one answers at once; a busy one, whose
/// callers queue in any case, saves its time for them.
pub(super) struct Pace {
    /// From 0 to 1.
    load: f64,
    woke: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            load: 0.0,
            woke: now,
        }
    }

    /// The thread has slept between these two times.
    pub(super) fn note(&mut self, slept: Instant, woke: Instant) {
        let whole = woke.saturating_duration_since(self.woke).as_secs_f64();
        let worked = slept.saturating_duration_since(self.woke).as_secs_f64();
        if whole > 0.0 {
            let weight = (whole / MEMORY_S).min(1.0);
            self.load += (worked / whole - self.load) * weight;
        }
        self.woke = woke;
    }

    /// How long to wait now for a batch.
    pub(super) fn batch(&self) -> Duration {
        let share = (self.load - RELAXED) / (BUSY - RELAXED);
        LONGEST.mul_f64(share.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(worked_us: u64, slept_us: u64) -> Duration {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..1000 {
            let slept = now + Duration::from_micros(worked_us);
            now = slept + Duration::from_micros(slept_us);
            pace.note(slept, now);
        }
        pace.batch()
    }

    #[test]
    fn only_a_busy_thread_waits_for_a_batch() {
        assert_eq!(after(1, 1000), Duration::ZERO);
        assert_eq!(after(50, 100), Duration::ZERO);
        assert!(after(65, 35) > Duration::ZERO);
        assert!(after(65, 35) < LONGEST);
        assert_eq!(after(100, 5), LONGEST);
    }
}
