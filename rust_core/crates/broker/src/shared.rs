//! What all shards of a broker share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use reactor::DriverKind;
use router::SharedRouter;

use crate::capacity::{self, Size};
use crate::config::{Config, GatewayLimits, Limits};
use crate::error::StartError;
use crate::hosts::AllowedHosts;
use crate::http::inbox::Inboxes;
use crate::info::Info;
use crate::log::Log;
use crate::mail::Subscriber;
use crate::metrics::shard::ShardMetrics;
use crate::metrics::table::Gauge;
use crate::metrics::totals::Totals;
use crate::origins::Origins;
use crate::random::SystemRandom;

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
    /// Places of `max_connections` that are taken.
    pub(crate) places: AtomicUsize,
    /// What waits for clients of each shard who do not take it, in bytes.
    pub(crate) backlogs: Box<[Backlog]>,
    /// What waits in each shard's mailbox.
    pub(crate) weights: Box<[Weight]>,
    pub(crate) next_cid: AtomicU64,
    pub(crate) metrics: Box<[Arc<ShardMetrics>]>,
    pub(crate) driver: DriverKind,
    pub(crate) started: Instant,
    /// The same by the calendar.
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
        let max_ws_message = MAX_WS_MESSAGE_SLACK + config.max_payload + config.max_control_line;
        Ok(Self {
            routing: SharedRouter::new(),
            limits: config.limits(size.max_connections, capacity::memory()),
            gateway: config.gateway_limits().map_err(StartError::Config)?,
            hosts: config.hosts().map_err(StartError::Config)?,
            websocket_origins: config.websocket_origins().map_err(StartError::Config)?,
            inboxes: Inboxes::new(number()?, shards),
            info: Info::new(config, addresses, number()?),
            max_ws_message: max_ws_message as u32,
            open: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            backlogs: (0..shards).map(|_| Backlog::default()).collect(),
            weights: (0..shards).map(|_| Weight::default()).collect(),
            next_cid: AtomicU64::new(1),
            metrics: (0..shards).map(|_| Arc::new(ShardMetrics::new())).collect(),
            log: Arc::new(Log::new(config.log_level, shards)),
            driver,
            started: Instant::now(),
            start: SystemTime::now(),
        })
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::sum(self.metrics.iter().map(|shard| &**shard))
    }

    /// The sum of a gauge over all shards.
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.metrics.iter().map(|shard| shard.gauge(gauge)).sum()
    }

    /// Bytes that wait for clients who do not take them.
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

    #[cfg(feature = "sim")]
    pub(crate) fn value(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::HIGH
    }
}
