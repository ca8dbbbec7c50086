//! Latencies of one thread: histograms, exact sums, and the same for each second.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};

/// Largest value in nanoseconds that a histogram distinguishes: one hour.
pub(crate) const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;
/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Return an empty histogram of nanoseconds: 1 to [`HIGHEST_NS`], three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS).expect("the bounds are in order")
}

/// Return the histogram in V2 encoding, deflated, in base64: `HISTF...`, as every port of
/// HdrHistogram reads it.
pub(crate) fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to a vector does not fail");
    STANDARD.encode(bytes)
}

/// Histogram of values in nanoseconds, and exact sums beside it.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) histogram: Histogram<u64>,
    pub(crate) count: u64,
    pub(crate) sum: u128,
    pub(crate) sum_of_squares: u128,
    /// `u64::MAX` without any value.
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Summary {
    pub(crate) fn new() -> Self {
        Self {
            histogram: histogram(),
            count: 0,
            sum: 0,
            sum_of_squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Add a value. One beyond the histogram's range counts there as the highest; the sums and the
    /// maximum have it as it is.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.min(HIGHEST_NS));
        self.record_sums(ns);
    }

    /// Add a value to the sums alone; the histogram gets it from elsewhere.
    #[inline]
    pub(crate) fn record_sums(&mut self, ns: u64) {
        self.count += 1;
        self.sum += u128::from(ns);
        self.sum_of_squares += u128::from(ns) * u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Add values that were [tallied](Self::record_sums).
    pub(crate) fn add_histogram(&mut self, histogram: &Histogram<u64>) {
        self.histogram
            .add(histogram)
            .expect("all histograms have the same bounds");
    }

    /// Add the values of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.add_histogram(&other.histogram);
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Latencies in the current second of the clock, for progress displays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) count: u64,
    /// Sum of the latencies, in nanoseconds.
    pub(crate) sum: u64,
    pub(crate) max: u64,
    end: u64,
}

impl Second {
    /// Return the second that is over at `end`.
    pub(crate) fn until(end: u64) -> Self {
        Self {
            end,
            ..Self::default()
        }
    }

    /// Return when [`poll`](Self::poll) next has one.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    #[inline]
    pub(crate) fn record(&mut self, latency: u64) {
        self.count += 1;
        self.sum += latency;
        self.max = self.max.max(latency);
    }

    /// Return the second that is over at `now`, and begin the second that contains `now`.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64) -> Option<Self> {
        let next = Self::until(now - now % SECOND_NS + SECOND_NS);
        (now >= self.end).then(|| std::mem::replace(self, next))
    }
}

/// Measurements of one second of the measured phase.
#[derive(Debug)]
pub(crate) struct Interval {
    /// How many seconds lie before it.
    pub(crate) index: u32,
    /// Time when it ended, in nanoseconds since the measured phase began.
    pub(crate) end: u64,
    /// Requests or messages sent in it.
    pub(crate) sent: u64,
    /// Longest time from a planned send time to the actual sending, in nanoseconds.
    pub(crate) max_send_lag: u64,
    /// Latencies of the replies or deliveries received in it.
    pub(crate) latency: Histogram<u64>,
}

/// Recorder of one thread's latencies, by second and in all. Only the second's histogram is
/// recorded to; the total histogram is the sum of them. Times are nanoseconds, on the clock of
/// `begin`.
#[derive(Debug)]
pub(crate) struct Recorder {
    total: Summary,
    begin: u64,
    interval: Interval,
}

impl Recorder {
    /// Make a recorder for a measured phase that begins at `begin`.
    pub(crate) fn new(begin: u64) -> Self {
        Self {
            total: Summary::new(),
            begin,
            interval: Interval {
                index: 0,
                end: SECOND_NS,
                sent: 0,
                max_send_lag: 0,
                latency: histogram(),
            },
        }
    }

