//! What a completion is of: the 64 bits that the kernel hands back with it.

use crate::slab::{ConnId, Slab};

/// Bits of a connection's generation that a token has room for. A completion comes long before
/// a slot of the slab has been reused that often.
const GENERATION: u32 = (1 << 24) - 1;

/// An operation, with whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// Nobody waits for it.
    Unwatched,
    /// Receiving on a connection.
    Receive(Peer),
    /// Waiting until a connection takes bytes again.
    Writable(Peer),
    /// Establishing a connection.
    Connect(Peer),
    /// Getting a descriptor to end sending on a connection.
    EndSending(Peer),
    /// Accepting on the listener with this index.
    Accept(u32),
    /// The flight with this index; completes only where it failed.
    Send(u32),
    /// Waiting for mail.
    Wake,
}

/// A connection, as far as a token can name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    slot: u32,
    generation: u32,
}

impl Peer {
    pub(super) fn of(id: ConnId) -> Self {
        let bits = id.to_bits();
        Self {
            slot: bits as u32,
            generation: (bits >> 32) as u32 & GENERATION,
        }
    }

    /// Begins to fetch the connection into the cache.
    #[inline]
    pub(super) fn prefetch<T>(self, conns: &Slab<T>) {
        conns.prefetch(self.slot);
    }

    /// The connection's id, unless it is gone.
    #[inline]
    pub(super) fn find<T>(self, conns: &Slab<T>) -> Option<ConnId> {
        conns.id_at(self.slot, self.generation, GENERATION)
    }
}

impl Token {
    #[inline]
    pub(super) fn to_bits(self) -> u64 {
        let (kind, high, low) = match self {
            Self::Unwatched => (0, 0, 0),
            Self::Receive(peer) => (1, peer.generation, peer.slot),
            Self::Writable(peer) => (2, peer.generation, peer.slot),
            Self::Connect(peer) => (3, peer.generation, peer.slot),
            Self::Accept(listener) => (4, 0, listener),
            Self::Send(flight) => (5, 0, flight),
            Self::Wake => (6, 0, 0),
            Self::EndSending(peer) => (7, peer.generation, peer.slot),
        };
        kind << 56 | u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        let low = bits as u32;
        let peer = Peer {
            slot: low,
            generation: (bits >> 32) as u32 & GENERATION,
        };
        match bits >> 56 {
            1 => Self::Receive(peer),
            2 => Self::Writable(peer),
            3 => Self::Connect(peer),
            4 => Self::Accept(low),
            5 => Self::Send(low),
            6 => Self::Wake,
            7 => Self::EndSending(peer),
            _ => Self::Unwatched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        let peer = Peer::of(ConnId::from_bits(0x00ab_cdef_1234_5678));
        for token in [
            Token::Unwatched,
            Token::Receive(peer),
            Token::Writable(peer),
            Token::Connect(peer),
            Token::EndSending(peer),
            Token::Accept(3),
            Token::Send(u32::MAX),
            Token::Wake,
        ] {
            assert_eq!(Token::from_bits(token.to_bits()), token);
        }
    }

    #[test]
    fn a_token_finds_its_connection_alone() {
        let mut slab = Slab::default();
        let id = slab.insert(());
        assert_eq!(Peer::of(id).find(&slab), Some(id));
        slab.remove(id);
        let later = slab.insert(());
        assert_eq!(Peer::of(id).find(&slab), None);
        assert_eq!(Peer::of(later).find(&slab), Some(later));
    }
}
