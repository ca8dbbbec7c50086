//! From a published message to its receivers, on this shard and on others.

use std::sync::Arc;

use protocol::nats::encode;
use reactor::{Conn, ConnId};

use crate::counters::{Counter, Reason};
use crate::mail::{Mail, Message, Parcel, Receivers, Subscriber};
use crate::outbound;
use crate::session::Flags;
use crate::shard::{Io, Shard, Timer};
use crate::shared::Weight;

/// What a delivery costs besides its bytes, expressed in bytes: operation, frame, look-ups.
const OVERHEAD: usize = 64;

impl Shard {
    /// Routes a message that the client `id` has published.
    pub(crate) fn publish(&mut self, io: &mut Io, id: ConnId, flags: Flags, message: &Message<'_>) {
        self.counts.add(Counter::InMsgs, 1);
        self.counts.add(Counter::InBytes, message.len() as u64);
        let (me, echo) = (self.index, flags.has(Flags::ECHO));
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        self.shared
            .routing
            .match_into(message.subject, &mut matches, &mut self.rng, |to| {
                echo || to.conn != id || to.shard != me
            });
        self.counts.add(Counter::Matched, matches.len() as u64);
        let mut remote = false;
        for to in matches.receivers() {
            if to.shard == me {
                self.deliver(io, to, message, (me, id));
            } else {
                self.remote[usize::from(to.shard)].push(to);
                remote = true;
            }
        }
        if remote {
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
    }

    /// Appends a message to the output of a receiver on this shard, or counts why not.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        io: &mut Io,
        to: Subscriber,
        message: &Message<'_>,
        publisher: (u16, ConnId),
    ) {
        let limits = &self.shared.limits;
        let Some(Conn {
            session, output, ..
        }) = io.writer(to.conn)
        else {
            self.counts.add(Counter::DroppedClosed, 1);
            return;
        };
        let place = (to.index, to.generation);
        let subscription = session.subscriptions.value_mut(place);
        let Some(subscription) = subscription.filter(|one| one.max == 0 || one.delivered < one.max)
        else {
            self.counts.add(Counter::DroppedUnsubscribed, 1);
            return;
        };
        subscription.delivered += 1;
        let is_last = subscription.delivered == subscription.max;
        let pending = output.len() + message.len();
        if pending > limits.max_pending {
            self.counts.add(Counter::DroppedSlowConsumer, 1);
            self.end_slow_consumer(io, to.conn);
            return;
        }
        let falls_behind = pending > limits.max_pending / 4 * 3;
        let sid = subscription.sid();
        outbound::append_message(&mut session.framing, output, session.flags, sid, message);
        io.spend(message.len() + OVERHEAD);
        self.counts.add(Counter::OutMsgs, 1);
        self.counts.add(Counter::OutBytes, message.len() as u64);
        if is_last {
            self.remove_exhausted(io, to);
        }
        if falls_behind {
            self.stall(io, publisher);
        }
    }

    /// Delivers a parcel from another shard.
    pub(crate) fn deliver_parcel(
        &mut self,
        io: &mut Io,
        parcel: &Parcel,
        receivers: &Receivers,
        publisher: (u16, ConnId),
        weight: usize,
    ) {
        self.shared.weights[usize::from(self.index)].subtract(weight);
        let message = parcel.message();
        for to in receivers.as_slice() {
            self.deliver(io, *to, &message, publisher);
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
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        if !conn.session.is_stalled {
            conn.session.is_stalled = true;
            self.counts.add(Counter::Stalls, 1);
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
        if conn.session.deferred.is_none() {
            io.set_reading(id, true);
        }
    }

    fn post_parcels(&mut self, io: &mut Io, publisher: ConnId, message: &Message<'_>) {
        let parcel = Arc::new(Parcel::new(message));
        let mut overloads = false;
        for shard in 0..self.remote.len() {
            let receivers = match self.remote[shard].as_slice() {
                [] => continue,
                [one] => Receivers::One(*one),
                many => Receivers::Many(many.into()),
            };
            self.remote[shard].clear();
            let weight = receivers.as_slice().len() * (message.len() + OVERHEAD);
            overloads |= self.shared.weights[shard].add(weight);
            let mail = Mail::Deliver {
                parcel: Arc::clone(&parcel),
                receivers,
                publisher: (self.index, publisher),
                weight,
            };
            io.mail(shard, mail);
            io.spend(message.len() + OVERHEAD);
        }
        if overloads {
            self.stall(io, (self.index, publisher));
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
