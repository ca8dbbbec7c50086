//! Progress and results of the engines as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::intervals::IntervalRow;
use crate::recorder::{self, Summary};
use crate::run::{Counts, Sweep, Totals};
use crate::shared::Shared;

/// Nanoseconds of a second.
pub(crate) const NS_PER_S: f64 = 1e9;

/// A requestor's result; `connections` is those that are still there. Counts are of the measured
/// phase but for those of connections, churn and traffic, `unmatched`, `server_errors`, `sweep` and
/// `warmup`.
#[derive(Serialize)]
struct RequestorResult<'a> {
    connect_s: f64,
    connections: u32,
    connect_failures: u64,
    duration_s: f64,
    sent: u64,
    received: u64,
    timed_out: u64,
    errors: u64,
    duplicates: u64,
    late: u64,
    corrupt: u64,
    no_responders: u64,
    unmatched: u64,
    disconnected: u64,
    /// Connections closed on purpose, of these established again, and attempts at that which failed.
    churned: u64,
    reconnected: u64,
    reconnect_failures: u64,
    server_errors: u64,
    first_server_error: Option<&'a str>,
    /// Answers of HTTP that are errors, by status.
    statuses: &'a BTreeMap<u16, u64>,
    connections_opened: u64,
    /// From the start of the first phase to the end of the drain.
    traffic: Traffic,
    max_send_lag_ns: u64,
    /// `null` where none was asked for.
    sweep: Option<SweepRow>,
    warmup: Warmup,
    latency: Moments,
    service: Moments,
    intervals: &'a [IntervalRow],
}

/// Bytes that went over the connections, with all that frames the messages, TCP and IP excepted; and how
/// many of them were heads of HTTP.
#[derive(Serialize)]
struct Traffic {
    wire_bytes_in: u64,
    wire_bytes_out: u64,
    head_bytes_in: u64,
    head_bytes_out: u64,
}

impl From<&Shared> for Traffic {
    fn from(shared: &Shared) -> Self {
        Self {
            wire_bytes_in: shared.total(|gauges| &gauges.wire_bytes_in),
            wire_bytes_out: shared.total(|gauges| &gauges.wire_bytes_out),
            head_bytes_in: shared.total(|gauges| &gauges.head_bytes_in),
            head_bytes_out: shared.total(|gauges| &gauges.head_bytes_out),
        }
    }
}

/// One request of each user; `duration_s` until the last of them had ended.
#[derive(Serialize)]
struct SweepRow {
    sent: u64,
    received: u64,
    timed_out: u64,
    errors: u64,
    duration_s: f64,
}

impl From<&Sweep> for SweepRow {
    fn from(sweep: &Sweep) -> Self {
        Self {
            sent: sweep.counts.sent,
            received: sweep.counts.received,
            timed_out: sweep.counts.timed_out,
            errors: sweep.counts.errors,
            duration_s: sweep.duration as f64 / NS_PER_S,
        }
    }
}

#[derive(Serialize)]
struct Warmup {
    sent: u64,
    received: u64,
    timed_out: u64,
    errors: u64,
}

/// Exact figures in nanoseconds, and the histogram.
#[derive(Serialize)]
pub(crate) struct Moments {
    count: u64,
    sum_ns: u128,
    sum_sq_ns2: u128,
    min_ns: u64,
    max_ns: u64,
    hdr: String,
}

impl From<&Summary> for Moments {
    fn from(summary: &Summary) -> Self {
        Self {
            count: summary.count,
            sum_ns: summary.sum,
            sum_sq_ns2: summary.sum_of_squares,
            min_ns: if summary.count == 0 { 0 } else { summary.min },
            max_ns: summary.max,
            hdr: recorder::encode(&summary.histogram),
        }
    }
}

