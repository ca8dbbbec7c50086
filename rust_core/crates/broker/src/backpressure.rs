//! Clients that do not keep up: how long the broker waits for them, and whom they may hold up.
//!
//! A client whose socket has stopped taking bytes has a [`Backlog`]. It is ended as a slow consumer when
//! it takes less than the lowest rate over a write deadline, or when more than `max_pending` waits for
//! it. Before that its publisher is held up, so that it can catch up: only a publisher that fills most
//! of the backlog itself, for a short time in all, and not at all with `no_fast_producer_stall`. Nobody
//! else ever waits for it.

use std::time::Duration;

use reactor::ConnId;

use crate::mail::Mail;
use crate::metrics::table::Counter;
use crate::reason::Reason;
use crate::session::Transport;
use crate::shard::{Io, Shard, Timer};

/// Time that a publisher is stalled at once.
const STALL: Duration = Duration::from_millis(5);

/// Stalls that one backlog may cause.
const MOST_STALLS: u8 = 20;

/// A publisher: its shard and its connection.
pub(crate) type Publisher = (u16, ConnId);

/// The state of a client whose socket has stopped taking bytes.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Bytes that the socket had taken when the write deadline was set.
    taken_mark: u32,
    /// Bytes that waited then.
    pending_mark: usize,
    /// The publisher that has filled most of the backlog, by the majority vote of Boyer and Moore (1981)
    /// over the bytes appended, and the bytes by which it leads.
    filler: Option<(Publisher, u64)>,
    /// Stalls caused so far.
    stalls: u8,
}

impl Backlog {
    fn new(taken: u32, pending: usize) -> Self {
        Self {
            taken_mark: taken,
            pending_mark: pending,
            filler: None,
            stalls: 0,
        }
    }

    /// Note that a publisher has appended so many bytes; whether it fills most of the backlog.
    #[inline]
    pub(crate) fn note_appended(&mut self, publisher: Publisher, bytes: usize) -> bool {
        let bytes = bytes as u64;
        match &mut self.filler {
            Some((filler, lead)) if *filler == publisher => *lead += bytes,
            Some((_, lead)) if *lead >= bytes => {
                *lead -= bytes;
                return false;
            }
            other => *other = Some((publisher, bytes)),
        }
        true
    }

    /// Whether the client takes enough: all that waited when the deadline was set, or the least that it
    /// must take in that time.
    fn keeps_up(&self, taken: u32, least: usize) -> bool {
        let since = taken.wrapping_sub(self.taken_mark) as usize;
        since >= self.pending_mark.min(least)
    }
}

impl Shard {
    /// Begin to watch a client whose socket has stopped taking bytes.
    pub(crate) fn begin_backlog(&mut self, io: &mut Io, id: ConnId) {
        if let Some(conn) = io.conn_mut(id)
            && conn.session.backlog.is_none()
        {
            let backlog = Backlog::new(conn.taken, conn.output.len());
            conn.session.backlog = Some(Box::new(backlog));
            io.set_timer(id, Timer::WRITE, self.shared.limits.write_deadline);
        }
    }

    /// Look whether a blocked client has taken enough since the deadline was set.
    pub(crate) fn handle_write_timer(&mut self, io: &mut Io, id: ConnId) {
        let limits = &self.shared.limits;
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        let (is_blocked, taken, pending) = (conn.is_blocked(), conn.taken, conn.output.len());
        if !is_blocked {
            conn.session.backlog = None;
            return;
        }
        let Some(backlog) = &mut conn.session.backlog else {
            return;
        };
        if !backlog.keeps_up(taken, limits.least_drained) {
            self.end_slow_consumer(io, id);
            return;
        }
        (backlog.taken_mark, backlog.pending_mark) = (taken, pending);
        io.set_timer(id, Timer::WRITE, limits.write_deadline);
    }

    /// End a client that does not keep up, without a word that it would not read either.
    pub(crate) fn end_slow_consumer(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        if conn.session.ended.is_none() {
            conn.session.ended = Some(Reason::SlowConsumer);
            self.release(io, id);
            self.note_ended(id);
        }
        io.abort(id);
    }

    /// Stall the publisher that fills the backlog of `receiver`, as far as that backlog may.
    pub(crate) fn stall_for(&mut self, io: &mut Io, receiver: ConnId, publisher: Publisher) {
        if self.shared.limits.no_fast_producer_stall {
            return;
        }
        let backlog = io.conn_mut(receiver);
        let Some(backlog) = backlog.and_then(|conn| conn.session.backlog.as_mut()) else {
            return;
        };
        if backlog.stalls < MOST_STALLS
            && self.stall(io, publisher)
            && let Some(conn) = io.conn_mut(receiver)
            && let Some(backlog) = &mut conn.session.backlog
        {
            backlog.stalls += 1;
        }
    }

    /// Stop reading from a publisher for a moment; false when it is stalled already.
    pub(crate) fn stall(&mut self, io: &mut Io, publisher: Publisher) -> bool {
        let (shard, id) = publisher;
        if shard != self.index {
            // Once a turn is enough.
            let is_news = self.stalled_elsewhere.replace(publisher) != Some(publisher);
            if is_news {
                io.mail(usize::from(shard), Mail::Stall(id));
            }
            return is_news;
        }
        let now = io.now();
        let Some(conn) = io.conn_mut(id).filter(|conn| !conn.session.is_stalled) else {
            return false;
        };
        conn.session.is_stalled = true;
        self.is_stalled |= self.reading == Some(id);
        self.counts.add(Counter::Stalls, 1);
        self.log.stalled(now, &conn.session);
        io.set_reading(id, false);
        io.set_timer(id, Timer::RESUME, STALL);
        true
    }

    /// Read from a stalled publisher again, unless a shard that it mails to has too much mail still.
    pub(crate) fn handle_resume_timer(&mut self, io: &mut Io, id: ConnId) {
        if self.shared.weights.iter().any(|weight| weight.is_high()) {
            io.set_timer(id, Timer::RESUME, STALL);
            return;
        }
        self.resume(io, id);
    }

    /// Go on with a connection that was not read.
    pub(crate) fn resume(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        conn.session.is_stalled = false;
        let is_http = matches!(conn.session.transport, Transport::Http(_));
        if conn.session.deferred.is_none() && !is_http {
            io.set_reading(id, true);
        } else {
            self.deferred.push_back(id);
            io.wake_at(io.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher(n: u64) -> Publisher {
        (0, ConnId::from_bits(n))
    }

    #[test]
    fn whoever_fills_most_of_a_backlog_is_found() {
        let mut backlog = Backlog::new(0, 0);
        let (flood, other) = (publisher(1), publisher(2));
        for _ in 0..100 {
            assert!(backlog.note_appended(flood, 1000));
            assert!(!backlog.note_appended(other, 10));
        }
        // The other one becomes the flood.
        let turns = (0..300).take_while(|_| !backlog.note_appended(other, 1000));
        assert!((90..=110).contains(&turns.count()));
        assert!(!backlog.note_appended(flood, 10));
    }

    #[test]
    fn a_client_must_take_what_waited_or_the_least() {
        let backlog = Backlog::new(u32::MAX - 10, 5000);
        assert!(backlog.keeps_up(4989, 1 << 20), "all that waited");
        assert!(!backlog.keeps_up(4988, 1 << 20));
        assert!(backlog.keeps_up(89, 100), "the least");
        assert!(!backlog.keeps_up(88, 100));
    }
}
