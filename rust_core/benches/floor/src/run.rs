//! The coordinator: starts the two processes, leads them through the run, and measures them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::board::Board;
use crate::capacity::{Tables, raise_limit};
use crate::failure::Failure;
use crate::net::reserve_port;
use crate::options::Options;
use crate::process::{Child, allowed_cpus};
use crate::setup::Setup;
use crate::signal::{Signals, ready};
use crate::{load, server};

/// How long a phase may show no progress.
const STALLED: Duration = Duration::from_secs(30);
/// How long what is under way may take when nothing new is begun.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the processes may take to close a million connections.
const CLOSE: Duration = Duration::from_secs(20);
/// How often a phase that cannot be waited for is looked at.
const GLANCE: Duration = Duration::from_millis(1);

/// What a run has shown.
pub(crate) struct Measured {
    pub(crate) setup: Arc<Setup>,
    /// Of the measured phase.
    pub(crate) duration: Duration,
    /// Requests answered, or deliveries.
    pub(crate) arrived: u64,
    /// Messages that all subscribers have.
    pub(crate) messages: u64,
    /// From a message's first receipt to its last: median and maximum, nanoseconds.
    pub(crate) spread: Option<(u64, u64)>,
    pub(crate) server_cpu: Duration,
    pub(crate) load_cpu: Duration,
    /// From the start of the load until all connections were established.
    pub(crate) connect: Duration,
    /// Processor time meanwhile.
    pub(crate) connect_server_cpu: Duration,
    pub(crate) connect_load_cpu: Duration,
    /// By which the server has grown from listening to the end of the measured phase.
    pub(crate) server_growth_bytes: u64,
    pub(crate) server_rss_bytes: u64,
    pub(crate) retried: u64,
    pub(crate) errors: u64,
    pub(crate) server_core: usize,
    pub(crate) load_core: usize,
}

/// One look at everything that counts.
struct Sample {
    at: Instant,
    arrived: u64,
    messages: u64,
    server_cpu: Duration,
    load_cpu: Duration,
}

/// Both processes.
struct Pair {
    server: Child,
    load: Child,
}

pub(crate) fn measure(options: &Options) -> Result<Measured, Failure> {
    let (server_core, load_core) = cores(options)?;
    let limit = raise_limit()?;
    let (clients_at, clients_port) = reserve_port()?;
    let (trunks_at, trunks_port) = reserve_port()?;
    let setup = Arc::new(setup(
        options,
        limit,
        Board::shared()?,
        clients_at,
        trunks_at,
    )?);
    let board = setup.board;

    let server = Child::start("server", server_core, || server::run(&setup))?;
    let (threads, _) = setup.threads_and_rings(setup.server);
    let listening = || u64::from(board.server.listening.load(Ordering::Acquire));
    wait_for(
        "server threads listening",
        &[&server],
        u64::from(threads),
        listening,
    )?;
    drop((clients_port, trunks_port));
    let before = server.resident_bytes()?;

    let (began, server_cpu_before) = (Instant::now(), server.cpu_time()?);
    let load = Child::start("load", load_core, || load::run(&setup))?;
    let all = u64::from(options.connections) + u64::from(options.mode.trunks());
    let connected = || board.load.connected.load(Ordering::Acquire);
    wait_for("connections", &[&server, &load], all, connected)?;
    wait_for("connections accepted", &[&server, &load], all, || {
        board.open_connections()
    })?;
    if options.greeting {
        let goal = u64::from(options.connections);
        let greeted = || board.load.greeted.load(Ordering::Acquire);
        wait_for("greetings", &[&server, &load], goal, greeted)?;
    }
    let connect = began.elapsed();
    let connect_server_cpu = server.cpu_time()?.saturating_sub(server_cpu_before);
    let connect_load_cpu = load.cpu_time()?;

    let pair = Pair { server, load };
    setup.signals.start.raise();
    pair.watch(options.warmup)?;
    board.load.spread.clear();
    let first = pair.sample(board)?;
    pair.watch(options.duration)?;
    let last = pair.sample(board)?;
    let spread = board.load.spread.median_and_max();
    let server_rss_bytes = pair.server.resident_bytes()?;
    let errors = pair.finish(&setup)?;

    Ok(Measured {
        duration: last.at - first.at,
        arrived: last.arrived - first.arrived,
        messages: last.messages - first.messages,
        spread,
        server_cpu: last.server_cpu.saturating_sub(first.server_cpu),
        load_cpu: last.load_cpu.saturating_sub(first.load_cpu),
        connect,
        connect_server_cpu,
        connect_load_cpu,
        server_growth_bytes: server_rss_bytes.saturating_sub(before),
        server_rss_bytes,
        retried: board.load.retried.load(Ordering::Relaxed),
        errors,
        server_core,
        load_core,
        setup,
    })
}

