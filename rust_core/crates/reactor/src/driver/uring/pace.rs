//! The time that a busy thread lets a batch gather before it looks at it.

use std::time::{Duration, Instant};

/// Completions that are enough for a turn.
pub(super) const BATCH: usize = 64;
/// Longest time that a batch may take to gather.
const LONGEST: Duration = Duration::from_micros(300);
/// Time over which the load is measured.
const PERIOD: Duration = Duration::from_millis(10);
/// Share of its time that a thread works below which it takes everything as it comes.
const RELAXED: f64 = 0.5;
/// Share from which on it waits as long as it may.
const BUSY: f64 = 0.8;

/// A measure of the share of its time that a thread works: its processor time, the kernel's work for it
/// included, by the time that has passed. An idle thread answers at once; a busy one, whose callers
/// queue in any case, saves its time for them.
pub(super) struct Pace {
    /// From 0 to 1.
    load: f64,
    since: Instant,
    /// Processor time of the thread at that moment.
    cpu: Duration,
}

impl Pace {
    pub(super) fn new(now: Instant, cpu: Duration) -> Self {
        Self {
            load: 0.0,
            since: now,
            cpu,
        }
    }

    /// Note the time; `cpu` tells the thread's processor time and is asked once in a while.
    #[inline]
    pub(super) fn note(&mut self, now: Instant, cpu: impl FnOnce() -> Duration) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= PERIOD {
            let cpu = cpu();
            let worked = cpu.saturating_sub(self.cpu);
            self.load = worked.as_secs_f64() / passed.as_secs_f64();
            (self.since, self.cpu) = (now, cpu);
        }
    }

    /// Return how long to wait now for a batch.
    pub(super) fn batch(&self) -> Duration {
        let share = (self.load - RELAXED) / (BUSY - RELAXED);
        LONGEST.mul_f64(share.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(worked_us: u64, slept_us: u64) -> Duration {
        let (mut now, mut cpu) = (Instant::now(), Duration::ZERO);
        let mut pace = Pace::new(now, cpu);
        for _ in 0..1000 {
            cpu += Duration::from_micros(worked_us);
            now += Duration::from_micros(worked_us + slept_us);
            pace.note(now, || cpu);
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
