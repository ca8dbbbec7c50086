//! The rate at which a shard accepts connections: a token bucket.

use std::time::{Duration, Instant};

/// Time whose connections may come at once.
const BURST: Duration = Duration::from_millis(100);

/// A bucket of tokens, one for each connection.
///
/// It is kept as the time at which the bucket would be full again (the generic cell rate algorithm of ITU-T
/// I.371), so that no fractions of tokens add up to an error.
pub(crate) struct Rate {
    /// Time between two connections.
    interval: Duration,
    /// Time by which connections may come early.
    slack: Duration,
    full_at: Instant,
}

impl Rate {
    /// Make a full bucket for `per_s` connections per second, which is above zero.
    pub(crate) fn new(per_s: f64, now: Instant) -> Self {
        let interval = Duration::from_secs_f64(1.0 / per_s);
        Self {
            interval,
            slack: BURST.saturating_sub(interval),
            full_at: now,
        }
    }

    /// Take the token of a connection that has come; return when the next one may come, if that is later
    /// than now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        self.full_at = self.full_at.max(now) + self.interval;
        let next = self.full_at.checked_sub(self.slack)?;
        (next > now).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accept as many as are permitted within `time`; return how many.
    fn accepted(per_s: f64, time: Duration) -> u32 {
        let start = Instant::now();
        let mut rate = Rate::new(per_s, start);
        let (mut now, mut count) = (start, 0);
        while now <= start + time {
            count += 1;
            now = rate.take(now).unwrap_or(now);
        }
        count
    }

    #[test]
    fn as_many_as_the_rate_says_after_a_burst() {
        let minute = Duration::from_secs(60);
        assert!((60_000..60_102).contains(&accepted(1000.0, minute)));
        assert!((60..=62).contains(&accepted(1.0, minute)));
        assert_eq!(accepted(1000.0, Duration::ZERO), 100);
        assert_eq!(accepted(0.5, Duration::ZERO), 1);
    }

    #[test]
    fn time_without_connections_saves_no_more_than_a_burst() {
        let start = Instant::now();
        let mut rate = Rate::new(100.0, start);
        let later = start + Duration::from_secs(3600);
        let burst = (0..1000).take_while(|_| rate.take(later).is_none()).count();
        assert_eq!(burst + 1, 10);
    }
}
