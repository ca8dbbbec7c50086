//! The gateway between HTTP and subjects: what each request does, and how a reply becomes an answer.

use std::io;
use std::time::{Duration, Instant};

use reactor::ConnId;

use super::answer::{self, Answer, Envelope};
use super::events::{self, EventFormat};
use super::inbox;
use super::route::{Action, Call};
use super::{Http, State};
use crate::mail::{Message, Subscriber};
use crate::metrics::shard::InFlight;
use crate::metrics::table::{Counter, Dropped};
use crate::outbound;
use crate::reason::Reason;
use crate::session::{Flags, Transport};
use crate::shard::{Io, Shard, Timer};
use crate::subscriptions::Subscription;
use crate::transport::TransportKind;

/// A request whose reply has not come.
pub(crate) struct Waiting {
    /// The random part of the reply subject, without which no message is the reply.
    token: u64,
    deadline: Instant,
    timeout: Duration,
    keep_alive: bool,
    origin: Option<Box<str>>,
    _in_flight: InFlight,
}

impl Waiting {
    /// When the request was published.
    fn begun(&self) -> Instant {
        self.deadline
            .checked_sub(self.timeout)
            .unwrap_or(self.deadline)
    }
}

/// Bytes that may wait for a reader of the monitor when it asks for more.
const MONITOR_PENDING: usize = 1 << 20;
/// The longest time that a timer for a reply is set for: it cannot be cancelled, and most replies come soon.
const LONGEST_TIMER: Duration = Duration::from_secs(10);

impl Shard {
    /// Does what a request asks for; false when the connection has ended.
    pub(super) fn carry_out(
        &mut self,
        io: &mut Io,
        id: ConnId,
        http: &mut Http,
        call: &Call,
        body: &[u8],
    ) -> bool {
        match &call.action {
            Action::Byte if call.keep_alive && !call.head_only && call.origin.is_none() => {
                self.append_byte(io, id)
            }
            Action::Byte => self.respond(io, id, call, &answer::BYTE),
            Action::OpenApi => self.respond(io, id, call, &answer::OPENAPI),
            Action::Monitor(page) => self.show(io, id, http, call, page),
            Action::Options(allow) => self.respond(io, id, call, &Answer::options(allow)),
            Action::Fail {
                status,
                detail,
                allow,
            } => self.fail(io, id, call, *status, detail, *allow),
            Action::Publish => {
                self.publish_call(io, id, call, None, body);
                self.respond(io, id, call, &Answer::empty(202))
            }
            Action::Request => self.begin_waiting(io, id, http, call, body),
            Action::Subscribe(format) => self.begin_events(io, id, http, call, *format),
            // Went to the handshake before.
            Action::Upgrade => false,
        }
    }

    /// Publishes a call's body; the number of receivers.
    fn publish_call(
        &mut self,
        io: &mut Io,
        id: ConnId,
        call: &Call,
        reply: Option<&[u8]>,
        body: &[u8],
    ) -> usize {
        let message = Message {
            subject: &call.subject,
            reply,
            headers: (!call.headers.is_empty()).then_some(&call.headers),
            payload: body,
        };
        self.publish(io, id, Flags::GATEWAY, &message)
    }

    /// Publishes with a reply subject, and has the connection wait for the first reply.
    fn begin_waiting(
        &mut self,
        io: &mut Io,
        id: ConnId,
        http: &mut Http,
        call: &Call,
        body: &[u8],
    ) -> bool {
        self.counts.add(Counter::GatewayRequests, 1);
        let token = match self.random.next() {
            Ok(token) => token,
            Err(error) => return self.fail_random(io, id, call, &error),
        };
        let mut reply = std::mem::take(&mut self.reply_subject);
        reply.clear();
        let inboxes = &self.shared.inboxes;
        inboxes.encode(self.index, id, token, &mut reply);
        let receivers = self.publish_call(io, id, call, Some(&reply), body);
        self.reply_subject = reply;
        if receivers == 0 {
            self.counts.add(Counter::NoResponders, 1);
            return self.fail(io, id, call, 503, &no_responders(&call.subject), None);
        }
        let waiting = Waiting {
            token,
            deadline: io.now() + call.timeout,
            timeout: call.timeout,
            keep_alive: call.keep_alive,
            origin: call.origin.clone(),
            _in_flight: self.counts.begin_in_flight(),
        };
        if let Some(after) = http.next_timer(io.now(), call.timeout) {
            io.set_timer(id, Timer::REPLY, after);
        }
        http.enter(State::Reply(waiting), io.now());
        true
    }

