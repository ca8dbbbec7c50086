//! Progress and results of the engines as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Phase;
use crate::intervals::IntervalRow;
use crate::recorder::{self, Summary};
use crate::run::{Counts, Sweep, Totals};
use crate::schedule::NS_PER_S;
use crate::shared::Shared;

/// A requestor's result. Counts are of the measured phase, except those of connections, churn and
/// traffic, `unmatched`, `server_errors`, `sweep` and `warmup`. `connections` counts those that are
/// still open.
#[derive(Serialize)]
struct RequestorResult<'a> {
    connect_s: f64,
    connections: u32,
    connect_failures: u64,
    duration_s: f64,
    #[serde(flatten)]
    measured: &'a Counts,
    unmatched: u64,
    disconnected: u64,
    /// Connections closed on purpose, those that were established again, and failed attempts to do
    /// so.
    churned: u64,
    reconnected: u64,
    reconnect_failures: u64,
    server_errors: u64,
    first_server_error: Option<&'a str>,
    /// Answers of HTTP that are errors, by status.
    statuses: &'a BTreeMap<u16, u64>,
    connections_opened: u64,
    /// Traffic from the start of the first phase to the end of the drain.
    traffic: Traffic,
    max_send_lag_ns: u64,
    /// `null` without a sweep.
    sweep: Option<SweepRow>,
    warmup: Outcomes,
    latency: LatencySummary,
    service: LatencySummary,
    intervals: &'a [IntervalRow],
}

/// Bytes on the connections, framing included and TCP and IP excluded, and how many of them were
/// HTTP heads.
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
            wire_bytes_in: shared.total(|counters| &counters.wire_bytes_in),
            wire_bytes_out: shared.total(|counters| &counters.wire_bytes_out),
            head_bytes_in: shared.total(|counters| &counters.head_bytes_in),
            head_bytes_out: shared.total(|counters| &counters.head_bytes_out),
        }
    }
}

/// Counts of a sweep, one request of each user; `duration_s` lasts until the last request has
/// ended.
#[derive(Serialize)]
struct SweepRow {
    #[serde(flatten)]
    outcomes: Outcomes,
    duration_s: f64,
}

impl From<&Sweep> for SweepRow {
    fn from(sweep: &Sweep) -> Self {
        Self {
            outcomes: Outcomes::from(&sweep.counts),
            duration_s: sweep.duration as f64 / NS_PER_S,
        }
    }
}

/// Outcomes of the requests of a phase that is not measured.
#[derive(Serialize)]
struct Outcomes {
    sent: u64,
    received: u64,
    timed_out: u64,
    errors: u64,
}

impl From<&Counts> for Outcomes {
    fn from(counts: &Counts) -> Self {
        Self {
            sent: counts.sent,
            received: counts.received,
            timed_out: counts.timed_out,
            errors: counts.errors,
        }
    }
}

/// Exact figures in nanoseconds, and the histogram.
#[derive(Serialize)]
pub(crate) struct LatencySummary {
    count: u64,
    sum_ns: u128,
    sum_sq_ns2: u128,
    min_ns: u64,
    max_ns: u64,
    hdr: String,
}

