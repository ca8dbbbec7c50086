//! The log: what has happened to the broker and its connections, one line for each event.
//!
//! | module | holds |
//! |---|---|
//! | `event` | what is logged, at which level, with which fields |
//! | `limit` | how often a shard may say the same |
//! | `shard` | what the shards call |
//! | `queue` | events on their way to the writer |
//! | `writer` | the thread that writes lines, and sums up what was left out |
//! | `format` | lines as logfmt and as JSON |
//!
//! Whoever logs never waits for whoever reads: an event of a level that is not asked for costs one
//! comparison, one beyond its rate a second one and a count, and only what passes both is put into a
//! bounded queue. Lines are made by the writer's thread.

mod event;
mod format;
mod limit;
mod queue;
mod shard;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(crate) use event::Event;
pub(crate) use shard::ShardLog;
pub(crate) use writer::Writer;

use event::Topic;
use queue::Queue;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `key=value` (logfmt).
    Text,
    /// An object for each line.
    Json,
}

/// How grave an event is; also the least grave that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Every connection's beginning and end, and every refused request.
    Debug,
    /// What the broker as a whole does.
    Info,
    /// What an operator may have to look at.
    Warning,
    /// What has failed.
    Error,
}

impl LogLevel {
    const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// An event, and when and where it happened.
struct Record {
    time: SystemTime,
    shard: Option<u16>,
    event: Event,
}

/// The log of one broker, shared by its shards and the writer.
pub(crate) struct Log {
    level: LogLevel,
    queue: Queue,
    /// By shard.
    suppressed: Box<[Suppressed]>,
}

/// Events of one shard that were beyond their rate. That shard alone writes.
#[repr(align(128))]
struct Suppressed([AtomicU64; Topic::COUNT]);

impl Log {
    pub(crate) fn new(level: LogLevel, shards: usize) -> Self {
        let none = || Suppressed([const { AtomicU64::new(0) }; Topic::COUNT]);
        Self {
            level,
            queue: Queue::new(),
            suppressed: (0..shards).map(|_| none()).collect(),
        }
    }

    /// Logs an event of the broker as a whole; never waits.
    pub(crate) fn write(&self, event: Event) {
        if self.is_on(event.level()) {
            self.push(None, event);
        }
    }

    /// Waits until everything is written that has been logged, at most `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        self.queue.wait_written(patience);
    }

    /// How many events were not written because of their rate, by kind, since the start.
    pub(crate) fn suppressed(&self) -> Vec<(&'static str, u64)> {
        let mut kinds: Vec<(&'static str, u64)> = Vec::new();
        for topic in Topic::all() {
            let count = self.suppressed_of(topic);
            match kinds.iter_mut().find(|(kind, _)| *kind == topic.kind()) {
                Some((_, sum)) => *sum += count,
                None => kinds.push((topic.kind(), count)),
            }
        }
        kinds
    }

    /// Both counts as `/varz` shows them.
    pub(crate) fn to_json(&self) -> Value {
        let suppressed = self.suppressed().into_iter();
        let suppressed: Map<_, _> = suppressed
            .map(|(kind, n)| (kind.into(), n.into()))
            .collect();
        json!({"suppressed": suppressed, "lost": self.lost()})
    }

    /// How many lines were lost because nobody took them in time, since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.lost()
    }

    #[inline]
    fn is_on(&self, level: LogLevel) -> bool {
        level >= self.level
    }

    fn push(&self, shard: Option<u16>, event: Event) {
        self.queue.push(Record {
            time: SystemTime::now(),
            shard,
            event,
        });
    }

    fn suppressed_of(&self, topic: Topic) -> u64 {
        let counts = self.suppressed.iter().map(|shard| &shard.0[topic.index()]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    #[inline]
    fn count_suppressed(&self, shard: u16, topic: Topic) {
        let count = &self.suppressed[usize::from(shard)].0[topic.index()];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}
