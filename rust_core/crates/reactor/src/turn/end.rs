//! Ends: of connections, and of the shard.

use std::io as std_io;
use std::time::Duration;

use super::Turn;
use crate::conn_id::ConnId;
use crate::connections::{Phase, Socket};
use crate::driver::{Driver, Event};
use crate::handler::{Closed, Handler, Io};
use crate::work;

/// Writes for each connection at most when the shard ends: a peer that reads as fast as it is written to
/// must not keep the shard.
const LAST_WRITES: usize = 64;

impl<H: Handler, D: Driver> Turn<H, D> {
    /// End the connections whose peers have sent their last byte, after one write of the answers to it.
    pub(super) fn end_half_closed(&mut self, handler: &mut H) -> std_io::Result<()> {
        for _ in 0..self.half_closed.len() {
            if self.io.budget.is_part_spent() {
                break;
            }
            let Some(id) = self.half_closed.pop_front() else {
                break;
            };
            let Some(conn) = self.io.connections.conn_mut(id) else {
                continue;
            };
            if conn.output.is_empty() || conn.blocked {
                self.finish(handler, id, Closed::Peer)?;
            } else {
                self.io.connections.touch(id);
                self.half_closed.push_back(id);
            }
        }
        Ok(())
    }

    /// End what the handler has asked to end in this turn.
    pub(super) fn end_aborted(&mut self, handler: &mut H) -> std_io::Result<()> {
        for id in std::mem::take(&mut self.io.connections.aborted) {
            self.finish(handler, id, Closed::Local)?;
        }
        Ok(())
    }

    /// Take the connection out, tell the handler and close its socket.
    pub(super) fn finish(
        &mut self,
        handler: &mut H,
        id: ConnId,
        why: Closed,
    ) -> std_io::Result<()> {
        match remove(&mut self.io, handler, id, why) {
            Some(socket) => self.driver.close(id, socket),
            None => Ok(()),
        }
    }

    /// End the shard: close the listeners, give every connection what its socket takes at once, close it,
    /// and account for the mail that will not be read.
    pub(crate) fn end(&mut self, handler: &mut H) {
        if self.close_all(handler).is_err() {
            // The driver has failed; the handler hears of every end all the same.
            self.driver.abandon(&mut self.unsent);
            self.restore_unsent();
            let ids: Vec<ConnId> = self.io.connections.ids().collect();
            for id in ids {
                drop(remove(&mut self.io, handler, id, Closed::Shutdown));
            }
        }
        self.io.post.post(|mail| handler.on_undelivered(mail));
        self.close_mailbox(handler);
        handler.on_written(&mut self.io);
    }

    /// Refuse mail from now on, and give back what has come and what was to be posted.
    pub(super) fn close_mailbox(&mut self, handler: &mut H) {
        for mail in self.io.post.close() {
            handler.on_undelivered(mail);
        }
    }

    fn close_all(&mut self, handler: &mut H) -> std_io::Result<()> {
        // Listeners first: who connects from now on is refused at once, and the kernel does not spend
        // itself on accepting while a million connections end.
        self.driver.close_listeners()?;
        for _ in 0..LAST_WRITES {
            self.poll(Some(Duration::ZERO))?;
            self.note_last_events();
            if self.io.connections.touched.is_empty() {
                break;
            }
            self.write_all(handler)?;
        }
        self.poll(Some(Duration::ZERO))?;
        let ids: Vec<ConnId> = self.io.connections.ids().collect();
        for id in ids {
            self.finish(handler, id, Closed::Shutdown)?;
        }
        self.note_last_events();
        self.poll(Some(Duration::ZERO))
    }

    /// Note which sockets take bytes again, and give back everything else that has come.
    fn note_last_events(&mut self) {
        for event in self.events.drain() {
            match event {
                Event::Ready(_, receipt) | Event::Again(_, receipt) => self.driver.discard(receipt),
                Event::Writable(id) => {
                    if let Some(conn) = self.io.connections.conn_mut(id) {
                        self.driver.note_writable(id, &mut conn.socket);
                        conn.ready |= conn.failure.is_none();
                        self.io.connections.touch(id);
                    }
                }
                Event::Connected(..) | Event::Failed(..) => {}
            }
        }
    }
}

/// Take a connection out and tell the handler; return its socket.
fn remove<H: Handler>(io: &mut Io<H>, handler: &mut H, id: ConnId, why: Closed) -> Option<Socket> {
    let (conn, unsent) = io.connections.remove(id)?;
    let asked = matches!(
        conn.phase,
        Phase::Closing | Phase::Lingering | Phase::Aborting
    );
    // One that aborts was charged when that was asked for.
    if conn.phase != Phase::Aborting {
        io.spend(work::CLOSE);
    }
    let why = if asked && why != Closed::Shutdown {
        Closed::Local
    } else {
        why
    };
    handler.on_closed(io, id, conn.session, why, unsent);
    Some(conn.socket)
}
