//! The numbers of one shard: written by it alone, read by every thread without a lock.

use std::sync::Arc;

use telemetry::cells::Cells;
use telemetry::histogram::Histogram;
use telemetry::key::KeyMap;

use super::table::{ClientListener, Counter, Dropped, Flow, Gauge, PendingPlace, SystemCall};
use crate::reason::Reason;
use crate::transport::TransportKind;

/// The metrics of one shard.
pub(crate) struct ShardMetrics {
    pub(super) counters: Cells<Counter>,
    pub(super) flows: KeyMap<TransportKind, Cells<Flow>>,
    pub(super) dropped: Cells<Dropped>,
    pub(super) pending: Cells<PendingPlace>,
    pub(super) closed: Cells<Reason>,
    gauges: Cells<Gauge>,
    calls: Cells<SystemCall>,
    accept_queues: Cells<ClientListener>,
    turns: Histogram,
    batches: Histogram,
    gateway: Histogram,
}

impl ShardMetrics {
    pub(crate) fn new() -> Self {
        Self {
            counters: Cells::new(),
            flows: KeyMap::new(|_| Cells::new()),
            dropped: Cells::new(),
            pending: Cells::new(),
            closed: Cells::new(),
            gauges: Cells::new(),
            calls: Cells::new(),
            accept_queues: Cells::new(),
            turns: Histogram::new(),
            batches: Histogram::new(),
            gateway: Histogram::new(),
        }
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges.value(gauge)
    }

    pub(crate) fn calls(&self, call: SystemCall) -> u64 {
        self.calls.value(call)
    }

    /// Return the connections that wait to be accepted.
    pub(crate) fn accept_queue(&self, listener: ClientListener) -> u64 {
        self.accept_queues.value(listener)
    }

    /// Return the durations of turns, in nanoseconds.
    pub(crate) fn turns(&self) -> &Histogram {
        &self.turns
    }

    /// Return the reads that brought something, of each turn that had any.
    pub(crate) fn batches(&self) -> &Histogram {
        &self.batches
    }

    /// Return the waits of the gateway's callers for their replies, in nanoseconds.
    pub(crate) fn gateway(&self) -> &Histogram {
        &self.gateway
    }
}

/// The writing end of [`ShardMetrics`], owned by its shard.
pub(crate) struct Counts(Arc<ShardMetrics>);

impl Counts {
    pub(crate) fn new(metrics: Arc<ShardMetrics>) -> Self {
        Self(metrics)
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0.counters.add(counter, count);
    }

    #[inline]
    pub(crate) fn set(&self, counter: Counter, value: u64) {
        self.0.counters.set(counter, value);
    }

    #[inline]
    pub(crate) fn add_flow(&self, transport: TransportKind, flow: Flow, count: u64) {
        self.0.flows[transport].add(flow, count);
    }

    pub(crate) fn add_closed(&self, reason: Reason) {
        self.0.closed.add(reason, 1);
    }

    /// Count messages that were dropped before they waited anywhere.
    #[inline]
    pub(crate) fn add_dropped(&self, reason: Dropped, count: u64) {
        self.0.dropped.add(reason, count);
    }

    /// Count a message of `len` bytes that was appended to a client's output, where it waits.
    #[inline]
    pub(crate) fn add_sent(&self, transport: TransportKind, len: usize) {
        self.0.pending.add(PendingPlace::Output, 1);
        self.add_flow(transport, Flow::OutMsgs, 1);
        self.add_flow(transport, Flow::OutBytes, len as u64);
    }

    /// Count appended messages of a connection that ended before the kernel had taken them.
    pub(crate) fn add_unsent(&self, reason: Dropped, count: u64) {
        self.0.pending.subtract(PendingPlace::Output, count);
        self.0.dropped.add(reason, count);
    }

    /// Bring the messages that the kernel has taken up to date: all of them since the start.
    #[inline]
    pub(crate) fn set_delivered(&self, total: u64) {
        let taken = total.wrapping_sub(self.0.counters.value(Counter::Delivered));
        self.0.pending.subtract(PendingPlace::Output, taken);
        self.0.counters.set(Counter::Delivered, total);
    }

    /// Count receivers whose message was posted, and now waits in mail.
    pub(crate) fn add_posted(&self, receivers: u64) {
        self.0.pending.add(PendingPlace::Mail, receivers);
    }

    /// Count receivers whose message has come by mail.
    pub(crate) fn add_arrived(&self, receivers: u64) {
        self.0.pending.subtract(PendingPlace::Mail, receivers);
    }

    pub(crate) fn set_gauge(&self, gauge: Gauge, value: u64) {
        self.0.gauges.set(gauge, value);
    }

    pub(crate) fn set_calls(&self, call: SystemCall, value: u64) {
        self.0.calls.set(call, value);
    }

    pub(crate) fn set_accept_queue(&self, listener: ClientListener, value: u64) {
        self.0.accept_queues.set(listener, value);
    }

    /// Record a turn of so many nanoseconds, with so many reads that brought something.
    #[inline]
    pub(crate) fn record_turn(&self, nanos: u64, reads: u64) {
        self.0.turns.record(nanos);
        if reads > 0 {
            self.0.batches.record(reads);
        }
    }

    /// Record a caller's wait for a reply, in nanoseconds.
    pub(crate) fn record_gateway_wait(&self, nanos: u64) {
        self.0.gateway.record(nanos);
    }

    /// Count a request of the gateway as under way, until the returned guard is dropped.
    pub(crate) fn begin_in_flight(&self) -> InFlight {
        self.0.gauges.add(Gauge::GatewayInFlight, 1);
        InFlight(Arc::clone(&self.0))
    }
}

/// A request of the gateway that is under way. Its shard alone holds and drops it.
pub(crate) struct InFlight(Arc<ShardMetrics>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.gauges.subtract(Gauge::GatewayInFlight, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_flight_until_it_is_dropped() {
        let metrics = Arc::new(ShardMetrics::new());
        let counts = Counts::new(Arc::clone(&metrics));
        let requests = [counts.begin_in_flight(), counts.begin_in_flight()];
        assert_eq!(metrics.gauge(Gauge::GatewayInFlight), 2);
        drop(requests);
        assert_eq!(metrics.gauge(Gauge::GatewayInFlight), 0);
    }

    #[test]
    fn turns_without_reads_have_no_batch() {
        let metrics = Arc::new(ShardMetrics::new());
        let counts = Counts::new(Arc::clone(&metrics));
        counts.record_turn(1000, 0);
        counts.record_turn(1000, 3);
        assert_eq!((metrics.turns().count(), metrics.batches().count()), (2, 1));
    }
}
