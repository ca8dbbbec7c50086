//! Receiving: armed once for each connection, stopped by cancelling it.

use std::collections::HashMap;

use io_uring::cqueue;
use rustix::io::Errno;

use super::buffers::{Buffers, Piece};
use super::{CANCEL, HANGUP, RECEIVE, Uring, WRITABLE};
use crate::connections::Socket;
use crate::driver::{Event, Events, Held, Outcome, Received};
use crate::slab::ConnId;

/// What an event of a connection says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receipt {
    ring: u16,
    /// Receiving has ended and must be armed again.
    has_ended: bool,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// Bytes in a buffer of the ring.
    Bytes(Piece),
    /// Bytes that were kept.
    Kept,
    /// The peer has sent its last byte.
    End,
    /// Receiving has ended for a reason that passes: cancelled, or no buffer left.
    Passing,
    Failed(Errno),
    /// The socket takes bytes.
    Writable,
    /// The connection has failed, or both of its sides have ended.
    Hangup,
}

impl Receipt {
    pub(super) const WRITABLE: Self = Self::other(What::Writable);
    pub(super) const HANGUP: Self = Self::other(What::Hangup);
    const KEPT: Self = Self::other(What::Kept);

    const fn other(what: What) -> Self {
        Self {
            ring: 0,
            has_ended: false,
            what,
        }
    }

    /// The receipt for a completion of receiving. To be made in the order of completion.
    #[inline]
    pub(super) fn received(ring: u16, buffers: &mut Buffers, result: i32, flags: u32) -> Self {
        let what = match (result, buffers.locate(result, flags)) {
            (1.., Some(piece)) => What::Bytes(piece),
            (0, _) => What::End,
            (error, _) => match -error {
                libc::ENOBUFS | libc::ECANCELED | libc::EINTR => What::Passing,
                error => What::Failed(Errno::from_raw_os_error(error)),
            },
        };
        Self {
            ring,
            has_ended: !cqueue::more(flags),
            what,
        }
    }

    pub(super) fn ring(self) -> u16 {
        self.ring
    }

    pub(super) fn bytes(self) -> Option<Piece> {
        match self.what {
            What::Bytes(piece) => Some(piece),
            _ => None,
        }
    }

    pub(super) fn is_passing(self) -> bool {
        matches!(self.what, What::Passing)
    }

    pub(super) fn is_writable(self) -> bool {
        matches!(self.what, What::Writable)
    }

    /// Note in the socket which operations have ended; whether receiving must be armed again.
    #[inline]
    fn note(self, socket: &mut Socket) -> bool {
        let ended = match self.what {
            What::Writable => WRITABLE,
            What::Hangup => HANGUP,
            _ if self.has_ended => RECEIVE | CANCEL,
            _ => return false,
        };
        if let Socket::Direct { ops, .. } = socket {
            *ops &= !ended;
        }
        self.has_ended
    }
}

/// Bytes that arrived for connections which were not read then.
#[derive(Default)]
pub(super) struct Kept {
    all: HashMap<ConnId, Bytes>,
    bytes: usize,
    /// Bytes that are being handed out.
    current: Vec<u8>,
}

#[derive(Default)]
struct Bytes {
    bytes: Vec<u8>,
    /// An event tells of them.
    is_told: bool,
}

impl Kept {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn has(&self, id: ConnId) -> bool {
        !self.all.is_empty() && self.all.contains_key(&id)
    }

    fn add(&mut self, id: ConnId, bytes: &[u8]) {
        self.all
            .entry(id)
            .or_default()
            .bytes
            .extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Tell by an event what is kept for a connection that is read again; whether there is something.
    #[inline]
    pub(super) fn tell(&mut self, id: ConnId, events: &mut Events<Receipt>) -> bool {
        if self.all.is_empty() {
            return false;
        }
        let Some(kept) = self.all.get_mut(&id) else {
            return false;
        };
        if !std::mem::replace(&mut kept.is_told, true) {
            events.push(Event::Ready(id, Receipt::KEPT));
        }
        true
    }

    /// Bytes to be handed out; they stay where they are until the next call.
    fn take(&mut self, id: ConnId) -> &mut [u8] {
        self.current = self
            .all
            .remove(&id)
            .map_or_else(Vec::new, |kept| kept.bytes);
        self.bytes -= self.current.len();
        if self.all.is_empty() {
            self.all.shrink_to_fit();
        }
        &mut self.current
    }

    pub(super) fn forget(&mut self, id: ConnId) {
        if self.has(id) {
            self.take(id);
        }
    }
}

impl Uring {
    pub(super) fn read(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
    ) -> Received<'_, Receipt> {
        let mut rearm = receipt.note(socket);
        let has_kept = self.kept.has(id);
        let outcome = match receipt.what {
            What::Bytes(piece) => {
                let bytes = self.rings[usize::from(receipt.ring)].buffers.bytes(piece);
                if has_kept {
                    // They come after those.
                    self.kept.add(id, bytes);
                    Outcome::Nothing
                } else {
                    Outcome::Bytes(bytes)
                }
            }
            What::Kept => {
                rearm = true;
                Outcome::Bytes(self.kept.take(id))
            }
            // Told again when receiving is armed again.
            What::End | What::Failed(_) if has_kept => Outcome::Nothing,
            What::End => Outcome::End,
            What::Failed(errno) => Outcome::Failed(errno),
            // A failure of a connection that is read is told by receiving, after the last bytes.
            What::Passing | What::Writable | What::Hangup => Outcome::Nothing,
        };
        Received {
            outcome,
            rearm,
            again: None,
        }
    }

    pub(super) fn keep(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
        is_kept: bool,
    ) -> Held {
        let rearm = receipt.note(socket);
        let mut failed = None;
        match receipt.what {
            What::Bytes(piece) => {
                let buffers = &mut self.rings[usize::from(receipt.ring)].buffers;
                if is_kept {
                    self.kept.add(id, buffers.bytes(piece));
                }
                buffers.release(piece);
            }
            What::Kept => {
                if let Some(kept) = self.kept.all.get_mut(&id) {
                    kept.is_told = false;
                }
            }
            What::Failed(errno) => failed = Some(errno),
            What::Hangup => failed = Some(Errno::CONNRESET),
            What::End | What::Passing | What::Writable => {}
        }
        Held { rearm, failed }
    }
}
