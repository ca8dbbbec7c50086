//! Receiving: armed once for each connection, paused by cancelling it.

use std::collections::HashMap;
use std::io;

use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;

use super::token::{Peer, Token};
use super::{CANCEL, RECEIVE, Uring, buffers, clear};
use crate::driver::io::{Conn, Io, Phase, Socket};
use crate::driver::{Closed, Handler};
use crate::slab::ConnId;

impl Uring {
    /// Connections that were paused and are not any more, and have bytes that arrived meanwhile.
    pub(super) fn held_and_due<H: Handler>(&self, io: &Io<H>) -> impl Iterator<Item = ConnId> {
        let is_reading = |id: &ConnId| io.conns.value(*id).is_none_or(|conn| !conn.paused);
        self.held.keys().copied().filter(is_reading)
    }

    /// Hands out what arrived for connections that were paused and are not any more.
    pub(super) fn hand_out_held<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H) {
        let resumed: Vec<ConnId> = self.held_and_due(io).collect();
        for id in resumed {
            if io.is_spent() {
                break;
            }
            if let Some(mut bytes) = self.held.remove(&id)
                && io.conns.value(id).is_some_and(Conn::is_open)
            {
                io.touch(id);
                io.spend(bytes.len());
                handler.on_received(io, id, &mut bytes);
            }
        }
        if self.held.is_empty() && self.held.capacity() > 0 {
            // Looking through it costs its capacity.
            self.held = HashMap::new();
        }
    }

    pub(super) fn handle_received<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        ring: u16,
        peer: Peer,
        entry: &cqueue::Entry,
    ) -> io::Result<()> {
        let buffers = &mut self.rings[usize::from(ring)].buffers;
        let received = buffers.locate(entry.result(), entry.flags());
        let id = peer.find(&io.conns);
        let mut outcome = Ok(());
        if let Some(id) = id
            && let Some(conn) = io.conns.value_mut(id)
        {
            let goes_on = cqueue::more(entry.flags());
            if !goes_on {
                clear(&mut conn.socket, RECEIVE | CANCEL);
            }
            let (phase, is_paused) = (conn.phase, conn.paused);
            if !goes_on {
                // It is armed again where that is wanted.
                io.touch(id);
            }
            match (entry.result(), received) {
                (1.., Some(received)) if phase == Phase::Open => {
                    let bytes = buffers.bytes(received);
                    if is_paused || !self.held.is_empty() && self.held.contains_key(&id) {
                        self.held.entry(id).or_default().extend_from_slice(bytes);
                    } else {
                        io.spend(bytes.len());
                        handler.on_received(io, id, bytes);
                    }
                }
                (1.., _) => {}
                (0, _) => outcome = self.handle_end(io, handler, id, phase, is_paused),
                (error, _) if matches!(-error, libc::ENOBUFS | libc::ECANCELED | libc::EINTR) => {}
                (error, _) => {
                    let errno = Errno::from_raw_os_error(-error);
                    outcome = self.finish(io, handler, id, Closed::Failed(errno));
                }
            }
        }
        if let Some(received) = received {
            self.rings[usize::from(ring)].buffers.release(received);
        }
        outcome
    }

    /// The peer has sent its last byte.
    pub(super) fn handle_end<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        id: ConnId,
        phase: Phase,
        is_paused: bool,
    ) -> io::Result<()> {
        match phase {
            Phase::Lingering => return self.finish(io, handler, id, Closed::Local),
            // Told again when reading goes on.
            Phase::Open if is_paused || self.held.contains_key(&id) => {}
            Phase::Open => {
                if let Some(conn) = io.conns.value_mut(id) {
                    conn.phase = Phase::PeerClosed;
                }
                self.leaving.push(id);
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes the kernel watch exactly what the connection's state calls for.
    pub(super) fn arm<H: Handler>(&mut self, io: &mut Io<H>, id: ConnId) -> io::Result<()> {
        let Some(conn) = io.conns.value_mut(id) else {
            return Ok(());
        };
        let is_held = !self.held.is_empty() && self.held.contains_key(&id);
        let wants = match conn.phase {
            Phase::Open => !conn.paused && !is_held,
            Phase::Lingering => true,
            _ => return self.arm_writable(io, id),
        };
        let Socket::Direct { slot, ring, ops } = &mut conn.socket else {
            return Ok(());
        };
        let (slot, ring, token) = (*slot, *ring, Token::Receive(Peer::of(id)));
        if wants && *ops & RECEIVE == 0 {
            *ops |= RECEIVE;
            let receive = opcode::RecvMulti::new(types::Fixed(slot), buffers::GROUP);
            self.push(ring, receive.build(), token)?;
        } else if !wants && *ops & (RECEIVE | CANCEL) == RECEIVE {
            *ops |= CANCEL;
            let cancel = opcode::AsyncCancel::new(token.to_bits());
            self.push_silent(ring, cancel.build())?;
        }
        self.arm_writable(io, id)
    }
}
