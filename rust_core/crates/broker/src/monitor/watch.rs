//! The measurements of the monitor's shard: processor time, memory and subscribed subjects of the whole
//! broker, once a second.

use std::time::Duration;

use router::Extent;

use crate::metrics::table::Gauge;
use crate::shared::Shared;

/// The shortest time over which shares of processor time are worked out.
const SHORTEST: Duration = Duration::from_millis(100);

/// Work of one measurement: a lock of each part of the routing table, and a file of `/proc`.
pub(super) const WORK: usize = 150_000;

/// The load of a shard's thread.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    /// Processor time at the last reading.
    cpu: u64,
    /// Time at which that was measured, in nanoseconds since the broker's start.
    at: u64,
    /// Percent of one core between the last two readings.
    percent: f64,
}

impl Load {
    fn update(&mut self, cpu: u64, at: u64) {
        // A shard that has not measured since keeps its load, and too short a time says nothing.
        if at > self.at + SHORTEST.as_nanos() as u64 {
            let used = cpu.saturating_sub(self.cpu) as f64;
            self.percent = 100.0 * used / (at - self.at) as f64;
            (self.cpu, self.at) = (cpu, at);
        }
    }
}

/// Bytes of memory by purpose.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    resident: u64,
    connections: u64,
    routing: u64,
    pending: u64,
    buffers: u64,
}

impl Memory {
    /// Return the bytes of each purpose by its name; resident bytes with none of them are `other`.
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

/// The last measurements.
pub(super) struct Watch {
    loads: Vec<Load>,
    extent: Extent,
}

impl Watch {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            loads: vec![Load::default(); shards],
            extent: Extent::default(),
        }
    }

    /// Measure anew.
    pub(super) fn update(&mut self, shared: &Shared) {
        for (load, shard) in self.loads.iter_mut().zip(&shared.metrics) {
            load.update(shard.gauge(Gauge::Cpu), shard.gauge(Gauge::CpuAt));
        }
        self.extent = shared.routing.extent();
    }

    /// Return the percentage of one core that each shard has used of late.
    pub(super) fn cpu_percent(&self) -> impl Iterator<Item = f64> + '_ {
        self.loads.iter().map(|load| load.percent)
    }

    /// Return the number of different subjects that are subscribed to.
    pub(super) fn subjects(&self) -> usize {
        self.extent.subjects
    }

    /// Return the memory in use now; that of the routing table as measured last.
    pub(super) fn memory(&self, shared: &Shared) -> Memory {
        Memory {
            resident: resident_bytes(),
            connections: shared.gauge(Gauge::ConnectionBytes),
            routing: self.extent.bytes as u64,
            pending: shared.backlog() as u64,
            buffers: shared.gauge(Gauge::BufferBytes),
        }
    }
}

/// Return the resident memory of this process, from proc_pid_statm(5); 0 when that cannot be read.
pub(super) fn resident_bytes() -> u64 {
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
