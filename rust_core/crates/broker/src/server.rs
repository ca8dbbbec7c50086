//! The process's view of the broker: start, drain, stop, totals.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reactor::{
    DriverKind, ListenError, Mailboxes, MailboxesBuilder, Reservation, ShardSpec, fdtable,
};
use router::SharedRouter;

use crate::config::{Auto, Config, ConfigError, Limits};
use crate::counters::{Published, Totals};
use crate::info::Info;
use crate::mail::{Mail, Subscriber};
use crate::shard::Shard;

/// Descriptors of a shard's table that are not connections: standard streams, listeners, the
/// backend's own and wake-ups.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Most shards that may be set.
pub(crate) const MAX_SHARDS: usize = 1024;

/// Largest WebSocket message in bytes besides one operation of the largest size. Messages are read
/// as they arrive and never gathered, so that a generous limit costs nothing.
const MAX_GATHERED: usize = 64 << 20;

/// Bytes that a shard receives or appends in one turn before it writes.
const TURN_BUDGET: usize = 4 << 20;

/// SO_REUSEPORT spreads a million connections over dozens of listeners within a few percent: a
/// shard's table must have room for more than its share.
const IMBALANCE: f64 = 1.1;

/// The broker could not be started.
#[derive(Debug)]
pub enum StartError {
    /// A setting is unusable.
    Config(ConfigError),
    /// A listener's address, by its key, is not to be had.
    Listen(&'static str, ListenError),
    /// The kernel refused threads or descriptors.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen(key, error) => write!(f, "{key}: {error}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

/// What a listener's connections speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Tcp,
    Http,
    Monitor,
}

/// What all shards share.
pub(crate) struct Shared {
    pub(crate) routing: SharedRouter<Subscriber>,
    pub(crate) limits: Limits,
    pub(crate) info: Info,
    /// Largest WebSocket message in bytes.
    pub(crate) max_ws_message: u32,
    /// Connections of the clients' listeners that are open now.
    pub(crate) open: AtomicUsize,
    /// Places of `max_connections` that are taken.
    pub(crate) places: AtomicUsize,
    /// What waits in each shard's mailbox.
    pub(crate) weights: Box<[Weight]>,
    pub(crate) next_cid: AtomicU64,
    pub(crate) published: Box<[Published]>,
    pub(crate) started: Instant,
    pub(crate) seed: u64,
}

impl Shared {
    pub(crate) fn totals(&self) -> Totals {
        Totals::sum(self.published.iter())
    }
}

/// The deliveries that wait in one shard's mailbox, in bytes of output that they will become.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Weight(AtomicUsize);

impl Weight {
    /// Above this publishers to the shard are stalled.
    const HIGH: usize = 32 << 20;

    /// Whether it is too high now.
    pub(crate) fn add(&self, weight: usize) -> bool {
        self.0.fetch_add(weight, Ordering::Relaxed) + weight > Self::HIGH
    }

    pub(crate) fn subtract(&self, weight: usize) {
        self.0.fetch_sub(weight, Ordering::Relaxed);
    }

    pub(crate) fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::HIGH
    }
}

/// A running broker. Dropping it ends it at once.
pub struct Broker {
    shared: Arc<Shared>,
    mailboxes: Mailboxes<Mail>,
    addresses: Vec<(&'static str, SocketAddr)>,
    threads: Mutex<Threads>,
}

/// The shards' threads and what is known of their ends.
struct Threads {
    handles: Vec<JoinHandle<()>>,
    ended: Receiver<Result<(), String>>,
    running: usize,
    failure: Option<String>,
}

/// How a shard's thread reports.
enum Report {
    Opened,
    Failed(io::Error),
}

impl Broker {
    /// Starts the shards; returns when every listener accepts.
    ///
    /// # Errors
    /// An unusable setting, an address that is not to be had, or no descriptors left.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let addresses = config.addresses().map_err(StartError::Config)?;
        let driver = config.driver().map_err(StartError::Config)?;
        let own_tables = fdtable::can_isolate();
        let (shards, max_connections) = size(config, own_tables).map_err(StartError::Config)?;
        let reservations = addresses
            .into_iter()
            .map(|(key, address)| match Reservation::new(address) {
                Ok(reservation) => Ok((key, reservation)),
                Err(error) => Err(StartError::Listen(key, error)),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = reservations
            .iter()
            .map(|(key, reservation)| (*key, reservation.address()))
            .collect();
        let seed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos());
        let seed = seed as u64 ^ u64::from(std::process::id()) << 32;
        let shared = Arc::new(Shared {
            routing: SharedRouter::new(),
            limits: config.limits(max_connections),
            info: Info::new(config, &addresses, seed),
            max_ws_message: (MAX_GATHERED + config.max_payload + config.max_control_line) as u32,
            open: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            weights: (0..shards).map(|_| Weight::default()).collect(),
            next_cid: AtomicU64::new(1),
            published: (0..shards).map(|_| Published::new()).collect(),
            started: Instant::now(),
            seed,
        });
        let mailboxes = MailboxesBuilder::build(shards).map_err(StartError::Io)?;
        let (tell_ended, ended) = sync_channel(shards);
        let threads = Threads {
            handles: Vec::with_capacity(shards),
            ended,
            running: 0,
            failure: None,
        };
        let broker = Self {
            shared,
            mailboxes,
            addresses,
            threads: Mutex::new(threads),
        };
        broker.spawn_all(shards, driver, own_tables, &tell_ended)?;
        Ok(broker)
    }

