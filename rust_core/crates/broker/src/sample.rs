//! What a shard measures of itself: each turn, and once a second.

use std::time::Duration;

use reactor::ConnId;

use crate::counters::Gauge;
use crate::shard::{Io, Shard, Timer};
use crate::shared::ListenerKind;

/// How often the gauges are set.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

impl Shard {
    /// Counts a turn that is over, where it had something to do: how long it took, and how many reads it
    /// brought.
    #[inline]
    pub(crate) fn count_turn(&mut self, io: &Io) {
        let received = std::mem::take(&mut self.received);
        if std::mem::take(&mut self.has_worked) {
            let took = io.clock().now().saturating_duration_since(io.now());
            let published = self.counts.published();
            published.turns.record(took.as_nanos() as u64);
            if received > 0 {
                published.batches.record(received.into());
            }
        }
    }

    pub(crate) fn handle_sample_timer(&mut self, io: &mut Io) {
        self.sample(io);
        self.watch(io);
        io.set_timer(ConnId::NONE, Timer::SAMPLE, PERIOD);
    }

    /// Sets the gauges that are not kept at once.
    pub(crate) fn sample(&mut self, io: &mut Io) {
        let (memory, descriptors) = (io.memory(), io.descriptors());
        let cpu = reactor::thread_cpu_time().as_nanos() as u64;
        let gauges = [
            (Gauge::Cpu, cpu),
            (
                Gauge::CpuAt,
                io.now().saturating_duration_since(self.started).as_nanos() as u64,
            ),
            (Gauge::Mailbox, io.take_mail_peak() as u64),
            (Gauge::Descriptors, descriptors.used as u64),
            (Gauge::DescriptorLimit, descriptors.limit as u64),
            (Gauge::ConnectionBytes, memory.connections as u64),
            (Gauge::BufferBytes, memory.buffers as u64),
            (Gauge::EnterCalls, io.calls.enter),
            (Gauge::WaitCalls, io.calls.wait),
            (Gauge::ReceiveCalls, io.calls.receive),
            (Gauge::AcceptCalls, io.calls.accept),
        ];
        for (gauge, value) in gauges {
            self.counts.set_gauge(gauge, value);
        }
        for (n, kind) in self.listeners.iter().enumerate() {
            let gauge = match kind {
                ListenerKind::Tcp => Gauge::AcceptQueueTcp,
                ListenerKind::Http => Gauge::AcceptQueueHttp,
                ListenerKind::Monitor => continue,
            };
            self.counts.set_gauge(gauge, io.accept_queue(n) as u64);
        }
    }
}
