//! Lame duck mode: how a shard ends without breaking its clients off.

use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::{ConnId, work};

use crate::jobs::Job;
use crate::outbound::{self, Framing};
use crate::reason::Reason;
use crate::session::{Flags, Transport};
use crate::shard::{Io, Shard, Timer};
use crate::shared::ListenerKind;

/// Time between two rounds of closes.
const STEP: Duration = Duration::from_millis(100);

/// The progress of lame duck mode.
#[derive(Default)]
pub(crate) struct Draining {
    /// Connections to close in each round; 0 until the grace time is over.
    per_step: usize,
    /// Connections that may be closed now.
    quota: usize,
    /// The slot where the next one is looked for.
    slot: u32,
    /// A job is under way that closes them.
    is_closing: bool,
}

impl Shard {
    /// Begin lame duck mode: no new clients, those that understand are told, and all are closed after a
    /// grace time, a few at a time.
    pub(crate) fn begin_draining(&mut self, io: &mut Io) {
        if self.draining.is_some() {
            return;
        }
        self.draining = Some(Draining::default());
        let for_clients = |kind: &ListenerKind| *kind != ListenerKind::Monitor;
        for (listener, _) in self
            .listeners
            .iter()
            .enumerate()
            .filter(|(_, kind)| for_clients(kind))
        {
            io.close_listener(listener);
        }
        self.jobs.add(Job::Announce { slot: 0 });
        io.wake_at(io.now());
    }

    /// Tell the clients from this slot on; the grace time begins when all have been told.
    pub(crate) fn announce(&mut self, io: &mut Io, mut slot: u32) -> Option<Job> {
        while slot < io.connections.slots() {
            if io.is_spent() {
                return Some(Job::Announce { slot });
            }
            let id = io.connections.ids_in(slot..slot + 1).next();
            id.into_iter().for_each(|id| self.announce_to(io, id));
            slot += 1;
        }
        let grace = self.shared.limits.lame_duck_grace;
        io.set_timer(ConnId::NONE, Timer::LAME_DUCK, grace);
        None
    }

    fn announce_to(&mut self, io: &mut Io, id: ConnId) {
        io.spend(work::MAIL);
        let Some(conn) = io.conn(id) else { return };
        let session = &conn.session;
        match session.transport {
            // One that waits for a reply, or is sent events, has the grace time.
            Transport::Http(ref http) if session.is_client && http.is_idle() => {
                self.end(io, id, Reason::Shutdown, None);
            }
            _ if session.flags.has(Flags::ASYNC_INFO) && session.flags.has(Flags::GREETED) => {
                let is_websocket = matches!(session.framing, Framing::WebSocket(_));
                let (cid, peer) = (session.cid, session.peer);
                let info = self.shared.info.encode(is_websocket, true, cid, peer);
                if let Some(conn) = io.writer(id) {
                    outbound::append_bytes(conn, &info);
                    io.spend(info.len());
                }
            }
            _ => {}
        }
    }

    /// Whether this shard has no clients left. The monitor answers until all shards have drained.
    pub(crate) fn is_drained(&self) -> bool {
        if self.listeners.contains(&ListenerKind::Monitor) {
            self.shared.open.load(Ordering::Relaxed) == 0
        } else {
            self.open == 0
        }
    }

    pub(crate) fn handle_lame_duck_timer(&mut self, io: &mut Io) {
        let Some(draining) = &mut self.draining else {
            return;
        };
        if draining.per_step == 0 {
            let duration = self.shared.limits.lame_duck_duration.as_millis();
            let steps = (duration / STEP.as_millis()).max(1) as usize;
            draining.per_step = io.connections.len().div_ceil(steps).max(1);
        }
        draining.quota += draining.per_step;
        if !std::mem::replace(&mut draining.is_closing, true) {
            self.jobs.add(Job::Close);
            io.wake_at(io.now());
        }
        io.set_timer(ConnId::NONE, Timer::LAME_DUCK, STEP);
    }

    /// Close as many clients as may be closed now.
    pub(crate) fn close_some(&mut self, io: &mut Io) -> Option<Job> {
        loop {
            let draining = self.draining.as_mut()?;
            if draining.quota == 0 {
                break;
            }
            if io.is_spent() {
                return Some(Job::Close);
            }
            let slot = draining.slot;
            if slot >= io.connections.slots() {
                // Connections that were not open yet are found in the next round.
                draining.slot = 0;
                break;
            }
            draining.slot += 1;
            io.spend(10);
            let id = io.connections.ids_in(slot..slot + 1).next();
            let is_open = |id: &ConnId| {
                let conn = io.conn(*id);
                conn.is_some_and(|conn| conn.is_open() && conn.session.is_client)
            };
            if let Some(id) = id.filter(is_open) {
                draining.quota -= 1;
                self.end(io, id, Reason::Shutdown, None);
            }
        }
        self.draining.as_mut()?.is_closing = false;
        None
    }
}
