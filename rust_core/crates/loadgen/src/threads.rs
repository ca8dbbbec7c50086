//! Shards in threads of their own, on the system's clock.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use reactor::{
    Clock, DriverChoice, DriverKind, Mailboxes, Shard, ShardSpec, fdtable, wake_precisely,
};

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

/// Descriptors of a thread that are not connections.
const OTHER_DESCRIPTORS: u64 = 32;

/// Connections over HTTP that may be over at once, however few members there are.
const SPARE: u32 = 64;

/// Threads of this process as the place of shards.
pub(crate) struct ThreadRuntime {
    driver: DriverKind,
    /// Whether each thread has a descriptor table of its own.
    own_table: bool,
    /// Connections that a shard must have room for.
    connections: usize,
}

impl ThreadRuntime {
    /// Choose the driver.
    ///
    /// # Errors
    /// The kernel forbids it.
    pub(crate) fn new(driver: DriverChoice) -> Result<Self, EngineError> {
        let refused = |error| EngineError::System(format!("driver: {error}"));
        let (driver, _) = driver.resolve().map_err(refused)?;
        Ok(Self {
            driver,
            own_table: driver == DriverKind::Epoll && fdtable::can_isolate(),
            connections: 0,
        })
    }
}

impl Runtime for ThreadRuntime {
    fn clock(&self) -> Clock {
        Clock::default()
    }

    fn run_clock(&self, offset_ns: i64) -> RunClock {
        RunClock::of_machine(offset_ns)
    }

    fn keys(&self, _: usize) -> Rng {
        Rng::from_entropy()
    }

    fn reserve(&mut self, transport: Transport, wanted: u32, most: u32) -> Result<(), EngineError> {
        let spare = spare(transport, most);
        self.connections = most as usize + spare as usize;
        if self.driver == DriverKind::Epoll {
            let most = if self.own_table { most } else { wanted };
            let needed = u64::from(most) + u64::from(spare) + OTHER_DESCRIPTORS;
            let allowed = fdtable::limit();
            if needed > allowed {
                return Err(EngineError::Descriptors { needed, allowed });
            }
        }
        Ok(())
    }

    fn mailboxes(&self, shards: usize) -> Result<Mailboxes<Mail>, EngineError> {
        Mailboxes::new(shards).map_err(|error| EngineError::System(format!("mailbox: {error}")))
    }

    fn start<W: Workload>(
        &mut self,
        index: usize,
        mailboxes: &Mailboxes<Mail>,
        client: Client<W>,
        shared: Arc<Shared>,
    ) -> Result<Option<JoinHandle<()>>, EngineError> {
        let spec = ShardSpec {
            index,
            mailboxes: mailboxes.clone(),
            listeners: Vec::new(),
            driver: self.driver,
            connections: self.connections,
            own_table: self.own_table,
            turn_budget: TURN_BUDGET,
        };
        let thread = std::thread::Builder::new()
            .name(format!("loadgen-{index}"))
            .spawn(move || run_thread(spec, client, &shared));
        thread.map(Some).map_err(refused)
    }

    fn collect<T: Send + 'static>(
        &self,
        shards: u32,
        sum: impl Sum<T>,
    ) -> Result<(Reporter<T>, Collector), EngineError> {
        Collector::in_thread(shards, sum).map_err(refused)
    }
}

fn refused(error: std::io::Error) -> EngineError {
    EngineError::System(format!("thread: {error}"))
}

/// Return how many closed connections of `members` members may overlap with their successors.
fn spare(transport: Transport, members: u32) -> u32 {
    match transport {
        Transport::Ws | Transport::Tcp => 0,
        Transport::Rest => SPARE,
        Transport::RestNew => members.saturating_mul(2).saturating_add(SPARE),
    }
}

fn run_thread<W: Workload>(spec: ShardSpec<Mail>, mut client: Client<W>, shared: &Shared) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // Without precise timers requests are late by the kernel's slack, and the measured lag
        // shows it.
        let _ = wake_precisely();
        let mut shard = Shard::open(spec)?;
        // The first turn begins the connections; nothing else would begin it.
        let now = shared.clock.now();
        shard.io().wake_at(now);
        shard.run(&mut client)
    }));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.fail(format!("load engine thread: {error}")),
        Err(panic) => shared.fail(format!(
            "load engine thread panicked: {}",
            panic_text(&*panic)
        )),
    }
    shared.end_thread();
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