impl From<&Summary> for LatencySummary {
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

/// Return a requestor's result, from the totals of all threads.
pub(crate) fn encode_requestor_result(
    totals: &Totals,
    intervals: &[IntervalRow],
    shared: &Shared,
) -> String {
    encode(&RequestorResult {
        connect_s: shared.connect_s(),
        connections: shared.ready(),
        connect_failures: shared.total(|counters| &counters.connect_failures),
        duration_s: totals.duration as f64 / NS_PER_S,
        measured: &totals.measured,
        unmatched: totals.unmatched,
        disconnected: shared.total(|counters| &counters.disconnected),
        churned: shared.total(|counters| &counters.churned),
        reconnected: shared.total(|counters| &counters.reconnected),
        reconnect_failures: shared.total(|counters| &counters.reconnect_failures),
        server_errors: shared.total(|counters| &counters.server_errors),
        first_server_error: shared.server_error(),
        statuses: &totals.statuses,
        connections_opened: shared.total(|counters| &counters.connections_opened),
        traffic: Traffic::from(shared),
        max_send_lag_ns: totals.max_send_lag,
        sweep: totals.sweep.as_ref().map(SweepRow::from),
        warmup: Outcomes::from(&totals.warmup),
        latency: LatencySummary::from(&totals.latency),
        service: LatencySummary::from(&totals.service),
        intervals,
    })
}

impl Totals {
    /// Add the totals of another thread.
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
/// taken, and requests without an id or a reply subject.
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

/// Return the result of providers of which `connections` were there at the end.
pub(crate) fn encode_provider_result(shared: &Shared, connections: u32) -> String {
    encode(&ProviderResult {
        connections,
        received: shared.total(|counters| &counters.received),
        sent: shared.total(|counters| &counters.sent),
        dropped: shared.total(|counters| &counters.dropped),
        unanswerable: shared.total(|counters| &counters.unanswerable),
        misrouted: shared.total(|counters| &counters.misrouted),
        corrupt: shared.total(|counters| &counters.corrupt),
        connect_failures: shared.total(|counters| &counters.connect_failures),
        disconnected: shared.total(|counters| &counters.disconnected),
        server_errors: shared.total(|counters| &counters.server_errors),
        first_server_error: shared.server_error(),
    })
}

/// Counts of traffic through the server, to be compared with the server's own counts.
#[derive(Default, Serialize)]
struct TrafficCounts {
    opened: u64,
    disconnected: u64,
    /// Connections closed on purpose, and connections ended by an HTTP response.
    churned: u64,
    answered: u64,
    published: u64,
    published_bytes: u64,
    delivered: u64,
    delivered_bytes: u64,
}

impl From<&Shared> for TrafficCounts {
    fn from(shared: &Shared) -> Self {
        Self {
            opened: shared.total(|counters| &counters.connections_opened),
            disconnected: shared.total(|counters| &counters.disconnected),
            churned: shared.total(|counters| &counters.churned),
            answered: shared.total(|counters| &counters.answered),
            published: shared.total(|counters| &counters.published),
            published_bytes: shared.total(|counters| &counters.published_bytes),
            delivered: shared.total(|counters| &counters.delivered),
            delivered_bytes: shared.total(|counters| &counters.delivered_bytes),
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
    exchanged: TrafficCounts,
}

/// Return the progress of a requestor that has been in `phase` for `elapsed_s` seconds.
pub(crate) fn encode_requestor_progress(
    shared: Option<&Shared>,
    phase: Phase,
    elapsed_s: f64,
) -> String {
    let total = |counter: fn(&crate::shared::ThreadCounters) -> &std::sync::atomic::AtomicU64| {
        shared.map_or(0, |shared| shared.total(counter))
    };
    let count = total(|counters| &counters.second_count);
    let max = shared.map_or(0, |shared| shared.max(|counters| &counters.second_max));
    encode(&RequestorProgress {
        phase,
        error: shared.and_then(Shared::error),
        elapsed_s,
        connections: shared.map_or(0, Shared::ready),
        connect_failures: total(|counters| &counters.connect_failures),
        sent: total(|counters| &counters.sent),
        received: total(|counters| &counters.received),
        outstanding: total(|counters| &counters.outstanding),
        timed_out: total(|counters| &counters.timed_out),
        errors: total(|counters| &counters.errors),
        mean_us: total(|counters| &counters.second_sum) as f64 / count.max(1) as f64 / 1e3,
        max_us: max as f64 / 1e3,
        exchanged: shared.map(TrafficCounts::from).unwrap_or_default(),
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
    exchanged: TrafficCounts,
}

/// Return the progress of a provider that has been in `phase` for `elapsed_s` seconds.
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
        connect_failures: shared.map_or(0, |s| s.total(|counters| &counters.connect_failures)),
        received: shared.map_or(0, |s| s.total(|counters| &counters.received)),
        sent: shared.map_or(0, |s| s.total(|counters| &counters.sent)),
        outstanding: shared.map_or(0, |s| s.total(|counters| &counters.outstanding)),
        exchanged: shared.map(TrafficCounts::from).unwrap_or_default(),
    })
}

/// Return a plain struct as JSON.
pub(crate) fn encode(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs serialise")
}
