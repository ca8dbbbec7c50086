//! Lame duck mode: how a shard ends without breaking its clients off.

use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::{Conn, ConnId};

use crate::outbound::{self, Framing};
use crate::reason::Reason;
use crate::session::{Flags, Session, Transport};
use crate::shard::{Draining, Io, Shard, Timer};
use crate::shared::ListenerKind;

/// Between two rounds of closes.
const STEP: Duration = Duration::from_millis(100);

impl Shard {
    /// Lame duck mode: no new clients, those that understand are told, and all are closed after a
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
        for id in io.connections.ids().collect::<Vec<_>>() {
            let Some(conn) = io.conn(id) else { continue };
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
                    }
                }
                _ => {}
            }
        }
        io.set_timer(
            ConnId::NONE,
            Timer::LAME_DUCK,
            self.shared.limits.lame_duck_grace,
        );
    }

    /// The monitor answers until all shards have drained.
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
        let per_step = draining.per_step;
        let is_open = |conn: &Conn<Session>| conn.is_open() && conn.session.is_client;
        let open = io
            .connections
            .ids()
            .filter(|id| io.conn(*id).is_some_and(is_open));
        for id in open.take(per_step).collect::<Vec<_>>() {
            self.end(io, id, Reason::Shutdown, None);
        }
        io.set_timer(ConnId::NONE, Timer::LAME_DUCK, STEP);
    }
}
