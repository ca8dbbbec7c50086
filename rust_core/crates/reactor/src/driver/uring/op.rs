//! The operations that point to no memory, and so can be queued without care.

use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::buffers;
use super::token::Token;

/// An operation without pointers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// Accept on a listening descriptor until that is cancelled.
    Accept(RawFd),
    /// Receive on a slot until that is cancelled, into the ring's own buffers.
    Receive(u32),
    /// Wait until a slot takes bytes.
    Writable(u32),
    /// Wait until a slot has failed, or both of its sides have ended.
    Hangup(u32),
    /// Wait until a descriptor can be read.
    Readable(RawFd),
    /// Make a descriptor for a slot.
    Install(u32),
    /// Close a slot.
    Close(u32),
    /// Cancel the operation with this token.
    Cancel(Token),
    /// Cancel all operations with this token.
    CancelAll(Token),
}

impl Op {
    #[inline]
    pub(super) fn entry(self, token: Token) -> squeue::Entry {
        let poll = |slot, events: i16| {
            let events = u32::from(events.cast_unsigned());
            opcode::PollAdd::new(types::Fixed(slot), events).build()
        };
        let entry = match self {
            Self::Accept(listener) => opcode::AcceptMulti::new(types::Fd(listener))
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            Self::Receive(slot) => {
                opcode::RecvMulti::new(types::Fixed(slot), buffers::GROUP).build()
            }
            Self::Writable(slot) => poll(slot, libc::POLLOUT),
            // Failures and ends are told whatever is asked for.
            Self::Hangup(slot) => poll(slot, 0),
            Self::Readable(fd) => {
                let events = u32::from(libc::POLLIN.cast_unsigned());
                opcode::PollAdd::new(types::Fd(fd), events).build()
            }
            // Not IORING_OP_SHUTDOWN: a kernel thread would carry it out later, and look up the slot
            // then, which may be another connection's by that time.
            Self::Install(slot) => opcode::FixedFdInstall::new(types::Fixed(slot), 0).build(),
            Self::Close(slot) => opcode::Close::new(types::Fixed(slot)).build(),
            Self::Cancel(token) => opcode::AsyncCancel::new(token.to_bits()).build(),
            Self::CancelAll(token) => {
                let which = types::CancelBuilder::user_data(token.to_bits()).all();
                opcode::AsyncCancel2::new(which).build()
            }
        };
        entry.user_data(token.to_bits())
    }
}