/// A requestor's result of what all its threads measured.
pub(crate) fn encode_requestor_result(
    totals: &Totals,
    intervals: &[IntervalRow],
    shared: &Shared,
) -> String {
    let Counts {
        sent,
        received,
        timed_out,
        errors,
        duplicates,
        late,
        corrupt,
        no_responders,
    } = totals.measured;
    let warmup = Warmup {
        sent: totals.warmup.sent,
        received: totals.warmup.received,
        timed_out: totals.warmup.timed_out,
        errors: totals.warmup.errors,
    };
    encode(&RequestorResult {
        connect_s: shared.connect_s(),
        connections: shared.ready(),
        connect_failures: shared.total(|gauges| &gauges.connect_failures),
        duration_s: totals.duration as f64 / NS_PER_S,
        sent,
        received,
        timed_out,
        errors,
        duplicates,
        late,
        corrupt,
        no_responders,
        unmatched: totals.unmatched,
        disconnected: shared.total(|gauges| &gauges.disconnected),
        churned: shared.total(|gauges| &gauges.churned),
        reconnected: shared.total(|gauges| &gauges.reconnected),
        reconnect_failures: shared.total(|gauges| &gauges.reconnect_failures),
        server_errors: shared.total(|gauges| &gauges.server_errors),
        first_server_error: shared.server_error(),
        statuses: &totals.statuses,
        connections_opened: shared.total(|gauges| &gauges.connections_opened),
        traffic: Traffic::from(shared),
        max_send_lag_ns: totals.max_send_lag,
        sweep: totals.sweep.as_ref().map(SweepRow::from),
        warmup,
        latency: Moments::from(&totals.latency),
        service: Moments::from(&totals.service),
        intervals,
    })
}

impl Totals {
    /// Adds those of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        if let (Some(sweep), Some(other)) = (&mut self.sweep, &other.sweep) {
            sweep.counts.add(&other.counts);
            sweep.duration = sweep.duration.max(other.duration);
        }
        self.warmup.add(&other.warmup);
        self.measured.add(&other.measured);
        self.unmatched += other.unmatched;
        self.max_send_lag = self.max_send_lag.max(other.max_send_lag);
        self.duration = self.duration.max(other.duration);
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }
}

/// A provider's result: connections at the end, requests received, replies that the kernel has
/// taken, and messages that could not be answered for want of an id or a reply subject.
#[derive(Serialize)]
struct ProviderResult<'a> {
    connections: u32,
    received: u64,
    sent: u64,
    /// Requests that were not answered, because too many waited or the connection was lost.
    dropped: u64,
    unanswerable: u64,
    misrouted: u64,
    corrupt: u64,
    connect_failures: u64,
    disconnected: u64,
    server_errors: u64,
    first_server_error: Option<&'a str>,
}

/// The result of providers of which `connections` were there at the end.
pub(crate) fn encode_provider_result(shared: &Shared, connections: u32) -> String {
    encode(&ProviderResult {
        connections,
        received: shared.total(|gauges| &gauges.received),
        sent: shared.total(|gauges| &gauges.sent),
        dropped: shared.total(|gauges| &gauges.dropped),
        unanswerable: shared.total(|gauges| &gauges.unanswerable),
        misrouted: shared.total(|gauges| &gauges.misrouted),
        corrupt: shared.total(|gauges| &gauges.corrupt),
        connect_failures: shared.total(|gauges| &gauges.connect_failures),
        disconnected: shared.total(|gauges| &gauges.disconnected),
        server_errors: shared.total(|gauges| &gauges.server_errors),
        first_server_error: shared.server_error(),
    })
}

/// Where an engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Not begun.
    Idle,
    /// Connections are being established.
    Connecting,
    /// All connections are ready.
    Connected,
    /// Each user makes one request.
    Sweep,
    /// All of these have ended; the warm-up waits for its start.
    Swept,
    /// Requests are sent that are not measured.
    Warmup,
    /// Requests are sent and measured.
    Measuring,
    /// Nothing more is sent; replies are awaited.
    Draining,
    /// Everything has ended as it should; the result is there.
    Done,
    /// It cannot go on; the error says why.
    Failed,
}

