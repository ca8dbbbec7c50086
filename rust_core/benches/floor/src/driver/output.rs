//! What a turn leaves to be sent.

/// Marks a client for which this turn has nothing yet.
const NONE: u32 = u32::MAX;

/// The pattern's output of one turn.
pub(crate) struct Output {
    /// By client: index of its send in `turn`, or `NONE`.
    queued: Vec<u32>,
    turn: Turn,
    /// By trunk: what is not yet sent, batched over as many turns as it takes.
    pub(crate) trunks: Vec<Queue>,
    /// By thread: for its mailbox.
    pub(crate) mail: Vec<Vec<u8>>,
    /// What the pattern found wrong with what arrived.
    pub(crate) faults: Vec<String>,
}

/// Messages to clients, grouped so that each gets one send.
#[derive(Default)]
pub(crate) struct Turn {
    /// The messages, then what [`Output::take_turn`] has joined.
    bytes: Vec<u8>,
    messages: Vec<Message>,
    pub(crate) sends: Vec<ClientSend>,
    /// What every client gets.
    pub(crate) everyone: Vec<u8>,
}

/// A message's place in a turn's bytes.
struct Message {
    start: usize,
    end: usize,
    /// The next one for the same client, or `NONE`.
    next: u32,
}

/// What one client gets in a turn.
pub(crate) struct ClientSend {
    pub(crate) client: u32,
    first: u32,
    last: u32,
    start: usize,
    end: usize,
}

impl Output {
    /// For one of `threads` threads.
    pub(crate) fn new(threads: u32) -> Self {
        Self {
            queued: Vec::new(),
            turn: Turn::default(),
            trunks: Vec::new(),
            mail: vec![Vec::new(); threads as usize],
            faults: Vec::new(),
        }
    }

    /// Sends one message to a client.
    pub(crate) fn send_client(&mut self, client: u32, message: &[u8]) {
        let turn = &mut self.turn;
        let index = turn.messages.len() as u32;
        let start = turn.bytes.len();
        turn.bytes.extend_from_slice(message);
        let end = turn.bytes.len();
        turn.messages.push(Message {
            start,
            end,
            next: NONE,
        });
        let slot = client as usize;
        if slot >= self.queued.len() {
            self.queued.resize(slot + 1, NONE);
        }
        let queued = self.queued[slot];
        if queued == NONE {
            self.queued[slot] = turn.sends.len() as u32;
            turn.sends.push(ClientSend {
                client,
                first: index,
                last: index,
                start,
                end,
            });
        } else {
            let send = &mut turn.sends[queued as usize];
            turn.messages[send.last as usize].next = index;
            send.last = index;
        }
    }

    /// Sends to every client that is connected at the end of the turn. A pattern that uses this does
    /// not use [`send_client`](Self::send_client): nothing orders the two.
    pub(crate) fn send_everyone(&mut self, bytes: &[u8]) {
        self.turn.everyone.extend_from_slice(bytes);
    }

    /// Sends to a trunk, of which there must be more than `trunk`.
    pub(crate) fn send_trunk(&mut self, trunk: usize, parts: &[&[u8]]) {
        match self.trunks.get_mut(trunk) {
            Some(queue) => queue.push(parts),
            None => self
                .faults
                .push(format!("there is no trunk {trunk} to send to")),
        }
    }

    /// Puts bytes into another thread's mailbox.
    pub(crate) fn mail(&mut self, thread: u32, parts: &[&[u8]]) {
        let mail = &mut self.mail[thread as usize];
        parts.iter().for_each(|part| mail.extend_from_slice(part));
    }

    /// The turn's sends, each in one piece. `spare` is cleared and takes the next turn.
    pub(crate) fn take_turn(&mut self, mut spare: Turn) -> Turn {
        spare.clear();
        let mut turn = std::mem::replace(&mut self.turn, spare);
        for send in &mut turn.sends {
            self.queued[send.client as usize] = NONE;
            if send.first != send.last {
                send.start = turn.bytes.len();
                let mut index = send.first;
                while index != NONE {
                    let message = &turn.messages[index as usize];
                    turn.bytes.extend_from_within(message.start..message.end);
                    index = message.next;
                }
                send.end = turn.bytes.len();
            }
        }
        turn
    }
}

impl Turn {
    pub(crate) fn bytes(&self, send: &ClientSend) -> &[u8] {
        &self.bytes[send.start..send.end]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
        self.sends.clear();
        self.everyone.clear();
    }
}

/// Bytes that a socket takes bit by bit.
#[derive(Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    sent: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        parts
            .iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
    }

    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Moves everything to `into`, whose memory it takes over.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
        into.clear();
        std::mem::swap(&mut self.bytes, into);
    }

    /// The socket has taken `n` bytes.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= 1 << 20 {
            // The queue may be filled for ever without once being empty.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_send_for_each_client_and_turn() {
        let mut out = Output::new(1);
        for (client, message) in [(5, &b"a1"[..]), (0, b"b1"), (5, b"a02"), (5, b"3")] {
            out.send_client(client, message);
        }
        let turn = out.take_turn(Turn::default());
        let sends: Vec<_> = turn
            .sends
            .iter()
            .map(|send| (send.client, turn.bytes(send)))
            .collect();
        assert_eq!(sends, [(5, &b"a1a023"[..]), (0, b"b1")]);
        out.send_client(5, b"a4");
        let turn = out.take_turn(turn);
        assert_eq!(turn.bytes(&turn.sends[0]), b"a4");
        assert_eq!(turn.sends.len(), 1);
        assert!(out.take_turn(turn).sends.is_empty());
    }

    #[test]
    fn a_queue_keeps_what_was_not_taken() {
        let mut queue = Queue::default();
        queue.push(&[b"ab", b"cd"]);
        queue.advance(3);
        queue.push(&[b"ef"]);
        assert_eq!(queue.pending(), b"def");
        queue.advance(3);
        assert!(queue.is_empty());
        let large = vec![7; 3 << 20];
        queue.push(&[&large]);
        queue.advance(2 << 20);
        assert_eq!(queue.pending().len(), 1 << 20);
    }

    #[test]
    fn a_missing_trunk_is_a_fault() {
        let mut out = Output::new(1);
        out.send_trunk(0, &[b"x"]);
        assert_eq!(out.faults.len(), 1);
    }
}
