//! The calls by which a shard logs its events. An event that is not logged costs a comparison.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use telemetry::log::Source;

use super::event::{Event, Log, Logged};
use super::topic::Topic;
use crate::reason::Reason;

/// Characters of an error's text that are kept; the text may hold what a client has sent.
const LONGEST_TEXT: usize = 128;

/// One shard's way to the log. Rates go by the time of the shard's turn.
pub(crate) struct ShardLog {
    source: Source<Event>,
    /// Time at which the broker started.
    started: Instant,
    /// Failures to accept that are known.
    accept_failures: u64,
}

impl ShardLog {
    pub(crate) fn new(log: Arc<Log>, shard: u16, started: Instant) -> Self {
        Self {
            source: Source::new(log, shard, started),
            started,
            accept_failures: 0,
        }
    }

    #[inline]
    pub(crate) fn connected(&mut self, now: Instant, connection: &impl Logged) {
        if self.source.admits(Topic::Connected, now) {
            self.push(Event::ClientConnected(connection.client()));
        }
    }

    #[inline]
    pub(crate) fn identified(&mut self, now: Instant, connection: &impl Logged) {
        if self.source.admits(Topic::Identified, now) {
            self.push(Event::ClientIdentified {
                client: connection.client(),
                info: connection.info(),
            });
        }
    }

    #[inline]
    pub(crate) fn closed(&mut self, now: Instant, connection: &impl Logged, reason: Reason) {
        if self.source.admits(Topic::Closed(reason), now) {
            let second = now.saturating_duration_since(self.started).as_secs() as u32;
            let traffic = connection.traffic();
            self.push(Event::ClientClosed {
                client: connection.client(),
                reason,
                traffic,
                duration: second.saturating_sub(traffic.started),
            });
        }
    }

    #[inline]
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        connection: Option<&impl Logged>,
        status: u16,
        detail: &str,
    ) {
        if let Some(connection) = connection
            && self.source.admits(Topic::Refused, now)
        {
            self.push(Event::RequestRefused {
                client: connection.client(),
                status,
                detail: clip(detail),
            });
        }
    }

    #[inline]
    pub(crate) fn stalled(&mut self, now: Instant, connection: &impl Logged) {
        if self.source.admits(Topic::Stalled, now) {
            self.push(Event::PublisherStalled(connection.client()));
        }
    }

    /// Take note, once a turn, of the failures to accept since the start.
    #[inline]
    pub(crate) fn accept_failures(&mut self, now: Instant, failures: u64) {
        let has_failed = failures > self.accept_failures;
        self.accept_failures = failures;
        if has_failed && self.source.admits(Topic::AcceptFailed, now) {
            self.push(Event::AcceptFailed { failures });
        }
    }

    #[cold]
    fn push(&self, event: Event) {
        self.source.push(SystemTime::now(), event);
    }
}

/// Cut a text to the length that a line shows.
fn clip(text: &str) -> Box<str> {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use telemetry::log::Level;

    use super::super::event::Client;
    use super::*;
    use crate::clients::ClientInfo;
    use crate::traffic::Traffic;
    use crate::transport::TransportKind;

    /// A connection of a client that says nothing of itself.
    struct Connection;

    impl Logged for Connection {
        fn client(&self) -> Client {
            Client {
                cid: 1,
                remote: SocketAddr::from(([127, 0, 0, 1], 4222)),
                transport: TransportKind::Tcp,
            }
        }

        fn info(&self) -> Option<Arc<ClientInfo>> {
            None
        }

        fn traffic(&self) -> Traffic {
            Traffic::default()
        }
    }

    /// Return the allocations of a thousand connections that begin and end at once.
    fn allocations(level: Level) -> u64 {
        let now = Instant::now();
        let mut log = ShardLog::new(Arc::new(Log::new(level, 1)), 0, now);
        let mut herd = || {
            for _ in 0..1000 {
                log.connected(now, &Connection);
                log.identified(now, &Connection);
                log.refused(now, Some(&Connection), 404, "nothing here");
                log.closed(now, &Connection, Reason::ClientClosed);
            }
        };
        // The burst, which is written.
        herd();
        allocation_counter::measure(herd).count_total
    }

    #[test]
    fn what_is_not_written_is_not_made_either() {
        assert_eq!(allocations(Level::Info), 0, "not asked for");
        assert_eq!(allocations(Level::Debug), 0, "beyond their rate");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(&*clip(&"é".repeat(128)), "é".repeat(128));
        assert_eq!(&*clip(&"é".repeat(129)), "é".repeat(128) + "...");
    }
}
