//! From a published message to its receivers, on this shard and on others.

use std::io;
use std::sync::Arc;

use fastrand::Rng;
use protocol::nats::Message;
use reactor::{ConnId, work};
use router::Matches;

use crate::backlog::Publisher;
use crate::delivery::{DELIVERY, Delivery};
use crate::io::Io;
use crate::mail::Mail;
use crate::message::{OwnedMessage, Receivers, SHARED};
use crate::metrics::table::{Counter, Flow};
use crate::monitor::Hot;
use crate::outbound::Encoded;
use crate::session::Flags;
use crate::sessions::Sessions;
use crate::subscriber::{Destination, Subscriber};

/// Bytes that a delivery weighs in a mailbox besides its payload.
const WEIGHT: usize = 64;

/// Work of routing a message, besides the search.
const ROUTE: usize = 200;
/// Work of a look-up in the routing table. Measured: 2 to 9 ns without a match, 45 to 60 ns with one,
/// which counts twice.
const LOOKUP: usize = 24;
/// Work of examining a subscriber that the routing table names. Measured: 0.3 to 2 ns, more if it is
/// cold.
const MEMBER: usize = 8;

/// Return the number of receivers that a message is delivered to at once. If it has more, they get it by
/// mail, in slices of this size, so that a message to a million connections does not fill as many outputs
/// before any is written, nor keep other clients waiting: three eighths of a turn's budget.
fn slice_of(message: &Message<'_>, turn_budget: usize) -> usize {
    (turn_budget / 8 * 3 / (message.size() + DELIVERY + work::WRITE)).max(1)
}

/// Return the work of finding the receivers of a message.
#[inline]
const fn search(work: router::Work) -> usize {
    work.lookups as usize * LOOKUP + work.members as usize * MEMBER
}

/// The routing of a shard's messages.
pub(crate) struct Publishing {
    pub(crate) delivery: Delivery,
    pub(crate) hot: Hot,
    /// The most receivers that a message had.
    pub(crate) max_fanout: usize,
    matches: Matches<Subscriber>,
    /// The generator of choices that may be predicted, such as the member of a queue group.
    rng: Rng,
    /// The bytes that serve all receivers of one message.
    encoded: Encoded,
    /// Receivers that get the message being routed by mail, by shard.
    by_mail: Vec<Vec<Subscriber>>,
    /// Publishers with mail of this shard to itself on the way, and the number of its slices.
    mailed: Vec<(ConnId, u32)>,
}

