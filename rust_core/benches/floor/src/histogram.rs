//! Counts of durations, in memory that two processes share.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of one power of two: a value is known to 1/32.
const STEPS: u64 = 32;
const BUCKETS: usize = 60 * STEPS as usize;

/// Log-linear counts of nanoseconds, and their maximum. All zeros is the empty histogram.
#[repr(C)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    max: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
        self.max.store(0, Ordering::Relaxed);
    }

    /// Median and maximum; `None` while nothing has been recorded. Nanoseconds.
    pub(crate) fn median_and_max(&self) -> Option<(u64, u64)> {
        let counts: Vec<u64> = self
            .counts
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .collect();
        let max = self.max.load(Ordering::Relaxed);
        let total: u64 = counts.iter().sum();
        let mut seen = 0;
        let median = counts.iter().position(|count| {
            seen += count;
            seen * 2 >= total.max(1)
        })?;
        Some((middle(median).min(max), max))
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    // The power of two above the first linear stretch, and the five bits after the leading one.
    let power = u64::from(value.ilog2() - STEPS.ilog2());
    ((power + 1) * STEPS + (value >> power) - STEPS) as usize
}

/// The middle of the values that share a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let power = bucket / STEPS - 1;
    let lowest = (STEPS + bucket % STEPS) << power;
    lowest + (1 << power) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Histogram {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            max: AtomicU64::new(0),
        }
    }

    #[test]
    fn every_value_is_known_to_a_thirtysecond() {
        for value in (0..63)
            .map(|n| 1u64 << n)
            .flat_map(|n| [n, n + n / 3, n + n / 2, 2 * (n - 1) + 1])
            .chain([0, u64::MAX])
        {
            let known = middle(bucket(value));
            assert!(known.abs_diff(value) <= value / 32, "{value}: {known}");
        }
    }

    #[test]
    fn median_and_max_of_what_was_recorded_since_clear() {
        let histogram = empty();
        assert_eq!(histogram.median_and_max(), None);
        histogram.record(u64::MAX);
        histogram.clear();
        assert_eq!(histogram.median_and_max(), None);
        for value in [1, 2, 3, 20, 1_000_000] {
            histogram.record(value);
        }
        assert_eq!(histogram.median_and_max(), Some((3, 1_000_000)));
    }
}
