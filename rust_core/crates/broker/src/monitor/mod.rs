//! The pages of the monitor's listener.
//!
//! | module | holds |
//! |---|---|
//! | [`page`], `query` | the pages and their parameters |
//! | `snapshot`, `watch` | the values of all metrics at one time, for `/varz`, `/metrics` and `/history` |
//! | `varz`, `console` | pages that the monitor's shard makes itself |
//! | [`survey`], `selection`, `connz`, `subsz`, [`hot`] | pages that all shards have to be asked for |

mod connz;
mod console;
mod hot;
mod page;
mod query;
mod selection;
mod snapshot;
mod subsz;
mod survey;
mod varz;
mod watch;

use std::time::{Instant, SystemTime};

use reactor::ConnId;
use serde_json::{Map, Value};
use telemetry::exposition::{Exposition, Format};
use telemetry::history::{History, Reading};
use telemetry::time::unix;

pub(crate) use console::page as console;
pub(crate) use hot::Hot;
pub(crate) use page::{MISSING, Page};
pub(crate) use survey::{PATIENCE, Survey};

use snapshot::Snapshot;
use survey::Surveys;
use watch::Watch;

use crate::shard::{Io, Shard};
use crate::shared::Shared;

/// Connections that the monitor serves at once.
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// The monitor's part of the shard that has its listener.
pub(crate) struct Monitor {
    /// Connections that are open, those being refused included.
    connections: usize,
    surveys: Surveys,
    watch: Watch,
    history: History,
}

impl Monitor {
    pub(crate) fn new(shared: &Shared) -> Self {
        let watch = Watch::new(shared.metrics.len());
        let first = reading(&Snapshot::new(shared, Some(&watch), true), shared.started);
        Self {
            connections: 0,
            surveys: Surveys::default(),
            watch,
            history: History::new(first),
        }
    }

    /// Whether so many are open that another one is not even told so.
    pub(crate) fn is_crowded(&self) -> bool {
        self.connections >= 2 * MAX_CONNECTIONS
    }

    /// Counts a connection that has come; whether it is served.
    pub(crate) fn admit(&mut self) -> bool {
        self.connections += 1;
        self.connections <= MAX_CONNECTIONS
    }

    /// A connection has ended.
    pub(crate) fn forget(&mut self, id: ConnId) {
        self.connections -= 1;
        self.surveys.forget(id);
    }

    /// Nobody waits for what the connection has asked any more.
    pub(crate) fn give_up(&mut self, id: ConnId) {
        self.surveys.forget(id);
    }

    /// Return the page `/varz`.
    pub(crate) fn varz(&self, shared: &Shared, is_ready: bool) -> Value {
        let snapshot = Snapshot::new(shared, Some(&self.watch), is_ready);
        varz::page(shared, &snapshot, !is_ready)
    }

    /// Return the page `/metrics`.
    pub(crate) fn metrics(&self, shared: &Shared, format: Format, is_ready: bool) -> String {
        let mut exposition = Exposition::new(format);
        let snapshot = Snapshot::new(shared, Some(&self.watch), is_ready);
        snapshot.visit(|metric, samples| exposition.write(metric, samples));
        exposition.finish()
    }

    /// Return the page `/history`; `None` when there is no such resolution.
    pub(crate) fn history(&self, resolution: u32, since: Option<u64>) -> Option<String> {
        self.history
            .to_json(resolution, since, unix(SystemTime::now()))
    }

    /// Measure, and add the second that has passed to the history.
    fn advance(&mut self, shared: &Shared, now: Instant) {
        if !self.history.is_due(now) {
            return;
        }
        self.watch.update(shared);
        let reading = reading(&Snapshot::new(shared, Some(&self.watch), true), now);
        self.history.feed(reading, unix(SystemTime::now()));
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

impl Shard {
    /// Look at all shards, if this one has the monitor, and go on with the account of hot subjects.
    pub(crate) fn watch(&mut self, io: &Io) {
        self.hot.advance(io.now());
        if let Some(monitor) = &mut self.monitor {
            monitor.advance(&self.shared, io.clock().now());
        }
    }
}
