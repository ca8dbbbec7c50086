//! Reports of a broadcaster's threads, and the result that they add up to.

use serde::Serialize;

use super::window::{PhaseCounts, Row, Window};
use crate::intervals::IntervalRow;
use crate::recorder::Summary;
use crate::report::{LatencySummary, encode};
use crate::schedule::NS_PER_S;
use crate::shared::Shared;

/// Totals of a thread when it ends.
#[derive(Debug)]
pub(crate) enum Totals {
    /// Totals of the publishing thread.
    Publisher(PublisherTotals),
    /// Totals of a thread with users.
    Subscriber(Box<SubscriberTotals>),
}

/// Totals of the publishing thread, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PublisherTotals {
    /// Longest time from the planned send time of a measured message to its publishing.
    pub(crate) max_send_lag: u64,
    /// Messages that publishers received.
    pub(crate) misrouted: u64,
    /// Length of the measured phase without the drain: as planned, or until the last message was
    /// published if that was later.
    pub(crate) duration: u64,
}

/// Totals of a thread with users.
#[derive(Debug)]
pub(crate) struct SubscriberTotals {
    pub(crate) errors: DeliveryErrors,
    /// Deliveries of messages of the warm-up.
    pub(crate) warmup: u64,
    pub(crate) latency: Summary,
}

impl SubscriberTotals {
    fn add(&mut self, other: &Self) {
        let (errors, more) = (&mut self.errors, &other.errors);
        errors.missing += more.missing;
        errors.duplicates += more.duplicates;
        errors.corrupt += more.corrupt;
        errors.misrouted += more.misrouted;
        self.warmup += other.warmup;
        self.latency.add(&other.latency);
    }
}

/// Counts of faulty deliveries, from the start to the end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeliveryErrors {
    /// Deliveries that never came.
    pub(crate) missing: u64,
    /// Messages received again, or after a later one.
    pub(crate) duplicates: u64,
    /// Messages that are not the bytes that they should be.
    pub(crate) corrupt: u64,
    /// Messages on another subject than their user's, or of another run.
    pub(crate) misrouted: u64,
}

/// Sum of all threads' totals.
pub(crate) struct Sum {
    publisher: PublisherTotals,
    subscribers: SubscriberTotals,
}

impl Sum {
    /// Make an empty sum.
    pub(crate) fn new() -> Self {
        Self {
            publisher: PublisherTotals::default(),
            subscribers: SubscriberTotals {
                errors: DeliveryErrors::default(),
                warmup: 0,
                latency: Summary::new(),
            },
        }
    }

    pub(crate) fn add(&mut self, totals: Totals) {
        match totals {
            Totals::Publisher(publisher) => self.publisher = publisher,
            Totals::Subscriber(subscriber) => self.subscribers.add(&subscriber),
        }
    }

    /// Return the result as JSON.
    pub(crate) fn encode_result(
        &self,
        window: &Window,
        intervals: &[IntervalRow],
        shared: &Shared,
    ) -> String {
        let (publisher, subscribers) = (&self.publisher, &self.subscribers);
        let (faults, latency) = (&subscribers.errors, &subscribers.latency);
        let PhaseCounts {
            sent,
            errors,
            expected,
        } = window.measured;
        encode(&BroadcasterResult {
            connect_s: shared.connect_s(),
            connections: shared.ready(),
            connect_failures: shared.total(|counters| &counters.connect_failures),
            duration_s: publisher.duration as f64 / NS_PER_S,
            sent,
            errors,
            expected,
            received: latency.count,
            incomplete: window.incomplete,
            missing: faults.missing,
            duplicates: faults.duplicates,
            corrupt: faults.corrupt,
            misrouted: faults.misrouted + publisher.misrouted,
            disconnected: shared.total(|counters| &counters.disconnected),
            server_errors: shared.total(|counters| &counters.server_errors),
            first_server_error: shared.server_error(),
            max_send_lag_ns: publisher.max_send_lag,
            warmup: Warmup {
                sent: window.warmup.sent,
                errors: window.warmup.errors,
                expected: window.warmup.expected,
                received: subscribers.warmup,
            },
            latency: LatencySummary::from(latency),
            spread: LatencySummary::from(&window.spread),
            intervals,
            messages: window.rows.as_deref(),
        })
    }
}

/// A broadcaster's result. `sent` and `errors` count messages, and are 0 if another process
/// publishes. `expected` and the counts after it are deliveries to this process's users. `sent` to
/// `incomplete` cover the measured phase, the other counts everything since the start.
/// `connections` counts those that are still open.
#[derive(Serialize)]
struct BroadcasterResult<'a> {
    connect_s: f64,
    connections: u32,
    connect_failures: u64,
    duration_s: f64,
    sent: u64,
    errors: u64,
    expected: u64,
    received: u64,
    incomplete: u64,
    missing: u64,
    duplicates: u64,
    corrupt: u64,
    misrouted: u64,
    disconnected: u64,
    server_errors: u64,
    first_server_error: Option<&'a str>,
    max_send_lag_ns: u64,
    warmup: Warmup,
    latency: LatencySummary,
    spread: LatencySummary,
    intervals: &'a [IntervalRow],
    messages: Option<&'a [Row]>,
}

#[derive(Serialize)]
struct Warmup {
    sent: u64,
    errors: u64,
    expected: u64,
    received: u64,
}
