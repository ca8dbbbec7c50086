//! What is read of all shards once a second: rates and shares of processor time follow from two readings.

use std::time::{Duration, Instant, SystemTime};

use router::Extent;

use super::history::History;
use super::time::unix;
use crate::counters::{Counter, Flow, Gauge, Totals};
use crate::histogram::Distribution;
use crate::session::TransportKind;
use crate::shard::{Io, Shard};
use crate::shared::Shared;

/// The shortest time over which rates and shares are worked out.
const MOMENT: Duration = Duration::from_millis(100);

/// What was read at one time.
struct Reading {
    at: Instant,
    totals: Totals,
    gateway: Distribution,
}

impl Reading {
    fn take(shared: &Shared) -> Self {
        Self {
            at: Instant::now(),
            totals: shared.totals(),
            gateway: waits(shared),
        }
    }
}

/// How long callers of the gateway have waited, in nanoseconds.
pub(super) fn waits(shared: &Shared) -> Distribution {
    Distribution::sum(shared.published.iter().map(|shard| &shard.gateway))
}

/// How busy a shard's thread is.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    /// Processor time at the last reading.
    cpu: u64,
    /// When that was measured, in nanoseconds since the broker's start.
    at: u64,
    /// Percent of one core between the last two.
    percent: f64,
}

impl Load {
    fn update(&mut self, cpu: u64, at: u64) {
        // A shard that has not measured since is as busy as it was, and a moment says nothing.
        if at > self.at + MOMENT.as_nanos() as u64 {
            let used = cpu.saturating_sub(self.cpu) as f64;
            self.percent = 100.0 * used / (at - self.at) as f64;
            (self.cpu, self.at) = (cpu, at);
        }
    }
}

/// Bytes of memory by what they are for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) resident: u64,
    pub(super) connections: u64,
    pub(super) routing: u64,
    pub(super) pending: u64,
    pub(super) buffers: u64,
}

impl Memory {
    /// By name; what is resident and none of the others is `other`.
    pub(super) fn by_purpose(&self) -> [(&'static str, u64); 5] {
        let named = self.connections + self.routing + self.pending + self.buffers;
        [
            ("connections", self.connections),
            ("routing", self.routing),
            ("pending", self.pending),
            ("buffers", self.buffers),
            ("other", self.resident.saturating_sub(named)),
        ]
    }
}

/// The readings, and what follows from them.
pub(super) struct Watch {
    last: Reading,
    loads: Vec<Load>,
    extent: Extent,
    history: History,
}

impl Watch {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            last: Reading::take(shared),
            loads: vec![Load::default(); shared.published.len()],
            extent: Extent::default(),
            history: History::new(columns(shared.published.len())),
        }
    }

    pub(super) fn history(&self, resolution: u32, since: Option<u64>) -> Option<String> {
        self.history
            .to_json(resolution, since, unix(SystemTime::now()))
    }

    /// Percent of one core that each shard has used of late.
    pub(super) fn cpu_percent(&self) -> impl Iterator<Item = f64> + '_ {
        self.loads.iter().map(|load| load.percent)
    }

    /// What is subscribed to, as of the last second.
    pub(super) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Memory now; that of the routing table as of the last second.
    pub(super) fn memory(&self, shared: &Shared) -> Memory {
        Memory {
            resident: resident_bytes(),
            connections: shared.gauge(Gauge::ConnectionBytes),
            routing: self.extent.bytes as u64,
            pending: shared.backlog() as u64,
            buffers: shared.gauge(Gauge::BufferBytes),
        }
    }

    /// Reads, and adds the second that has passed to the history.
    fn advance(&mut self, shared: &Shared) {
        let reading = Reading::take(shared);
        let passed = reading.at.saturating_duration_since(self.last.at);
        if passed < MOMENT {
            return;
        }
        for (load, shard) in self.loads.iter_mut().zip(&shared.published) {
            load.update(shard.gauge(Gauge::Cpu), shard.gauge(Gauge::CpuAt));
        }
        self.extent = shared.routing.extent();
        let row = self.row(shared, &reading, passed);
        self.history.feed(unix(SystemTime::now()), &row);
        self.last = reading;
    }

    /// The values of [`columns`].
    fn row(&self, shared: &Shared, now: &Reading, passed: Duration) -> Vec<f64> {
        let per_s = |value: &dyn Fn(&Totals) -> u64| {
            let count = value(&now.totals).saturating_sub(value(&self.last.totals));
            count as f64 / passed.as_secs_f64()
        };
        let over = |kind| now.totals.connections_over(kind) as f64;
        let memory = self.memory(shared);
        let waits = now.gateway.since(&self.last.gateway);
        let micros = |quantile| waits.quantile(quantile) as f64 / 1e3;
        let mut row = vec![
            now.totals.connections() as f64,
            over(TransportKind::Tcp),
            over(TransportKind::WebSocket),
            over(TransportKind::Http),
            now.totals.subscriptions() as f64,
            per_s(&Totals::opened),
            per_s(&|totals| totals.all(Flow::Closed)),
            per_s(&|totals| totals.all(Flow::InMsgs)),
            per_s(&|totals| totals.all(Flow::OutMsgs)),
            per_s(&|totals| totals.all(Flow::InBytes)),
            per_s(&|totals| totals.all(Flow::OutBytes)),
            per_s(&Totals::dropped),
            memory.pending as f64,
            memory.resident as f64,
            memory.connections as f64,
            memory.routing as f64,
            memory.pending as f64,
            memory.buffers as f64,
            per_s(&|totals| totals.value(Counter::GatewayRequests)),
            micros(0.5),
            micros(0.99),
            shared.gauge(Gauge::GatewayInFlight) as f64,
            self.cpu_percent().sum(),
        ];
        row.extend(self.cpu_percent());
        row
    }
}