    /// Return when the measured phase begins.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// Return the number of latencies recorded so far.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.total.count
    }

    /// Return when [`poll_interval`](Self::poll_interval) next has one.
    #[inline]
    pub(crate) fn interval_end(&self) -> u64 {
        self.begin + self.interval.end
    }

    /// Return the interval that is over at `now`, and begin the next with the empty histogram
    /// `spare`. Call it until it returns `None`, before anything at `now` is recorded.
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
            max_send_lag: 0,
            latency: spare,
        };
        let over = std::mem::replace(&mut self.interval, next);
        self.total.add_histogram(&over.latency);
        over
    }

    /// Count a measured request or message that is sent now, `lag` nanoseconds after its planned
    /// time.
    #[inline]
    pub(crate) fn record_sent(&mut self, lag: u64) {
        self.interval.sent += 1;
        self.interval.max_send_lag = self.interval.max_send_lag.max(lag);
    }

    /// Add the latency of a reply or delivery that is received now. One beyond the histogram's
    /// range counts there as the highest; the exact sums have it as it is.
    #[inline]
    pub(crate) fn record(&mut self, latency: u64) {
        let clamped = latency.min(HIGHEST_NS);
        self.interval.latency.saturating_record(clamped);
        self.total.record_sums(latency);
    }

    /// Return the total, and the last interval, cut short at `now`; `None` if the last interval is
    /// empty.
    pub(crate) fn finish(mut self, now: u64) -> (Summary, Option<Interval>) {
        let mut last = self.next_interval(histogram());
        let has_content = last.sent > 0 || !last.latency.is_empty();
        last.end = last.end.min(now.saturating_sub(self.begin));
        (self.total, has_content.then_some(last))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    fn decode(text: &str) -> Histogram<u64> {
        let bytes = STANDARD.decode(text).unwrap();
        Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap()
    }

    proptest! {
        #[test]
        fn sums_are_exact_and_percentiles_within_a_thousandth(
            values in prop::collection::vec(1u64..10_000_000_000, 1..200),
            cut in 0usize..200,
        ) {
            let (mut summary, mut other) = (Summary::new(), Summary::new());
            for (n, value) in values.iter().enumerate() {
                if n < cut { summary.record(*value) } else { other.record(*value) }
            }
            summary.add(&other);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert_eq!(summary.count, values.len() as u64);
            prop_assert_eq!(summary.sum, values.iter().map(|v| u128::from(*v)).sum::<u128>());
            let squares = values.iter().map(|v| u128::from(*v).pow(2)).sum::<u128>();
            prop_assert_eq!(summary.sum_of_squares, squares);
            prop_assert_eq!((summary.min, summary.max), (sorted[0], sorted[sorted.len() - 1]));
            let decoded = decode(&encode(&summary.histogram));
            prop_assert_eq!(&decoded, &summary.histogram);
            for quantile in [0.5, 0.9, 0.99] {
                let rank = (quantile * sorted.len() as f64).ceil() as usize;
                let exact = sorted[rank.max(1) - 1] as f64;
                let found = decoded.value_at_quantile(quantile) as f64;
                prop_assert!((found - exact).abs() <= exact / 1000.0 + 1.0, "{found} {exact}");
            }
        }
    }

    #[test]
    fn out_of_range_values_are_clamped_but_the_maximum_is_kept() {
        let mut summary = Summary::new();
        summary.record(0);
        summary.record(HIGHEST_NS * 3);
        assert_eq!((summary.min, summary.max), (0, HIGHEST_NS * 3));
        assert_eq!(summary.histogram.len(), 2);
        let text = encode(&summary.histogram);
        assert!(text.starts_with("HISTF"), "{text}");
        let decoded = decode(&text);
        assert!(decoded.equivalent(decoded.max(), HIGHEST_NS));
        assert_eq!(decoded.min(), 0);
    }

    #[test]
    fn the_total_is_the_sum_of_the_intervals() {
        let mut recorder = Recorder::new(5 * SECOND_NS);
        let at = |ms: u64| 5 * SECOND_NS + ms * 1_000_000;
        assert!(recorder.poll_interval(at(999), histogram).is_none());
        recorder.record_sent(5);
        recorder.record(899_000_000);
        let first = recorder.poll_interval(at(2500), histogram).unwrap();
        let second = recorder.poll_interval(at(2500), histogram).unwrap();
        assert!(recorder.poll_interval(at(2500), histogram).is_none());
        recorder.record(2_400_000_000);
        assert_eq!(recorder.count(), 2);
        let (total, last) = recorder.finish(at(2600));
        let last = last.unwrap();
        let shape = |i: &Interval| (i.index, i.end / 1_000_000, i.sent, i.latency.len());
        assert_eq!(shape(&first), (0, 1000, 1, 1));
        assert_eq!(shape(&second), (1, 2000, 0, 0));
        assert_eq!(shape(&last), (2, 2600, 0, 1));
        let mut sum = first.latency;
        sum.add(&last.latency).unwrap();
        assert_eq!(total.histogram, sum);
        assert_eq!((total.count, total.sum), (2, 3_299_000_000));
        assert_eq!((total.min, total.max), (899_000_000, 2_400_000_000));
    }

    #[test]
    fn an_empty_last_interval_is_left_out() {
        let mut recorder = Recorder::new(0);
        recorder.record_sent(9);
        assert!(recorder.poll_interval(SECOND_NS, histogram).is_some());
        assert!(recorder.finish(SECOND_NS + 5).1.is_none());
    }

    #[test]
    fn a_second_tells_what_came_in_it() {
        let mut second = Second::default();
        assert_eq!(second.poll(10).unwrap().count, 0);
        second.record(100);
        second.record(300);
        assert!(second.poll(SECOND_NS - 1).is_none());
        assert_eq!(second.end(), SECOND_NS);
        let over = second.poll(SECOND_NS).unwrap();
        assert_eq!((over.count, over.sum, over.max), (2, 400, 300));
        assert!(second.poll(SECOND_NS).is_none());
    }
}
