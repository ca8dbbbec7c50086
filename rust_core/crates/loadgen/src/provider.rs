//! The provider's side of the workload: every request is answered at once, on the connection that
//! it came by; all answers of a turn leave in one write.

use std::time::Instant;

use protocol::nats::encode::{encode_pub, msg_len};
use reactor::{ConnId, Io};

use crate::client::{Client, Loss, Workload, Writer};
use crate::link::{Link, Message};
use crate::payload::{self, Stream};
use crate::rng::Rng;
use crate::shared::{Gauges, publish};
use crate::subject::Subject;

/// The providers of one thread.
pub(crate) struct Providers {
    first: u32,
    /// Where the reply is composed.
    payload: Box<[u8]>,
    received: u64,
    /// Without an id or a reply subject.
    unanswerable: u64,
    /// On another provider's subject.
    misrouted: u64,
    /// Not the bytes that their id gives.
    corrupt: u64,
}

impl Providers {
    /// Providers from number `first` on, who reply with `reply_bytes` bytes.
    pub(crate) fn new(first: u32, reply_bytes: usize) -> Self {
        let payload = vec![0; reply_bytes].into_boxed_slice();
        Self {
            first,
            payload,
            received: 0,
            unanswerable: 0,
            misrouted: 0,
            corrupt: 0,
        }
    }
}

impl Workload for Providers {
    type Link = Link;

    const ANSWERS: bool = true;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::provider(self.number(member))
    }

    fn handle_ready(&mut self, _: u32, _: ConnId) {}

    fn handle_lost(&mut self, _: u32, _: ConnId) -> Loss {
        Loss::Repair
    }

    fn handle_slice(&mut self) {}

    #[inline]
    fn handle_message(&mut self, member: u32, message: &Message<'_>, writer: Option<Writer<'_>>) {
        if message.subject != self.subject(member).as_bytes() {
            self.misrouted += 1;
            return;
        }
        let (
            Some(id),
            Some(to),
            Some(Writer {
                outbox,
                output,
                keys,
            }),
        ) = (payload::parse_id(message.payload), message.reply, writer)
        else {
            self.unanswerable += 1;
            return;
        };
        if !payload::is_intact(message.payload, Stream::Request, message.payload.len()) {
            self.corrupt += 1;
            return;
        }
        self.received += 1;
        payload::fill(&mut self.payload, Stream::Reply, id);
        let payload = &self.payload;
        outbox.append(output, keys, msg_len(to, b"", None, payload), |out| {
            encode_pub(out, to, None, payload);
        });
        output.add_items(1);
    }

    fn handle_start(&mut self, _: Instant) {}

    fn handle_stop(&mut self) {}

    fn poll_turn(&mut self, _: &mut Io<Client<Self>>, _: &mut Rng, _: &Gauges) {}

    #[inline]
    fn handle_written(&mut self, items: u64, gauges: &Gauges) {
        publish(&gauges.received, self.received);
        // Each is answered by one message.
        gauges.publish_published(self.received, self.payload.len());
        publish(&gauges.sent, items);
        publish(&gauges.unanswerable, self.unanswerable);
        publish(&gauges.misrouted, self.misrouted);
        publish(&gauges.corrupt, self.corrupt);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn judged(subject: &[u8], payload: &[u8]) -> (u64, u64, u64, u64) {
        let mut providers = Providers::new(3, 64);
        let message = Message {
            subject,
            reply: Some(b"/c/1"),
            headers: None,
            payload,
        };
        let mut outbox = crate::outbox::Outbox::new(false);
        let mut output = reactor::Output::default();
        let writer = Writer {
            outbox: &mut outbox,
            output: &mut output,
            keys: &mut Rng::new(1),
        };
        providers.handle_message(2, &message, Some(writer));
        assert_eq!(providers.received == 1, !output.is_empty());
        let Providers {
            received,
            unanswerable,
            misrouted,
            corrupt,
            ..
        } = providers;
        (received, unanswerable, misrouted, corrupt)
    }

    #[test]
    fn only_a_whole_request_on_its_own_subject_is_answered() {
        let mut request = [0; 32];
        payload::fill(&mut request, Stream::Request, 77);
        assert_eq!(judged(b"/s/5", &request), (1, 0, 0, 0));
        assert_eq!(judged(b"/s/5", &request[..7]), (0, 1, 0, 0));
        assert_eq!(judged(b"/s/4", &request), (0, 0, 1, 0));
        request[31] ^= 1;
        assert_eq!(judged(b"/s/5", &request), (0, 0, 0, 1));
    }
}
