//! The rate at which a shard may log events of one topic.

use std::time::{Duration, Instant};

/// Token bucket, stored as the time at which it will be full again (the generic cell rate
/// algorithm, ITU-T I.371).
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    /// Time after which a token comes back.
    pub(super) const EVERY: Duration = Duration::from_secs(1);
    /// Tokens of a full bucket.
    pub(super) const BURST: u32 = 50;
    /// Time from an empty bucket to a full one.
    const EMPTY: Duration = Duration::from_secs(Self::BURST as u64 - 1);

    pub(super) const fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Take a token; return whether there was one.
    #[inline]
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.full_at > now + Self::EMPTY {
            return false;
        }
        self.full_at = self.full_at.max(now) + Self::EVERY;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(bucket: &mut Bucket, now: Instant) -> u32 {
        (0..1000).map(|_| u32::from(bucket.take(now))).sum()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        assert_eq!(takes(&mut bucket, start), Bucket::BURST);
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(takes(&mut bucket, after(999)), 0);
        assert_eq!(takes(&mut bucket, after(1000)), 1);
        assert_eq!(takes(&mut bucket, after(11_000)), 10);
        assert_eq!(takes(&mut bucket, after(80_000)), Bucket::BURST);
    }

    #[test]
    fn at_the_rate_nothing_is_refused() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        assert!((0..10_000).all(|n| bucket.take(start + Bucket::EVERY * n)));
    }

    #[test]
    fn a_clock_that_stands_before_the_bucket_refuses_nothing_for_ever() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start + Duration::from_secs(1));
        assert_eq!(takes(&mut bucket, start), Bucket::BURST - 1);
        assert!(bucket.take(start + Duration::from_secs(10)));
    }
}
