//! The process's view of the broker: start, drain, stop, counters.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use reactor::{DriverKind, Mailboxes, Reservation, ShardSpec, fdtable, work};
use serde_json::{Map, Value};

use crate::capacity::{self, Size, Tables};
use crate::config::Config;
use crate::error::StartError;
use crate::log::{self, Event};
use crate::mail::Mail;
use crate::monitor;
use crate::random::SystemRandom;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::transport::ListenerKind;

/// Time that the end waits until the log is written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);
/// Work of a round, in which each shard of a core has one turn. It is less than the turn of a shard that has
/// its core alone, since a message and its answer wait for more than one round.
const SHARED_ROUND: usize = work::TURN / 4;
/// The least work of a turn: polling in between is work, too.
const LEAST_TURN: usize = 32_000;

/// A running broker. Dropping it ends it at once.
pub struct Broker {
    shared: Arc<Shared>,
    mailboxes: Mailboxes<Mail>,
    addresses: Vec<(&'static str, SocketAddr)>,
    fallback: Option<String>,
    threads: Mutex<Threads>,
    ending: Ending,
    /// Last, so that everything before has been logged when it is dropped.
    _writer: log::Writer,
}

/// The requests for the broker's end.
#[derive(Default)]
struct Ending {
    draining: OnceLock<Instant>,
    stopping: OnceLock<()>,
}

/// The shards' threads and what is known of their ends.
struct Threads {
    handles: Vec<JoinHandle<()>>,
    ended: Receiver<()>,
    running: usize,
    /// Whether the end is to be logged.
    is_up: bool,
}

/// The report of a shard's thread.
enum Report {
    Opened,
    Failed(io::Error),
}

impl Broker {
    /// Start the shards, and return when every listener accepts.
    ///
    /// # Errors
    /// An unusable setting, an address that is not available, or no descriptors left.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let addresses = config.addresses().map_err(StartError::Config)?;
        let (driver, fallback) = config.resolve_driver().map_err(StartError::Config)?;
        let tables = match driver {
            DriverKind::Uring => Tables::PerRing,
            _ if fdtable::can_isolate() => Tables::PerShard,
            _ => Tables::One,
        };
        let size = capacity::size(config, tables).map_err(StartError::Config)?;
        let shards = size.shards;
        let reservations = reserve(addresses)?;
        let addresses: Vec<_> = reservations
            .iter()
            .map(|(key, reservation)| (*key, reservation.address()))
            .collect();
        let mut random = SystemRandom::new();
        let shared = Shared::new(config, &addresses, &size, driver, &mut random)?;
        let shared = Arc::new(shared);
        let mailboxes = Mailboxes::new(shards).map_err(StartError::Io)?;
        let (tell_ended, ended) = sync_channel(shards);
        let threads = Threads {
            handles: Vec::with_capacity(shards),
            ended,
            running: 0,
            is_up: false,
        };
        let writer = log::Writer::start(&shared.log, config.log_format).map_err(StartError::Io)?;
        let broker = Self {
            shared,
            mailboxes,
            addresses,
            fallback,
            threads: Mutex::new(threads),
            ending: Ending::default(),
            _writer: writer,
        };
        broker.spawn_all(&size, driver, tables == Tables::PerShard, &tell_ended)?;
        broker.log_start(&size);
        Ok(broker)
    }

