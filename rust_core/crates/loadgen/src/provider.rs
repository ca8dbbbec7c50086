//! The provider's side of the workload: every request is answered at once, on the connection that
//! it came by; all answers of a turn leave in one write.

use std::time::Instant;

use protocol::nats::encode::{encode_pub, msg_len};
use reactor::{ConnId, Io};

use crate::client::{Client, Workload, Writer};
use crate::link::Message;
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
    unanswerable: u64,
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
        }
    }
}

impl Workload for Providers {
    const ANSWERS: bool = true;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(number: u32) -> Subject {
        Subject::provider(number)
    }

    fn handle_ready(&mut self, _: u32, _: ConnId) {}

    fn handle_lost(&mut self, _: u32) -> bool {
        true
    }

    fn handle_slice(&mut self) {}

    #[inline]
    fn handle_message(&mut self, _: u32, message: &Message<'_>, writer: Option<Writer<'_>>) {
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
        publish(&gauges.sent, items);
        publish(&gauges.unanswerable, self.unanswerable);
    }
}
