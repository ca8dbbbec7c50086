//! The metrics of the broker as pages: now, for scrapers, and as a history.

use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};
use telemetry::exposition::{Exposition, Format};
use telemetry::history::{History, Reading};
use telemetry::time::unix;

use super::snapshot::Snapshot;
use super::varz;
use super::watch::{self, Watch};
use crate::shared::Shared;

/// The measurements of the monitor's shard, and their history.
pub(super) struct Figures {
    watch: Watch,
    history: History,
}

impl Figures {
    /// Return the figures of a broker that has just started.
    pub(super) fn new(shared: &Shared) -> Self {
        let watch = Watch::new(shared.metrics.len());
        let first = reading(&Snapshot::new(shared, Some(&watch), true), shared.started);
        Self {
            watch,
            history: History::new(first),
        }
    }

    /// Return the page `/varz`.
    pub(super) fn varz(&self, shared: &Shared, is_ready: bool) -> Value {
        let snapshot = Snapshot::new(shared, Some(&self.watch), is_ready);
        varz::page(shared, &snapshot, !is_ready)
    }

    /// Return the page `/metrics`.
    pub(super) fn metrics(&self, shared: &Shared, format: Format, is_ready: bool) -> String {
        let mut exposition = Exposition::new(format);
        let snapshot = Snapshot::new(shared, Some(&self.watch), is_ready);
        snapshot.visit(|metric, samples| exposition.write(metric, samples));
        exposition.finish()
    }

    /// Return the page `/history`; `None` when there is no such resolution.
    pub(super) fn history(&self, resolution: u32, since: Option<u64>) -> Option<String> {
        self.history
            .to_json(resolution, since, unix(SystemTime::now()))
    }

    /// Measure, and add the second that has passed to the history; return the work of it.
    pub(super) fn advance(&mut self, shared: &Shared, now: Instant) -> usize {
        if !self.history.is_due(now) {
            return 0;
        }
        self.watch.update(shared);
        let reading = reading(&Snapshot::new(shared, Some(&self.watch), true), now);
        self.history.feed(reading, unix(SystemTime::now()));
        watch::WORK
    }
}

/// Return the metrics that need no monitor, as `/varz` shows them.
pub(crate) fn counters(shared: &Shared) -> Map<String, Value> {
    varz::counters(&Snapshot::new(shared, None, true))
}

fn reading(snapshot: &Snapshot<'_>, now: Instant) -> Reading {
    let mut reading = Reading::new(now);
    snapshot.visit(|metric, samples| reading.take(metric, samples));
    reading
}