impl Publishing {
    /// Return the routing of a shard that has published nothing, one of `shards`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new(sessions: &mut Sessions, shards: usize) -> io::Result<Self> {
        let started = sessions.shared.started;
        Ok(Self {
            delivery: Delivery::new(),
            hot: Hot::new(started, sessions.random.next()?),
            max_fanout: 0,
            matches: Matches::new(),
            rng: Rng::with_seed(sessions.random.next()?),
            encoded: Encoded::default(),
            by_mail: (0..shards).map(|_| Vec::new()).collect(),
            mailed: Vec::new(),
        })
    }

    /// Return whether mail of this shard to itself is on the way.
    pub(crate) fn has_own_mail(&self) -> bool {
        !self.mailed.is_empty()
    }

    /// Return the number of publishers with mail of this shard to itself on the way.
    #[cfg(feature = "sim")]
    pub(crate) fn mailed(&self) -> usize {
        self.mailed.len()
    }

    /// Route a message that the client `id` has published; return the number of its receivers.
    pub(crate) fn publish(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io,
        id: ConnId,
        flags: Flags,
        message: &Message<'_>,
    ) -> usize {
        count_published(sessions, io, id, message);
        io.spend(ROUTE);
        let (me, echo) = (sessions.index, flags.has(Flags::ECHO));
        self.matches.clear();
        let (routing, jobs) = (&sessions.shared.routing, &sessions.jobs);
        routing.match_into(message.subject, &mut self.matches, &mut self.rng, |to| {
            to.shard != me || (echo || to.conn != id) && !jobs.is_leaving(to.conn)
        });
        io.spend(search(self.matches.work()));
        if let Some(to) = sessions.shared.inboxes.receiver(message.subject) {
            self.matches.add(to);
        } else {
            self.hot.offer(message.subject, message.size());
        }
        let receivers = self.matches.len();
        self.max_fanout = self.max_fanout.max(receivers);
        sessions.counts.add(Counter::Matched, receivers as u64);
        // A message must not overtake an earlier one of its publisher.
        let by_mail = receivers > slice_of(message, io.turn_budget())
            || self.mailed.iter().any(|(by, _)| *by == id);
        let mut mailed = false;
        let is_shared = receivers > 1 && message.size() >= SHARED;
        let owned = (is_shared || by_mail).then(|| own(sessions, message));
        let mut encoded = begin_encoding(&mut self.encoded, receivers, owned.as_ref());
        for to in self.matches.receivers() {
            if to.shard == me && !by_mail {
                let encoded = encoded.as_deref_mut();
                self.delivery
                    .deliver(sessions, io, to, message, (me, id), encoded);
            } else {
                self.by_mail[usize::from(to.shard)].push(to);
                mailed = true;
            }
        }
        if let Some(encoded) = encoded {
            encoded.clear();
        }
        if mailed {
            let owned = owned.unwrap_or_else(|| own(sessions, message));
            self.post(sessions, io, id, &owned);
        }
        if receivers == 0
            && flags.has(Flags::NO_RESPONDERS)
            && let Some(reply) = message.reply
        {
            self.answer_no_responders(sessions, io, id, message.subject, reply);
        }
        receivers
    }

    /// Tell the client `id` that its request has no receivers, if it has subscribed to the replies.
    fn answer_no_responders(
        &mut self,
        sessions: &Sessions,
        io: &mut Io,
        id: ConnId,
        subject: &[u8],
        reply: &[u8],
    ) {
        let (me, routing) = (sessions.index, &sessions.shared.routing);
        self.matches.clear();
        routing.match_into(reply, &mut self.matches, &mut self.rng, |to| {
            to.conn == id && to.shard == me
        });
        io.spend(search(self.matches.work()));
        let own = self.matches.plain().first().map(Subscriber::destination);
        if let Some(Destination::Subscription(place)) = own {
            Delivery::answer_no_responders(sessions, io, (id, place), subject, reply);
        }
    }

    /// Deliver a message that came by mail, from another shard, or from this one.
    pub(crate) fn deliver_mail(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io,
        owned: &Arc<OwnedMessage>,
        receivers: &Receivers,
        (publisher, weight): (Publisher, usize),
    ) {
        let memory = Mail::bytes(owned, receivers);
        sessions.shared.queued[usize::from(sessions.index)].subtract(weight, memory);
        if publisher.0 == sessions.index {
            self.note_delivered(publisher.1);
        }
        let message = owned.message();
        let receivers = receivers.as_slice();
        sessions.counts.add_arrived(receivers.len() as u64);
        let mut encoded = begin_encoding(&mut self.encoded, receivers.len(), Some(owned));
        for to in receivers {
            let encoded = encoded.as_deref_mut();
            self.delivery
                .deliver(sessions, io, *to, &message, publisher, encoded);
        }
        if let Some(encoded) = encoded {
            encoded.clear();
        }
    }

    /// Send a message to its receivers by mail, in slices that leave a turn room for others.
    fn post(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io,
        publisher: ConnId,
        owned: &Arc<OwnedMessage>,
    ) {
        let message = &owned.message();
        let mut overloads = false;
        for shard in 0..self.by_mail.len() {
            let mut receivers = std::mem::take(&mut self.by_mail[shard]);
            for slice in receivers.chunks(slice_of(message, io.turn_budget())) {
                let weight = slice.len() * (message.size() + WEIGHT);
                let receivers = Receivers::from(slice);
                let memory = Mail::bytes(owned, &receivers);
                overloads |= sessions.shared.queued[shard].add(weight, memory);
                let mail = Mail::Deliver {
                    owned: Arc::clone(owned),
                    receivers,
                    publisher: (sessions.index, publisher),
                    weight,
                };
                io.mail(shard, mail);
                sessions.counts.add_posted(slice.len() as u64);
                io.spend(message.size() + DELIVERY + size_of_val(slice));
                if shard == usize::from(sessions.index) {
                    self.note_mailed(publisher);
                }
            }
            receivers.clear();
            self.by_mail[shard] = receivers;
        }
        if overloads {
            let publisher = (sessions.index, publisher);
            self.delivery.backpressure.stall(sessions, io, publisher);
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
}

/// Count a message that a client has published.
#[inline]
fn count_published(sessions: &Sessions, io: &mut Io, id: ConnId, message: &Message<'_>) {
    let Some(conn) = io.conn_mut(id) else { return };
    let (transport, len) = (conn.session.kind(), message.size() as u64);
    conn.session.traffic.in_msgs += 1;
    conn.session.traffic.in_bytes += len;
    sessions.counts.add_flow(transport, Flow::InMsgs, 1);
    sessions.counts.add_flow(transport, Flow::InBytes, len);
}

fn own(sessions: &Sessions, message: &Message<'_>) -> Arc<OwnedMessage> {
    Arc::new(OwnedMessage::new(message, &sessions.shared.account))
}

/// Return the bytes that serve all receivers of a message, if there are several, here or elsewhere.
fn begin_encoding<'a>(
    encoded: &'a mut Encoded,
    receivers: usize,
    owned: Option<&Arc<OwnedMessage>>,
) -> Option<&'a mut Encoded> {
    let shared = owned.filter(|owned| owned.is_shared());
    if receivers <= 1 && shared.is_none() {
        return None;
    }
    shared.inspect(|owned| encoded.share(owned));
    Some(encoded)
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
