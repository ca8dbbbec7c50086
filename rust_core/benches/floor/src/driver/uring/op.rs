//! What a completion belongs to, in the 64 bits that a request carries.

/// Kind of a request, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    AcceptClient,
    AcceptTrunk,
    /// Client number.
    ReceiveClient(u32),
    /// Trunk number.
    ReceiveTrunk(u32),
    /// Index of the turn's send.
    SendMessage(u32),
    /// Client number; the turn's bytes for everyone.
    SendEveryone(u32),
    /// Client number.
    SendBacklog(u32),
    /// Trunk number.
    SendTrunk(u32),
    Closed,
    DrainRaised,
    CloseRaised,
}

impl Op {
    pub(super) fn encode(self) -> u64 {
        let (kind, index) = match self {
            Self::AcceptClient => (0, 0),
            Self::AcceptTrunk => (1, 0),
            Self::ReceiveClient(client) => (2, client),
            Self::ReceiveTrunk(trunk) => (3, trunk),
            Self::SendMessage(send) => (4, send),
            Self::SendEveryone(client) => (5, client),
            Self::SendBacklog(client) => (6, client),
            Self::SendTrunk(trunk) => (7, trunk),
            Self::Closed => (8, 0),
            Self::DrainRaised => (9, 0),
            Self::CloseRaised => (10, 0),
        };
        kind << 32 | u64::from(index)
    }

    pub(super) fn decode(user_data: u64) -> Option<Self> {
        let index = user_data as u32;
        Some(match user_data >> 32 {
            0 => Self::AcceptClient,
            1 => Self::AcceptTrunk,
            2 => Self::ReceiveClient(index),
            3 => Self::ReceiveTrunk(index),
            4 => Self::SendMessage(index),
            5 => Self::SendEveryone(index),
            6 => Self::SendBacklog(index),
            7 => Self::SendTrunk(index),
            8 => Self::Closed,
            9 => Self::DrainRaised,
            10 => Self::CloseRaised,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_found_again() {
        let n = u32::MAX - 1;
        let ops = [
            Op::AcceptClient,
            Op::AcceptTrunk,
            Op::ReceiveClient(n),
            Op::ReceiveTrunk(n),
            Op::SendMessage(n),
            Op::SendEveryone(n),
            Op::SendBacklog(n),
            Op::SendTrunk(n),
            Op::Closed,
            Op::DrainRaised,
            Op::CloseRaised,
        ];
        for op in ops {
            assert_eq!(Op::decode(op.encode()), Some(op));
        }
        assert_eq!(Op::decode(u64::MAX), None);
    }
}