    /// Return the address of each listener by its key: "tcp", "http", "monitor".
    #[must_use]
    pub fn addresses(&self) -> &[(&'static str, SocketAddr)] {
        &self.addresses
    }

    /// Return the backend that is used, and the reason if "auto" could not use the best one.
    #[must_use]
    pub fn driver(&self) -> (DriverKind, Option<&str>) {
        (self.shared.driver, self.fallback.as_deref())
    }

    /// Begin lame duck mode and return; the broker ends when its last client has gone. The log says
    /// `reason`, which may be empty.
    pub fn drain(&self, reason: &str) {
        if self.ending.draining.set(Instant::now()).is_ok() {
            self.log(Event::Draining {
                reason: reason.to_owned(),
                connections: self.connections(),
            });
        }
        self.post_all(|| Mail::Drain);
    }

    /// End the broker at once: connections get one last write. The log says `reason`, which may be
    /// empty.
    pub fn stop(&self, reason: &str) {
        if self.ending.stopping.set(()).is_ok() {
            self.log(Event::Stopping {
                reason: reason.to_owned(),
                connections: self.connections(),
            });
        }
        self.post_all(|| Mail::Stop);
    }

    /// Wait until every shard has ended, at most `timeout`; return whether they have.
    ///
    /// # Errors
    /// A shard has failed; see [`failure`](Self::failure).
    pub fn join(&self, timeout: Duration) -> Result<bool, String> {
        let deadline = Instant::now() + timeout;
        let mut threads = self.threads();
        while threads.running > 0 {
            let patience = deadline.saturating_duration_since(Instant::now());
            if threads.ended.recv_timeout(patience).is_err() {
                return self.outcome(false);
            }
            threads.running -= 1;
        }
        for thread in threads.handles.drain(..) {
            // The thread has caught its own panics.
            let _ = thread.join();
        }
        if std::mem::take(&mut threads.is_up) {
            self.log_end(self.failure().is_some());
        }
        self.outcome(true)
    }

    fn outcome(&self, has_ended: bool) -> Result<bool, String> {
        let failure = self.failure().map(str::to_owned);
        failure.map_or(Ok(has_ended), Err)
    }

    /// Return which shard has failed first and why, if one has. The broker has ended then, or is about to.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.shared.failure.get().map(String::as_str)
    }

    /// Return the metrics of all shards since the start, as `/varz` shows them. Without those that the
    /// monitor measures: `memory`, `cpu` and `subjects`.
    #[must_use]
    pub fn counters(&self) -> Map<String, Value> {
        monitor::counters(&self.shared)
    }

    fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    fn log(&self, event: Event) {
        self.shared.log.write(SystemTime::now(), event);
    }

    fn log_start(&self, size: &Size) {
        self.threads().is_up = true;
        self.log(Event::Driver {
            driver: self.shared.driver.to_string(),
            reason: self
                .fallback
                .as_ref()
                .map(|why| format!("no io_uring: {why}")),
            shards: size.shards,
            max_connections: size.max_connections,
        });
        for (listener, address) in &self.addresses {
            self.log(Event::Listening {
                listener,
                address: *address,
            });
        }
    }

