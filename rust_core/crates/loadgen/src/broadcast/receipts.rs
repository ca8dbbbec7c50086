//! The deliveries that one thread has received.

use crate::recorder::{Recorder, Second};

/// Times are nanoseconds of the run's clock.
#[derive(Debug)]
pub(crate) struct Receipts {
    /// Deliveries of measured messages.
    pub(crate) recorder: Recorder,
    /// All deliveries.
    pub(crate) second: Second,
    /// Deliveries of messages of the warm-up.
    pub(crate) warmup: u64,
}

impl Receipts {
    /// Make the receipts of a measured phase that begins at `measured_from`.
    pub(crate) fn new(measured_from: u64) -> Self {
        Self {
            recorder: Recorder::new(measured_from),
            second: Second::default(),
            warmup: 0,
        }
    }

    /// Add the delivery at `now` of a message due at `planned`.
    #[inline]
    pub(crate) fn record(&mut self, planned: u64, now: u64) {
        let latency = now.saturating_sub(planned);
        self.second.record(latency);
        if planned >= self.recorder.begin() {
            self.recorder.record(latency);
        } else {
            self.warmup += 1;
        }
    }

    /// Return the number of deliveries so far.
    #[inline]
    pub(crate) fn received(&self) -> u64 {
        self.warmup + self.recorder.count()
    }

    /// Return when the next interval or second is over.
    #[inline]
    pub(crate) fn wakes_at(&self) -> u64 {
        self.recorder.interval_end().min(self.second.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::SECOND_NS;

    #[test]
    fn only_what_was_due_in_the_measured_phase_is_measured() {
        let begin = 5 * SECOND_NS;
        let mut receipts = Receipts::new(begin);
        assert_eq!(receipts.wakes_at(), 0);
        assert!(receipts.second.poll(begin).is_some());
        receipts.record(begin - 1, begin + 1);
        receipts.record(begin, begin + 7);
        assert_eq!((receipts.warmup, receipts.received()), (1, 2));
        assert_eq!(receipts.wakes_at(), begin + SECOND_NS);
        let second = receipts.second.poll(begin + SECOND_NS);
        assert_eq!(
            second.map(|second| (second.count, second.max)),
            Some((2, 7))
        );
        let (total, _) = receipts.recorder.finish(begin + 8);
        assert_eq!((total.count, total.sum), (1, 7));
    }
}
