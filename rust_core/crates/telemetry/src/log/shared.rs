//! The log of a program, shared by its shards and the writer.

use std::time::{Duration, SystemTime};

use super::event::{Event, Level, Topic};
use super::queue::Queue;
use super::record::{Content, Record};
use crate::cells::Cells;
use crate::key::Key;

/// Log of a program: events go in, the [`Writer`](super::writer::Writer) takes them out.
pub struct Log<E: Event> {
    level: Level,
    pub(super) queue: Queue<E>,
    /// Events beyond their rate, for each shard, which is the only writer.
    suppressed: Box<[Cells<E::Topic>]>,
}

impl<E: Event> Log<E> {
    /// Make a log of events from this level on, for `shards` shards.
    #[must_use]
    pub fn new(level: Level, shards: usize) -> Self {
        Self {
            level,
            queue: Queue::new(),
            suppressed: (0..shards).map(|_| Cells::new()).collect(),
        }
    }

    /// Log an event of the program as a whole; never waits.
    pub fn write(&self, time: SystemTime, event: E) {
        if self.is_on(event.level()) {
            self.push(time, None, event);
        }
    }

    /// Wait until all logged events are written, for `timeout` at most.
    pub fn flush(&self, timeout: Duration) {
        self.queue.wait_written(timeout);
    }

    /// Return the number of events left out because of their rate since the start, by kind.
    #[must_use]
    pub fn suppressed(&self) -> Vec<(&'static str, u64)> {
        let mut kinds: Vec<(&'static str, u64)> = Vec::new();
        for topic in E::Topic::ALL {
            let count = self.suppressed_of(*topic);
            match kinds.iter_mut().find(|(kind, _)| *kind == topic.kind()) {
                Some((_, sum)) => *sum += count,
                None => kinds.push((topic.kind(), count)),
            }
        }
        kinds
    }

    /// Return the number of lines that the output did not take in time since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }

    /// Return the lowest level that is logged.
    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn is_on(&self, level: Level) -> bool {
        level >= self.level
    }

    pub(super) fn push(&self, time: SystemTime, shard: Option<u16>, event: E) {
        self.queue.push(Record {
            time,
            shard,
            content: Content::Event(event),
        });
    }

    pub(super) fn suppressed_of(&self, topic: E::Topic) -> u64 {
        let counts = self.suppressed.iter().map(|shard| shard.value(topic));
        counts.sum()
    }

    #[inline]
    pub(super) fn count_suppressed(&self, shard: u16, topic: E::Topic) {
        self.suppressed[usize::from(shard)].add(topic, 1);
    }
}
