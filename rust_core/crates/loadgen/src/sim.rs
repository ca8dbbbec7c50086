//! Shards of a simulation, on its virtual clock.

use std::sync::Arc;
use std::thread::JoinHandle;

use reactor::sim::Simulation;
use reactor::{Clock, Mailboxes};

use crate::client::Client;
use crate::clock::RunClock;
use crate::error::EngineError;
use crate::intervals::{Collector, Reporter, Sum};
use crate::rng::Rng;
use crate::runtime::{Runtime, TURN_BUDGET};
use crate::session::Mail;
use crate::shared::Shared;
use crate::target::Transport;
use crate::workload::Workload;

/// The run's clock when a simulation begins: ten days, so that starts may lie in the past.
const BEGAN_NS: u64 = 864_000_000_000_000;

/// Return the time on the run's clock, which is the same for all engines of `simulation`. Each
/// engine is on a machine whose own clock differs by the engine's `clock_offset_ns`.
#[must_use]
pub fn run_clock_ns(simulation: &Simulation) -> u64 {
    let network = simulation.network();
    RunClock::new(network.began(), BEGAN_NS, 0).ns(network.clock().now())
}

/// A simulation as the place of shards.
pub(crate) struct SimRuntime<'a> {
    simulation: &'a mut Simulation,
    seed: u64,
}

impl<'a> SimRuntime<'a> {
    /// Make a runtime of `simulation`; the chances of its shards follow from `seed`.
    pub(crate) fn new(simulation: &'a mut Simulation, seed: u64) -> Self {
        Self { simulation, seed }
    }
}

impl Runtime for SimRuntime<'_> {
    fn clock(&self) -> Clock {
        self.simulation.network().clock()
    }

    fn run_clock(&self, offset_ns: i64) -> RunClock {
        let machine_ns = BEGAN_NS.saturating_add_signed(offset_ns);
        RunClock::new(self.simulation.network().began(), machine_ns, offset_ns)
    }

    fn keys(&self, shard: usize) -> Rng {
        Rng::new(self.seed.wrapping_add((shard as u64) << 32))
    }

    fn reserve(&mut self, _: Transport, _: u32, _: u32) -> Result<(), EngineError> {
        Ok(())
    }

    fn mailboxes(&self, shards: usize) -> Result<Mailboxes<Mail>, EngineError> {
        Ok(Mailboxes::simulated(shards))
    }

    fn start<W: Workload>(
        &mut self,
        index: usize,
        mailboxes: &Mailboxes<Mail>,
        client: Client<W>,
        shared: Arc<Shared>,
    ) -> Result<Option<JoinHandle<()>>, EngineError> {
        let hosted = self
            .simulation
            .add(index, mailboxes, &[], TURN_BUDGET, client);
        hosted.borrow_mut().at_end(move |outcome| {
            if let Err(error) = outcome {
                shared.fail(format!("load engine shard: {error}"));
            }
            shared.end_thread();
        });
        Ok(None)
    }

    fn collect<T: Send + 'static>(
        &self,
        shards: u32,
        sum: impl Sum<T>,
    ) -> Result<(Reporter<T>, Collector), EngineError> {
        Ok(Collector::at_once(shards, sum))
    }
}
