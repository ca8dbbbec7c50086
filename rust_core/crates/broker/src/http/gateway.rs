//! The gateway between HTTP and subjects: the effect of each request, and the wait for a reply.

use protocol::nats::Message;
use reactor::ConnId;

use super::answer::{self, Answer};
use super::connection::{State, Waiting};
use super::events::{self, EventFormat};
use super::exchange::{Exchange, Problem};
use super::route::{Action, Call};
use crate::io::{Io, Timer};
use crate::metrics::table::Counter;
use crate::session::Flags;
use crate::sessions::Sessions;
use crate::subscriptions::Subscription;

/// The part of a shard that carries out requests to subjects.
#[derive(Default)]
pub(crate) struct Gateway {
    /// The last call, kept for its memory.
    pub(super) call: Call,
    /// The last reply subject, kept for its memory.
    reply_subject: Vec<u8>,
}

impl Gateway {
    /// Carry out a call, and keep its memory for the next one. Return false when the connection has ended.
    pub(super) fn carry_out(&mut self, on: &mut Exchange<'_>, call: Call, body: &[u8]) -> bool {
        let goes_on = match &call.action {
            Action::Byte if call.keep_alive && !call.head_only && call.origin.is_none() => {
                on.append_byte()
            }
            Action::Byte => on.respond(&call, &answer::BYTE),
            Action::OpenApi => on.respond(&call, &answer::OPENAPI),
            Action::Options(allow) => on.respond(&call, &Answer::options(allow)),
            Action::Publish => {
                publish(on, &call, None, body);
                on.respond(&call, &Answer::empty(202))
            }
            Action::Request => self.begin_waiting(on, &call, body),
            Action::Subscribe(format) => begin_events(on, &call, *format),
            Action::Fail { .. } | Action::Monitor(_) | Action::Upgrade => {
                // The monitor and the handshake carry out the others.
                Problem::of(&call).is_some_and(|problem| on.fail(&call, problem))
            }
        };
        self.call = call;
        goes_on
    }

    /// Publish with a reply subject, and have the connection wait for the first reply.
    fn begin_waiting(&mut self, on: &mut Exchange<'_>, call: &Call, body: &[u8]) -> bool {
        on.sessions.counts.add(Counter::GatewayRequests, 1);
        let token = match on.sessions.random.next() {
            Ok(token) => token,
            Err(error) => return on.fail_random(call, &error),
        };
        let reply = &mut self.reply_subject;
        reply.clear();
        let inboxes = &on.sessions.shared.inboxes;
        inboxes.encode(on.sessions.index, on.id, token, reply);
        if publish(on, call, Some(reply), body) == 0 {
            on.sessions.counts.add(Counter::NoResponders, 1);
            let subject = String::from_utf8_lossy(&call.subject);
            let detail = format!("no subscriber to {subject}");
            return on.fail(call, Problem::new(503, &detail));
        }
        let now = on.io.now();
        let waiting = Waiting {
            token,
            deadline: now + call.timeout,
            timeout: call.timeout,
            keep_alive: call.keep_alive,
            origin: call.origin.clone(),
            _in_flight: on.sessions.counts.begin_in_flight(),
        };
        let Some(http) = on.http() else { return false };
        http.enter(State::Reply(waiting), now);
        let after = http.next_timer(now, call.timeout);
        on.set_timer(Timer::REPLY, after);
        true
    }
}

/// Answer a request whose reply has not come in time.
pub(crate) fn handle_reply_timer(on: &mut Exchange<'_>) {
    let now = on.io.now();
    let Some(http) = on.http() else { return };
    if !http.note_timer(now) {
        return;
    }
    let State::Reply(waiting) = &http.state else {
        return;
    };
    if waiting.deadline > now {
        let left = waiting.deadline - now;
        let after = http.next_timer(now, left);
        return on.set_timer(Timer::REPLY, after);
    }
    let token = waiting.token;
    let Some(waiting) = http.take_waiting(token, now) else {
        return;
    };
    on.sessions.counts.add(Counter::GatewayTimeouts, 1);
    let call = Call {
        keep_alive: waiting.keep_alive && !on.sessions.is_draining,
        origin: waiting.origin,
        ..Call::default()
    };
    let detail = format!("no reply came within {} s", waiting.timeout.as_secs_f64());
    on.fail_late(&call, Problem::new(504, &detail));
}

/// Send a stream of events the next sign that both ends are there.
pub(crate) fn handle_heartbeat_timer(sessions: &Sessions, io: &mut Io, id: ConnId) {
    if let Some(conn) = io.writer(id) {
        conn.output.tail().extend_from_slice(events::HEARTBEAT);
    }
    io.set_timer(id, Timer::PING, sessions.shared.limits.http_heartbeat);
}

/// Publish a call's body; return the number of receivers.
fn publish(on: &mut Exchange<'_>, call: &Call, reply: Option<&[u8]>, body: &[u8]) -> usize {
    let message = Message {
        subject: &call.subject,
        reply,
        headers: (!call.headers.is_empty()).then_some(&call.headers),
        payload: body,
    };
    on.publishing
        .publish(on.sessions, on.io, on.id, Flags::GATEWAY, &message)
}

/// Subscribe, and send the messages as events from then on. Return false when the connection has ended.
fn begin_events(on: &mut Exchange<'_>, call: &Call, format: EventFormat) -> bool {
    if !on.begin_endless(call, &events::ANSWER) {
        return false;
    }
    let now = on.io.now();
    let Some(conn) = on.io.conn_mut(on.id) else {
        return false;
    };
    if let Some(http) = conn.session.http_mut() {
        http.enter(State::Events(format), now);
    }
    let subscription = Subscription::new(&call.subject, None, b"");
    let handle = conn.session.subscriptions.insert(subscription);
    let subscriber = on.sessions.subscriber(on.id, handle);
    let shared = &on.sessions.shared;
    // Its subject was checked when it was routed.
    let _ = shared.routing.subscribe(&call.subject, None, subscriber);
    on.sessions.counts.add(Counter::Subscribed, 1);
    on.sessions.counts.add(Counter::EventStreams, 1);
    let heartbeat = shared.limits.http_heartbeat;
    on.set_timer(Timer::PING, Some(heartbeat));
    true
}
