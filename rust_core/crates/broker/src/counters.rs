//! What has happened: one writer per shard, read by anybody without locks.
//!
//! The conservation rule: every message is accounted for, so that
//! `matched = delivered + dropped + pending`, where `matched` is the sum over all published
//! messages of the receivers that the routing table named, `delivered` counts those whose bytes
//! the kernel has taken, `dropped` names a reason for each that it never will, and `pending` is
//! what waits in outputs and mailboxes. When nothing is in flight `pending` is zero; a message
//! that got lost without a reason would stay in it for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::histogram::Histogram;
use crate::session::TransportKind;

macro_rules! named {
    ($(#[$of:meta])* $type:ident, $names:ident: $($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $type {
            $($(#[$doc])* $variant,)*
        }
        const $names: &[&str] = &[$($name,)*];
        #[allow(dead_code, reason = "not every list is gone through")]
        impl $type {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            pub(crate) const fn name(self) -> &'static str {
                $names[self as usize]
            }
        }
    };
}

named! {
    /// One counter of a shard.
    Counter, COUNTERS:
    /// Connections that could not be accepted for want of descriptors.
    AcceptFailures = "accept_failures",
    /// Subscriptions made.
    Subscribed = "total_subscribed",
    /// Subscriptions removed.
    Unsubscribed = "total_unsubscribed",
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
    /// Errors that were answered over HTTP, also to what could not be read as a request.
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

named! {
    /// What is counted apart for each [`TransportKind`].
    Flow, FLOWS:
    /// Connections that began to speak it; those of an HTTP listener speak HTTP at first.
    Opened = "opened",
    /// Connections that ended while they spoke it.
    Closed = "closed",
    /// Messages published by clients.
    InMsgs = "in_msgs",
    /// Bytes of their headers and payloads.
    InBytes = "in_bytes",
    /// Messages appended to a client's output.
    OutMsgs = "out_msgs",
    /// Bytes of their headers and payloads.
    OutBytes = "out_bytes",
}

named! {
    /// What a shard measures of itself, once a second unless said otherwise.
    Gauge, GAUGES:
    /// The most mail that it found waiting since it was last asked.
    Mailbox = "mailbox",
    /// Requests of the gateway that wait for their replies; kept at once.
    GatewayInFlight = "gateway_in_flight",
    /// Processor time used, in nanoseconds.
    Cpu = "cpu_ns",
    /// When that was measured, in nanoseconds since the broker's start.
    CpuAt = "cpu_at_ns",
    /// Descriptors taken by connections and listeners.
    Descriptors = "descriptors",
    /// The most that there may be.
    DescriptorLimit = "descriptor_limit",
    /// Bytes held for connections.
    ConnectionBytes = "connection_bytes",
    /// Bytes of buffers.
    BufferBytes = "buffer_bytes",
    /// Calls of io_uring_enter(2).
    EnterCalls = "enter",
    /// Calls of epoll_wait(2).
    WaitCalls = "wait",
    /// Calls of recv(2).
    ReceiveCalls = "receive",
    /// Calls of accept(2).
    AcceptCalls = "accept",
    /// Connections that wait to be accepted by the listener for TCP.
    AcceptQueueTcp = "accept_queue_tcp",
    /// Those of the listener for HTTP.
    AcceptQueueHttp = "accept_queue_http",
}

const COUNT: usize = COUNTERS.len() + REASONS.len();
const FIRST_DROPPED: usize = Counter::DroppedSlowConsumer as usize;
const TRANSPORTS: usize = TransportKind::ALL.len();

/// What has happened on one shard. That shard alone writes, so that no operation has to be atomic as a
/// whole; other threads read at any time. On cache lines of its own.
#[repr(align(128))]
pub(crate) struct Published {
    values: [AtomicU64; COUNT],
    traffic: [[AtomicU64; FLOWS.len()]; TRANSPORTS],
    gauges: [AtomicU64; GAUGES.len()],
    /// How long turns took, in nanoseconds.
    pub(crate) turns: Histogram,
    /// Reads that brought something, of each turn that had any.
    pub(crate) batches: Histogram,
    /// How long callers of the gateway waited for replies, in nanoseconds.
    pub(crate) gateway: Histogram,
}

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            values: [const { AtomicU64::new(0) }; COUNT],
            traffic: [const { [const { AtomicU64::new(0) }; FLOWS.len()] }; TRANSPORTS],
            gauges: [const { AtomicU64::new(0) }; GAUGES.len()],
            turns: Histogram::new(),
            batches: Histogram::new(),
            gateway: Histogram::new(),
        }
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize].load(Ordering::Relaxed)
    }
}