/// The history's columns, for so many shards.
fn columns(shards: usize) -> Vec<String> {
    let fixed = [
        "connections",
        "connections_tcp",
        "connections_websocket",
        "connections_http",
        "subscriptions",
        "opened_per_s",
        "closed_per_s",
        "in_msgs_per_s",
        "out_msgs_per_s",
        "in_bytes_per_s",
        "out_bytes_per_s",
        "dropped_per_s",
        "pending_bytes",
        "mem_bytes",
        "mem_connections_bytes",
        "mem_routing_bytes",
        "mem_pending_bytes",
        "mem_buffers_bytes",
        "gateway_requests_per_s",
        "gateway_p50_us",
        "gateway_p99_us",
        "gateway_in_flight",
        "cpu_percent",
    ];
    let shards = (0..shards).map(|shard| format!("cpu_percent_shard_{shard}"));
    fixed.map(str::to_owned).into_iter().chain(shards).collect()
}

impl Shard {
    /// Looks at all shards, on that of the monitor, and goes on with what is known of hot subjects.
    pub(crate) fn watch(&mut self, io: &Io) {
        self.hot.advance(io.now());
        if let Some(monitor) = &mut self.monitor {
            monitor.watch.advance(&self.shared);
        }
    }
}

/// Resident memory of this process, from proc_pid_statm(5); 0 where that cannot be read.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * reactor::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_shares_of_the_time_between_measurements() {
        let mut load = Load::default();
        load.update(500_000_000, 1_000_000_000);
        assert!((load.percent - 50.0).abs() < 1e-9);
        load.update(900_000_000, 1_000_000_000);
        assert!((load.percent - 50.0).abs() < 1e-9, "not measured again");
        load.update(1_000_000_000, 3_000_000_000);
        assert!((load.percent - 25.0).abs() < 1e-9);
    }

    #[test]
    fn the_rest_of_memory_is_other() {
        let memory = Memory {
            resident: 100,
            connections: 10,
            routing: 20,
            pending: 5,
            buffers: 30,
        };
        assert_eq!(memory.by_purpose()[4], ("other", 35));
        let shared = Memory {
            resident: 50,
            ..memory
        };
        assert_eq!(shared.by_purpose()[4], ("other", 0));
        assert!(resident_bytes() > 1 << 20);
    }
}
