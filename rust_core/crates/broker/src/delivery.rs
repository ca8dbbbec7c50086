//! The delivery of one message to one receiver on this shard.

use protocol::nats::{Message, encode};
use reactor::{Conn, ConnId};

use crate::backlog::Publisher;
use crate::backpressure::Backpressure;
use crate::http::answer::Date;
use crate::http::reply;
use crate::io::Io;
use crate::metrics::table::{Counter, Dropped};
use crate::outbound::{self, Encoded};
use crate::reason::Reason;
use crate::sessions::Sessions;
use crate::subscriber::{Destination, Subscriber};
use crate::subscriptions::SubscriptionId;

/// Work of a delivery, besides its bytes: operation, frame, look-ups.
pub(crate) const DELIVERY: usize = 250;
/// Work of looking at a receiver that turns out to be gone.
const MISS: usize = 50;

/// The state that deliveries need: the answers over HTTP, and the stalls of publishers.
pub(crate) struct Delivery {
    /// The date of answers over HTTP.
    pub(crate) date: Date,
    pub(crate) backpressure: Backpressure,
}

impl Delivery {
    /// Return the parts of a shard that has delivered nothing.
    pub(crate) fn new() -> Self {
        Self {
            date: Date::new(),
            backpressure: Backpressure::default(),
        }
    }

    /// Append a message to the output of a receiver, or count why not.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io,
        to: Subscriber,
        message: &Message<'_>,
        publisher: Publisher,
        encoded: Option<&mut Encoded>,
    ) {
        let Destination::Subscription(handle) = to.destination() else {
            reply::deliver(sessions, &mut self.date, io, to.conn, message);
            return;
        };
        let limits = &sessions.shared.limits;
        let second = sessions.second(io.now());
        let Some(Conn {
            session, output, ..
        }) = io.writer(to.conn)
        else {
            sessions.counts.add_dropped(Dropped::Closed, 1);
            io.spend(MISS);
            return;
        };
        let subscription = session.subscriptions.value_mut(handle);
        let Some(subscription) = subscription.filter(|one| one.max == 0 || one.delivered < one.max)
        else {
            sessions.counts.add_dropped(Dropped::Unsubscribed, 1);
            io.spend(MISS);
            return;
        };
        subscription.delivered += 1;
        let is_last = subscription.delivered == subscription.max;
        let before = output.len();
        if before + message.size() > limits.max_pending {
            sessions.counts.add_dropped(Dropped::SlowConsumer, 1);
            sessions.abort(io, to.conn, Reason::SlowConsumer);
            return;
        }
        let (protocol, flags) = (&mut session.protocol, session.flags);
        outbound::append_message(protocol, output, flags, subscription, message, encoded);
        let pending = output.len();
        let appended = pending - before;
        let fills = session.backlog.as_mut().is_some_and(|backlog| {
            backlog.note_appended(publisher, appended) && pending > limits.max_pending / 4 * 3
        });
        let transport = session.protocol.kind();
        session.traffic.count_sent(message.size(), second);
        io.spend(appended + DELIVERY);
        sessions.counts.add_sent(transport, message.size());
        if is_last {
            sessions.remove_exhausted(io, to.conn, handle);
        }
        if fills {
            self.backpressure
                .stall_for(sessions, io, to.conn, publisher);
        }
    }

    /// Tell a requestor, by its own subscription with this `handle`, that no subscription matches its request.
    pub(crate) fn answer_no_responders(
        sessions: &Sessions,
        io: &mut Io,
        (id, handle): (ConnId, SubscriptionId),
        subject: &[u8],
        reply: &[u8],
    ) {
        let Some(conn) = io.writer(id) else {
            return;
        };
        let Some(one) = conn.session.subscriptions.value(handle) else {
            return;
        };
        let mut bytes = Vec::with_capacity(96 + reply.len() + subject.len());
        encode::encode_no_responders(&mut bytes, reply, one.sid(), subject);
        outbound::append_bytes(conn, &bytes);
        sessions.counts.add(Counter::NoResponders, 1);
    }
}
