//! One shard's access to the log.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::event::{Event, Level, Topic};
use super::limit::Bucket;
use super::shared::Log;
use crate::key::KeyMap;

/// One shard's access to the log, with the rates of its events.
pub struct Source<E: Event> {
    log: Arc<Log<E>>,
    /// Level of the log, copied here to avoid the shared log's lock.
    level: Level,
    shard: u16,
    buckets: KeyMap<E::Topic, Bucket>,
}

impl<E: Event> Source<E> {
    /// Make the source of a shard; rates begin at `now`.
    #[must_use]
    pub fn new(log: Arc<Log<E>>, shard: u16, now: Instant) -> Self {
        Self {
            level: log.level(),
            log,
            shard,
            buckets: KeyMap::new(|_| Bucket::new(now)),
        }
    }

    /// Return whether an event of this topic may be logged: its level is on, and its rate allows
    /// it.
    #[inline]
    pub fn admits(&mut self, topic: E::Topic, now: Instant) -> bool {
        if topic.level() < self.level {
            return false;
        }
        let is_admitted = self.buckets[topic].take(now);
        if !is_admitted {
            self.log.count_suppressed(self.shard, topic);
        }
        is_admitted
    }

    /// Log an admitted event; never waits.
    #[cold]
    pub fn push(&self, time: SystemTime, event: E) {
        self.log.push(time, Some(self.shard), event);
    }
}