/// The writing end of [`Published`], owned by its shard.
pub(crate) struct Counts(Arc<Published>);

impl Counts {
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self(published)
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        add(&self.0.values[counter as usize], count);
    }

    #[inline]
    pub(crate) fn set(&self, counter: Counter, value: u64) {
        self.0.values[counter as usize].store(value, Ordering::Relaxed);
    }

    pub(crate) fn add_closed(&self, reason: Reason) {
        add(&self.0.values[COUNTERS.len() + reason as usize], 1);
    }

    #[inline]
    pub(crate) fn add_flow(&self, transport: TransportKind, flow: Flow, count: u64) {
        add(&self.0.traffic[transport as usize][flow as usize], count);
    }

    pub(crate) fn set_gauge(&self, gauge: Gauge, value: u64) {
        self.0.gauges[gauge as usize].store(value, Ordering::Relaxed);
    }

    /// Counts a request of the gateway as under way, until what is returned is dropped.
    pub(crate) fn begin_in_flight(&self) -> InFlight {
        add(&self.0.gauges[Gauge::GatewayInFlight as usize], 1);
        InFlight(Arc::clone(&self.0))
    }

    #[inline]
    pub(crate) fn published(&self) -> &Published {
        &self.0
    }
}

/// A request of the gateway that is under way. Its shard alone holds and drops it.
pub(crate) struct InFlight(Arc<Published>);

impl Drop for InFlight {
    fn drop(&mut self) {
        add(
            &self.0.gauges[Gauge::GatewayInFlight as usize],
            1_u64.wrapping_neg(),
        );
    }
}

/// Adds to a cell that no other thread writes to.
#[inline]
fn add(cell: &AtomicU64, count: u64) {
    let value = cell.load(Ordering::Relaxed).wrapping_add(count);
    cell.store(value, Ordering::Relaxed);
}

/// Sums over all shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    values: [u64; COUNT],
    traffic: [[u64; FLOWS.len()]; TRANSPORTS],
}

impl Totals {
    pub(crate) fn sum<'a>(shards: impl Iterator<Item = &'a Published>) -> Self {
        let mut totals = Self {
            values: [0; COUNT],
            traffic: [[0; FLOWS.len()]; TRANSPORTS],
        };
        for shard in shards {
            accumulate(&mut totals.values, &shard.values);
            for (sums, flows) in totals.traffic.iter_mut().zip(&shard.traffic) {
                accumulate(sums, flows);
            }
        }
        totals
    }

    pub(crate) fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    pub(crate) fn closed(&self, reason: Reason) -> u64 {
        self.values[COUNTERS.len() + reason as usize]
    }

    /// What was counted for one transport.
    pub(crate) fn flow(&self, transport: TransportKind, flow: Flow) -> u64 {
        self.traffic[transport as usize][flow as usize]
    }

    /// What was counted for all transports.
    pub(crate) fn all(&self, flow: Flow) -> u64 {
        self.traffic.iter().map(|flows| flows[flow as usize]).sum()
    }

    /// Connections that were opened; each once, however its transport changed.
    pub(crate) fn opened(&self) -> u64 {
        self.flow(TransportKind::Tcp, Flow::Opened) + self.flow(TransportKind::Http, Flow::Opened)
    }

    /// Clients connected now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // The shards are read one after the other, so that a close may be seen before its open.
        self.opened().saturating_sub(self.all(Flow::Closed))
    }

    /// Clients connected now over one transport.
    pub(crate) fn connections_over(&self, transport: TransportKind) -> u64 {
        let upgraded = match transport {
            TransportKind::Http => self.flow(TransportKind::WebSocket, Flow::Opened),
            TransportKind::Tcp | TransportKind::WebSocket => 0,
        };
        self.flow(transport, Flow::Opened)
            .saturating_sub(upgraded + self.flow(transport, Flow::Closed))
    }

    /// Subscriptions that exist now.
    pub(crate) fn subscriptions(&self) -> u64 {
        self.value(Counter::Subscribed)
            .saturating_sub(self.value(Counter::Unsubscribed))
    }

    /// The totals as the JSON object that `/varz` shows, by the names that NATS tools know where
    /// they have one.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let mut object = by_name(&COUNTERS[..Counter::Matched as usize], &self.values);
        let more = [
            ("total_connections", self.opened()),
            ("closed_connections", self.all(Flow::Closed)),
            (
                "total_websockets",
                self.flow(TransportKind::WebSocket, Flow::Opened),
            ),
            ("in_msgs", self.all(Flow::InMsgs)),
            ("in_bytes", self.all(Flow::InBytes)),
            ("out_msgs", self.all(Flow::OutMsgs)),
            ("out_bytes", self.all(Flow::OutBytes)),
            ("connections", self.connections()),
            ("subscriptions", self.subscriptions()),
            ("slow_consumers", self.closed(Reason::SlowConsumer)),
            ("stale_connections", self.closed(Reason::Stale)),
        ];
        object.extend(more.map(|(name, value)| (name.to_owned(), json!(value))));
        let closed = by_name(REASONS, &self.values[COUNTERS.len()..]);
        object.insert("closed".into(), json!(closed));
        let transports: Map<String, Value> = TransportKind::ALL
            .iter()
            .map(|kind| {
                let mut flows = by_name(FLOWS, &self.traffic[*kind as usize]);
                flows.insert("connections".into(), json!(self.connections_over(*kind)));
                (kind.name().to_owned(), Value::Object(flows))
            })
            .collect();
        object.insert("transports".into(), Value::Object(transports));
        object.insert("conservation".into(), json!(self.conservation()));
        object
    }

    /// Messages that will never reach a receiver, by reason.
    pub(crate) fn dropped_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let range = FIRST_DROPPED..COUNTERS.len();
        range.map(|n| (COUNTERS[n], self.values[n]))
    }

    /// Connections that ended, by reason.
    pub(crate) fn closed_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = &self.values[COUNTERS.len()..];
        REASONS.iter().copied().zip(counts.iter().copied())
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped_by_reason().map(|(_, count)| count).sum()
    }

    fn conservation(&self) -> Conservation {
        let (matched, delivered) = (self.value(Counter::Matched), self.value(Counter::Delivered));
        Conservation {
            published: self.all(Flow::InMsgs),
            matched,
            delivered,
            dropped: by_name(&COUNTERS[FIRST_DROPPED..], &self.values[FIRST_DROPPED..]),
            pending: matched as i64 - delivered as i64 - self.dropped() as i64,
        }
    }
}

