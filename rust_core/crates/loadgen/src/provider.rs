//! The provider's side of the workload: every request is answered at once, on the connection that
//! it came by; all answers of a turn leave in one write. Where replies have to wait, they leave on
//! whatever connection their provider has by then.

use std::time::{Duration, Instant};

use protocol::nats::encode::{encode_pub, msg_len};
use reactor::{ConnId, Io};

use crate::backlog::{Backlog, Waits};
use crate::client::Client;
use crate::link::{Link, Message};
use crate::payload::{self, Stream};
use crate::rng::Rng;
use crate::schedule::{PACING_NS, SENDS_PER_TURN};
use crate::shared::{Gauges, publish};
use crate::subject::Subject;
use crate::workload::{Loss, Workload, Writer};

/// Time for the last replies to leave once the end was asked for; a server that takes nothing more is
/// not waited for for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// What providers need whose replies wait. Times are since `epoch`.
struct Later {
    epoch: Instant,
    backlog: Backlog,
    /// When the bytes that are being handed out were received, in nanoseconds.
    now: u64,
    /// The connection of each member; [`ConnId::NONE`] without one.
    conns: Box<[ConnId]>,
}

impl Later {
    fn nanoseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// The providers of one thread.
pub(crate) struct Providers {
    first: u32,
    /// Absent where every request is answered at once.
    later: Option<Box<Later>>,
    /// When they have to be done at the latest, once the end was asked for.
    ends_by: Option<Instant>,
    /// Where the reply is composed.
    payload: Box<[u8]>,
    received: u64,
    /// Replies handed to connections.
    published: u64,
    /// Of these, taken by the kernel.
    sent: u64,
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
            later: None,
            ends_by: None,
            payload,
            received: 0,
            published: 0,
            sent: 0,
            unanswerable: 0,
            misrouted: 0,
            corrupt: 0,
        }
    }

    /// The same `members` providers with replies that wait; `epoch` is the same for all threads.
    pub(crate) fn with_waits(self, members: u32, waits: Waits, epoch: Instant) -> Self {
        let later = Later {
            epoch,
            backlog: Backlog::new(waits),
            now: 0,
            conns: vec![ConnId::NONE; members as usize].into_boxed_slice(),
        };
        Self {
            later: Some(Box::new(later)),
            ..self
        }
    }

    fn set_conn(&mut self, member: u32, id: ConnId) {
        if let Some(later) = &mut self.later {
            later.conns[member as usize] = id;
        }
    }

    /// Sends the replies that are due.
    fn send_due(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng) {
        let Some(later) = &mut self.later else { return };
        let now = later.nanoseconds(Instant::now());
        for _ in 0..SENDS_PER_TURN {
            let Some(waiting) = later.backlog.pop(now) else {
                break;
            };
            let Some(conn) = io.writer(later.conns[waiting.member as usize]) else {
                later.backlog.dropped += 1;
                continue;
            };
            let writer = Writer {
                outbox: &mut conn.session.link.outbox,
                output: &mut conn.output,
                keys,
            };
            let len = reply(writer, &mut self.payload, waiting.id, &waiting.to);
            self.published += 1;
            io.spend(len);
            if io.is_spent() {
                break;
            }
        }
        if let Some(due) = later.backlog.next_due() {
            // What is due soon leaves together: see the pace of those who ask.
            let at = due.max(now + PACING_NS);
            io.wake_at(later.epoch + Duration::from_nanos(at));
        }
    }
}

/// Appends the reply to request `id`; returns about how many bytes that were.
#[inline]
fn reply(writer: Writer<'_>, payload: &mut [u8], id: u64, to: &[u8]) -> usize {
    let Writer {
        outbox,
        output,
        keys,
    } = writer;
    payload::fill(payload, Stream::Reply, id);
    let len = msg_len(to, b"", None, payload);
    outbox.append(output, keys, len, |out| encode_pub(out, to, None, payload));
    output.add_items(1);
    len
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

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.set_conn(member, id);
    }

    fn handle_lost(&mut self, member: u32, _: ConnId) -> Loss {
        self.set_conn(member, ConnId::NONE);
        Loss::Repair
    }

    #[inline]
    fn handle_slice(&mut self) {
        if let Some(later) = &mut self.later {
            later.now = later.nanoseconds(Instant::now());
        }
    }

    #[inline]
    fn handle_message(&mut self, member: u32, message: &Message<'_>, writer: Option<Writer<'_>>) {
        if message.subject != self.subject(member).as_bytes() {
            self.misrouted += 1;
            return;
        }
        let (Some(id), Some(to), Some(writer)) =
            (payload::parse_id(message.payload), message.reply, writer)
        else {
            self.unanswerable += 1;
            return;
        };
        if !payload::is_intact(message.payload, Stream::Request, message.payload.len()) {
            self.corrupt += 1;
            return;
        }
        self.received += 1;
        if let Some(later) = &mut self.later {
            later.backlog.push(member, id, to, later.now);
        } else {
            reply(writer, &mut self.payload, id, to);
            self.published += 1;
        }
    }

    /// From when on stalls are counted.
    fn handle_start(&mut self, at: Instant) {
        if let Some(later) = &mut self.later {
            let at = later.nanoseconds(at);
            later.backlog.begin(at);
        }
    }

    /// Nothing waits any more, and the end has come once everything has left.
    fn handle_stop(&mut self) {
        self.ends_by = Some(Instant::now() + DRAIN_TIMEOUT);
        if let Some(later) = &mut self.later {
            later.backlog.lift();
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, gauges: &Gauges) {
        if self.later.is_some() {
            self.send_due(io, keys);
        }
        if self.ends_by.is_some() {
            io.wake_at(Instant::now() + DRAIN_POLL);
        }
        if let Some(later) = &self.later {
            publish(&gauges.outstanding, later.backlog.len() as u64);
            publish(&gauges.dropped, later.backlog.dropped);
        }
    }

    fn is_over(&self) -> bool {
        self.ends_by.is_some_and(|by| {
            let waiting = self.later.as_ref().map_or(0, |later| later.backlog.len());
            let has_left = waiting == 0 && self.sent == self.published;
            self.later.is_none() || has_left || Instant::now() >= by
        })
    }

    #[inline]
    fn handle_written(&mut self, items: u64, gauges: &Gauges) {
        self.sent = items;
        publish(&gauges.received, self.received);
        gauges.publish_published(self.published, self.payload.len());
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
