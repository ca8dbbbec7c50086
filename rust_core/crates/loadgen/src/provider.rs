//! The provider's side of the workload. Every request is answered at once, on its own connection,
//! and all replies of a turn leave in one write. Delayed replies leave on the provider's connection
//! at that time.

use std::time::{Duration, Instant};

use protocol::nats::Message;
use protocol::nats::encode::{encode_pub, pub_len};
use reactor::{Clock, ConnId};

use crate::link::Link;
use crate::payload::{self, PayloadKind};
use crate::reply_queue::{ReplyDelays, ReplyQueue};
use crate::rng::Rng;
use crate::schedule::{PACING_NS, SENDS_PER_TURN};
use crate::session::Io;
use crate::shared::{ThreadCounters, set};
use crate::subject::Subject;
use crate::workload::{Reconnect, Workload, Writer};

/// Longest time for the last replies to leave after `stop`, for servers that read no more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// State of providers with delayed replies. Times are nanoseconds since `epoch`.
struct DelayedReplies {
    epoch: Instant,
    queue: ReplyQueue,
    /// Time when the bytes that are being handed out were received, in nanoseconds.
    now: u64,
    /// The connection of each member; [`ConnId::NONE`] without one.
    conns: Box<[ConnId]>,
}

impl DelayedReplies {
    fn nanoseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// The providers of one thread.
pub(crate) struct Providers {
    first: u32,
    /// Absent if every request is answered at once.
    delayed: Option<Box<DelayedReplies>>,
    /// Time limit of the drain, once `stop` was called.
    ends_by: Option<Instant>,
    /// Buffer in which a reply is composed.
    payload: Box<[u8]>,
    received: u64,
    /// Replies handed to connections.
    published: u64,
    /// Published replies that the kernel has taken.
    sent: u64,
    /// Published replies on connections that were lost before the kernel had taken them.
    lost: u64,
    /// Requests without an id or a reply subject.
    unanswerable: u64,
    /// Requests on another provider's subject.
    misrouted: u64,
    /// Requests with bytes that do not follow from their id.
    corrupt: u64,
}

impl Providers {
    /// Make providers from number `first` on, who reply with `reply_bytes` bytes.
    pub(crate) fn new(first: u32, reply_bytes: usize) -> Self {
        let payload = vec![0; reply_bytes].into_boxed_slice();
        Self {
            first,
            delayed: None,
            ends_by: None,
            payload,
            received: 0,
            published: 0,
            sent: 0,
            lost: 0,
            unanswerable: 0,
            misrouted: 0,
            corrupt: 0,
        }
    }

    /// Return the same `members` providers with replies that wait; `epoch` is the same for all
    /// threads.
    pub(crate) fn with_delays(self, members: u32, waits: ReplyDelays, epoch: Instant) -> Self {
        let delayed = DelayedReplies {
            epoch,
            queue: ReplyQueue::new(waits),
            now: 0,
            conns: vec![ConnId::NONE; members as usize].into_boxed_slice(),
        };
        Self {
            delayed: Some(Box::new(delayed)),
            ..self
        }
    }

    fn set_conn(&mut self, member: u32, id: ConnId) {
        if let Some(delayed) = &mut self.delayed {
            delayed.conns[member as usize] = id;
        }
    }

