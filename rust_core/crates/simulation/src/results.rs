//! The JSON results of the load test's engines, as far as tests check them.

use serde::Deserialize;

/// Counts of the requests of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// Requests that were due.
    pub sent: u64,
    /// Requests that were answered.
    pub received: u64,
    /// Requests that were not answered in time.
    pub timed_out: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// Exact figures in nanoseconds, and the histogram.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LatencySummary {
    /// Number of values.
    pub count: u64,
    /// Sum of all values.
    pub sum_ns: u128,
    /// Sum of the squares of all values.
    pub sum_sq_ns2: u128,
    /// Lowest value.
    pub min_ns: u64,
    /// Highest value.
    pub max_ns: u64,
    /// Histogram, encoded as HdrHistogram's V2 and in base64.
    pub hdr: String,
}

/// One second of the measured phase.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Interval {
    /// Its start, in seconds after the measured phase began.
    pub start_s: f64,
    /// Requests sent in it.
    pub sent: u64,
    /// Replies received in it.
    pub received: u64,
    /// Longest time between the planned time of a request and its sending.
    pub max_send_lag_ns: u64,
    /// Histogram of the latencies of its replies.
    pub hdr: String,
}

/// A sweep: one request of each user.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Sweep {
    /// Its requests.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time from its start until the last request had ended, in seconds.
    pub duration_s: f64,
}

/// A requestor's result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Requested {
    /// Time until all connections were ready, in seconds.
    pub connect_s: f64,
    /// Connections at the end.
    pub connections: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// Requests of the measured phase.
    #[serde(flatten)]
    pub counts: Counts,
    /// Requests of the warm-up.
    pub warmup: Counts,
    /// Requests of the sweep, if there was one.
    pub sweep: Option<Sweep>,
    /// Replies to requests that had been replied to.
    pub duplicates: u64,
    /// Replies to requests that had timed out.
    pub late: u64,
    /// Replies that differ from the bytes that follow from their id.
    pub corrupt: u64,
    /// Requests without a provider.
    pub no_responders: u64,
    /// Messages that are not a reply to any request.
    pub unmatched: u64,
    /// Connections that were lost.
    pub disconnected: u64,
    /// Connections that were closed on purpose.
    pub churned: u64,
    /// Connections that were established again after that.
    pub reconnected: u64,
    /// Errors that the server sent.
    pub server_errors: u64,
    /// Longest time between the planned time of a request and its sending.
    pub max_send_lag_ns: u64,
    /// Time from the planned time of each request to its reply.
    pub latency: LatencySummary,
    /// Time from the sending of each request to its reply.
    pub service: LatencySummary,
    /// The seconds of the measured phase.
    pub intervals: Vec<Interval>,
}

impl Requested {
    /// Return the requests of all phases.
    #[must_use]
    pub fn in_all(&self) -> Counts {
        let sweep = self.sweep.map(|sweep| sweep.counts);
        let phases = [Some(self.counts), Some(self.warmup), sweep];
        let phases = phases.iter().flatten();
        let sum = |count: fn(&Counts) -> u64| phases.clone().map(count).sum();
        Counts {
            sent: sum(|phase| phase.sent),
            received: sum(|phase| phase.received),
            timed_out: sum(|phase| phase.timed_out),
            errors: sum(|phase| phase.errors),
        }
    }

    /// Check that every request was answered exactly once and correctly, and that no connection was
    /// lost.
    ///
    /// # Errors
    /// The counts that differ.
    pub fn check_clean(&self) -> Result<(), String> {
        let Counts {
            sent,
            received,
            timed_out,
            errors,
        } = self.in_all();
        let flaws = [
            ("connect_failures", self.connect_failures),
            ("timed_out", timed_out),
            ("errors", errors),
            ("duplicates", self.duplicates),
            ("late", self.late),
            ("corrupt", self.corrupt),
            ("no_responders", self.no_responders),
            ("unmatched", self.unmatched),
            ("disconnected", self.disconnected),
            ("server_errors", self.server_errors),
        ];
        let flaws: Vec<_> = flaws.iter().filter(|(_, count)| *count > 0).collect();
        if flaws.is_empty() && sent == received {
            return Ok(());
        }
        Err(format!("{sent} sent, {received} received, {flaws:?}"))
    }
}

/// A provider's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Provided {
    /// Connections at the end.
    pub connections: u64,
    /// Requests received.
    pub received: u64,
    /// Replies sent.
    pub sent: u64,
    /// Requests that were not answered, because too many waited or the connection was lost.
    pub dropped: u64,
    /// Messages without an id or a reply subject.
    pub unanswerable: u64,
    /// Messages on another subject than the provider's.
    pub misrouted: u64,
    /// Requests that differ from the bytes that follow from their id.
    pub corrupt: u64,
    /// Connections that were lost.
    pub disconnected: u64,
    /// Errors that the server sent.
    pub server_errors: u64,
}

/// Deliveries of one phase of a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Deliveries {
    /// Messages published.
    pub sent: u64,
    /// Messages that could not be published.
    pub errors: u64,
    /// Deliveries due.
    pub expected: u64,
    /// Deliveries received.
    pub received: u64,
}

/// A broadcaster's result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Broadcast {
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// Deliveries of the measured phase.
    #[serde(flatten)]
    pub deliveries: Deliveries,
    /// Deliveries of the warm-up.
    pub warmup: Deliveries,
    /// Messages that some users did not receive.
    pub incomplete: u64,
    /// Deliveries that never came.
    pub missing: u64,
    /// Messages received twice or out of order.
    pub duplicates: u64,
    /// Messages that differ from the bytes that follow from their stamp.
    pub corrupt: u64,
    /// Messages on another subject than the user's.
    pub misrouted: u64,
    /// Connections that were lost.
    pub disconnected: u64,
    /// Time from the planned time of each message to each of its receipts.
    pub latency: LatencySummary,
    /// Time from the first to the last receipt of each message.
    pub spread: LatencySummary,
    /// Measured messages, if the configuration asked for them.
    pub messages: Option<Vec<Message>>,
}

/// Message of a broadcast: its number, its receipts, and the times of the first and the last
/// receipt on the run's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Message(pub u64, pub u32, pub u64, pub u64);

/// Progress of a requestor or broadcaster.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Progress {
    /// Requests or messages sent so far.
    pub sent: u64,
    /// Replies or deliveries received so far.
    pub received: u64,
    /// Requests or messages that wait.
    pub outstanding: u64,
    /// Requests or deliveries that came too late or never.
    pub timed_out: u64,
    /// Mean latency of the last full second.
    pub mean_us: f64,
    /// Longest latency of the last full second.
    pub max_us: f64,
}

/// The messages and connections that an engine has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TrafficCounts {
    /// Connections established.
    pub opened: u64,
    /// Connections that were lost.
    pub disconnected: u64,
    /// Connections that ended with an answer.
    pub answered: u64,
    /// Messages handed to connections.
    pub published: u64,
    /// Bytes of the published messages.
    pub published_bytes: u64,
    /// Messages received.
    pub delivered: u64,
    /// Bytes of the received messages.
    pub delivered_bytes: u64,
}

/// Read an engine's JSON.
///
/// # Errors
/// The text lacks a field.
pub fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| format!("{error}: {json}"))
}
