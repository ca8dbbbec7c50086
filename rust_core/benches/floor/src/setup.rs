//! A run as both processes know it.

use std::net::SocketAddrV4;

use crate::board::Board;
use crate::capacity::Tables;
use crate::options::{DriverKind, Options};
use crate::signal::Signals;

/// Bytes before each request to, and reply from, a provider: which worker's which connection asked.
pub(crate) const HEADER: usize = 8;

/// The worker that has the trunks.
pub(crate) const HUB: u32 = 0;

pub(crate) struct Setup {
    pub(crate) options: Options,
    /// Where users or subscribers connect to.
    pub(crate) clients_at: SocketAddrV4,
    /// Where the trunks, providers or publisher, connect to.
    pub(crate) trunks_at: SocketAddrV4,
    pub(crate) server: Tables,
    pub(crate) load: Tables,
    pub(crate) board: &'static Board,
    pub(crate) signals: Signals,
}

impl Setup {
    /// Threads of a process, and rings of each, for its number of tables.
    pub(crate) fn threads_and_rings(&self, tables: Tables) -> (u32, u32) {
        match self.options.driver {
            DriverKind::Epoll => (tables.count, 1),
            DriverKind::Uring => (1, tables.count),
        }
    }
}