    /// Send the replies that are due.
    fn send_due(&mut self, io: &mut Io<Link>, keys: &mut Rng) {
        let Some(delayed) = &mut self.delayed else {
            return;
        };
        let now = delayed.nanoseconds(io.clock().now());
        for _ in 0..SENDS_PER_TURN {
            let Some(waiting) = delayed.queue.pop(now) else {
                break;
            };
            let Some(conn) = io.writer(delayed.conns[waiting.member as usize]) else {
                delayed.queue.dropped += 1;
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
        if let Some(due) = delayed.queue.next_due() {
            // Replies that are due soon leave together, as requests do.
            let at = due.max(now + PACING_NS);
            io.wake_at(delayed.epoch + Duration::from_nanos(at));
        }
    }
}

/// Append the reply to request `id`; return about how many bytes that were.
#[inline]
fn reply(writer: Writer<'_>, payload: &mut [u8], id: u64, to: &[u8]) -> usize {
    let Writer {
        outbox,
        output,
        keys,
    } = writer;
    payload::fill(payload, PayloadKind::Reply, id);
    let message = Message {
        subject: to,
        reply: None,
        headers: None,
        payload,
    };
    let len = pub_len(&message);
    outbox.append(output, keys, len, |out| encode_pub(out, &message));
    output.add_items(1);
    len
}

impl Workload for Providers {
    type Link = Link;

    const REPLIES: bool = true;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::provider(self.number(member))
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.set_conn(member, id);
    }

    fn handle_lost(&mut self, member: u32, _: ConnId) -> Reconnect {
        self.set_conn(member, ConnId::NONE);
        Reconnect::Retry
    }

    fn handle_unsent(&mut self, items: u64) {
        self.lost += items;
    }

    #[inline]
    fn handle_slice(&mut self, clock: &Clock) {
        if let Some(delayed) = &mut self.delayed {
            delayed.now = delayed.nanoseconds(clock.now());
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
        if !payload::is_intact(message.payload, PayloadKind::Request, message.payload.len()) {
            self.corrupt += 1;
            return;
        }
        self.received += 1;
        if let Some(delayed) = &mut self.delayed {
            delayed.queue.push(member, id, to, delayed.now);
        } else {
            reply(writer, &mut self.payload, id, to);
            self.published += 1;
        }
    }

    /// Count stalls from `at` on.
    fn handle_start(&mut self, at: Instant) {
        if let Some(delayed) = &mut self.delayed {
            let at = delayed.nanoseconds(at);
            delayed.queue.begin(at);
        }
    }

    /// Release the delayed replies, and end once all replies have left.
    fn handle_stop(&mut self, now: Instant) {
        self.ends_by = Some(now + DRAIN_TIMEOUT);
        if let Some(delayed) = &mut self.delayed {
            delayed.queue.release();
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Link>, keys: &mut Rng, counters: &ThreadCounters) {
        if self.delayed.is_some() {
            self.send_due(io, keys);
        }
        if self.ends_by.is_some() {
            io.wake_at(io.clock().now() + DRAIN_POLL);
        }
        if let Some(delayed) = &self.delayed {
            set(&counters.outstanding, delayed.queue.len() as u64);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.ends_by.is_some_and(|by| {
            let waiting = self
                .delayed
                .as_ref()
                .map_or(0, |delayed| delayed.queue.len());
            let has_left = waiting == 0 && self.sent + self.lost == self.published;
            self.delayed.is_none() || has_left || now >= by
        })
    }

    #[inline]
    fn handle_written(&mut self, items: u64, counters: &ThreadCounters) {
        self.sent = items;
        set(&counters.received, self.received);
        counters.set_published(self.published, self.payload.len());
        set(&counters.sent, items);
        let unanswered = self
            .delayed
            .as_ref()
            .map_or(0, |delayed| delayed.queue.dropped);
        set(&counters.dropped, unanswered + self.lost);
        set(&counters.unanswerable, self.unanswerable);
        set(&counters.misrouted, self.misrouted);
        set(&counters.corrupt, self.corrupt);
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
        let mut outbox = crate::connection::Outbox::new(false);
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
        payload::fill(&mut request, PayloadKind::Request, 77);
        assert_eq!(judged(b"/s/5", &request), (1, 0, 0, 0));
        assert_eq!(judged(b"/s/5", &request[..7]), (0, 1, 0, 0));
        assert_eq!(judged(b"/s/4", &request), (0, 0, 1, 0));
        request[31] ^= 1;
        assert_eq!(judged(b"/s/5", &request), (0, 0, 0, 1));
    }
}
