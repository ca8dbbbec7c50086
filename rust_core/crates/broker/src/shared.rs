//! The state that all shards of a broker share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use reactor::DriverKind;
use router::SharedRouter;

use crate::admission::places::Places;
use crate::capacity::{Room, Size};
use crate::config::{Config, GatewayLimits, Limits};
use crate::error::StartError;
use crate::hosts::AllowedHosts;
use crate::http::inbox::Inboxes;
use crate::info::Info;
use crate::log::Log;

use crate::memory::{self, account::Account};
use crate::metrics::shard::ShardMetrics;
use crate::metrics::table::Gauge;
use crate::metrics::totals::Totals;
use crate::origins::Origins;
use crate::random::SystemRandom;
use crate::subscriber::Subscriber;

/// The state that all shards share.
pub(crate) struct Shared {
    pub(crate) routing: SharedRouter<Subscriber>,
    pub(crate) limits: Limits,
    pub(crate) gateway: GatewayLimits,
    /// The names that HTTP callers may call the broker by.
    pub(crate) hosts: AllowedHosts,
    /// The origins whose pages may open WebSocket connections.
    pub(crate) websocket_origins: Origins,
    pub(crate) inboxes: Inboxes,
    pub(crate) info: Info,
    pub(crate) log: Arc<Log>,
    /// Largest WebSocket message in bytes.
    pub(crate) max_ws_message: u32,
    /// Connections of the clients' listeners that are open now.
    pub(crate) open: AtomicUsize,
    /// The memory that connections hold.
    pub(crate) account: Arc<Account>,
    /// The places for clients.
    pub(crate) places: Arc<Places>,
    /// Connections that each shard has descriptors for.
    pub(crate) room: Room,
    /// Output of each shard that its clients do not take, in bytes.
    pub(crate) backlogs: Box<[Backlog]>,
    /// The deliveries that wait in each shard's mailbox.
    pub(crate) queued: Box<[QueuedBytes]>,
    pub(crate) next_cid: AtomicU64,
    pub(crate) metrics: Box<[Arc<ShardMetrics>]>,
    pub(crate) driver: DriverKind,
    /// The first shard that has failed, and why.
    pub(crate) failure: OnceLock<String>,
    pub(crate) started: Instant,
    /// The start by the calendar.
    pub(crate) start: SystemTime,
}

/// Largest WebSocket message in bytes besides one operation of the largest size. Messages are read
/// as they arrive and never gathered, so that a generous limit costs nothing.
const MAX_WS_MESSAGE_SLACK: usize = 64 << 20;

impl Shared {
    /// Return the state of a broker that begins now.
    ///
    /// # Errors
    /// A setting is unusable, or the system has no random numbers.
    pub(crate) fn new(
        config: &Config,
        addresses: &[(&'static str, SocketAddr)],
        size: &Size,
        driver: DriverKind,
        random: &mut SystemRandom,
    ) -> Result<Self, StartError> {
        let mut number = || random.next().map_err(StartError::Io);
        let shards = size.shards;
        let started = Instant::now();
        let max_ws_message = MAX_WS_MESSAGE_SLACK + config.max_payload + config.max_control_line;
        let limits = Limits::new(config, memory::available());
        Ok(Self {
            routing: SharedRouter::new(),
            account: Arc::new(Account::new(limits.max_memory, shards)),
            limits,
            gateway: GatewayLimits::new(config).map_err(StartError::Config)?,
            hosts: config.hosts().map_err(StartError::Config)?,
            websocket_origins: config.websocket_origins().map_err(StartError::Config)?,
            inboxes: Inboxes::new(number()?, shards),
            info: Info::new(config, addresses, number()?),
            max_ws_message: max_ws_message as u32,
            open: AtomicUsize::new(0),
            places: Arc::new(Places::new(
                size.max_connections,
                shards,
                config.limits.connections_per_address,
                started,
            )),
            room: size.room,
            backlogs: (0..shards).map(|_| Backlog::default()).collect(),
            queued: (0..shards).map(|_| QueuedBytes::default()).collect(),
            next_cid: AtomicU64::new(1),
            metrics: (0..shards).map(|_| Arc::new(ShardMetrics::new())).collect(),
            log: Arc::new(Log::new(config.log_level, shards)),
            driver,
            failure: OnceLock::new(),
            started,
            start: SystemTime::now(),
        })
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::sum(self.metrics.iter().map(|shard| &**shard))
    }

    /// Return the sum of a gauge over all shards.
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.metrics.iter().map(|shard| shard.gauge(gauge)).sum()
    }

    /// Return the bytes that wait for clients which do not take them.
    pub(crate) fn backlog(&self) -> usize {
        let bytes = self.backlogs.iter().map(Backlog::bytes);
        bytes.sum()
    }
}

/// Output of one shard that its clients' sockets do not take; written by that shard alone.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Backlog(AtomicUsize);

impl Backlog {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn publish(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// The deliveries that wait in one shard's mailbox.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct QueuedBytes {
    /// Bytes of output that they will become.
    output: AtomicUsize,
    /// Bytes of memory that they take.
    memory: AtomicUsize,
}

impl QueuedBytes {
    /// Bytes of output above which publishers to the shard are stalled.
    const HIGH: usize = 32 << 20;

    /// Add a mail; whether publishers are to be stalled.
    pub(crate) fn add(&self, output: usize, memory: usize) -> bool {
        self.memory.fetch_add(memory, Ordering::Relaxed);
        self.output.fetch_add(output, Ordering::Relaxed) + output > Self::HIGH
    }

    pub(crate) fn subtract(&self, output: usize, memory: usize) {
        self.memory.fetch_sub(memory, Ordering::Relaxed);
        self.output.fetch_sub(output, Ordering::Relaxed);
    }

    /// Return the bytes of memory that wait.
    pub(crate) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    #[cfg(feature = "sim")]
    pub(crate) fn output(&self) -> usize {
        self.output.load(Ordering::Relaxed)
    }

    pub(crate) fn is_high(&self) -> bool {
        self.output.load(Ordering::Relaxed) > Self::HIGH
    }
}
