//! From a published message to its receivers, on this shard and on others.

use std::sync::Arc;

use protocol::nats::encode;
use reactor::{Conn, ConnId};

use crate::http::inbox::REPLY;
use crate::mail::{Mail, Message, Parcel, Receivers, Subscriber};
use crate::metrics::table::{Counter, Dropped, Flow};
use crate::outbound::{self, Encoded};
use crate::reason::Reason;
use crate::session::{Flags, Transport};
use crate::shard::{Io, Shard, Timer};
use crate::shared::Weight;
use crate::transport::TransportKind;

/// What a delivery costs besides its bytes, expressed in bytes: operation, frame, look-ups.
const OVERHEAD: usize = 64;

/// Receivers that a message is delivered to at once at most. More of them get it by mail, in slices of
/// this size, so that a message to a million connections does not fill as many outputs before any is
/// written, nor keep everybody else waiting.
const SLICE: usize = 4096;
/// Bytes that a message may fill outputs with at once, unless one receiver takes more.
const SLICE_BYTES: usize = 4 << 20;

/// Receivers that this message is delivered to at once at most.
fn slice_of(message: &Message<'_>) -> usize {
    (SLICE_BYTES / (message.len() + OVERHEAD)).clamp(1, SLICE)
}

impl Shard {
    /// Routes a message that the client `id` has published; the number of its receivers.
    pub(crate) fn publish(
        &mut self,
        io: &mut Io,
        id: ConnId,
        flags: Flags,
        message: &Message<'_>,
    ) -> usize {
        self.count_published(io, id, message);
        let (me, echo) = (self.index, flags.has(Flags::ECHO));
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        self.shared
            .routing
            .match_into(message.subject, &mut matches, &mut self.rng, |to| {
                echo || to.conn != id || to.shard != me
            });
        if let Some(to) = self.shared.inboxes.receiver(message.subject) {
            matches.add(to);
        } else {
            self.hot.offer(message.subject, message.len());
        }
        let receivers = matches.len();
        self.widest = self.widest.max(receivers);
        self.counts.add(Counter::Matched, receivers as u64);
        // What a publisher sends must not overtake what it sent before.
        let by_mail = receivers > slice_of(message) || self.mailed.iter().any(|(by, _)| *by == id);
        let mut mailed = false;
        let mut encoded = self.begin_encoding(receivers);
        for to in matches.receivers() {
            if to.shard == me && !by_mail {
                self.deliver(io, to, message, (me, id), encoded.as_mut());
            } else {
                self.parcelled[usize::from(to.shard)].push(to);
                mailed = true;
            }
        }
        self.end_encoding(encoded);
        if mailed {
            self.post_parcels(io, id, message);
        }
        if matches.is_empty()
            && flags.has(Flags::NO_RESPONDERS)
            && let Some(reply) = message.reply
        {
            matches.clear();
            self.shared
                .routing
                .match_into(reply, &mut matches, &mut self.rng, |to| {
                    to.conn == id && to.shard == me
                });
            if let Some(own) = matches.plain().first() {
                self.answer_no_responders(io, *own, message.subject, reply);
            }
        }
        self.matches = matches;
        receivers
    }