    /// Gives a reply as the answer to the request that waits for it, or counts why not.
    pub(crate) fn deliver_reply(&mut self, io: &mut Io, to: Subscriber, message: &Message<'_>) {
        let now = io.now();
        let second = self.second(now);
        let Some(conn) = io.conn_mut(to.conn) else {
            self.counts.add_dropped(Dropped::Closed, 1);
            return;
        };
        let waiting = match &mut conn.session.transport {
            Transport::Http(http) => {
                inbox::token(message.subject).and_then(|token| http.take_waiting(token, now))
            }
            _ => None,
        };
        let (Some(waiting), Some(conn)) = (waiting, io.writer(to.conn)) else {
            // The second reply, one that came too late, or one to a request that was never made.
            self.counts.add_dropped(Dropped::Unsubscribed, 1);
            return;
        };
        if conn.output.len() + message.len() > self.shared.limits.max_pending {
            // It sends requests and does not read the answers.
            self.counts.add_dropped(Dropped::SlowConsumer, 1);
            self.end_slow_consumer(io, to.conn);
            return;
        }
        if conn.output.tail_is_full() {
            conn.output.seal();
        }
        let waited = now.saturating_duration_since(waiting.begun());
        self.counts.record_gateway_wait(waited.as_nanos() as u64);
        let keep_alive = waiting.keep_alive && self.draining.is_none();
        let envelope = Envelope {
            date: self.date.at(now),
            keep_alive,
            head_only: false,
            origin: waiting.origin.as_deref(),
        };
        answer::encode_reply(conn.output.tail(), message, envelope);
        conn.output.add_items(1);
        conn.session.traffic.count_sent(message.len(), second);
        io.spend(message.len());
        self.count_sent(TransportKind::Http, message.len());
        self.end_exchange(io, to.conn, keep_alive);
    }

    /// The next request of the connection may be carried out, or it ends.
    pub(super) fn end_exchange(&mut self, io: &mut Io, id: ConnId, keep_alive: bool) {
        if !keep_alive {
            self.end(io, id, Reason::HttpAnswered, None);
        } else if let Some(conn) = io.conn(id)
            && let Transport::Http(http) = &conn.session.transport
            && !http.buffer.is_empty()
        {
            self.deferred.push_back(id);
            io.wake_at(io.now());
        }
    }

    /// Answers a request whose reply has not come in time.
    pub(crate) fn handle_reply_timer(&mut self, io: &mut Io, id: ConnId) {
        let now = io.now();
        let Some(conn) = io.conn_mut(id) else { return };
        let Transport::Http(http) = &mut conn.session.transport else {
            return;
        };
        if http.timer_at.is_none_or(|at| at > now) {
            // Of a deadline that has moved to the front since.
            return;
        }
        http.timer_at = None;
        let State::Reply(waiting) = &http.state else {
            return;
        };
        if waiting.deadline > now {
            let left = waiting.deadline - now;
            if let Some(after) = http.next_timer(now, left) {
                io.set_timer(id, Timer::REPLY, after);
            }
            return;
        }
        let token = waiting.token;
        let Some(waiting) = http.take_waiting(token, now) else {
            return;
        };
        self.counts.add(Counter::GatewayTimeouts, 1);
        let call = Call {
            keep_alive: waiting.keep_alive && self.draining.is_none(),
            origin: waiting.origin,
            ..Call::default()
        };
        let detail = format!("no reply came within {} s", waiting.timeout.as_secs_f64());
        if self.fail(io, id, &call, 504, &detail, None) {
            self.end_exchange(io, id, true);
        }
    }

    /// Subscribes, and sends the messages as events from then on.
    fn begin_events(
        &mut self,
        io: &mut Io,
        id: ConnId,
        http: &mut Http,
        call: &Call,
        format: EventFormat,
    ) -> bool {
        let envelope = call.envelope(self.date.at(io.now()));
        let Some(conn) = io.writer(id) else {
            return false;
        };
        answer::encode_endless(conn.output.tail(), &events::ANSWER, envelope);
        if call.head_only {
            self.end(io, id, Reason::HttpAnswered, None);
            return false;
        }
        conn.session.framing = outbound::Framing::Events(format);
        let subscription = Subscription::new(&call.subject, None, b"");
        let place = conn.session.subscriptions.insert(subscription);
        let subscriber = self.subscriber(id, place);
        // Its subject was checked when it was routed.
        let _ = self
            .shared
            .routing
            .subscribe(&call.subject, None, subscriber);
        self.counts.add(Counter::Subscribed, 1);
        self.counts.add(Counter::EventStreams, 1);
        http.enter(State::Events, io.now());
        io.set_timer(id, Timer::PING, self.shared.limits.http_heartbeat);
        true
    }