    /// The address of each listener by its key: "tcp", "http", "monitor".
    #[must_use]
    pub fn addresses(&self) -> &[(&'static str, SocketAddr)] {
        &self.addresses
    }

    /// Begins lame duck mode and returns; the broker ends when its last client has gone.
    pub fn drain(&self) {
        self.post_all(|| Mail::Drain);
    }

    /// Ends the broker at once: connections get one last write.
    pub fn stop(&self) {
        self.post_all(|| Mail::Stop);
    }

    /// Waits until every shard has ended, at most `timeout`; whether they have.
    ///
    /// # Errors
    /// What the first failing shard died of.
    pub fn join(&self, timeout: Duration) -> Result<bool, String> {
        let deadline = Instant::now() + timeout;
        let mut threads = self.threads();
        while threads.running > 0 {
            let patience = deadline.saturating_duration_since(Instant::now());
            match threads.ended.recv_timeout(patience) {
                Ok(outcome) => {
                    threads.running -= 1;
                    if let Err(failure) = outcome {
                        threads.failure.get_or_insert(failure);
                        self.stop();
                    }
                }
                Err(_) => return Ok(false),
            }
        }
        for thread in threads.handles.drain(..) {
            // The thread has caught its own panics.
            let _ = thread.join();
        }
        threads.failure.clone().map_or(Ok(true), Err)
    }

    /// What has happened so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_all(
        &self,
        shards: usize,
        driver: DriverKind,
        own_table: bool,
        tell_ended: &SyncSender<Result<(), String>>,
    ) -> Result<(), StartError> {
        let (report, reports) = sync_channel(shards);
        for index in 0..shards {
            let (kinds, listeners): (Vec<_>, Vec<_>) = self.listeners_of(index).unzip();
            let mailboxes = self.mailboxes.clone();
            let spec = ShardSpec {
                index,
                mailboxes: mailboxes.clone(),
                listeners,
                driver,
                own_table,
                // A receiver that keeps up must not exceed its limit within one turn.
                turn_budget: TURN_BUDGET.min(self.shared.limits.max_pending / 4),
            };
            let shard = Shard::new(Arc::clone(&self.shared), index, kinds, mailboxes);
            let (report, tell_ended) = (report.clone(), tell_ended.clone());
            let thread = std::thread::Builder::new()
                .name(format!("shard-{index}"))
                .spawn(move || run_shard(spec, shard, &report, &tell_ended))
                .map_err(StartError::Io)?;
            let mut threads = self.threads();
            threads.handles.push(thread);
            threads.running += 1;
        }
        drop(report);
        for _ in 0..shards {
            match reports.recv() {
                Ok(Report::Opened) => {}
                Ok(Report::Failed(error)) => return Err(StartError::Io(error)),
                Err(_) => {
                    let error = io::Error::other("a shard ended before it was ready");
                    return Err(StartError::Io(error));
                }
            }
        }
        Ok(())
    }

    /// The monitor is served by the first shard alone.
    fn listeners_of(&self, shard: usize) -> impl Iterator<Item = (ListenerKind, SocketAddr)> {
        let all = self.addresses.iter().map(|(key, address)| match *key {
            "tcp" => (ListenerKind::Tcp, *address),
            "http" => (ListenerKind::Http, *address),
            _ => (ListenerKind::Monitor, *address),
        });
        all.filter(move |(kind, _)| shard == 0 || *kind != ListenerKind::Monitor)
    }

