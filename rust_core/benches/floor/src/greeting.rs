//! What a NATS client and its server say over WebSocket until a subscription is confirmed: two
//! exchanges of as many bytes as the load test's client and the broker, counted on the wire with
//! 3,000 users.

use crate::driver::Role;

/// What the client sends, and what the server answers when it has all of that.
pub(crate) struct Exchange {
    pub(crate) request: &'static [u8],
    pub(crate) answer: &'static [u8],
}

pub(crate) const EXCHANGES: [Exchange; 2] = [
    // The HTTP request of the upgrade; its response, then a frame with INFO.
    Exchange {
        request: &[b'u'; 154],
        answer: &[b'i'; 357],
    },
    // A frame with CONNECT, SUB and PING; a frame with PONG.
    Exchange {
        request: &[b'c'; 216],
        answer: &[b'p'; 8],
    },
];

impl Exchange {
    fn received_by(&self, role: Role) -> &'static [u8] {
        match role {
            Role::Server => self.request,
            Role::Load => self.answer,
        }
    }
}

/// The most bytes that an end receives at once.
pub(crate) fn largest(role: Role) -> usize {
    let sizes = EXCHANGES.iter().map(|one| one.received_by(role).len());
    sizes.max().unwrap_or(0)
}

/// What one end has received of its clients' greetings.
pub(crate) struct Progress {
    role: Role,
    /// Bytes, by client number.
    received: Vec<u16>,
}

impl Progress {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            received: Vec::new(),
        }
    }

    /// Takes what belongs to the client's greeting from the front of `bytes`, calls `complete` with the
    /// index of each exchange of which all has come, and returns the rest.
    pub(crate) fn receive<'b>(
        &mut self,
        client: u32,
        bytes: &'b [u8],
        mut complete: impl FnMut(usize),
    ) -> &'b [u8] {
        let client = client as usize;
        if client >= self.received.len() {
            self.received.resize(client + 1, 0);
        }
        let before = usize::from(self.received[client]);
        let mut end = 0;
        for (index, exchange) in EXCHANGES.iter().enumerate() {
            end += exchange.received_by(self.role).len();
            if (before + 1..=before + bytes.len()).contains(&end) {
                complete(index);
            }
        }
        let taken = bytes.len().min(end - before);
        self.received[client] += taken as u16;
        &bytes[taken..]
    }

    /// The client is gone; its number may be another's.
    pub(crate) fn forget(&mut self, client: u32) {
        if let Some(received) = self.received.get_mut(client as usize) {
            *received = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_the_stream_is_cut() {
        for role in [Role::Server, Role::Load] {
            let sizes = EXCHANGES.map(|one| one.received_by(role).len());
            let stream: Vec<u8> = (0..sizes.iter().sum::<usize>() + 100)
                .map(|n| n as u8)
                .collect();
            for cut in 1..stream.len() {
                let mut progress = Progress::new(role);
                let (mut seen, mut completed, mut rest) = (0, Vec::new(), Vec::new());
                for piece in stream.chunks(cut) {
                    seen += piece.len();
                    rest.extend_from_slice(progress.receive(3, piece, |index| {
                        completed.push((index, seen));
                    }));
                }
                let first = sizes[0].div_ceil(cut) * cut;
                let second = (sizes[0] + sizes[1]).div_ceil(cut) * cut;
                let ends = [first, second].map(|end| end.min(stream.len()));
                assert_eq!(completed, [(0, ends[0]), (1, ends[1])], "pieces of {cut}");
                assert_eq!(rest, stream[stream.len() - 100..]);
            }
        }
    }

    #[test]
    fn clients_are_apart_and_their_numbers_used_again() {
        let mut progress = Progress::new(Role::Server);
        let request = EXCHANGES[0].request;
        let mut complete = |client, bytes| {
            let mut count = 0;
            progress.receive(client, bytes, |_| count += 1);
            count
        };
        assert_eq!(complete(0, &request[1..]), 0);
        assert_eq!(complete(1, request), 1);
        assert_eq!(complete(0, &request[..1]), 1);
        progress.forget(1);
        progress.forget(9);
        let mut again = Vec::new();
        progress.receive(1, request, |index| again.push(index));
        assert_eq!(again, [0]);
    }
}
