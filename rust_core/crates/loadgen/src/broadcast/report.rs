//! What the threads of a broadcaster report, and the result that it is put together to.

use serde::Serialize;

use super::window::{Row, Tally, Window};
use crate::intervals::IntervalRow;
use crate::recorder::Summary;
use crate::report::{Moments, NS_PER_S, encode};
use crate::shared::Shared;

/// What a thread has measured when it ends.
#[derive(Debug)]
pub(crate) enum Totals {
    /// The publishing one.
    Published(Published),
    /// One with users.
    Received(Box<Received>),
}

/// What the publishing thread measured, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Published {
    /// How long after its planned time a measured message was published at worst.
    pub(crate) max_send_lag: u64,
    /// Messages that publishers received.
    pub(crate) misrouted: u64,
    /// Length of the measured phase, drain excluded: as planned, or until the last message was
    /// published where that was later.
    pub(crate) duration: u64,
}

/// What a thread's users received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) flaws: Flaws,
    /// Deliveries of messages of the warm-up.
    pub(crate) warmup: u64,
    pub(crate) latency: Summary,
}

impl Received {
    fn add(&mut self, other: &Self) {
        let (flaws, more) = (&mut self.flaws, &other.flaws);
        flaws.missing += more.missing;
        flaws.duplicates += more.duplicates;
        flaws.corrupt += more.corrupt;
        flaws.misrouted += more.misrouted;
        self.warmup += other.warmup;
        self.latency.add(&other.latency);
    }
}

/// What should not be; from the start to the end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flaws {
    /// Deliveries that never came.
    pub(crate) missing: u64,
    /// Messages received again, or after a later one.
    pub(crate) duplicates: u64,
    /// Messages that are not the bytes that they should be.
    pub(crate) corrupt: u64,
    /// Messages on another subject than their user's, or of another run.
    pub(crate) misrouted: u64,
}

/// What all threads have measured.
pub(crate) struct Sum {
    published: Published,
    received: Received,
}

impl Sum {
    /// Of nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            published: Published::default(),
            received: Received {
                flaws: Flaws::default(),
                warmup: 0,
                latency: Summary::new(),
            },
        }
    }

    pub(crate) fn add(&mut self, totals: Totals) {
        match totals {
            Totals::Published(published) => self.published = published,
            Totals::Received(received) => self.received.add(&received),
        }
    }

    /// The result as JSON.
    pub(crate) fn encode_result(
        &self,
        window: &Window,
        intervals: &[IntervalRow],
        shared: &Shared,
    ) -> String {
        let Self {
            published,
            received:
                Received {
                    flaws,
                    warmup,
                    latency,
                },
        } = self;
        let Tally {
            sent,
            errors,
            expected,
        } = window.measured;
        encode(&BroadcasterResult {
            connect_s: shared.connect_s(),
            connections: shared.ready(),
            connect_failures: shared.total(|gauges| &gauges.connect_failures),
            duration_s: published.duration as f64 / NS_PER_S,
            sent,
            errors,
            expected,
            received: latency.count,
            incomplete: window.incomplete,
            missing: flaws.missing,
            duplicates: flaws.duplicates,
            corrupt: flaws.corrupt,
            misrouted: flaws.misrouted + published.misrouted,
            disconnected: shared.total(|gauges| &gauges.disconnected),
            server_errors: shared.total(|gauges| &gauges.server_errors),
            first_server_error: shared.server_error(),
            max_send_lag_ns: published.max_send_lag,
            warmup: Warmup {
                sent: window.warmup.sent,
                errors: window.warmup.errors,
                expected: window.warmup.expected,
                received: *warmup,
            },
            latency: Moments::from(latency),
            spread: Moments::from(&window.spread),
            intervals,
            messages: window.rows.as_deref(),
        })
    }
}

/// A broadcaster's result; `connections` is those that are still there. `sent` and `errors` are of
/// messages, and 0 where another process publishes; `expected` and what follows are of deliveries to
/// this process's users. `sent` to `incomplete` are of the measured phase, the other counts of
/// everything from the start on.
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
    latency: Moments,
    spread: Moments,
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
