//! Latencies of one thread: histograms, and exact sums beside them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};

/// The largest value in nanoseconds that a histogram tells apart: one hour.
pub(crate) const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;
/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// An empty histogram of nanoseconds: 1 to [`HIGHEST_NS`], three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS).expect("the bounds are in order")
}

/// V2 encoding, deflated, in base64: `HISTF...`, as every port of HdrHistogram reads it.
pub(crate) fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to a vector does not fail");
    STANDARD.encode(bytes)
}

/// Values in nanoseconds: their histogram, and what a histogram only approximates.
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

    /// Adds a value. One beyond the histogram's range counts there as the highest; the sums and the
    /// maximum have it as it is.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.min(HIGHEST_NS));
        self.tally(ns);
    }

    /// Adds a value to the sums alone; the histogram gets it from elsewhere.
    #[inline]
    pub(crate) fn tally(&mut self, ns: u64) {
        self.count += 1;
        self.sum += u128::from(ns);
        self.sum_of_squares += u128::from(ns) * u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds values that were [tallied](Self::tally).
    pub(crate) fn add_histogram(&mut self, histogram: &Histogram<u64>) {
        self.histogram
            .add(histogram)
            .expect("all histograms have the same bounds");
    }

    /// Adds the values of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.add_histogram(&other.histogram);
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// What happened in one second of the measured phase.
#[derive(Debug)]
pub(crate) struct Interval {
    /// How many seconds lie before it.
    pub(crate) index: u32,
    /// When it ended, in nanoseconds since the measured phase began.
    pub(crate) end: u64,
    /// Requests sent in it.
    pub(crate) sent: u64,
    /// Latencies of the replies received in it.
    pub(crate) latency: Histogram<u64>,
}

/// Records the measured requests of one thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// From when a request was due until its reply came.
    pub(crate) latency: Summary,
    /// From when a request was sent until its reply came.
    pub(crate) service: Summary,
    /// When the measured phase begins, in nanoseconds since the start.
    begin: u64,
    interval: Interval,
}

impl Recorder {
    /// For a measured phase that begins `begin` nanoseconds after the start.
    pub(crate) fn new(begin: u64) -> Self {
        Self {
            latency: Summary::new(),
            service: Summary::new(),
            begin,
            interval: Interval {
                index: 0,
                end: SECOND_NS,
                sent: 0,
                latency: histogram(),
            },
        }
    }

    /// When the measured phase begins, in nanoseconds since the start.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// When [`poll_interval`](Self::poll_interval) next has one, in nanoseconds since the start.
    #[inline]
    pub(crate) fn interval_end(&self) -> u64 {
        self.begin + self.interval.end
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
        std::mem::replace(&mut self.interval, next)
    }

    /// Counts a measured request that is sent now.
    #[inline]
    pub(crate) fn record_sent(&mut self) {
        self.interval.sent += 1;
    }

    /// Adds a reply received at `now` to a request due at `planned` and sent at `sent`.
    #[inline]
    pub(crate) fn record(&mut self, planned: u64, sent: u64, now: u64) {
        let latency = now.saturating_sub(planned);
        self.latency.record(latency);
        self.service.record(now.saturating_sub(sent));
        self.interval
            .latency
            .saturating_record(latency.min(HIGHEST_NS));
    }

    /// The last interval, cut short at `now`; `None` where nothing happened in it.
    pub(crate) fn finish(self, now: u64) -> (Summary, Summary, Option<Interval>) {
        let mut last = self.interval;
        let has_content = last.sent > 0 || !last.latency.is_empty();
        last.end = last.end.min(now.saturating_sub(self.begin));
        (self.latency, self.service, has_content.then_some(last))
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
    fn intervals_follow_the_time_of_receipt() {
        let mut recorder = Recorder::new(5 * SECOND_NS);
        let at = |ms: u64| 5 * SECOND_NS + ms * 1_000_000;
        assert!(recorder.poll_interval(at(999), histogram).is_none());
        recorder.record_sent();
        recorder.record(at(100), at(200), at(999));
        let first = recorder.poll_interval(at(2500), histogram).unwrap();
        let second = recorder.poll_interval(at(2500), histogram).unwrap();
        assert!(recorder.poll_interval(at(2500), histogram).is_none());
        recorder.record(at(100), at(300), at(2500));
        let (latency, service, last) = recorder.finish(at(2600));
        let last = last.unwrap();
        let shape = |i: &Interval| (i.index, i.end / 1_000_000, i.sent, i.latency.len());
        assert_eq!(shape(&first), (0, 1000, 1, 1));
        assert_eq!(shape(&second), (1, 2000, 0, 0));
        assert_eq!(shape(&last), (2, 2600, 0, 1));
        assert_eq!(latency.sum, 899_000_000 + 2_400_000_000);
        assert_eq!(service.sum, 799_000_000 + 2_200_000_000);
        assert_eq!((latency.min, latency.max), (899_000_000, 2_400_000_000));
    }

    #[test]
    fn an_empty_last_interval_is_left_out() {
        let mut recorder = Recorder::new(0);
        recorder.record_sent();
        assert!(recorder.poll_interval(SECOND_NS, histogram).is_some());
        assert!(recorder.finish(SECOND_NS + 5).2.is_none());
    }
}
