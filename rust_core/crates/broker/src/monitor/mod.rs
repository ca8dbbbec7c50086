//! What the monitor's listener serves.
//!
//! | module | holds |
//! |---|---|
//! | [`page`], `query` | what may be asked, and with which parameters |
//! | `varz`, `metrics`, `console` | the pages that the monitor's shard knows itself |
//! | [`survey`], `selection`, `connz`, `subsz`, [`hot`] | those that all shards have to be asked for |
//! | `watch`, `history` | what is read once a second, and kept |
//! | [`exposition`], `families`, `time` | how it is written |

mod connz;
mod console;
mod exposition;
mod families;
mod history;
mod hot;
mod metrics;
mod page;
mod query;
mod selection;
mod subsz;
mod survey;
mod time;
mod varz;
mod watch;

use reactor::ConnId;

pub(crate) use console::page as console;
pub(crate) use hot::Hot;
pub(crate) use page::{MISSING, Page};
pub(crate) use survey::{PATIENCE, Survey};

use survey::Surveys;
use watch::Watch;

use crate::shared::Shared;

/// Connections that the monitor serves at once.
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// What the shard with the monitor's listener has for it.
pub(crate) struct Monitor {
    /// Connections that are open, those being refused included.
    connections: usize,
    surveys: Surveys,
    watch: Watch,
}

impl Monitor {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            connections: 0,
            surveys: Surveys::default(),
            watch: Watch::new(shared),
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

    /// The points of one resolution as JSON; `None` where there is no such resolution.
    pub(crate) fn history(&self, resolution: u32, since: Option<u64>) -> Option<String> {
        self.watch.history(resolution, since)
    }
}
