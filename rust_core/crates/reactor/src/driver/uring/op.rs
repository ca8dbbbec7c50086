//! The operations that point to no memory, and so can be queued without care.

use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::buffers;
use super::token::Token;

/// Bits of a [`Socket::Direct`](crate::connections::Socket)'s operations: receiving is armed.
pub(super) const RECEIVE: u8 = 1;
/// Room to write is waited for.
pub(super) const WRITABLE: u8 = 2;
/// Receiving is being cancelled.
pub(super) const CANCEL: u8 = 4;
/// Failures are waited for.
pub(super) const HANGUP: u8 = 8;
/// The connection has found no buffer, see `meter`.
pub(super) const METERED: u8 = 16;
/// The connection waits for its turn of the metered ones.
pub(super) const WAITING: u8 = 32;

/// An operation without pointers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// Accept on a listening descriptor until that is cancelled.
    Accept(RawFd),
    /// Receive on a slot until that is cancelled, into the ring's own buffers.
    Receive(u32),
    /// Receive on a slot once, at most so many bytes, into the ring's own buffers.
    ReceiveOnce(u32, u32),
    /// Wait until a slot takes bytes.
    Writable(u32),
    /// Tell whenever a side of a slot ends, or it fails, until that is cancelled.
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
        let entry = match self {
            Self::Accept(listener) => opcode::AcceptMulti::new(types::Fd(listener))
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            Self::Receive(slot) => {
                opcode::RecvMulti::new(types::Fixed(slot), buffers::GROUP).build()
            }
            Self::ReceiveOnce(slot, len) => {
                opcode::Recv::new(types::Fixed(slot), std::ptr::null_mut(), len)
                    .buf_group(buffers::GROUP)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            Self::Writable(slot) => {
                opcode::PollAdd::new(types::Fixed(slot), events(libc::POLLOUT)).build()
            }
            // Failures and ends are told whatever is asked for. Told once, the end of the peer's side
            // would hide the failure after it.
            Self::Hangup(slot) => opcode::PollAdd::new(types::Fixed(slot), 0)
                .multi(true)
                .build(),
            Self::Readable(fd) => opcode::PollAdd::new(types::Fd(fd), events(libc::POLLIN)).build(),
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

/// Return events of poll(2) as io_uring takes them.
pub(super) fn events(events: i16) -> u32 {
    u32::from(events.cast_unsigned())
}
