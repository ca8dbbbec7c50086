//! The mark of an operation: the 64 bits that the kernel hands back with its completion.

use crate::conn_id::ConnId;

/// An operation, with the connection, listener or flight that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// Not waited for.
    Unwatched,
    /// Receiving on a connection.
    Receive(ConnId),
    /// Waiting until a connection takes bytes again.
    Writable(ConnId),
    /// Establishing a connection.
    Connect(ConnId),
    /// Getting a descriptor to end sending on a connection.
    EndSending(ConnId),
    /// Waiting for the failure of a connection that is not read.
    Hangup(ConnId),
    /// Accepting on the listener with this index.
    Accept(u32),
    /// The flight with this index; completes only when it was cut short or failed.
    Send(u32),
    /// Waiting for mail.
    Wake,
}

impl Token {
    #[inline]
    pub(super) fn to_bits(self) -> u64 {
        let (kind, rest) = match self {
            Self::Unwatched => (0, 0),
            Self::Receive(id) => (1, id.to_bits()),
            Self::Writable(id) => (2, id.to_bits()),
            Self::Connect(id) => (3, id.to_bits()),
            Self::Accept(listener) => (4, listener.into()),
            Self::Send(flight) => (5, flight.into()),
            Self::Wake => (6, 0),
            Self::EndSending(id) => (7, id.to_bits()),
            Self::Hangup(id) => (8, id.to_bits()),
        };
        kind << 56 | rest
    }

    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        let id = ConnId::from_bits(bits);
        match bits >> 56 {
            1 => Self::Receive(id),
            2 => Self::Writable(id),
            3 => Self::Connect(id),
            4 => Self::Accept(bits as u32),
            5 => Self::Send(bits as u32),
            6 => Self::Wake,
            7 => Self::EndSending(id),
            8 => Self::Hangup(id),
            _ => Self::Unwatched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        for id in [ConnId::NONE, ConnId::from_bits(0x00ab_cdef_1234_5678)] {
            for token in [
                Token::Unwatched,
                Token::Receive(id),
                Token::Writable(id),
                Token::Connect(id),
                Token::EndSending(id),
                Token::Hangup(id),
                Token::Accept(3),
                Token::Send(u32::MAX),
                Token::Wake,
            ] {
                assert_eq!(Token::from_bits(token.to_bits()), token);
            }
        }
    }
}
