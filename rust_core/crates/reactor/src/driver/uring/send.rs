//! Sending: one attempt for each connection and turn, carried out while it is submitted.

use std::io;
use std::os::fd::OwnedFd;

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::token::{Peer, Token};
use super::{Uring, WRITABLE};
use crate::driver::Handler;
use crate::driver::io::{Io, Phase, Socket};
use crate::output::Chunk;
use crate::slab::ConnId;

/// Bytes that have been given to the kernel in this turn.
pub(super) struct Flight {
    id: ConnId,
    pub(super) chunk: Chunk,
    /// Bytes of the chunk that had been sent before.
    pub(super) sent: u32,
    was_blocked: bool,
}

impl Uring {
    /// A send was cut short after `result` bytes, or failed.
    pub(super) fn return_flight<H: Handler>(&mut self, io: &mut Io<H>, n: usize, result: i32) {
        let Some(Flight {
            id,
            chunk,
            sent,
            was_blocked,
        }) = self.flights.get_mut(n).and_then(Option::take)
        else {
            return;
        };
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        let taken = u32::try_from(result).unwrap_or(0);
        let missing = chunk.bytes.len() as u32 - sent - taken;
        conn.taken = conn.taken.wrapping_sub(missing);
        conn.output.restore(chunk, sent + taken);
        io.sent.bytes += u64::from(taken);
        io.sent.writes += 1;
        match -result {
            error if error > 0 && error != libc::EAGAIN && error != libc::EINTR => {
                self.stuck.push((id, Some(Errno::from_raw_os_error(error))));
            }
            _ => {
                conn.ready = false;
                conn.blocked = true;
                conn.output.settle();
                if !was_blocked && conn.phase == Phase::Open {
                    self.stuck.push((id, None));
                }
                io.touch(id);
                io.recount(id);
            }
        }
    }

    /// Queues one write of what is pending, or the end of sending where nothing is.
    pub(super) fn push_send<H: Handler>(&mut self, io: &mut Io<H>, id: ConnId) -> io::Result<()> {
        let Some(conn) = io.conns.value_mut(id) else {
            return Ok(());
        };
        let Socket::Direct { slot, ring, .. } = conn.socket else {
            return Ok(());
        };
        if conn.output.is_empty() {
            conn.output.release(&mut io.pool);
            if conn.phase == Phase::Closing {
                conn.phase = Phase::Lingering;
                // Not IORING_OP_SHUTDOWN: a kernel thread would carry it out later, and look up the slot
                // then, which may be another connection's by that time.
                let install = opcode::FixedFdInstall::new(types::Fixed(slot), 0);
                self.push(ring, install.build(), Token::EndSending(Peer::of(id)))?;
            }
            return Ok(());
        }
        if !conn.ready {
            io.recount(id);
            return Ok(());
        }
        let Some((chunk, sent)) = conn.output.take_front() else {
            return Ok(());
        };
        let was_blocked = conn.blocked;
        conn.blocked &= !conn.output.is_empty();
        let goes_on = !conn.output.is_empty() || conn.phase != Phase::Open;
        let bytes = &chunk.bytes[sent as usize..];
        conn.taken = conn.taken.wrapping_add(bytes.len() as u32);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
        let token = Token::Send(self.flights.len() as u32);
        let send = opcode::Send::new(types::Fixed(slot), bytes.as_ptr(), bytes.len() as u32)
            .flags(flags)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(token.to_bits());
        self.flights.push(Some(Flight {
            id,
            chunk,
            sent,
            was_blocked,
        }));
        // SAFETY: the chunk's buffer stays in `flights` until `reap`, which follows the submission.
        unsafe { self.rings[usize::from(ring)].push(&send)? };
        io.recount(id);
        if goes_on {
            io.touch(id);
        }
        Ok(())
    }

    pub(super) fn arm_writable<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        id: ConnId,
    ) -> io::Result<()> {
        let Some(conn) = io.conns.value_mut(id) else {
            return Ok(());
        };
        let Socket::Direct { slot, ring, ops } = &mut conn.socket else {
            return Ok(());
        };
        if conn.ready || *ops & WRITABLE != 0 {
            return Ok(());
        }
        *ops |= WRITABLE;
        let (slot, ring) = (*slot, *ring);
        let poll = opcode::PollAdd::new(types::Fixed(slot), libc::POLLOUT as u32);
        self.push(ring, poll.build(), Token::Writable(Peer::of(id)))
    }
}

/// `fd` is a descriptor of a connection whose last byte has been sent.
pub(super) fn end_sending<H: Handler>(io: &mut Io<H>, peer: Peer, fd: Option<OwnedFd>) {
    let id = peer.find(&io.conns);
    match fd {
        // It fails only where the peer is gone already, which receiving will tell.
        Some(fd) => drop(rustix::net::shutdown(fd, rustix::net::Shutdown::Write)),
        // No descriptor left: a peer that has not read everything may see a reset.
        None => id.into_iter().for_each(|id| io.abort(id)),
    }
}
