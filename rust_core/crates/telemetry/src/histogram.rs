//! Distributions of measured values: bounded memory, one writer, read by every thread without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cells::add;

/// Base-2 logarithm of the buckets in one power of two. A value is known to an eighth of its size.
const SUB_BITS: u32 = 2;
const SUBS: usize = 1 << SUB_BITS;
/// Powers of two with buckets of their own; values from 2^40 on share the last bucket.
const POWERS: usize = 40;
const BUCKETS: usize = (POWERS - SUB_BITS as usize + 1) * SUBS;

/// Counts of values by size, in buckets of a quarter of a power of two. Written by one thread.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    /// Make a histogram without values.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
        }
    }

    /// Return the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        let cells = self.buckets.iter();
        cells.map(|cell| cell.load(Ordering::Relaxed)).sum()
    }

    /// Count one value. Only the writing thread may call.
    #[inline]
    pub fn record(&self, value: u64) {
        add(&self.buckets[bucket(value)], 1);
        add(&self.sum, value);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The values of one histogram, or of several together, at one time.
#[derive(Debug, Clone)]
pub struct Distribution {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl Distribution {
    /// Add up the values of several histograms.
    pub fn sum<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Self {
        let mut all = Self {
            buckets: [0; BUCKETS],
            sum: 0,
        };
        for histogram in histograms {
            for (sum, cell) in all.buckets.iter_mut().zip(&histogram.buckets) {
                *sum += cell.load(Ordering::Relaxed);
            }
            all.sum += histogram.sum.load(Ordering::Relaxed);
        }
        all
    }

    /// Return the values that came after `earlier` was read.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        let mut buckets = [0; BUCKETS];
        for (difference, (now, before)) in buckets.iter_mut().zip(pairs) {
            *difference = now.saturating_sub(*before);
        }
        Self {
            buckets,
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// Return the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Return the sum of the values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sum
    }

    /// Return the end of the smallest bucket that has at least the share `quantile` (0 to 1) of the
    /// values below its end; 0 without values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let count = self.count();
        let wanted = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (n, in_bucket) in self.buckets.iter().enumerate() {
            below += in_bucket;
            if below >= wanted {
                return end(n);
            }
        }
        0
    }

    /// Return the number of values below each power of two from `from` to `to`, with that power.
    pub fn cumulative(&self, from: u32, to: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        (from..=to).map(|power| {
            let bound = 1 << power;
            let below = self.buckets[..bucket(bound)].iter().sum();
            (bound, below)
        })
    }
}

/// Return the bucket of a value.
#[inline]
fn bucket(value: u64) -> usize {
    if value < SUBS as u64 {
        return value as usize;
    }
    let power = value.ilog2();
    let sub = (value >> (power - SUB_BITS)) as usize & (SUBS - 1);
    ((power - SUB_BITS + 1) as usize * SUBS + sub).min(BUCKETS - 1)
}

/// Return the first value after a bucket.
fn end(bucket: usize) -> u64 {
    let next = bucket + 1;
    if next < SUBS {
        return next as u64;
    }
    let (power, sub) = (next / SUBS - 1, next % SUBS);
    ((SUBS + sub) as u64) << power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_before_the_end_of_its_bucket_and_not_before_the_one_before() {
        let edges = (0..40u32).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
        for value in (0..5000).chain(edges) {
            let bucket = bucket(value);
            if bucket == BUCKETS - 1 {
                continue;
            }
            assert!(value < end(bucket), "{value}");
            assert!(bucket == 0 || value >= end(bucket - 1), "{value}");
            assert!(
                end(bucket) <= (value + 1).max(value + value / 4 + 1),
                "{value}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_cumulative_counts() {
        let (histogram, empty) = (Histogram::new(), Histogram::new());
        let nothing = Distribution::sum([&empty]);
        assert_eq!((nothing.count(), nothing.quantile(0.5)), (0, 0));
        (1..=1000).for_each(|value| histogram.record(value));
        let all = Distribution::sum([&histogram, &empty]);
        assert_eq!((all.count(), all.total()), (1000, 500_500));
        let median = all.quantile(0.5);
        assert!((500..=625).contains(&median), "{median}");
        assert!(all.quantile(1.0) >= 1000);
        let powers: Vec<_> = all.cumulative(2, 4).collect();
        assert_eq!(powers, [(4, 3), (8, 7), (16, 15)]);
        assert_eq!(all.since(&all).count(), 0);
        histogram.record(5);
        let more = Distribution::sum([&histogram]).since(&all);
        assert_eq!((more.count(), more.total(), more.quantile(0.99)), (1, 5, 6));
    }
}