    fn post_all(&self, mail: impl Fn() -> Mail) {
        for shard in 0..self.mailboxes.shards() {
            // A shard that has ended needs no telling.
            drop(self.mailboxes.post(shard, mail()));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
        let _ = self.join(Duration::from_secs(10));
    }
}

fn run_shard(
    spec: ShardSpec<Mail>,
    mut shard: Shard,
    report: &SyncSender<Report>,
    tell_ended: &SyncSender<Result<(), String>>,
) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let opened = match reactor::Shard::open(spec) {
            Ok(opened) => opened,
            Err(error) => {
                let _ = report.send(Report::Failed(error));
                return Ok(());
            }
        };
        let _ = report.send(Report::Opened);
        opened.run(&mut shard).map_err(|error| error.to_string())
    }));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!(
            "a shard panicked: {}",
            text.unwrap_or("no message")
        ))
    });
    // Nobody listens when the broker failed to start.
    let _ = tell_ended.send(outcome);
}

/// Number of shards, and of clients that they may hold.
fn size(config: &Config, own_tables: bool) -> Result<(usize, usize), ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Capacity {
        limit: fdtable::limit(),
        own_tables,
    };
    let unusable = |what| {
        Err(ConfigError {
            key: "max_connections",
            what,
        })
    };
    let limit = capacity.limit;
    match (config.shards, config.max_connections) {
        (shards, Auto::Auto) => {
            let shards = match shards {
                Auto::Auto => cores,
                Auto::Value(shards) => shards,
            };
            match capacity.of(shards) {
                0 => unusable(format!(
                    "the limit of {limit} open files leaves none for clients of {shards} shards"
                )),
                clients => Ok((shards, clients)),
            }
        }
        (Auto::Auto, Auto::Value(wanted)) => match capacity.shards_for(cores, wanted) {
            Some(shards) => Ok((shards, wanted)),
            None => unusable(format!(
                "{wanted} are more than the limit of {limit} open files allows, at most {}: raise \
                 the limit (ulimit -n)",
                (cores..=MAX_SHARDS)
                    .map(|n| capacity.of(n))
                    .max()
                    .unwrap_or(0)
            )),
        },
        (Auto::Value(shards), Auto::Value(wanted)) => {
            if capacity.of(shards) >= wanted {
                return Ok((shards, wanted));
            }
            let enough = match capacity.shards_for(1, wanted) {
                Some(needed) => format!("set shards to {needed} or raise the limit (ulimit -n)"),
                None => "raise the limit (ulimit -n)".into(),
            };
            unusable(format!(
                "{wanted} are more than {shards} shards can hold at the limit of {limit} open \
                 files, {}: {enough}",
                capacity.of(shards)
            ))
        }
    }
}

/// How many clients the limit of open files allows.
struct Capacity {
    limit: u64,
    /// Whether the limit holds for each shard, rather than for all.
    own_tables: bool,
}

impl Capacity {
    /// What `shards` shards can hold.
    fn of(&self, shards: usize) -> usize {
        // Each table holds every shard's wake-up descriptor.
        let taken = RESERVED_DESCRIPTORS + shards as u64;
        let room = self.limit.min(1 << 32).saturating_sub(taken) as f64;
        let tables = if self.own_tables { shards } else { 1 };
        let imbalance = if tables > 1 { IMBALANCE } else { 1.0 };
        (room * tables as f64 / imbalance) as usize
    }

    /// The fewest shards, at least `least`, that can hold `clients`.
    fn shards_for(&self, least: usize, clients: usize) -> Option<usize> {
        (least..=MAX_SHARDS).find(|shards| self.of(*shards) >= clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_need_more_shards_where_each_has_a_table() {
        let capacity = Capacity {
            limit: 20_000,
            own_tables: true,
        };
        assert_eq!(capacity.of(1), 19_935);
        assert_eq!(capacity.shards_for(2, 15_000), Some(2));
        let million = capacity.shards_for(2, 1_000_016).expect("enough");
        assert!((50..60).contains(&million), "{million}");
        let shared = Capacity {
            limit: 20_000,
            own_tables: false,
        };
        assert!(shared.of(8) < shared.of(1));
        assert_eq!(shared.shards_for(1, 20_000), None);
        let none = Capacity {
            limit: 60,
            own_tables: true,
        };
        assert_eq!(none.of(1), 0);
    }
}
