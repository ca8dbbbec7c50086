//! What has happened: one writer per shard, read by anybody without locks.
//!
//! The conservation rule: every message is accounted for, so that
//! `matched = delivered + dropped + pending`, where `matched` is the sum over all published
//! messages of the receivers that the routing table named, `delivered` counts those whose bytes
//! the kernel has taken, `dropped` names a reason for each that it never will, and `pending` is
//! what waits in outputs and mailboxes. When nothing is in flight `pending` is zero; a message
//! that got lost without a reason would stay in it for ever.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value, json};

macro_rules! named {
    ($(#[$of:meta])* $type:ident, $names:ident: $($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $type {
            $($(#[$doc])* $variant,)*
        }
        const $names: &[&str] = &[$($name,)*];
    };
}

named! {
    /// One counter of a shard.
    Counter, COUNTERS:
    /// Connections accepted, monitor ones excluded.
    ConnectionsOpened = "total_connections",
    /// Of these, ended.
    ConnectionsClosed = "closed_connections",
    /// Connections of HTTP listeners that became WebSocket.
    WebSockets = "total_websockets",
    /// Connections that could not be accepted for want of descriptors.
    AcceptFailures = "accept_failures",
    /// Subscriptions made.
    Subscribed = "total_subscribed",
    /// Subscriptions removed.
    Unsubscribed = "total_unsubscribed",
    /// Messages published by clients.
    InMsgs = "in_msgs",
    /// Bytes of their headers and payloads.
    InBytes = "in_bytes",
    /// Messages appended to a client's output.
    OutMsgs = "out_msgs",
    /// Bytes of their headers and payloads.
    OutBytes = "out_bytes",
    /// Bytes received, frames and operations included.
    WireBytesIn = "wire_bytes_in",
    /// Bytes that the kernel took, frames and operations included.
    WireBytesOut = "wire_bytes_out",
    /// Writes that sent them.
    Writes = "writes",
    /// Requests answered by the no-responders status.
    NoResponders = "no_responders",
    /// Publishers paused because a receiver fell behind.
    Stalls = "stalled_clients",
    /// `-ERR` sent.
    Errors = "errors",
    /// Requests of HTTP, the monitor's included.
    HttpRequests = "http_requests",
    /// Of these, answered by an error.
    HttpErrors = "http_errors",
    /// Streams of events begun.
    EventStreams = "event_streams",
    /// Requests of HTTP that were published to wait for a reply.
    GatewayRequests = "gateway_requests",
    /// Of these, without a reply in time.
    GatewayTimeouts = "gateway_timeouts",
    /// Receivers named by the routing table.
    Matched = "matched",
    /// Messages wholly taken by the kernel.
    Delivered = "delivered",
    /// Receiver did not keep up.
    DroppedSlowConsumer = "slow_consumer",
    /// Receiver was gone, or left before the bytes were taken.
    DroppedClosed = "closed",
    /// Receiver had unsubscribed meanwhile, or had its maximum.
    DroppedUnsubscribed = "unsubscribed",
    /// The broker ended.
    DroppedShutdown = "shutdown",
}

named! {
    /// Why a connection ended; each reason is counted after the counters proper.
    Reason, REASONS:
    /// The client closed it, or sent its last byte.
    ClientClosed = "client_closed",
    /// Reset, timed out, unreachable.
    ConnectionFailed = "connection_failed",
    /// The client did not take its messages in time.
    SlowConsumer = "slow_consumer",
    /// Pings went unanswered.
    Stale = "stale",
    /// Malformed operations, frames or requests.
    ProtocolError = "protocol_error",
    /// A text that is not UTF-8.
    InvalidText = "invalid_text",
    /// A message beyond the limit.
    PayloadTooLarge = "payload_too_large",
    /// A control line beyond the limit.
    ControlLineTooLong = "control_line_too_long",
    /// No more clients are allowed.
    TooManyConnections = "too_many_connections",
    /// Too much output waits for others to accept more clients.
    NoMemory = "no_memory",
    /// No complete handshake in time.
    HandshakeTimeout = "handshake_timeout",
    /// An HTTP request that was answered, or refused.
    HttpAnswered = "http_answered",
    /// `CONNECT` asked for what a server must refuse.
    Refused = "refused",
    /// The broker is shutting down.
    Shutdown = "shutdown",
}

const COUNT: usize = COUNTERS.len() + REASONS.len();
const FIRST_DROPPED: usize = Counter::DroppedSlowConsumer as usize;

/// A shard's own counts: plain integers, copied to [`Published`] once a turn.
pub(crate) struct Counts {
    values: [u64; COUNT],
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self { values: [0; COUNT] }
    }

    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, count: u64) {
        self.values[counter as usize] += count;
    }

    #[inline]
    pub(crate) fn set(&mut self, counter: Counter, value: u64) {
        self.values[counter as usize] = value;
    }

    pub(crate) fn add_closed(&mut self, reason: Reason) {
        self.values[COUNTERS.len() + reason as usize] += 1;
    }

    pub(crate) fn publish(&self, published: &Published) {
        for (to, from) in published.values.iter().zip(&self.values) {
            to.store(*from, Ordering::Relaxed);
        }
    }
}

