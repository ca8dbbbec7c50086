//! From a published message to its receivers, on this shard and on others.

use std::sync::Arc;

use protocol::nats::encode;
use reactor::{Conn, ConnId, work};

use crate::http::inbox::REPLY;
use crate::mail::{Mail, Message, Parcel, Receivers, Subscriber};
use crate::metrics::table::{Counter, Dropped, Flow};
use crate::outbound::{self, Encoded};
use crate::session::Flags;
use crate::shard::{Io, Shard};
use crate::transport::TransportKind;

/// Bytes that a delivery weighs in a mailbox besides its payload.
const WEIGHT: usize = 64;

/// Work of routing a message, besides the search.
const ROUTE: usize = 200;
/// Work of a delivery, besides its bytes: operation, frame, look-ups.
const DELIVERY: usize = 250;
/// Work of looking at a receiver that turns out to be gone.
const MISS: usize = 50;

/// Receivers that this message is delivered to at once at most. More of them get it by mail, in slices of
/// this size, so that a message to a million connections does not fill as many outputs before any is
/// written, nor keep everybody else waiting: three eighths of a turn's budget.
fn slice_of(message: &Message<'_>, turn_budget: usize) -> usize {
    (turn_budget / 8 * 3 / (message.len() + DELIVERY + work::WRITE)).max(1)
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
        io.spend(ROUTE);
        let (me, echo) = (self.index, flags.has(Flags::ECHO));
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        let jobs = &self.jobs;
        self.shared
            .routing
            .match_into(message.subject, &mut matches, &mut self.rng, |to| {
                to.shard != me || (echo || to.conn != id) && !jobs.is_leaving(to.conn)
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
        let by_mail = receivers > slice_of(message, io.turn_budget())
            || self.mailed.iter().any(|(by, _)| *by == id);
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
            io.spend(MISS);
            return;
        };
        let place = (to.index, to.generation);
        let subscription = session.subscriptions.value_mut(place);
        let Some(subscription) = subscription.filter(|one| one.max == 0 || one.delivered < one.max)
        else {
            self.counts.add_dropped(Dropped::Unsubscribed, 1);
            io.spend(MISS);
            return;
        };
        subscription.delivered += 1;
        let is_last = subscription.delivered == subscription.max;
        let before = output.len();
        if before + message.len() > limits.max_pending {
            self.counts.add_dropped(Dropped::SlowConsumer, 1);
            self.end_slow_consumer(io, to.conn);
            return;
        }
        let (framing, flags) = (&mut session.framing, session.flags);
        outbound::append_message(framing, output, flags, subscription, message, encoded);
        let pending = output.len();
        let appended = pending - before;
        let fills = session.backlog.as_mut().is_some_and(|backlog| {
            backlog.note_appended(publisher, appended) && pending > limits.max_pending / 4 * 3
        });
        let transport = framing.transport();
        session.traffic.count_sent(message.len(), second);
        io.spend(appended + DELIVERY);
        self.count_sent(transport, message.len());
        if is_last {
            self.remove_exhausted(io, to);
        }
        if fills {
            self.stall_for(io, to.conn, publisher);
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

    /// Sends a message to its receivers by mail, in slices that leave a turn room for others.
    fn post_parcels(&mut self, io: &mut Io, publisher: ConnId, message: &Message<'_>) {
        let parcel = Arc::new(Parcel::new(message));
        let mut overloads = false;
        for shard in 0..self.parcelled.len() {
            let mut receivers = std::mem::take(&mut self.parcelled[shard]);
            for slice in receivers.chunks(slice_of(message, io.turn_budget())) {
                let weight = slice.len() * (message.len() + WEIGHT);
                overloads |= self.shared.weights[shard].add(weight);
                let mail = Mail::Deliver {
                    parcel: Arc::clone(&parcel),
                    receivers: Receivers::from(slice),
                    publisher: (self.index, publisher),
                    weight,
                };
                io.mail(shard, mail);
                self.counts.add_posted(slice.len() as u64);
                io.spend(message.len() + DELIVERY + size_of_val(slice));
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
    fn a_slice_is_a_part_of_a_turn() {
        let receivers = |bytes: usize, budget| {
            let payload = vec![0; bytes];
            let message = Message {
                subject: b"a",
                reply: None,
                headers: None,
                payload: &payload,
            };
            slice_of(&message, budget)
        };
        assert_eq!(receivers(0, work::TURN), 1090);
        assert_eq!(receivers(1 << 20, work::TURN), 2);
        assert_eq!(
            receivers(8 << 20, work::TURN),
            1,
            "one receiver may take more"
        );
        assert_eq!(receivers(0, 20_000), 2);
    }
}