fn accumulate(sums: &mut [u64], cells: &[AtomicU64]) {
    for (sum, cell) in sums.iter_mut().zip(cells) {
        *sum += cell.load(Ordering::Relaxed);
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
        let published = Arc::new(Published::new());
        let counts = Counts::new(Arc::clone(&published));
        counts.add_closed(Reason::Stale);
        counts.add_closed(Reason::Shutdown);
        let json = Value::Object(Totals::sum([&*published].into_iter()).to_json());
        assert_eq!(json["closed"]["stale"], 1);
        assert_eq!(json["closed"]["shutdown"], 1);
        assert_eq!(json["closed"]["slow_consumer"], 0);
        assert_eq!(json["stale_connections"], 1);
        assert_eq!(json["closed"].as_object().unwrap().len(), REASONS.len());
    }

    #[test]
    fn totals_sum_shards_and_show_what_is_pending() {
        let shards = [(); 2].map(|()| Arc::new(Published::new()));
        let [first, second] = shards
            .each_ref()
            .map(|shard| Counts::new(Arc::clone(shard)));
        first.add_flow(TransportKind::Tcp, Flow::InMsgs, 1);
        first.add_flow(TransportKind::WebSocket, Flow::InMsgs, 2);
        first.add(Counter::Matched, 7);
        second.add(Counter::Delivered, 4);
        second.add(Counter::DroppedClosed, 1);
        let totals = Totals::sum(shards.iter().map(|shard| &**shard));
        let json = Value::Object(totals.to_json());
        assert_eq!(json["in_msgs"], 3);
        assert_eq!(json["transports"]["websocket"]["in_msgs"], 2);
        assert_eq!(json["conservation"]["pending"], 2);
        assert_eq!(json["conservation"]["dropped"]["closed"], 1);
    }

    #[test]
    fn an_upgraded_connection_is_one_connection() {
        let published = Arc::new(Published::new());
        let counts = Counts::new(Arc::clone(&published));
        counts.add_flow(TransportKind::Http, Flow::Opened, 3);
        counts.add_flow(TransportKind::WebSocket, Flow::Opened, 2);
        counts.add_flow(TransportKind::WebSocket, Flow::Closed, 1);
        counts.add_flow(TransportKind::Tcp, Flow::Opened, 1);
        let totals = Totals::sum([&*published].into_iter());
        let over = |kind| totals.connections_over(kind);
        assert_eq!((totals.opened(), totals.connections()), (4, 3));
        assert_eq!(over(TransportKind::Http), 1);
        assert_eq!(over(TransportKind::WebSocket), 1);
        assert_eq!(over(TransportKind::Tcp), 1);
    }
}
