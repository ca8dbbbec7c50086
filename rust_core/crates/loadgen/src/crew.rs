//! The threads of an engine: started together, told together, joined together.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use reactor::{
    DriverChoice, DriverKind, Mailboxes, Shard, ShardSpec, fdtable, wake_precisely, work,
};

use crate::client::{Client, Mail};
use crate::config::{Target, Transport};
use crate::dialer::Dialer;
use crate::link::Endpoint;
use crate::report::Phase;
use crate::shared::Shared;
use crate::sources::Sources;
use crate::workload::Workload;

/// Work of one turn: the engine has no quiet clients who wait for it.
const TURN_BUDGET: usize = 4 * work::TURN;

/// Descriptors of a thread that are not connections.
const OTHER_DESCRIPTORS: u64 = 32;

/// Connections over HTTP that may be over at once, however few members there are.
const SPARE: u32 = 64;

/// Why an engine did not do what it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// Not in this phase: the call, the phase, and the engine's error where it failed.
    State {
        /// What was asked for.
        call: &'static str,
        /// The phase that the engine is in.
        phase: Phase,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// RLIMIT_NOFILE is too low.
    Descriptors {
        /// What one descriptor table, usually that of one thread, needs.
        needed: u64,
        /// What it may have.
        allowed: u64,
    },
    /// The server cannot be reached from so few addresses so often.
    Addresses {
        /// Source addresses that the connections need.
        needed: u32,
        /// Those there are.
        given: u32,
        /// Ephemeral ports of each.
        ports: u32,
    },
    /// The operating system refused a thread or a wake-up descriptor.
    System(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { call, phase, error } => {
                write!(f, "{call}: not possible in phase {phase:?}")?;
                error
                    .as_ref()
                    .map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            Self::Descriptors { needed, allowed } => write!(
                f,
                "{needed} descriptors are needed and RLIMIT_NOFILE allows {allowed}: raise the limit, or \
                 use more threads where each may have a table of its own"
            ),
            Self::Addresses {
                needed,
                given,
                ports,
            } => write!(
                f,
                "ephemeral ports: so many connections to one address need {needed} source addresses with \
                 {ports} ports each (net.ipv4.ip_local_port_range), there are {given}: name addresses \
                 of this host in `sources`"
            ),
            Self::System(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for EngineError {}

/// The part of `total` that thread `thread` of `threads` takes: where it begins and how much it is.
pub(crate) fn share(total: u32, threads: u32, thread: u32) -> (u32, u32) {
    let (each, more) = (total / threads, total % threads);
    (
        thread * each + thread.min(more),
        each + u32::from(thread < more),
    )
}

/// Connections of a thread with `members` members that are over while the next ones are there already.
fn spare(transport: Transport, members: u32) -> u32 {
    match transport {
        Transport::Ws | Transport::Tcp => 0,
        Transport::Rest => SPARE,
        Transport::RestNew => members.saturating_mul(2).saturating_add(SPARE),
    }
}

/// The running threads of an engine.
pub(crate) struct Crew {
    pub(crate) shared: Arc<Shared>,
    mailboxes: Mailboxes<Mail>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts one thread for each workload with its dialer.
    pub(crate) fn spawn<W: Workload>(
        shared: Arc<Shared>,
        target: &Target,
        max_payload: usize,
        driver: DriverChoice,
        workloads: Vec<(W, Dialer)>,
    ) -> Result<Self, EngineError> {
        let refused = |error| EngineError::System(format!("driver: {error}"));
        let (driver, _) = driver.resolve().map_err(refused)?;
        let members = workloads.iter().map(|(_, dialer)| dialer.members());
        let most = members.max().unwrap_or(0);
        let spare = spare(target.transport, most);
        let own_table = driver == DriverKind::Epoll && fdtable::can_isolate();
        if driver == DriverKind::Epoll {
            let most = if own_table { most } else { shared.wanted };
            let needed = u64::from(most) + u64::from(spare) + OTHER_DESCRIPTORS;
            let allowed = fdtable::limit();
            if needed > allowed {
                return Err(EngineError::Descriptors { needed, allowed });
            }
        }
        let sources = Arc::new(Sources::new(target, shared.wanted)?);
        let endpoint = Arc::new(Endpoint::new(target.clone(), max_payload));
        let mailboxes = Mailboxes::new(workloads.len())
            .map_err(|error| EngineError::System(format!("mailbox: {error}")))?;
        let mut crew = Self {
            shared,
            mailboxes,
            threads: Vec::new(),
        };
        for (index, (workload, dialer)) in workloads.into_iter().enumerate() {
            let shared = Arc::clone(&crew.shared);
            let client = Client::new(
                Arc::clone(&endpoint),
                Arc::clone(&sources),
                Arc::clone(&shared),
                index,
                workload,
                dialer,
            );
            let spec = ShardSpec {
                index,
                mailboxes: crew.mailboxes.clone(),
                listeners: Vec::new(),
                driver,
                connections: most as usize + spare as usize,
                own_table,
                turn_budget: TURN_BUDGET,
            };
            let spawned = std::thread::Builder::new()
                .name(format!("loadgen-{index}"))
                .spawn(move || run_thread(spec, client, &shared));
            match spawned {
                Ok(thread) => crew.threads.push(thread),
                Err(error) => {
                    crew.join();
                    return Err(EngineError::System(format!("thread: {error}")));
                }
            }
        }
        Ok(crew)
    }

    pub(crate) fn post(&self, mail: Mail) {
        for thread in 0..self.threads.len() {
            // A thread that has ended wants no mail.
            let _ = self.mailboxes.post(thread, mail);
        }
    }

    pub(crate) fn join(&mut self) {
        self.post(Mail::Close);
        for thread in self.threads.drain(..) {
            // Its panic, if any, was caught and is the engine's error.
            let _ = thread.join();
        }
    }
}

fn run_thread<W: Workload>(spec: ShardSpec<Mail>, mut client: Client<W>, shared: &Shared) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // Where the kernel refuses, requests are late by its slack, and the measured lag shows it.
        let _ = wake_precisely();
        let mut shard = Shard::open(spec)?;
        // The first turn begins the connections; nothing else would begin it.
        shard.io().wake_at(Instant::now());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_whole_without_overlap() {
        for (total, threads) in [(1, 1), (10, 3), (16, 16), (1_000_016, 7)] {
            let mut next = 0;
            for thread in 0..threads {
                let (first, count) = share(total, threads, thread);
                assert_eq!(first, next);
                assert!((total / threads..=total / threads + 1).contains(&count));
                next += count;
            }
            assert_eq!(next, total);
        }
    }
}