/// What went through the server so far, to be set beside its own counts.
#[derive(Default, Serialize)]
struct Exchanged {
    opened: u64,
    disconnected: u64,
    /// Connections closed on purpose, and those that ended with an answer.
    churned: u64,
    answered: u64,
    published: u64,
    published_bytes: u64,
    delivered: u64,
    delivered_bytes: u64,
}

impl From<&Shared> for Exchanged {
    fn from(shared: &Shared) -> Self {
        Self {
            opened: shared.total(|gauges| &gauges.connections_opened),
            disconnected: shared.total(|gauges| &gauges.disconnected),
            churned: shared.total(|gauges| &gauges.churned),
            answered: shared.total(|gauges| &gauges.answered),
            published: shared.total(|gauges| &gauges.published),
            published_bytes: shared.total(|gauges| &gauges.published_bytes),
            delivered: shared.total(|gauges| &gauges.delivered),
            delivered_bytes: shared.total(|gauges| &gauges.delivered_bytes),
        }
    }
}

/// A requestor's progress. Counts include sweep and warm-up; `mean_us` and `max_us` are of the replies of
/// the last full second.
#[derive(Serialize)]
struct RequestorProgress<'a> {
    phase: Phase,
    error: Option<&'a str>,
    elapsed_s: f64,
    connections: u32,
    connect_failures: u64,
    sent: u64,
    received: u64,
    outstanding: u64,
    timed_out: u64,
    errors: u64,
    mean_us: f64,
    max_us: f64,
    #[serde(flatten)]
    exchanged: Exchanged,
}

/// Progress of a requestor that has been in `phase` for `elapsed_s` seconds.
pub(crate) fn encode_requestor_progress(
    shared: Option<&Shared>,
    phase: Phase,
    elapsed_s: f64,
) -> String {
    let total = |counter: fn(&crate::shared::Gauges) -> &std::sync::atomic::AtomicU64| {
        shared.map_or(0, |shared| shared.total(counter))
    };
    let count = total(|gauges| &gauges.second_count);
    let max = shared.map_or(0, |shared| shared.most(|gauges| &gauges.second_max));
    encode(&RequestorProgress {
        phase,
        error: shared.and_then(Shared::error),
        elapsed_s,
        connections: shared.map_or(0, Shared::ready),
        connect_failures: total(|gauges| &gauges.connect_failures),
        sent: total(|gauges| &gauges.sent),
        received: total(|gauges| &gauges.received),
        outstanding: total(|gauges| &gauges.outstanding),
        timed_out: total(|gauges| &gauges.timed_out),
        errors: total(|gauges| &gauges.errors),
        mean_us: total(|gauges| &gauges.second_sum) as f64 / count.max(1) as f64 / 1e3,
        max_us: max as f64 / 1e3,
        exchanged: shared.map(Exchanged::from).unwrap_or_default(),
    })
}

#[derive(Serialize)]
struct ProviderProgress<'a> {
    phase: Phase,
    error: Option<&'a str>,
    elapsed_s: f64,
    connections: u32,
    connect_failures: u64,
    received: u64,
    sent: u64,
    /// Replies that wait.
    outstanding: u64,
    #[serde(flatten)]
    exchanged: Exchanged,
}

/// Progress of a provider that has been in `phase` for `elapsed_s` seconds.
pub(crate) fn encode_provider_progress(
    shared: Option<&Shared>,
    phase: Phase,
    elapsed_s: f64,
) -> String {
    encode(&ProviderProgress {
        phase,
        error: shared.and_then(Shared::error),
        elapsed_s,
        connections: shared.map_or(0, Shared::ready),
        connect_failures: shared.map_or(0, |s| s.total(|gauges| &gauges.connect_failures)),
        received: shared.map_or(0, |s| s.total(|gauges| &gauges.received)),
        sent: shared.map_or(0, |s| s.total(|gauges| &gauges.sent)),
        outstanding: shared.map_or(0, |s| s.total(|gauges| &gauges.outstanding)),
        exchanged: shared.map(Exchanged::from).unwrap_or_default(),
    })
}

/// A plain struct as JSON.
pub(crate) fn encode(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs serialise")
}
