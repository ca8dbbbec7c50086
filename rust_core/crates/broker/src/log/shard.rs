//! What a shard's events cost it: a comparison, mostly.

use std::sync::Arc;
use std::time::Instant;

use super::event::{Client, Event, Topic};
use super::limit::Bucket;
use super::{Log, LogLevel};
use crate::counters::Reason;
use crate::session::Session;

/// Characters of an error's text that are kept, which may name what a client has sent.
const LONGEST_TEXT: usize = 128;

/// One shard's way to the log. Times are those of the shard's turn.
pub(crate) struct ShardLog {
    log: Arc<Log>,
    /// The log's own, where no other shard's lock is near.
    level: LogLevel,
    shard: u16,
    /// When the broker started.
    started: Instant,
    buckets: [Bucket; Topic::COUNT],
    /// Failures to accept that are known.
    accept_failures: u64,
}

impl ShardLog {
    pub(crate) fn new(log: Arc<Log>, shard: u16, started: Instant) -> Self {
        Self {
            level: log.level,
            log,
            shard,
            started,
            buckets: [Bucket::new(started); Topic::COUNT],
            accept_failures: 0,
        }
    }

    #[inline]
    pub(crate) fn connected(&mut self, now: Instant, session: &Session) {
        if self.admits(Topic::Connected, now) {
            self.push(Event::ClientConnected(client(session)));
        }
    }

    #[inline]
    pub(crate) fn identified(&mut self, now: Instant, session: &Session) {
        if self.admits(Topic::Identified, now) {
            self.push(Event::ClientIdentified {
                client: client(session),
                info: session.info.clone(),
            });
        }
    }

    #[inline]
    pub(crate) fn closed(&mut self, now: Instant, session: &Session, reason: Reason) {
        if self.admits(Topic::Closed(reason), now) {
            let second = now.saturating_duration_since(self.started).as_secs() as u32;
            self.push(Event::ClientClosed {
                client: client(session),
                reason,
                traffic: session.traffic,
                duration: second.saturating_sub(session.traffic.started),
            });
        }
    }

    #[inline]
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        session: Option<&Session>,
        status: u16,
        detail: &str,
    ) {
        if let Some(session) = session
            && self.admits(Topic::Refused, now)
        {
            self.push(Event::RequestRefused {
                client: client(session),
                status,
                detail: clip(detail),
            });
        }
    }

    #[inline]
    pub(crate) fn stalled(&mut self, now: Instant, session: &Session) {
        if self.admits(Topic::Stalled, now) {
            self.push(Event::PublisherStalled(client(session)));
        }
    }

    /// Told once a turn how often accepting has failed since the start.
    #[inline]
    pub(crate) fn accept_failures(&mut self, now: Instant, failures: u64) {
        let has_failed = failures > self.accept_failures;
        self.accept_failures = failures;
        if has_failed && self.admits(Topic::AcceptFailed, now) {
            self.push(Event::AcceptFailed { failures });
        }
    }

    /// Whether an event is asked for and within its rate.
    #[inline]
    fn admits(&mut self, topic: Topic, now: Instant) -> bool {
        if topic.level() < self.level {
            return false;
        }
        let is_admitted = self.buckets[topic.index()].take(now);
        if !is_admitted {
            self.log.count_suppressed(self.shard, topic);
        }
        is_admitted
    }

    #[cold]
    fn push(&self, event: Event) {
        self.log.push(Some(self.shard), event);
    }
}

fn client(session: &Session) -> Client {
    Client {
        cid: session.cid,
        remote: session.peer,
        transport: session.framing.transport(),
    }
}

/// As much of a text as a line shows.
fn clip(text: &str) -> Box<str> {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::ListenerKind;

    /// Allocations of a thousand connections that begin and end at once.
    fn allocations(level: LogLevel) -> u64 {
        let now = Instant::now();
        let mut log = ShardLog::new(Arc::new(Log::new(level, 1)), 0, now);
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 4222));
        let session = Session::new(1, peer, ListenerKind::Tcp, 0);
        let mut herd = || {
            for _ in 0..1000 {
                log.connected(now, &session);
                log.identified(now, &session);
                log.refused(now, Some(&session), 404, "nothing here");
                log.closed(now, &session, Reason::ClientClosed);
            }
        };
        // The burst, which is written.
        herd();
        allocation_counter::measure(herd).count_total
    }

    #[test]
    fn what_is_not_written_is_not_made_either() {
        assert_eq!(allocations(LogLevel::Info), 0, "not asked for");
        assert_eq!(allocations(LogLevel::Debug), 0, "beyond their rate");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(&*clip(&"é".repeat(128)), "é".repeat(128));
        assert_eq!(&*clip(&"é".repeat(129)), "é".repeat(128) + "...");
    }
}