    /// Log the end, and write the whole log, because the process may end after this.
    fn log_end(&self, has_failed: bool) {
        let is_drained = !has_failed && self.ending.stopping.get().is_none();
        let event = match self.ending.draining.get() {
            Some(begun) if is_drained => Event::Drained {
                duration: begun.elapsed(),
            },
            _ => Event::Stopped,
        };
        self.log(event);
        self.shared.log.flush(FLUSH_PATIENCE);
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_all(
        &self,
        size: &Size,
        driver: DriverKind,
        own_table: bool,
        tell_ended: &SyncSender<()>,
    ) -> Result<(), StartError> {
        let shards = size.shards;
        // On a core that shards share, a client waits for a turn of each.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let turn = match shards.div_ceil(cores) {
            1 => work::TURN,
            sharing => (SHARED_ROUND / sharing).max(LEAST_TURN),
        };
        let (report, reports) = sync_channel(shards);
        for index in 0..shards {
            let (kinds, listeners): (Vec<_>, Vec<_>) = self.listeners_of(index).unzip();
            let mailboxes = self.mailboxes.clone();
            let spec = ShardSpec {
                index,
                mailboxes: mailboxes.clone(),
                listeners,
                driver,
                connections: size.room.all(),
                own_table,
                // A receiver that keeps up must not exceed its limit within one turn.
                turn_budget: turn.min(self.shared.limits.max_pending / 4),
            };
            let random = SystemRandom::new();
            let shard = Shard::new(Arc::clone(&self.shared), index, kinds, mailboxes, random)
                .map_err(StartError::Io)?;
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

    /// Return the listeners of a shard. The monitor is served by the first shard alone.
    fn listeners_of(&self, shard: usize) -> impl Iterator<Item = (ListenerKind, SocketAddr)> {
        let all = self.addresses.iter().map(|(key, address)| match *key {
            "tcp" => (ListenerKind::Tcp, *address),
            "http" => (ListenerKind::Http, *address),
            _ => (ListenerKind::Monitor, *address),
        });
        all.filter(move |(kind, _)| shard == 0 || *kind != ListenerKind::Monitor)
    }

    fn post_all(&self, mail: impl Fn() -> Mail) {
        post_all(&self.mailboxes, mail);
    }
}

fn post_all(mailboxes: &Mailboxes<Mail>, mail: impl Fn() -> Mail) {
    for shard in 0..mailboxes.shards() {
        // A shard that has ended needs no telling.
        drop(mailboxes.post(shard, mail()));
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.post_all(|| Mail::Stop);
        let _ = self.join(Duration::from_secs(10));
    }
}

/// Reserve each listener's address.
fn reserve(
    addresses: Vec<(&'static str, SocketAddr)>,
) -> Result<Vec<(&'static str, Reservation)>, StartError> {
    let reserved = |(key, address)| match Reservation::new(address) {
        Ok(reservation) => Ok((key, reservation)),
        Err(error) => Err(StartError::Listen(key, error)),
    };
    addresses.into_iter().map(reserved).collect()
}

/// Run a shard to its end. If it fails, the broker ends at once: the connections of the shard are
/// lost, and other shards would wait for it.
fn run_shard(
    spec: ShardSpec<Mail>,
    mut shard: Shard,
    report: &SyncSender<Report>,
    tell_ended: &SyncSender<()>,
) {
    let (shared, mailboxes) = (Arc::clone(&shard.sessions.shared), spec.mailboxes.clone());
    let index = spec.index;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut opened = match reactor::Shard::open(spec) {
            Ok(opened) => opened,
            Err(error) => {
                let _ = report.send(Report::Failed(error));
                return Ok(());
            }
        };
        shard.begin(opened.io());
        let _ = report.send(Report::Opened);
        let outcome = opened.run(&mut shard);
        outcome.map_err(|error| format!("the driver failed: {error}"))
    }));
    let outcome = outcome.unwrap_or_else(|panic| Err(format!("panicked: {}", text_of(&*panic))));
    if let Err(detail) = outcome {
        let _ = shared.failure.set(format!("shard {index}: {detail}"));
        post_all(&mailboxes, || Mail::Stop);
        let event = Event::ShardFailed {
            shard: index,
            detail,
        };
        shared.log.write(SystemTime::now(), event);
    }
    // There is no receiver when the broker failed to start.
    let _ = tell_ended.send(());
}

/// Return the text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;
    use crate::config::Auto;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_shard_that_panics_ends_the_broker_at_once() {
        for driver in ["epoll", "auto"] {
            let config = Config {
                tcp: "127.0.0.1:0".into(),
                http: String::new(),
                monitor: String::new(),
                shards: Auto::Value(3),
                max_connections: Auto::Value(50),
                driver: driver.into(),
                ..Config::default()
            };
            let broker = Broker::start(&config).unwrap();
            let mut clients: Vec<_> = (0..6)
                .map(|_| TcpStream::connect(broker.addresses()[0].1).unwrap())
                .collect();
            assert!(!broker.join(Duration::ZERO).unwrap());
            assert_eq!(broker.failure(), None);
            assert!(broker.mailboxes.post(1, Mail::Panic).is_none());
            // Without a word to the broker: all shards end and all connections are closed.
            for client in &mut clients {
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                let outcome = client.read_to_end(&mut Vec::new());
                let kind = outcome.err().map(|error| error.kind());
                assert!(
                    matches!(kind, None | Some(io::ErrorKind::ConnectionReset)),
                    "{kind:?}"
                );
            }
            let failure = "shard 1: panicked: a test has asked for it";
            assert_eq!(broker.join(PATIENCE), Err(failure.into()));
            assert_eq!(broker.failure(), Some(failure));
            for shard in 0..3 {
                assert!(
                    broker.mailboxes.post(shard, Mail::Drain).is_some(),
                    "closed"
                );
            }
            assert_eq!(broker.join(Duration::ZERO), Err(failure.into()), "again");
        }
    }
}
