//! The places of the broker, which all shards share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use reactor::ConnId;

use super::addresses::Addresses;
use super::half_open::HalfOpen;

/// The oldest connection of a list that is empty.
const EMPTY: u64 = u64::MAX;

/// The half-open connections of one shard. Its shard adds and removes; other shards take the oldest when
/// they need its place. On cache lines of its own, because the next one belongs to another shard.
#[repr(align(128))]
struct Listed {
    list: Mutex<HalfOpen>,
    /// The length of the list, to be read without the lock.
    len: AtomicUsize,
    /// The time at which the oldest connection came, in nanoseconds since the broker's start, or [`EMPTY`];
    /// to be read without the lock.
    oldest: AtomicU64,
}

/// A half-open connection that has lost its place to a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) shard: usize,
    pub(crate) id: ConnId,
}

/// The places for clients, as many as `max_connections` says, and the connections that may lose theirs.
pub(crate) struct Places {
    most: usize,
    taken: Taken,
    half_open: Box<[Listed]>,
    addresses: Addresses,
    started: Instant,
}

/// A count on a cache line of its own, because all shards write to it.
#[repr(align(128))]
#[derive(Default)]
struct Taken(AtomicUsize);

impl Places {
    /// Make `most` free places for so many shards of a broker that starts now. One address may have
    /// `per_address` of them, or any number if that is 0.
    pub(crate) fn new(most: usize, shards: usize, per_address: usize, started: Instant) -> Self {
        let listed = |_| Listed {
            list: Mutex::new(HalfOpen::new()),
            len: AtomicUsize::new(0),
            oldest: AtomicU64::new(EMPTY),
        };
        Self {
            most,
            taken: Taken::default(),
            half_open: (0..shards).map(listed).collect(),
            addresses: Addresses::new(per_address),
            started,
        }
    }

    /// Return the number of places.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Take a free place, if there is one.
    pub(super) fn take(&self) -> bool {
        let taken = &self.taken.0;
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        let outcome = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        outcome.is_ok()
    }

    pub(super) fn give_back(&self) {
        self.taken.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Count a connection of an address, if it may have one more.
    pub(super) fn add_address(&self, address: IpAddr) -> bool {
        self.addresses.add(address)
    }

    pub(super) fn remove_address(&self, address: IpAddr) {
        self.addresses.remove(address);
    }

    /// Work on the half-open connections of a shard.
    pub(super) fn with_half_open<T>(
        &self,
        shard: usize,
        work: impl FnOnce(&mut HalfOpen) -> T,
    ) -> T {
        let listed = &self.half_open[shard];
        let mut list = lock(&listed.list);
        let outcome = work(&mut list);
        let nanos =
            |since: Instant| since.saturating_duration_since(self.started).as_nanos() as u64;
        listed.len.store(list.len(), Ordering::Relaxed);
        let oldest = list.oldest().map_or(EMPTY, nanos);
        listed.oldest.store(oldest, Ordering::Relaxed);
        outcome
    }

    /// Return the number of half-open connections of a shard.
    pub(crate) fn half_open(&self, shard: usize) -> usize {
        self.half_open[shard].len.load(Ordering::Relaxed)
    }

    /// Take the place of a shard's oldest half-open connection away from it.
    pub(super) fn evict_from(&self, shard: usize) -> Option<Evicted> {
        let id = self.with_half_open(shard, HalfOpen::pop)?;
        Some(Evicted { shard, id })
    }

    /// Take the place of the oldest half-open connection of all shards away from it.
    pub(super) fn evict(&self) -> Option<Evicted> {
        loop {
            let oldest = |listed: &Listed| listed.oldest.load(Ordering::Relaxed);
            let all = self.half_open.iter().map(oldest).enumerate();
            let (shard, oldest) = all.min_by_key(|(_, oldest)| *oldest)?;
            if oldest == EMPTY {
                return None;
            }
            // Another shard may have emptied the list meanwhile.
            if let Some(evicted) = self.evict_from(shard) {
                return Some(evicted);
            }
        }
    }
}

#[cfg(any(test, feature = "sim"))]
impl Places {
    pub(crate) fn taken(&self) -> usize {
        self.taken.0.load(Ordering::Relaxed)
    }

    /// Return the number of connections that are counted by their address.
    pub(crate) fn addresses(&self) -> usize {
        self.addresses.len()
    }
}

fn lock(list: &Mutex<HalfOpen>) -> MutexGuard<'_, HalfOpen> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
