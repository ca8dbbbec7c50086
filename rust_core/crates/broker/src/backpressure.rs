//! Clients that do not keep up: how long the broker waits for them, and which publishers they hold up.
//!
//! A client whose socket has stopped taking bytes has a [`Backlog`]. It is ended as a slow consumer when
//! it takes less than the lowest rate over a write deadline, or when more than `max_pending` waits for
//! it. Before that its publisher is stalled, so that the client can catch up: only a publisher that fills
//! most of the backlog itself, for a short time in all, and not at all with `no_fast_producer_stall`. No
//! other client ever waits for it.

use std::time::Duration;

use reactor::ConnId;

use crate::backlog::{Backlog, Publisher};
use crate::io::{Io, Timer};
use crate::mail::Mail;
use crate::metrics::table::Counter;
use crate::reason::Reason;
use crate::sessions::Sessions;

/// Time that a publisher is stalled at once.
const STALL: Duration = Duration::from_millis(5);

/// Stalls that one backlog may cause.
const MOST_STALLS: u8 = 20;

/// The stalls of publishers that a shard has asked for.
#[derive(Default)]
pub(crate) struct Backpressure {
    /// The publisher of another shard that was stalled last in this turn.
    stalled_elsewhere: Option<Publisher>,
}

impl Backpressure {
    /// Begin to watch a client whose socket has stopped taking bytes.
    pub(crate) fn begin_backlog(sessions: &Sessions, io: &mut Io, id: ConnId) {
        if let Some(conn) = io.conn_mut(id)
            && conn.session.backlog.is_none()
        {
            let backlog = Backlog::new(conn.taken, conn.output.len());
            conn.session.backlog = Some(Box::new(backlog));
            io.set_timer(id, Timer::WRITE, sessions.shared.limits.write_deadline);
        }
    }

    /// Check whether a blocked client has taken enough since the deadline was set.
    pub(crate) fn handle_write_timer(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
        let limits = &sessions.shared.limits;
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
            sessions.abort(io, id, Reason::SlowConsumer);
            return;
        }
        (backlog.taken_mark, backlog.pending_mark) = (taken, pending);
        io.set_timer(id, Timer::WRITE, limits.write_deadline);
    }

    /// Stall the publisher that fills the backlog of `receiver`, as far as that backlog may.
    pub(crate) fn stall_for(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io,
        receiver: ConnId,
        publisher: Publisher,
    ) {
        if sessions.shared.limits.no_fast_producer_stall {
            return;
        }
        let backlog = io.conn_mut(receiver);
        let Some(backlog) = backlog.and_then(|conn| conn.session.backlog.as_mut()) else {
            return;
        };
        if backlog.stalls < MOST_STALLS
            && self.stall(sessions, io, publisher)
            && let Some(conn) = io.conn_mut(receiver)
            && let Some(backlog) = &mut conn.session.backlog
        {
            backlog.stalls += 1;
        }
    }

    /// Stop reading from a publisher for a moment. Return false when it is stalled already.
    pub(crate) fn stall(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io,
        publisher: Publisher,
    ) -> bool {
        let (shard, id) = publisher;
        if shard != sessions.index {
            // Once a turn is enough.
            let is_news = self.stalled_elsewhere.replace(publisher) != Some(publisher);
            if is_news {
                io.mail(usize::from(shard), Mail::Stall(id));
            }
            return is_news;
        }
        if !sessions.stall(io, id) {
            return false;
        }
        sessions.counts.add(Counter::Stalls, 1);
        if let Some(conn) = io.conn(id) {
            sessions.log.stalled(io.now(), &conn.session);
        }
        io.set_timer(id, Timer::RESUME, STALL);
        true
    }

    /// Read from a stalled publisher again, unless a shard that it mails to has too much mail still.
    pub(crate) fn handle_resume_timer(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
        if sessions.shared.queued.iter().any(|weight| weight.is_high()) {
            io.set_timer(id, Timer::RESUME, STALL);
            return;
        }
        sessions.resume(io, id);
    }

    /// Forget the publishers that were stalled in this turn.
    pub(crate) fn end_turn(&mut self) {
        self.stalled_elsewhere = None;
    }
}
