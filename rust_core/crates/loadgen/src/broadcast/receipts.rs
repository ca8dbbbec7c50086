//! Latencies of the deliveries that one thread has received.

use hdrhistogram::Histogram;

use crate::recorder::{HIGHEST_NS, Interval, SECOND_NS, Summary, histogram};

/// Deliveries of the current second, for whoever watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) max: u64,
    end: u64,
}

/// One histogram for each second is recorded to; the total is the sum of them. Times are nanoseconds
/// since the start of the measured phase, or, where the names say so, of CLOCK_MONOTONIC.
#[derive(Debug)]
pub(crate) struct Receipts {
    total: Summary,
    interval: Interval,
    second: Second,
    /// When the measured phase begins, by CLOCK_MONOTONIC.
    measured_from: u64,
    /// Deliveries of messages of the warm-up.
    pub(crate) warmup: u64,
}

impl Receipts {
    /// For a measured phase that begins at `measured_from`.
    pub(crate) fn new(measured_from: u64) -> Self {
        Self {
            total: Summary::new(),
            interval: Interval {
                index: 0,
                end: SECOND_NS,
                sent: 0,
                latency: histogram(),
            },
            second: Second::default(),
            measured_from,
            warmup: 0,
        }
    }

    /// Adds the delivery at `now` of a message due at `planned`.
    #[inline]
    pub(crate) fn record(&mut self, planned: u64, now: u64) {
        let latency = now.saturating_sub(planned);
        self.second.count += 1;
        self.second.sum += latency;
        self.second.max = self.second.max.max(latency);
        if planned >= self.measured_from {
            self.interval
                .latency
                .saturating_record(latency.min(HIGHEST_NS));
            self.total.tally(latency);
        } else {
            self.warmup += 1;
        }
    }

    /// Counts a measured message that is published now.
    #[inline]
    pub(crate) fn record_sent(&mut self) {
        self.interval.sent += 1;
    }

    /// Deliveries so far.
    #[inline]
    pub(crate) fn received(&self) -> u64 {
        self.warmup + self.total.count
    }

    /// When [`poll_interval`](Self::poll_interval) next has one, by CLOCK_MONOTONIC.
    #[inline]
    pub(crate) fn interval_end(&self) -> u64 {
        self.measured_from + self.interval.end
    }

    /// The interval that is over at `now`, exchanged for one with the empty histogram `spare`. To be
    /// called until there is none before anything that happens at `now` is recorded.
    #[inline]
    pub(crate) fn poll_interval(
        &mut self,
        now: u64,
        spare: impl FnOnce() -> Histogram<u64>,
    ) -> Option<Interval> {
        (now >= self.interval_end()).then(|| self.next_interval(spare()))
    }

    #[cold]
    fn next_interval(&mut self, spare: Histogram<u64>) -> Interval {
        let next = Interval {
            index: self.interval.index + 1,
            end: self.interval.end + SECOND_NS,
            sent: 0,
            latency: spare,
        };
        let over = std::mem::replace(&mut self.interval, next);
        self.total.add_histogram(&over.latency);
        over
    }

    /// The deliveries of the second that is over at `now`.
    #[inline]
    pub(crate) fn poll_second(&mut self, now: u64) -> Option<Second> {
        if now < self.second.end {
            return None;
        }
        let end = now - now % SECOND_NS + SECOND_NS;
        let next = Second {
            end,
            ..Second::default()
        };
        Some(std::mem::replace(&mut self.second, next))
    }

    /// When one of the two polls next has something.
    #[inline]
    pub(crate) fn wakes_at(&self) -> u64 {
        self.interval_end().min(self.second.end)
    }

    /// The last interval, cut short at `now`, `None` where nothing happened in it, and the total.
    pub(crate) fn finish(mut self, now: u64) -> (Summary, Option<Interval>) {
        let mut last = self.next_interval(histogram());
        let has_content = last.sent > 0 || !last.latency.is_empty();
        last.end = last.end.min(now.saturating_sub(self.measured_from));
        (self.total, has_content.then_some(last))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_total_is_the_sum_of_the_intervals() {
        let begin = 5 * SECOND_NS;
        let at = |ms: u64| begin + ms * 1_000_000;
        let mut receipts = Receipts::new(begin);
        receipts.record(begin - 1, at(1));
        receipts.record(at(0), at(999));
        assert!(receipts.poll_interval(at(999), histogram).is_none());
        receipts.record_sent();
        let first = receipts.poll_interval(at(2_500), histogram).unwrap();
        let second = receipts.poll_interval(at(2_500), histogram).unwrap();
        assert!(receipts.poll_interval(at(2_500), histogram).is_none());
        receipts.record(at(2_000), at(2_500));
        assert_eq!((receipts.warmup, receipts.received()), (1, 3));
        let (total, last) = receipts.finish(at(2_600));
        let last = last.unwrap();
        let shape = |i: &Interval| (i.index, i.end / 1_000_000, i.sent, i.latency.len());
        assert_eq!(shape(&first), (0, 1_000, 1, 1));
        assert_eq!(shape(&second), (1, 2_000, 0, 0));
        assert_eq!(shape(&last), (2, 2_600, 0, 1));
        let mut sum = first.latency;
        sum.add(&last.latency).unwrap();
        assert_eq!(total.histogram, sum);
        assert_eq!((total.count, total.sum), (2, 1_499_000_000));
        assert_eq!((total.min, total.max), (500_000_000, 999_000_000));
    }

    #[test]
    fn a_second_tells_what_came_in_it() {
        let mut receipts = Receipts::new(0);
        assert_eq!(receipts.poll_second(10).unwrap().count, 0);
        receipts.record(0, 100);
        receipts.record(0, 300);
        assert!(receipts.poll_second(SECOND_NS - 1).is_none());
        let second = receipts.poll_second(SECOND_NS).unwrap();
        assert_eq!((second.count, second.sum, second.max), (2, 400, 300));
        assert_eq!(receipts.wakes_at(), SECOND_NS);
        assert!(receipts.poll_second(SECOND_NS).is_none());
    }

    #[test]
    fn nothing_at_the_end_is_no_interval() {
        let receipts = Receipts::new(0);
        let (total, last) = receipts.finish(5);
        assert_eq!(total.count, 0);
        assert!(last.is_none());
    }
}
