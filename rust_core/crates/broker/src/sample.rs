//! The measurements that a shard takes of itself: each turn, and once a second.

use std::time::Duration;

use reactor::ConnId;

use crate::io::{Io, Timer};
use crate::metrics::table::{ClientListener, Gauge, SystemCall};
use crate::sessions::Sessions;
use crate::transport::ListenerKind;

/// Time between two measurements.
const PERIOD: Duration = Duration::from_secs(1);

/// The events of the current turn.
#[derive(Default)]
pub(crate) struct Sampler {
    /// Reads that brought something.
    received: u32,
    /// Whether there was something to do.
    has_worked: bool,
}

impl Sampler {
    /// Note a read that has brought something.
    #[inline]
    pub(crate) fn note_received(&mut self) {
        self.received += 1;
        self.has_worked = true;
    }

    /// Note that there was something to do.
    #[inline]
    pub(crate) fn note_worked(&mut self) {
        self.has_worked = true;
    }

    /// Count a turn that is over, if it had something to do: its duration, and the reads that it brought.
    #[inline]
    pub(crate) fn count_turn(&mut self, sessions: &Sessions, io: &Io) {
        let received = std::mem::take(&mut self.received);
        if std::mem::take(&mut self.has_worked) {
            let took = io.clock().now().saturating_duration_since(io.now());
            sessions
                .counts
                .record_turn(took.as_nanos() as u64, received.into());
        }
    }

    /// Set the gauges that are not kept at once, and the timer for the next time.
    pub(crate) fn sample(sessions: &Sessions, io: &mut Io) {
        io.set_timer(ConnId::NONE, Timer::SAMPLE, PERIOD);
        let (memory, descriptors) = (io.memory(), io.descriptors());
        let cpu = reactor::thread_cpu_time().as_nanos() as u64;
        let gauges = [
            (Gauge::Cpu, cpu),
            (
                Gauge::CpuAt,
                io.now()
                    .saturating_duration_since(sessions.shared.started)
                    .as_nanos() as u64,
            ),
            (Gauge::Mailbox, io.take_mail_peak() as u64),
            (Gauge::HalfOpen, sessions.admission.half_open() as u64),
            (Gauge::Descriptors, descriptors.used as u64),
            (Gauge::DescriptorLimit, descriptors.limit as u64),
            (Gauge::ConnectionBytes, memory.connections as u64),
            (Gauge::BufferBytes, memory.buffers as u64),
        ];
        for (gauge, value) in gauges {
            sessions.counts.set_gauge(gauge, value);
        }
        let calls = [
            (SystemCall::Enter, io.calls.enter),
            (SystemCall::Wait, io.calls.wait),
            (SystemCall::Receive, io.calls.receive),
            (SystemCall::Accept, io.calls.accept),
        ];
        for (call, value) in calls {
            sessions.counts.set_calls(call, value);
        }
        for (n, kind) in sessions.listeners.kinds().iter().enumerate() {
            let listener = match kind {
                ListenerKind::Tcp => ClientListener::Tcp,
                ListenerKind::Http => ClientListener::Http,
                ListenerKind::Monitor => continue,
            };
            let waiting = io.accept_queue(n) as u64;
            sessions.counts.set_accept_queue(listener, waiting);
        }
    }
}