/// One shard's counts for other threads to read, on cache lines of their own.
#[repr(align(128))]
pub(crate) struct Published {
    values: [AtomicU64; COUNT],
}

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            values: [const { AtomicU64::new(0) }; COUNT],
        }
    }
}

/// Sums over all shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    values: [u64; COUNT],
}

impl Totals {
    pub(crate) fn sum<'a>(shards: impl Iterator<Item = &'a Published>) -> Self {
        let mut values = [0; COUNT];
        for shard in shards {
            for (sum, value) in values.iter_mut().zip(&shard.values) {
                *sum += value.load(Ordering::Relaxed);
            }
        }
        Self { values }
    }

    pub(crate) fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    fn closed(&self, reason: Reason) -> u64 {
        self.values[COUNTERS.len() + reason as usize]
    }

    /// Clients connected now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // The shards publish at different times, so that a close may be seen before its open.
        self.value(Counter::ConnectionsOpened)
            .saturating_sub(self.value(Counter::ConnectionsClosed))
    }

    /// The totals as the JSON object that `/varz` shows, by the names that NATS tools know where
    /// they have one.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let mut object = by_name(&COUNTERS[..Counter::Matched as usize], &self.values);
        let subscriptions = self
            .value(Counter::Subscribed)
            .saturating_sub(self.value(Counter::Unsubscribed));
        object.insert("connections".into(), json!(self.connections()));
        object.insert("subscriptions".into(), json!(subscriptions));
        object.insert(
            "slow_consumers".into(),
            json!(self.closed(Reason::SlowConsumer)),
        );
        object.insert(
            "stale_connections".into(),
            json!(self.closed(Reason::Stale)),
        );
        object.insert(
            "closed".into(),
            json!(by_name(REASONS, &self.values[COUNTERS.len()..])),
        );
        object.insert("conservation".into(), json!(self.conservation()));
        object
    }

    fn dropped(&self) -> u64 {
        self.values[FIRST_DROPPED..COUNTERS.len()].iter().sum()
    }

    fn conservation(&self) -> Conservation {
        let (matched, delivered) = (self.value(Counter::Matched), self.value(Counter::Delivered));
        Conservation {
            published: self.value(Counter::InMsgs),
            matched,
            delivered,
            dropped: by_name(&COUNTERS[FIRST_DROPPED..], &self.values[FIRST_DROPPED..]),
            pending: matched as i64 - delivered as i64 - self.dropped() as i64,
        }
    }
}

fn by_name(names: &[&str], values: &[u64]) -> Map<String, Value> {
    names
        .iter()
        .zip(values)
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect()
}

/// The conservation rule's terms.
#[derive(Serialize)]
struct Conservation {
    published: u64,
    matched: u64,
    delivered: u64,
    dropped: Map<String, Value>,
    /// What the others leave over; signed, so that a message counted twice shows.
    pending: i64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reasons_are_counted_by_their_names() {
        let (mut counts, published) = (Counts::new(), Published::new());
        counts.add_closed(Reason::Stale);
        counts.add_closed(Reason::Shutdown);
        counts.publish(&published);
        let json = Value::Object(Totals::sum([&published].into_iter()).to_json());
        assert_eq!(json["closed"]["stale"], 1);
        assert_eq!(json["closed"]["shutdown"], 1);
        assert_eq!(json["closed"]["slow_consumer"], 0);
        assert_eq!(json["stale_connections"], 1);
        assert_eq!(json["closed"].as_object().unwrap().len(), REASONS.len());
    }

    #[test]
    fn totals_sum_shards_and_show_what_is_pending() {
        let shards = [Published::new(), Published::new()];
        let mut counts = Counts::new();
        counts.add(Counter::InMsgs, 3);
        counts.add(Counter::Matched, 7);
        counts.publish(&shards[0]);
        let mut counts = Counts::new();
        counts.add(Counter::Delivered, 4);
        counts.add(Counter::DroppedClosed, 1);
        counts.publish(&shards[1]);
        let totals = Totals::sum(shards.iter());
        let json = Value::Object(totals.to_json());
        assert_eq!(json["in_msgs"], 3);
        assert_eq!(json["conservation"]["pending"], 2);
        assert_eq!(json["conservation"]["dropped"]["closed"], 1);
    }
}
