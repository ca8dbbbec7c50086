//! The runtime of an engine's shards: its threads or simulation, and its clock.

use std::sync::Arc;
use std::thread::JoinHandle;

use reactor::{Clock, Mailboxes, work};

use crate::client::Client;
use crate::clock::RunClock;
use crate::error::EngineError;
use crate::intervals::{Collector, Reporter, Sum};
use crate::rng::Rng;
use crate::session::Mail;
use crate::shared::Shared;
use crate::target::Transport;
use crate::workload::Workload;

/// Work of one turn: the engine has no quiet clients who wait for it.
pub(crate) const TURN_BUDGET: usize = 4 * work::TURN;

/// A place for the shards of an engine: threads of their own, or a simulation.
pub(crate) trait Runtime {
    /// Return the shards' clock.
    fn clock(&self) -> Clock;

    /// Return the run's clock, which this machine's is `offset_ns` ahead of.
    fn run_clock(&self, offset_ns: i64) -> RunClock;

    /// Return random numbers for the masking keys, handshake keys and pauses of a shard.
    fn keys(&self, shard: usize) -> Rng;

    /// Reserve room for `wanted` connections, of which one shard has `most`.
    ///
    /// # Errors
    /// The limit of descriptors is too low.
    fn reserve(&mut self, transport: Transport, wanted: u32, most: u32) -> Result<(), EngineError>;

    /// Make the mailboxes of `shards` shards.
    ///
    /// # Errors
    /// The operating system refuses.
    fn mailboxes(&self, shards: usize) -> Result<Mailboxes<Mail>, EngineError>;

    /// Start a shard, and return its thread if it has one. Its end is noted in `shared`.
    ///
    /// # Errors
    /// The operating system refuses.
    fn start<W: Workload>(
        &mut self,
        index: usize,
        mailboxes: &Mailboxes<Mail>,
        client: Client<W>,
        shared: Arc<Shared>,
    ) -> Result<Option<JoinHandle<()>>, EngineError>;

    /// Start to collect the reports of `shards` shards.
    ///
    /// # Errors
    /// The operating system refuses.
    fn collect<T: Send + 'static>(
        &self,
        shards: u32,
        sum: impl Sum<T>,
    ) -> Result<(Reporter<T>, Collector), EngineError>;
}
