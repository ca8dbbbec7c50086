//! What the threads of a broadcaster report, and the result that it is put together to.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::window::{Board, Row, Tally, Window};
use crate::course::Spares;
use crate::intervals::{IntervalRow, Intervals};
use crate::recorder::{Interval, Summary};
use crate::report::{Moments, NS_PER_S, encode};
use crate::shared::Shared;

/// What a thread reports to the collector.
#[derive(Debug)]
pub(crate) enum Report {
    /// A second of the measured phase is over.
    Interval(Interval),
    /// The publishing thread has ended.
    Published(Published),
    /// A thread with users has ended.
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

/// Puts the result together.
pub(crate) struct Collector {
    threads: u32,
    intervals: Intervals,
    published: Published,
    flaws: Flaws,
    warmup: u64,
    latency: Summary,
    done: u32,
}

impl Collector {
    /// For `threads` threads, the publishing one included.
    pub(crate) fn new(threads: u32, spares: Spares) -> Self {
        Self {
            threads,
            intervals: Intervals::new(threads, spares),
            published: Published::default(),
            flaws: Flaws::default(),
            warmup: 0,
            latency: Summary::new(),
            done: 0,
        }
    }

    /// Reads reports until every thread has ended; `result` is set once every thread is done.
    pub(crate) fn run(
        mut self,
        reports: &Receiver<Report>,
        shared: &Shared,
        board: &Arc<Board>,
        result: &OnceLock<String>,
    ) {
        while let Ok(report) = reports.recv() {
            match report {
                Report::Interval(interval) => {
                    self.intervals.add(interval);
                    continue;
                }
                Report::Published(published) => self.published = published,
                Report::Received(received) => self.add(&received),
            }
            self.done += 1;
            if self.done == self.threads {
                self.intervals.close();
                let mut window = board.window();
                window.retire(u64::MAX);
                result.get_or_init(|| self.encode_result(shared, &window));
            }
        }
    }

    fn add(&mut self, received: &Received) {
        let (flaws, more) = (&mut self.flaws, &received.flaws);
        flaws.missing += more.missing;
        flaws.duplicates += more.duplicates;
        flaws.corrupt += more.corrupt;
        flaws.misrouted += more.misrouted;
        self.warmup += received.warmup;
        self.latency.add(&received.latency);
    }

    fn encode_result(&self, shared: &Shared, window: &Window) -> String {
        let connected = shared.connected().map(|at| at.duration_since(shared.began));
        let Tally {
            sent,
            errors,
            expected,
        } = window.measured;
        encode(&BroadcasterResult {
            connect_s: connected.unwrap_or_default().as_secs_f64(),
            connections: shared.ready(),
            connect_failures: shared.total(|gauges| &gauges.connect_failures),
            duration_s: self.published.duration as f64 / NS_PER_S,
            sent,
            errors,
            expected,
            received: self.latency.count,
            incomplete: window.incomplete,
            missing: self.flaws.missing,
            duplicates: self.flaws.duplicates,
            corrupt: self.flaws.corrupt,
            misrouted: self.flaws.misrouted + self.published.misrouted,
            disconnected: shared.total(|gauges| &gauges.disconnected),
            server_errors: shared.total(|gauges| &gauges.server_errors),
            first_server_error: shared.server_error(),
            max_send_lag_ns: self.published.max_send_lag,
            warmup: Warmup {
                sent: window.warmup.sent,
                errors: window.warmup.errors,
                expected: window.warmup.expected,
                received: self.warmup,
            },
            latency: Moments::from(&self.latency),
            spread: Moments::from(&window.spread),
            intervals: self.intervals.rows(),
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
