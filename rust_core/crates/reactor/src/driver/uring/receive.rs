//! Receiving: armed once for each connection, stopped by cancelling it.

use std::collections::HashMap;

use io_uring::cqueue;
use rustix::io::Errno;

use super::buffers::{Buffers, Piece};
use super::op::{CANCEL, HANGUP, METERED, RECEIVE, WAITING, events};
use super::rings::Rings;
use crate::conn_id::ConnId;
use crate::connections::Socket;
use crate::driver::{Event, Events, Held, Outcome, Received};

/// The news that an event of a connection brings.
#[derive(Debug)]
pub(crate) struct Receipt {
    /// Receiving has ended and must be armed again.
    has_ended: bool,
    /// More bytes wait in the socket.
    has_more: bool,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Bytes in a buffer of a ring.
    Bytes(Piece),
    /// Bytes that were kept.
    Kept,
    /// The peer has sent its last byte.
    End,
    /// Receiving has been cancelled.
    Cancelled,
    /// No buffer was left.
    Scarce,
    /// The connection may ask for bytes again.
    Admitted,
    Failed(Errno),
    /// The connection has failed, or both of its sides have ended.
    Hangup,
    /// Failures are not told any more.
    Unwatched,
}

impl Receipt {
    pub(super) const ADMITTED: Self = Self::other(What::Admitted);
    const KEPT: Self = Self::other(What::Kept);

    const fn other(what: What) -> Self {
        Self {
            has_ended: false,
            has_more: false,
            what,
        }
    }

    /// Return the receipt for a completion of receiving. To be made in the order of completion.
    #[inline]
    pub(super) fn received(buffers: &mut Buffers, result: i32, flags: u32) -> Self {
        let what = match (result, buffers.locate(result, flags)) {
            (1.., Some(piece)) => What::Bytes(piece),
            (0.., _) => What::End,
            (error, _) => match -error {
                libc::ENOBUFS => What::Scarce,
                libc::ECANCELED | libc::EINTR => What::Cancelled,
                error => What::Failed(Errno::from_raw_os_error(error)),
            },
        };
        Self {
            has_ended: !cqueue::more(flags),
            has_more: cqueue::sock_nonempty(flags),
            what,
        }
    }

    /// Return the receipt for a completion of waiting for a failure. `None` if it has not failed, and failures are
    /// still waited for: the peer may have ended its side alone.
    pub(super) fn hangup(result: i32, flags: u32) -> Option<Self> {
        let failures = events(libc::POLLERR | libc::POLLHUP);
        let has_failed = u32::try_from(result).is_ok_and(|told| told & failures != 0);
        let has_ended = !cqueue::more(flags);
        (has_failed || has_ended).then_some(Self {
            has_ended,
            has_more: false,
            what: if has_failed {
                What::Hangup
            } else {
                What::Unwatched
            },
        })
    }

    /// Return whether the receipt tells that the connection ends.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.what, What::End | What::Failed(_))
    }

    pub(super) fn into_piece(self) -> Option<Piece> {
        match self.what {
            What::Bytes(piece) => Some(piece),
            _ => None,
        }
    }

    /// Note in the socket which operations have ended; whether receiving must be armed again.
    #[inline]
    fn note(&self, socket: &mut Socket) -> bool {
        let Socket::Direct { ops, .. } = socket else {
            return false;
        };
        let ended = match self.what {
            What::Admitted => {
                *ops &= !WAITING;
                return true;
            }
            _ if !self.has_ended => return false,
            What::Hangup | What::Unwatched => HANGUP,
            _ => RECEIVE | CANCEL,
        };
        *ops &= !ended;
        match self.what {
            What::Scarce => *ops |= METERED,
            What::Bytes(_) if !self.has_more => *ops &= !METERED,
            _ => {}
        }
        true
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

    /// Note that the event that tells of a connection's bytes is used up.
    fn untell(&mut self, id: ConnId) {
        if let Some(kept) = self.all.get_mut(&id) {
            kept.is_told = false;
        }
    }

    /// Return the bytes to be handed out; they stay where they are until the next call.
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

    /// Free what [`take`](Self::take) gave.
    pub(super) fn release(&mut self) {
        if self.current.capacity() > 0 {
            self.current = Vec::new();
        }
    }
}

/// Received bytes between the rings and the handler.
#[derive(Default)]
pub(super) struct Receiving {
    pub(super) kept: Kept,
    /// The bytes that are being handed out.
    lent: Option<Piece>,
}

impl Receiving {
    /// Read what `receipt` tells of.
    pub(super) fn read<'a>(
        &'a mut self,
        rings: &'a mut Rings,
        id: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
    ) -> Received<'a> {
        let mut rearm = receipt.note(socket);
        let has_kept = self.kept.has(id);
        let outcome = match receipt.what {
            What::Bytes(piece) => {
                let buffers = &mut rings[piece.ring()].buffers;
                let bytes = buffers.bytes(self.lent.insert(piece));
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
            What::Cancelled | What::Scarce | What::Admitted | What::Hangup | What::Unwatched => {
                Outcome::Nothing
            }
        };
        Received { outcome, rearm }
    }

    /// Keep what `receipt` tells of until the connection is read again.
    pub(super) fn keep(
        &mut self,
        rings: &mut Rings,
        id: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
        is_kept: bool,
    ) -> Held {
        let rearm = receipt.note(socket);
        let mut failed = None;
        match receipt.what {
            What::Bytes(piece) => {
                let buffers = &mut rings[piece.ring()].buffers;
                if is_kept {
                    self.kept.add(id, buffers.bytes(&piece));
                }
                buffers.release(piece);
            }
            What::Kept => self.kept.untell(id),
            What::Failed(errno) => failed = Some(errno),
            What::Hangup => failed = Some(Errno::CONNRESET),
            What::End | What::Cancelled | What::Scarce | What::Admitted | What::Unwatched => {}
        }
        Held { rearm, failed }
    }

    /// Give back the memory of what was read last.
    #[inline]
    pub(super) fn release(&mut self, rings: &mut Rings) {
        if let Some(piece) = self.lent.take() {
            rings.release(piece);
        }
        self.kept.release();
    }
}
