//! Writing, and what becomes of it.

use std::io as std_io;

use rustix::io::Errno;

use super::Turn;
use crate::conn_id::ConnId;
use crate::connections::{Conn, Phase};
use crate::driver::{Driver, Event, Write};
use crate::handler::Handler;

impl<H: Handler, D: Driver> Turn<H, D> {
    /// Put back what the last turn's writes have left.
    pub(super) fn restore_unsent(&mut self) {
        let mut all = std::mem::take(&mut self.unsent);
        for unsent in all.drain(..) {
            let io = &mut self.io;
            let Some((conn, pool)) = io.connections.conn_and_pool(unsent.id) else {
                continue;
            };
            let missing = unsent.taken.len - unsent.sent;
            conn.taken = conn.taken.wrapping_sub(missing as u32);
            let items = conn.output.restore(unsent.taken, unsent.sent, pool);
            io.sent.items += items;
            io.sent.bytes += unsent.sent as u64;
            io.sent.writes += 1;
            match unsent.error {
                Some(errno) => self.fail_write(unsent.id, errno),
                None => {
                    if block(conn) {
                        self.blocked.push(unsent.id);
                    }
                    io.connections.touch(unsent.id);
                    io.connections.recount(unsent.id);
                }
            }
        }
        self.unsent = all;
    }

    /// Tell which blocked connections' bytes have all been taken.
    pub(super) fn settle(&mut self) {
        for id in self.settling.drain(..) {
            if let Some(conn) = self.io.connections.conn_mut(id)
                && conn.ready
            {
                conn.blocked = false;
                self.io.connections.recount(id);
            }
        }
    }

    /// Tell the handler which sockets have stopped taking bytes.
    pub(super) fn tell_blocked(&mut self, handler: &mut H) {
        for id in std::mem::take(&mut self.blocked) {
            let is_blocked = |conn: &Conn<_>| conn.blocked && conn.phase == Phase::Open;
            if self.io.conn(id).is_some_and(is_blocked) {
                handler.on_blocked(&mut self.io, id);
            }
        }
    }

    /// Give every connection with pending output its one write, and ask for the events that each state
    /// calls for. Nothing here calls the handler but for [`Handler::before_write`]: a driver may send
    /// the bytes only when it is polled next.
    pub(super) fn write_all(&mut self, handler: &mut H) -> std_io::Result<()> {
        let mut touched = std::mem::take(&mut self.io.connections.touched);
        for id in touched.drain(..) {
            let Some(conn) = self.io.connections.visit(id) else {
                continue;
            };
            if let Phase::Open | Phase::Closing | Phase::PeerClosed = conn.phase {
                handler.before_write(conn);
                self.write(id)?;
            }
            let Some(conn) = self.io.connections.conn_mut(id) else {
                continue;
            };
            let interest = conn.interest();
            self.driver
                .arm(id, &mut conn.socket, interest, &mut self.events)?;
        }
        // Keeps the allocation.
        touched.append(&mut self.io.connections.touched);
        self.io.connections.touched = touched;
        Ok(())
    }

    fn write(&mut self, id: ConnId) -> std_io::Result<()> {
        let io = &mut self.io;
        let connections = &mut io.connections;
        let Some((conn, pool)) = connections.conn_and_pool(id) else {
            return Ok(());
        };
        if conn.output.is_empty() {
            conn.output.release(pool);
            if conn.phase == Phase::Closing {
                conn.phase = Phase::Lingering;
                self.driver.end_sending(id, &conn.socket)?;
            }
            return Ok(());
        }
        if !conn.ready {
            connections.recount(id);
            return Ok(());
        }
        let write = self
            .driver
            .write(id, &conn.socket, &mut conn.output, pool)?;
        match write {
            Write::Whole { bytes, items } | Write::Short { bytes, items } => {
                conn.taken = conn.taken.wrapping_add(bytes as u32);
                io.sent.bytes += bytes as u64;
                io.sent.items += items;
                io.sent.writes += 1;
                if let Write::Short { .. } = write {
                    if block(conn) {
                        self.blocked.push(id);
                    }
                } else {
                    conn.blocked &= !conn.output.is_empty();
                }
            }
            Write::Queued { bytes } => {
                conn.taken = conn.taken.wrapping_add(bytes as u32);
                if conn.blocked && conn.output.is_empty() {
                    self.settling.push(id);
                }
            }
            Write::Failed(errno) => {
                self.fail_write(id, errno);
                return Ok(());
            }
        }
        let has_more = conn.ready && !conn.output.is_empty();
        let goes_on = has_more || conn.phase == Phase::Closing && conn.ready;
        connections.recount(id);
        if goes_on {
            connections.touch(id);
        }
        Ok(())
    }

    /// Note that a write has failed. Where the peer has gone, its last bytes may still wait to be read, and
    /// reading tells the end behind them.
    fn fail_write(&mut self, id: ConnId, errno: Errno) {
        let Some(conn) = self.io.connections.conn_mut(id) else {
            return;
        };
        if conn.failure.replace(errno).is_some() {
            return;
        }
        conn.ready = false;
        let is_read = conn.phase == Phase::Open && !conn.paused;
        if !(is_read && matches!(errno, Errno::CONNRESET | Errno::PIPE)) {
            self.events.push_change(Event::Failed(id, errno));
        }
        self.io.connections.recount(id);
    }
}

/// Note that the socket takes no more; whether that is news.
fn block<S>(conn: &mut Conn<S>) -> bool {
    conn.ready = false;
    conn.output.settle();
    !std::mem::replace(&mut conn.blocked, true) && conn.phase == Phase::Open
}