    /// Appends the answer to `GET /byte`.
    fn append_byte(&mut self, io: &mut Io, id: ConnId) -> bool {
        let byte = &self.date.at(io.now()).byte;
        let Some(conn) = io.writer(id) else {
            return false;
        };
        if conn.output.tail_is_full() {
            conn.output.seal();
        }
        conn.output.tail().extend_from_slice(byte);
        let pending = conn.output.len();
        io.spend(byte.len());
        self.is_read(io, id, pending)
    }

    /// Answers a call; false when the connection has ended.
    pub(super) fn respond(
        &mut self,
        io: &mut Io,
        id: ConnId,
        call: &Call,
        answer: &Answer<'_>,
    ) -> bool {
        let envelope = call.envelope(self.date.at(io.now()));
        let Some(conn) = io.writer(id) else {
            return false;
        };
        if conn.output.tail_is_full() {
            conn.output.seal();
        }
        // The monitor's pages may be longer than a client's share: only earlier ones count, of which less
        // may wait, for nobody limits how many ask.
        let before = conn.output.len();
        answer::encode_answer(conn.output.tail(), answer, envelope);
        let is_client = conn.session.is_client;
        let pending = if is_client { conn.output.len() } else { before };
        io.spend(answer.body.len());
        if call.keep_alive {
            return self.is_read(io, id, pending);
        }
        let reason = call.ends_for.unwrap_or(Reason::HttpAnswered);
        self.end(io, id, reason, None);
        false
    }

    /// Answers a call with a problem (RFC 9457); false when the connection has ended.
    pub(super) fn fail(
        &mut self,
        io: &mut Io,
        id: ConnId,
        call: &Call,
        status: u16,
        detail: &str,
        allow: Option<&'static str>,
    ) -> bool {
        self.counts.add(Counter::HttpErrors, 1);
        let session = io.conn(id).map(|conn| &conn.session);
        self.log.refused(io.now(), session, status, detail);
        let body = answer::problem_body(status, detail);
        let problem = Answer {
            status,
            kind: answer::PROBLEM,
            fields: &[("Allow", allow.unwrap_or_default())],
            policy: answer::POLICY,
            body: body.as_bytes(),
        };
        self.respond(io, id, call, &problem)
    }

    /// Answer a call that needs a random number where the system has none.
    pub(super) fn fail_random(
        &mut self,
        io: &mut Io,
        id: ConnId,
        call: &Call,
        error: &io::Error,
    ) -> bool {
        let detail = format!("the system has no random numbers: {error}");
        self.fail(io, id, call, 503, &detail, None)
    }

    /// Ends a client that sends requests and does not read the answers.
    fn is_read(&mut self, io: &mut Io, id: ConnId, pending: usize) -> bool {
        let is_client = io.conn(id).is_some_and(|conn| conn.session.is_client);
        let limit = self.shared.limits.max_pending;
        let is_read = pending
            <= if is_client {
                limit
            } else {
                limit.min(MONITOR_PENDING)
            };
        if !is_read {
            self.end_slow_consumer(io, id);
        }
        is_read
    }
}

impl Http {
    /// When a timer is to be set for what is due after `left`; `None` where one fires soon enough.
    fn next_timer(&mut self, now: Instant, left: Duration) -> Option<Duration> {
        let after = left.min(LONGEST_TIMER);
        if self.timer_at.is_some_and(|at| at <= now + after) {
            return None;
        }
        self.timer_at = Some(now + after);
        Some(after)
    }

    /// End the wait for the reply to the request with this token.
    fn take_waiting(&mut self, token: u64, now: Instant) -> Option<Waiting> {
        match &self.state {
            State::Reply(waiting) if waiting.token == token => {}
            _ => return None,
        }
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.since = now;
        match state {
            State::Reply(waiting) => Some(waiting),
            _ => None,
        }
    }
}

fn no_responders(subject: &[u8]) -> String {
    format!(
        "nobody has subscribed to {}",
        String::from_utf8_lossy(subject)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::shard::{Counts, ShardMetrics};
    use crate::shared::ListenerKind;

    #[test]
    fn only_the_token_of_the_request_ends_the_wait() {
        let now = Instant::now();
        let counts = Counts::new(Arc::new(ShardMetrics::new()));
        let mut http = Http::new(ListenerKind::Http, now);
        assert!(http.take_waiting(0, now).is_none(), "nothing is waited for");
        let token = 0x0123_4567_89ab_cdef;
        let waiting = Waiting {
            token,
            deadline: now,
            timeout: Duration::ZERO,
            keep_alive: true,
            origin: None,
            _in_flight: counts.begin_in_flight(),
        };
        http.enter(State::Reply(waiting), now);
        for bit in 0..64 {
            assert!(http.take_waiting(token ^ 1 << bit, now).is_none(), "{bit}");
        }
        assert!(http.take_waiting(token, now).is_some());
        assert!(http.take_waiting(token, now).is_none(), "a second reply");
    }
}
