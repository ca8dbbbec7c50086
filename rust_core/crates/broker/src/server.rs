//! The process's view of the broker: start, drain, stop, counters.

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
use crate::shared::{ListenerKind, Shared};

/// How long the end waits until the log is written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

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

/// How the broker's end was asked for.
#[derive(Default)]
struct Ending {
    draining: OnceLock<Instant>,
    stopping: OnceLock<()>,
}

/// The shards' threads and what is known of their ends.
struct Threads {
    handles: Vec<JoinHandle<()>>,
    ended: Receiver<Result<(), String>>,
    running: usize,
    failure: Option<String>,
    /// The end is to be logged.
    is_up: bool,
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
            failure: None,
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

    /// The address of each listener by its key: "tcp", "http", "monitor".
    #[must_use]
    pub fn addresses(&self) -> &[(&'static str, SocketAddr)] {
        &self.addresses
    }

    /// The backend that is used, and why it is not the best one where "auto" had to do without it.
    #[must_use]
    pub fn driver(&self) -> (DriverKind, Option<&str>) {
        (self.shared.driver, self.fallback.as_deref())
    }

    /// Begins lame duck mode and returns; the broker ends when its last client has gone. The log says
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

    /// Ends the broker at once: connections get one last write. The log says `reason`, which may be
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
                        self.post_all(|| Mail::Stop);
                    }
                }
                Err(_) => return Ok(false),
            }
        }
        for thread in threads.handles.drain(..) {
            // The thread has caught its own panics.
            let _ = thread.join();
        }
        if std::mem::take(&mut threads.is_up) {
            self.log_end(threads.failure.is_some());
        }
        threads.failure.clone().map_or(Ok(true), Err)
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

    /// The process may end after this: what has been logged must be written.
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
        tell_ended: &SyncSender<Result<(), String>>,
    ) -> Result<(), StartError> {
        let shards = size.shards;
        let (report, reports) = sync_channel(shards);
        for index in 0..shards {
            let (kinds, listeners): (Vec<_>, Vec<_>) = self.listeners_of(index).unzip();
            let mailboxes = self.mailboxes.clone();
            let spec = ShardSpec {
                index,
                mailboxes: mailboxes.clone(),
                listeners,
                driver,
                connections: size.connections_of_a_shard,
                own_table,
                // A receiver that keeps up must not exceed its limit within one turn.
                turn_budget: work::TURN.min(self.shared.limits.max_pending / 4),
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
        self.post_all(|| Mail::Stop);
        let _ = self.join(Duration::from_secs(10));
    }
}

/// Reserves each listener's address.
fn reserve(
    addresses: Vec<(&'static str, SocketAddr)>,
) -> Result<Vec<(&'static str, Reservation)>, StartError> {
    let reserved = |(key, address)| match Reservation::new(address) {
        Ok(reservation) => Ok((key, reservation)),
        Err(error) => Err(StartError::Listen(key, error)),
    };
    addresses.into_iter().map(reserved).collect()
}

fn run_shard(
    spec: ShardSpec<Mail>,
    mut shard: Shard,
    report: &SyncSender<Report>,
    tell_ended: &SyncSender<Result<(), String>>,
) {
    let (log, index) = (Arc::clone(&shard.shared.log), spec.index);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut opened = match reactor::Shard::open(spec) {
            Ok(opened) => opened,
            Err(error) => {
                let _ = report.send(Report::Failed(error));
                return Ok(());
            }
        };
        shard.handle_sample_timer(opened.io());
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
    if let Err(failure) = &outcome {
        let event = Event::ShardFailed {
            shard: index,
            detail: failure.clone(),
        };
        log.write(SystemTime::now(), event);
    }
    // Nobody listens when the broker failed to start.
    let _ = tell_ended.send(outcome);
}