/// The cores asked for, or the first two that are allowed.
fn cores(options: &Options) -> Result<(usize, usize), Failure> {
    let allowed = allowed_cpus()?;
    let first = allowed.first().copied().unwrap_or(0);
    let second = allowed.get(1).copied().unwrap_or(first);
    Ok((
        options.server_cpu.unwrap_or(first),
        options.load_cpu.unwrap_or(second),
    ))
}

fn setup(
    options: &Options,
    limit: u32,
    board: &'static Board,
    clients_at: std::net::SocketAddrV4,
    trunks_at: std::net::SocketAddrV4,
) -> Result<Setup, Failure> {
    let trunks = options.mode.trunks();
    let connections = options.connections;
    let plan = |by_kernel, count| Tables::plan(connections, trunks, by_kernel, count, limit);
    Ok(Setup {
        options: options.clone(),
        clients_at,
        trunks_at,
        server: plan(true, options.server_shares)?,
        load: plan(false, options.load_shares)?,
        board,
        signals: Signals::new()?,
    })
}

/// Waits until `progress` has reached `goal`, as long as it goes on.
fn wait_for(
    what: &str,
    processes: &[&Child],
    goal: u64,
    progress: impl Fn() -> u64,
) -> Result<(), Failure> {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        let now = progress();
        if now >= goal {
            return Ok(());
        }
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > STALLED {
            let stalled = STALLED.as_secs();
            return Err(Failure::new(format!(
                "only {now} of {goal} {what}, no more for {stalled} s"
            )));
        }
        let mut patience = GLANCE;
        for process in processes {
            if let [true] = ready([process.as_fd()], Some(patience))? {
                let name = process.name();
                return Err(Failure::new(format!(
                    "the {name} has ended with {now} of {goal} {what}"
                )));
            }
            patience = Duration::ZERO;
        }
    }
}

impl Pair {
    /// Waits while both processes are expected to live.
    fn watch(&self, duration: Duration) -> Result<(), Failure> {
        let end = Instant::now() + duration;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let ended = ready([self.server.as_fd(), self.load.as_fd()], Some(left))?;
            let names = [self.server.name(), self.load.name()];
            if let Some(name) = names
                .iter()
                .zip(ended)
                .find_map(|(name, end)| end.then_some(name))
            {
                return Err(Failure::new(format!("the {name} has ended during the run")));
            }
        }
    }

    fn sample(&self, board: &Board) -> Result<Sample, Failure> {
        Ok(Sample {
            at: Instant::now(),
            arrived: board.load.arrived.load(Ordering::Acquire),
            messages: board.load.messages.load(Ordering::Acquire),
            server_cpu: self.server.cpu_time()?,
            load_cpu: self.load.cpu_time()?,
        })
    }

    /// Lets what is under way be answered, then both processes end. Returns the errors of the run,
    /// of which everything that was not answered is one.
    fn finish(self, setup: &Setup) -> Result<u64, Failure> {
        let board = setup.board;
        setup.signals.drain.raise();
        let deadline = Instant::now() + DRAIN;
        while board.outstanding() > 0 && Instant::now() < deadline {
            self.watch(GLANCE)?;
        }
        let errors = board.errors() + board.outstanding();
        setup.signals.close.raise();
        let deadline = Instant::now() + CLOSE;
        for process in [&self.load, &self.server] {
            let left = deadline.saturating_duration_since(Instant::now());
            if let [false] = ready([process.as_fd()], Some(left))? {
                // Everything has been measured. A million sockets take minutes to be closed one by one;
                // both processes are killed when they go out of scope.
                return Ok(errors);
            }
        }
        self.load.reap()?;
        self.server.reap()?;
        Ok(errors)
    }
}
