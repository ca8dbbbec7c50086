//! The operations of a client.

use protocol::nats::{
    ClientOp, ConnectOptions, FromClient, Limits, ParseError, Parser, encode, error,
};
use protocol::ws::close;
use reactor::{Conn, ConnId};

use crate::mail::{Barrier, Mail, Message, Subscriber};
use crate::metrics::table::Counter;
use crate::outbound;
use crate::reason::Reason;
use crate::session::{Flags, Session};
use crate::shard::{Io, Shard};
use crate::subscriptions::{Place, Subscription};

/// Work of an operation, besides what it does for others.
const OPERATION: usize = 100;
/// Work of making a subscription.
const SUBSCRIBE: usize = 800;

/// What became of a slice of the stream.
pub(crate) enum Read<'a> {
    /// All of it was read.
    All,
    /// The turn has spent its budget, or the publisher is stalled: this is left for later.
    Left(&'a [u8]),
    /// The connection has ended.
    Ended,
}

impl Shard {
    /// Reads operations from a client's stream.
    pub(crate) fn receive_nats<'a>(
        &mut self,
        io: &mut Io,
        id: ConnId,
        parser: &mut Parser<FromClient>,
        mut input: &'a [u8],
    ) -> Read<'a> {
        let Some(conn) = io.conn(id) else {
            return Read::Ended;
        };
        let mut flags = conn.session.flags;
        let mut left: &[u8] = &[];
        self.reading = Some(id);
        self.is_stalled = false;
        while self.reading.is_some() {
            let limits = Limits {
                max_control_line: self.shared.limits.max_control_line,
                max_payload: self.shared.limits.max_payload,
                headers: flags.has(Flags::HEADERS),
            };
            match parser.next(&limits, &mut input) {
                Ok(Some(op)) => {
                    io.spend(OPERATION);
                    self.handle_op(io, id, &mut flags, op);
                }
                Ok(None) => break,
                Err(error) => self.end(io, id, reason(&error), error.err_text()),
            }
            if (io.is_spent() || self.is_stalled) && !input.is_empty() {
                left = std::mem::take(&mut input);
            }
        }
        if self.has_open_batch {
            self.send_barrier(io, id);
        }
        if self.reading.take().is_none() || self.is_flooded(io, id) {
            Read::Ended
        } else if left.is_empty() {
            Read::All
        } else {
            Read::Left(left)
        }
    }

    /// Ends a client that asks for replies and does not read them.
    fn is_flooded(&mut self, io: &mut Io, id: ConnId) -> bool {
        let Some(conn) = io.conn(id) else {
            return true;
        };
        let held = conn.session.held.as_ref().map_or(0, |held| held.len());
        let is_flooded = conn.output.len() + held > self.shared.limits.max_pending;
        if is_flooded {
            self.end_slow_consumer(io, id);
        }
        is_flooded
    }

    #[inline]
    fn handle_op(&mut self, io: &mut Io, id: ConnId, flags: &mut Flags, op: ClientOp<'_>) {
        match op {
            ClientOp::Pub {
                subject,
                reply,
                headers,
                payload,
            } => {
                if flags.has(Flags::VERBOSE | Flags::PEDANTIC) {
                    self.check_publish(io, id, *flags, subject);
                }
                self.publish(
                    io,
                    id,
                    *flags,
                    &Message {
                        subject,
                        reply,
                        headers,
                        payload,
                    },
                );
            }
            ClientOp::Sub {
                subject,
                queue,
                sid,
            } => {
                self.handle_sub(io, id, *flags, subject, queue, sid);
            }
            ClientOp::Unsub { sid, max } => {
                self.handle_unsub(io, id, sid, max);
                self.acknowledge(io, id, *flags);
            }
            ClientOp::Ping => self.answer_ping(io, id, flags),
            ClientOp::Pong => {
                if let Some(conn) = io.conn_mut(id) {
                    conn.session.pings_out = 0;
                }
            }
            ClientOp::Connect(json) => self.handle_connect(io, id, flags, json),
            ClientOp::Info | ClientOp::Ok => {}
            ClientOp::Err => self.end(io, id, Reason::ClientClosed, None),
        }
    }

    /// Answers with `PONG`, behind all messages that are under way by mail now: whoever has published
    /// them may have had a `PONG` already.
    fn answer_ping(&mut self, io: &mut Io, id: ConnId, flags: &mut Flags) {
        let mark = io.mail_mark();
        let must_wait = !io.has_passed(mark);
        let Some(conn) = io.writer(id) else { return };
        if must_wait {
            conn.session.held.get_or_insert_default().wait_for(mark);
            self.fences.push_back((mark, id));
        }
        outbound::append_reply(conn, encode::PONG);
        flags.set(Flags::GREETED);
        conn.session.flags = *flags;
    }

    /// Sends the replies that waited for mail which has been handed out by now.
    pub(crate) fn release_fenced(&mut self, io: &mut Io) {
        while let Some((mark, id)) = self.fences.front().copied()
            && io.has_passed(mark)
        {
            self.fences.pop_front();
            self.release_replies(io, id);
        }
    }

    /// Sends the replies whose wait is over, and removes the subscriptions that waited with them.
    fn release_replies(&mut self, io: &mut Io, id: ConnId) {
        let mut replies = Vec::new();
        loop {
            // Taken out, because the mail is asked meanwhile.
            let Some(conn) = io.conn_mut(id) else { return };
            let Some(mut held) = conn.session.held.take() else {
                break;
            };
            let done = held.next_done(|mark| io.has_passed(mark));
            let Some(conn) = io.conn_mut(id) else { return };
            if !held.is_empty() {
                conn.session.held = Some(held);
            }
            let Some((places, bytes)) = done else { break };
            for place in places {
                conn.session.subscriptions.remove(place);
            }
            replies.extend_from_slice(&bytes);
        }
        if !replies.is_empty()
            && let Some(conn) = io.writer(id)
        {
            outbound::append_bytes(conn, &replies);
        }
    }

    fn handle_connect(&mut self, io: &mut Io, id: ConnId, flags: &mut Flags, json: &[u8]) {
        let Ok(options) = ConnectOptions::parse(json) else {
            self.end(io, id, Reason::ProtocolError, None);
            return;
        };
        if let Err(text) = options.validate(true) {
            let code = match text {
                error::INVALID_CLIENT_PROTOCOL => close::PROTOCOL_ERROR,
                error::NO_RESPONDERS_REQUIRES_HEADERS => close::INTERNAL_ERROR,
                _ => close::POLICY_VIOLATION,
            };
            self.end_with_close(io, id, Reason::Refused, Some(text), Some((code, text)));
            return;
        }
        // A later CONNECT starts over: what was subscribed before is gone.
        self.start_over(io, id);
        flags.connect(&options);
        let now = io.now();
        if let Some(conn) = io.conn_mut(id) {
            conn.session.flags = *flags;
            conn.session.info = self.clients.share(&options);
            self.log.identified(now, &conn.session);
        }
        self.acknowledge(io, id, *flags);
    }

    /// What verbose and pedantic clients are told about a `PUB`. It is routed in any case.
    fn check_publish(&mut self, io: &mut Io, id: ConnId, flags: Flags, subject: &[u8]) {
        if flags.has(Flags::PEDANTIC) && !router::subject::is_valid_publish(subject) {
            self.refuse(io, id, error::INVALID_PUBLISH_SUBJECT);
        }
        self.acknowledge(io, id, flags);
    }

    fn handle_sub(
        &mut self,
        io: &mut Io,
        id: ConnId,
        flags: Flags,
        subject: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
    ) {
        let Some(conn) = io.conn_mut(id) else { return };
        let subscriptions = &mut conn.session.subscriptions;
        // A SID that is in use keeps its subscription.
        if subscriptions.find(sid).is_none() {
            let max = self.shared.limits.max_subscriptions;
            if max > 0 && subscriptions.len() >= max {
                self.refuse(io, id, error::MAX_SUBSCRIPTIONS_EXCEEDED);
                return;
            }
            let place = subscriptions.insert(Subscription::new(subject, queue, sid));
            let subscriber = self.subscriber(id, place);
            if self
                .shared
                .routing
                .subscribe(subject, queue, subscriber)
                .is_err()
            {
                subscriptions.remove(place);
                self.refuse(io, id, error::INVALID_SUBJECT);
                return;
            }
            self.counts.add(Counter::Subscribed, 1);
            io.spend(SUBSCRIBE);
        }
        self.acknowledge(io, id, flags);
    }

    fn handle_unsub(&mut self, io: &mut Io, id: ConnId, sid: &[u8], max: Option<u64>) {
        let Some(conn) = io.conn_mut(id) else { return };
        let subscriptions = &mut conn.session.subscriptions;
        let Some(place) = subscriptions.find(sid) else {
            return;
        };
        let Some(subscription) = subscriptions.value_mut(place) else {
            return;
        };
        match max {
            Some(max) if max > subscription.delivered => subscription.max = max,
            _ => self.unsubscribe(io, id, place),
        }
    }

    /// Removes a subscription at its client's wish. Other shards may have messages for it under
    /// way that were routed before: it stays until their mail has arrived, and so do the `PONG`s
    /// that the client takes for the sign that nothing more comes.
    pub(crate) fn unsubscribe(&mut self, io: &mut Io, id: ConnId, place: Place) {
        let subscriber = self.subscriber(id, place);
        let is_alone = io.shards() == 1 && self.mailed.is_empty();
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        self.counts.add(Counter::Unsubscribed, 1);
        let subscriptions = &mut conn.session.subscriptions;
        if let Some(one) = subscriptions.value(place) {
            let routing = &self.shared.routing;
            routing.unsubscribe(one.subject(), one.queue(), &subscriber);
        }
        if is_alone {
            subscriptions.remove(place);
            return;
        }
        subscriptions.mark_leaving(place);
        conn.session.held.get_or_insert_default().add_leaving(place);
        self.has_open_batch = true;
    }

    /// Sends the barrier for the subscriptions that left in this read.
    pub(crate) fn send_barrier(&mut self, io: &mut Io, id: ConnId) {
        self.has_open_batch = false;
        let own = !self.mailed.is_empty();
        let waiting = io.shards() as u32 - u32::from(!own);
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        let Some(held) = &mut conn.session.held else {
            return;
        };
        let Some(ticket) = held.close_barrier(waiting) else {
            return;
        };
        let barrier = Barrier {
            shard: self.index,
            ticket,
            conn: id,
        };
        let has_mail = |shard: &usize| own || *shard != usize::from(self.index);
        for shard in (0..io.shards()).filter(has_mail) {
            io.mail(shard, Mail::Barrier(barrier));
        }
    }

    /// One shard has no more messages for the subscriptions that wait at `barrier`.
    pub(crate) fn handle_passed(&mut self, io: &mut Io, barrier: Barrier) {
        let id = barrier.conn;
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        if let Some(held) = &mut conn.session.held {
            held.note_passed(barrier.ticket);
            self.release_replies(io, id);
        }
    }

    /// Removes a subscription that has had its last message.
    pub(crate) fn remove_exhausted(&mut self, io: &mut Io, to: Subscriber) {
        let Some(conn) = io.conn_mut(to.conn) else {
            return;
        };
        let subscriptions = &mut conn.session.subscriptions;
        let place = (to.index, to.generation);
        if let Some(one) = subscriptions.remove(place)
            && !one.leaving
        {
            self.shared
                .routing
                .unsubscribe(one.subject(), one.queue(), &to);
            self.counts.add(Counter::Unsubscribed, 1);
        }
    }

    /// `+OK`, for verbose clients.
    #[inline]
    fn acknowledge(&mut self, io: &mut Io, id: ConnId, flags: Flags) {
        if flags.has(Flags::VERBOSE)
            && let Some(conn) = io.writer(id)
        {
            outbound::append_reply(conn, encode::OK);
        }
    }

    /// An `-ERR` after which the connection goes on.
    fn refuse(&mut self, io: &mut Io, id: ConnId, text: &str) {
        if let Some(conn) = io.writer(id) {
            self.counts.add(Counter::Errors, 1);
            append_refusal(conn, text);
        }
    }
}

/// Appends a non-fatal `-ERR` in its place among the other replies.
fn append_refusal(conn: &mut Conn<Session>, text: &str) {
    let mut bytes = Vec::with_capacity(text.len() + 10);
    encode::encode_err(&mut bytes, text);
    outbound::append_reply(conn, &bytes);
}

fn reason(error: &ParseError) -> Reason {
    match error {
        ParseError::PayloadTooLarge { .. } => Reason::PayloadTooLarge,
        ParseError::ControlLineTooLong { .. } => Reason::ControlLineTooLong,
        _ => Reason::ProtocolError,
    }
}
