//! The measurements that a shard takes of itself: each turn, and once a second.

use std::time::Duration;

use reactor::ConnId;

use crate::metrics::table::{ClientListener, Gauge, SystemCall};
use crate::shard::{Io, Shard, Timer};
use crate::shared::ListenerKind;

/// Time between two measurements.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

impl Shard {
    /// Count a turn that is over, if it had something to do: its duration, and the reads that it brought.
    #[inline]
    pub(crate) fn count_turn(&mut self, io: &Io) {
        let received = std::mem::take(&mut self.received);
        if std::mem::take(&mut self.has_worked) {
            let took = io.clock().now().saturating_duration_since(io.now());
            self.counts
                .record_turn(took.as_nanos() as u64, received.into());
        }
    }

    pub(crate) fn handle_sample_timer(&mut self, io: &mut Io) {
        self.sample(io);
        self.watch(io);
        io.set_timer(ConnId::NONE, Timer::SAMPLE, PERIOD);
    }

    /// Set the gauges that are not kept at once.
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
        ];
        for (gauge, value) in gauges {
            self.counts.set_gauge(gauge, value);
        }
        let calls = [
            (SystemCall::Enter, io.calls.enter),
            (SystemCall::Wait, io.calls.wait),
            (SystemCall::Receive, io.calls.receive),
            (SystemCall::Accept, io.calls.accept),
        ];
        for (call, value) in calls {
            self.counts.set_calls(call, value);
        }
        for (n, kind) in self.listeners.iter().enumerate() {
            let listener = match kind {
                ListenerKind::Tcp => ClientListener::Tcp,
                ListenerKind::Http => ClientListener::Http,
                ListenerKind::Monitor => continue,
            };
            let waiting = io.accept_queue(n) as u64;
            self.counts.set_accept_queue(listener, waiting);
        }
    }
}
