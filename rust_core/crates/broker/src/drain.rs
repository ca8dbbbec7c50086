//! Lame duck mode: how a shard ends without breaking its clients off.

use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::{ConnId, work};

use crate::io::{Io, Timer};
use crate::jobs::Job;
use crate::outbound;
use crate::reason::Reason;
use crate::session::Flags;
use crate::sessions::Sessions;

/// Time between two rounds of closes.
const STEP: Duration = Duration::from_millis(100);

/// The progress of lame duck mode.
#[derive(Default)]
pub(crate) struct Drain {
    /// Connections to close in each round; 0 until the grace time is over.
    per_step: usize,
    /// Connections that may be closed now.
    quota: usize,
    /// The slot where the next one is looked for.
    slot: u32,
    /// Whether a job is under way that closes them.
    is_closing: bool,
}

impl Drain {
    /// Begin lame duck mode: no new clients, those that understand are told, and all are closed after a
    /// grace time, a few at a time.
    pub(crate) fn begin(sessions: &mut Sessions, io: &mut Io) {
        if std::mem::replace(&mut sessions.is_draining, true) {
            return;
        }
        sessions.listeners.close_clients(io);
        sessions.jobs.add(Job::Announce { slot: 0 });
        io.wake_at(io.now());
    }

    /// Tell the clients from this slot on; the grace time begins when all have been told. Return the rest
    /// of the work.
    pub(crate) fn announce(sessions: &mut Sessions, io: &mut Io, mut slot: u32) -> Option<Job> {
        while slot < io.connections.slots() {
            if io.is_spent() {
                return Some(Job::Announce { slot });
            }
            let id = io.connections.ids_in(slot..slot + 1).next();
            id.into_iter().for_each(|id| announce_to(sessions, io, id));
            slot += 1;
        }
        let grace = sessions.shared.limits.lame_duck_grace;
        io.set_timer(ConnId::NONE, Timer::LAME_DUCK, grace);
        None
    }

    /// Return whether the shard may end: it has no clients left. The monitor answers until all shards have
    /// drained.
    pub(crate) fn is_over(sessions: &Sessions) -> bool {
        let open = if sessions.listeners.has_monitor() {
            sessions.shared.open.load(Ordering::Relaxed)
        } else {
            sessions.open
        };
        sessions.is_draining && sessions.jobs.is_empty() && open == 0
    }

    /// Begin a round of closes.
    pub(crate) fn handle_timer(&mut self, sessions: &mut Sessions, io: &mut Io) {
        if self.per_step == 0 {
            let duration = sessions.shared.limits.lame_duck_duration.as_millis();
            let steps = (duration / STEP.as_millis()).max(1) as usize;
            self.per_step = io.connections.len().div_ceil(steps).max(1);
        }
        self.quota += self.per_step;
        if !std::mem::replace(&mut self.is_closing, true) {
            sessions.jobs.add(Job::Close);
            io.wake_at(io.now());
        }
        io.set_timer(ConnId::NONE, Timer::LAME_DUCK, STEP);
    }

    /// Close as many clients as may be closed now; return the rest of the work.
    pub(crate) fn close_some(&mut self, sessions: &mut Sessions, io: &mut Io) -> Option<Job> {
        while self.quota > 0 {
            if io.is_spent() {
                return Some(Job::Close);
            }
            let slot = self.slot;
            if slot >= io.connections.slots() {
                // Connections that were not open yet are found in the next round.
                self.slot = 0;
                break;
            }
            self.slot += 1;
            io.spend(10);
            let id = io.connections.ids_in(slot..slot + 1).next();
            let is_open = |id: &ConnId| {
                let conn = io.conn(*id);
                conn.is_some_and(|conn| conn.is_open() && conn.session.is_client())
            };
            if let Some(id) = id.filter(is_open) {
                self.quota -= 1;
                sessions.end(io, id, Reason::Shutdown, None);
            }
        }
        self.is_closing = false;
        None
    }
}

/// Tell a client that it will be closed, if its protocol can.
fn announce_to(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
    io.spend(work::MAIL);
    let Some(conn) = io.conn(id) else { return };
    let session = &conn.session;
    // A client of HTTP that waits for a reply, or is sent events, has the grace time.
    if session.is_client() && session.http().is_some_and(|http| http.is_idle()) {
        sessions.end(io, id, Reason::Shutdown, None);
    } else if session.flags.has(Flags::ASYNC_INFO) && session.flags.has(Flags::GREETED) {
        let info = session.info_line(&sessions.shared.info, true);
        if let Some(conn) = io.writer(id) {
            outbound::append_bytes(conn, &info);
            io.spend(info.len());
        }
    }
}