    /// Appends a message to the output of a receiver on this shard, or counts why not.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        io: &mut Io,
        to: Subscriber,
        message: &Message<'_>,
        publisher: (u16, ConnId),
        encoded: Option<&mut Encoded>,
    ) {
        if to.index & REPLY != 0 {
            self.deliver_reply(io, to, message);
            return;
        }
        let limits = &self.shared.limits;
        let second = self.second(io.now());
        let Some(Conn {
            session, output, ..
        }) = io.writer(to.conn)
        else {
            self.counts.add_dropped(Dropped::Closed, 1);
            return;
        };
        let place = (to.index, to.generation);
        let subscription = session.subscriptions.value_mut(place);
        let Some(subscription) = subscription.filter(|one| one.max == 0 || one.delivered < one.max)
        else {
            self.counts.add_dropped(Dropped::Unsubscribed, 1);
            return;
        };
        subscription.delivered += 1;
        let is_last = subscription.delivered == subscription.max;
        let pending = output.len() + message.len();
        if pending > limits.max_pending {
            self.counts.add_dropped(Dropped::SlowConsumer, 1);
            self.end_slow_consumer(io, to.conn);
            return;
        }
        let falls_behind = pending > limits.max_pending / 4 * 3;
        let (framing, flags) = (&mut session.framing, session.flags);
        outbound::append_message(framing, output, flags, subscription, message, encoded);
        let transport = framing.transport();
        session.traffic.count_sent(message.len(), second);
        io.spend(message.len() + OVERHEAD);
        self.count_sent(transport, message.len());
        if is_last {
            self.remove_exhausted(io, to);
        }
        if falls_behind {
            self.stall(io, publisher);
        }
    }

    /// Counts a message that a client has published.
    #[inline]
    fn count_published(&mut self, io: &mut Io, id: ConnId, message: &Message<'_>) {
        let Some(conn) = io.conn_mut(id) else { return };
        let (transport, len) = (conn.session.framing.transport(), message.len() as u64);
        conn.session.traffic.in_msgs += 1;
        conn.session.traffic.in_bytes += len;
        self.counts.add_flow(transport, Flow::InMsgs, 1);
        self.counts.add_flow(transport, Flow::InBytes, len);
    }

    /// Counts a message of `len` bytes that was appended to a client's output.
    #[inline]
    pub(crate) fn count_sent(&self, transport: TransportKind, len: usize) {
        self.counts.add_appended();
        self.counts.add_flow(transport, Flow::OutMsgs, 1);
        self.counts.add_flow(transport, Flow::OutBytes, len as u64);
    }

    /// Delivers a parcel from another shard, or from this one.
    pub(crate) fn deliver_parcel(
        &mut self,
        io: &mut Io,
        parcel: &Parcel,
        receivers: &Receivers,
        publisher: (u16, ConnId),
        weight: usize,
    ) {
        self.shared.weights[usize::from(self.index)].subtract(weight);
        if publisher.0 == self.index {
            self.note_delivered(publisher.1);
        }
        let message = parcel.message();
        let receivers = receivers.as_slice();
        self.counts.add_arrived(receivers.len() as u64);
        let mut encoded = self.begin_encoding(receivers.len());
        for to in receivers {
            self.deliver(io, *to, &message, publisher, encoded.as_mut());
        }
        self.end_encoding(encoded);
    }

    /// What serves all receivers of a message, where there are several.
    fn begin_encoding(&mut self, receivers: usize) -> Option<Encoded> {
        (receivers > 1).then(|| std::mem::take(&mut self.encoded))
    }

    /// Keeps its memory for the next message.
    fn end_encoding(&mut self, encoded: Option<Encoded>) {
        if let Some(mut encoded) = encoded {
            encoded.clear();
            self.encoded = encoded;
        }
    }

    /// Ends a receiver whose output is full, without a word that it would not read either.
    pub(crate) fn end_slow_consumer(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        if conn.session.ended.is_none() {
            conn.session.ended = Some(Reason::SlowConsumer);
            self.release(io, id);
            self.note_ended(id);
        }
        io.abort(id);
    }

    /// Stops reading from a publisher for a moment, so that its receivers can catch up.
    pub(crate) fn stall(&mut self, io: &mut Io, publisher: (u16, ConnId)) {
        let (shard, id) = publisher;
        if shard != self.index {
            // Once a turn is enough.
            if self.stalled_elsewhere.replace(publisher) != Some(publisher) {
                io.mail(usize::from(shard), Mail::Stall(id));
            }
            return;
        }
        let now = io.now();
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        if !conn.session.is_stalled {
            conn.session.is_stalled = true;
            self.is_stalled |= self.reading == Some(id);
            self.counts.add(Counter::Stalls, 1);
            self.log.stalled(now, &conn.session);
            io.set_reading(id, false);
            io.set_timer(id, Timer::RESUME, Timer::STALL);
        }
    }

    /// Reads from a stalled publisher again, unless some shard has too much mail still.
    pub(crate) fn handle_resume_timer(&mut self, io: &mut Io, id: ConnId) {
        if self.shared.weights.iter().any(Weight::is_high) {
            io.set_timer(id, Timer::RESUME, Timer::STALL);
            return;
        }
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        conn.session.is_stalled = false;
        let is_http = matches!(conn.session.transport, Transport::Http(_));
        if conn.session.deferred.is_none() && !is_http {
            io.set_reading(id, true);
        } else {
            self.deferred.push_back(id);
            io.wake_at(io.now());
        }
    }

    /// Sends a message to its receivers by mail, in slices that leave a turn room for others.
    fn post_parcels(&mut self, io: &mut Io, publisher: ConnId, message: &Message<'_>) {
        let parcel = Arc::new(Parcel::new(message));
        let mut overloads = false;
        for shard in 0..self.parcelled.len() {
            let mut receivers = std::mem::take(&mut self.parcelled[shard]);
            for slice in receivers.chunks(slice_of(message)) {
                let weight = slice.len() * (message.len() + OVERHEAD);
                overloads |= self.shared.weights[shard].add(weight);
                let mail = Mail::Deliver {
                    parcel: Arc::clone(&parcel),
                    receivers: Receivers::from(slice),
                    publisher: (self.index, publisher),
                    weight,
                };
                io.mail(shard, mail);
                self.counts.add_posted(slice.len() as u64);
                io.spend(message.len() + OVERHEAD + size_of_val(slice));
                if shard == usize::from(self.index) {
                    self.note_mailed(publisher);
                }
            }
            receivers.clear();
            self.parcelled[shard] = receivers;
        }
        if overloads {
            self.stall(io, (self.index, publisher));
        }
    }

    fn note_mailed(&mut self, publisher: ConnId) {
        match self.mailed.iter_mut().find(|(by, _)| *by == publisher) {
            Some((_, slices)) => *slices += 1,
            None => self.mailed.push((publisher, 1)),
        }
    }

    fn note_delivered(&mut self, publisher: ConnId) {
        if let Some(n) = self.mailed.iter().position(|(by, _)| *by == publisher) {
            self.mailed[n].1 -= 1;
            if self.mailed[n].1 == 0 {
                self.mailed.swap_remove(n);
            }
        }
    }

    fn answer_no_responders(&mut self, io: &mut Io, to: Subscriber, subject: &[u8], reply: &[u8]) {
        let Some(conn) = io.writer(to.conn) else {
            return;
        };
        let Some(one) = conn.session.subscriptions.value((to.index, to.generation)) else {
            return;
        };
        let mut bytes = Vec::with_capacity(96 + reply.len() + subject.len());
        encode::encode_no_responders(&mut bytes, reply, one.sid(), subject);
        outbound::append_bytes(conn, &bytes);
        self.counts.add(Counter::NoResponders, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_bounded_by_receivers_and_by_bytes() {
        let receivers = |bytes: usize| {
            let payload = vec![0; bytes];
            slice_of(&Message {
                subject: b"a",
                reply: None,
                headers: None,
                payload: &payload,
            })
        };
        assert_eq!(receivers(0), 4096);
        assert_eq!(receivers(1 << 20), 3);
        assert_eq!(receivers(8 << 20), 1, "one receiver may take more");
    }
}
