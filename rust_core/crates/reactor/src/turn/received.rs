//! Traffic and changes: what the driver's events mean for the connections.

use std::io as std_io;
use std::time::Duration;

use rustix::io::Errno;

use super::Turn;
use crate::conn_id::ConnId;
use crate::connections::Phase;
use crate::driver::{Accepted, Driver, Outcome, Received};
use crate::handler::{Closed, Handler, Origin};
use crate::work;

/// Pause of accepting after descriptors or memory have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl<H: Handler, D: Driver> Turn<H, D> {
    /// Read what an event announced. Reading leaves room in the turn for `others` that wait.
    pub(super) fn handle_ready(
        &mut self,
        handler: &mut H,
        id: ConnId,
        receipt: D::Receipt,
        others: usize,
    ) -> std_io::Result<()> {
        let io = &mut self.io;
        io.spend(work::RECEIVE);
        let Some(conn) = io.connections.conn_mut(id) else {
            self.driver.discard(receipt);
            return Ok(());
        };
        let phase = conn.phase;
        if !conn.interest().read {
            let is_kept = phase == Phase::Open;
            let held = self.driver.hold(id, &mut conn.socket, receipt, is_kept);
            if held.rearm {
                io.connections.touch(id);
            }
            return match (held.failed, phase) {
                (Some(_), Phase::Closing) => self.finish(handler, id, Closed::Local),
                (Some(errno), Phase::Open) => self.finish(handler, id, Closed::Failed(errno)),
                _ => Ok(()),
            };
        }
        let limit = io.budget.read_limit(others);
        let events = &mut self.events;
        let Received { outcome, rearm } =
            self.driver
                .receive(id, &mut conn.socket, receipt, limit, events);
        if rearm {
            io.connections.touch(id);
        }
        let mut end = None;
        match outcome {
            Outcome::Bytes(bytes) if phase == Phase::Open => {
                io.budget.begin_slice();
                io.spend(bytes.len());
                handler.on_received(io, id, bytes);
                io.budget.end_slice();
            }
            Outcome::Bytes(_) | Outcome::Nothing => {}
            Outcome::End => end = Some(Closed::Peer),
            Outcome::Failed(errno) => end = Some(Closed::Failed(errno)),
        }
        self.driver.release();
        match end {
            None => Ok(()),
            Some(why) => self.handle_end(handler, id, why),
        }
    }

    /// Handle the end of a connection whose last byte has been handed out.
    fn handle_end(&mut self, handler: &mut H, id: ConnId, why: Closed) -> std_io::Result<()> {
        let Some(conn) = self.io.connections.conn_mut(id) else {
            return Ok(());
        };
        let why = conn.failure.map_or(why, Closed::Failed);
        let has_answers = conn.phase == Phase::Open && !conn.output.is_empty();
        if why != Closed::Peer || !has_answers {
            return self.finish(handler, id, why);
        }
        // The answers to its last bytes are still written.
        conn.phase = Phase::PeerClosed;
        self.io.connections.touch(id);
        self.half_closed.push_back(id);
        Ok(())
    }

    pub(super) fn handle_writable(&mut self, handler: &mut H, id: ConnId) -> std_io::Result<()> {
        let Some(conn) = self.io.connections.conn_mut(id) else {
            return Ok(());
        };
        self.driver.note_writable(id, &mut conn.socket);
        if conn.phase == Phase::Connecting {
            return self.handle_connected(handler, id, Ok(()));
        }
        if !conn.ready && conn.failure.is_none() {
            conn.ready = true;
            self.io.connections.touch(id);
            self.io.spend(work::WRITE);
        }
        Ok(())
    }

    pub(super) fn handle_connected(
        &mut self,
        handler: &mut H,
        id: ConnId,
        outcome: Result<(), Errno>,
    ) -> std_io::Result<()> {
        let Some(conn) = self.io.connections.conn_mut(id) else {
            return Ok(());
        };
        if conn.phase != Phase::Connecting {
            return Ok(());
        }
        match outcome.and_then(|()| self.driver.establish(&mut conn.socket)) {
            Ok(()) => {
                conn.phase = Phase::Open;
                self.io.connections.touch(id);
                handler.on_open(&mut self.io, id, Origin::Connected);
                Ok(())
            }
            Err(errno) => self.finish(handler, id, Closed::Refused(errno)),
        }
    }

    pub(super) fn accept(&mut self, handler: &mut H, listener: usize) -> std_io::Result<()> {
        let io = &mut self.io;
        io.spend(work::RECEIVE);
        match self.driver.accept(listener, &mut self.events)? {
            Accepted::Connection(socket, peer) => {
                io.spend(work::ACCEPT);
                let Some(session) = handler.accept(io, listener, peer) else {
                    return self.driver.close(ConnId::NONE, socket);
                };
                let id = io.connections.insert(session, socket, Phase::Open);
                io.connections.touch(id);
                handler.on_open(io, id, Origin::Accepted(listener));
                Ok(())
            }
            Accepted::Empty => Ok(()),
            Accepted::Exhausted => {
                io.accept_failures += 1;
                io.pause_accepting(listener, io.now() + ACCEPT_PAUSE);
                Ok(())
            }
        }
    }
}
