//! One connection of HTTP with the parts that its requests reach, and the answers that it is given.

use std::time::Duration;

use reactor::ConnId;

use super::answer::{self, Answer};
use super::connection::Http;
use super::reply;
use super::route::{Action, Call};
use crate::io::Io;
use crate::metrics::table::Counter;
use crate::publishing::Publishing;
use crate::reason::Reason;
use crate::sessions::Sessions;

/// An error of the broker's own, as a request is answered with it.
#[derive(Clone, Copy)]
pub(crate) struct Problem<'a> {
    status: u16,
    detail: &'a str,
    /// The methods that are possible, if the request's is not.
    allow: Option<&'static str>,
}

impl<'a> Problem<'a> {
    /// Return a problem that has nothing to do with the method.
    pub(crate) const fn new(status: u16, detail: &'a str) -> Self {
        Self {
            status,
            detail,
            allow: None,
        }
    }

    /// Return the problem that a call was routed to, if it was.
    pub(crate) fn of(call: &'a Call) -> Option<Self> {
        match &call.action {
            Action::Fail {
                status,
                detail,
                allow,
            } => Some(Self {
                status: *status,
                detail,
                allow: *allow,
            }),
            _ => None,
        }
    }
}

/// One connection of HTTP, with the parts that its requests reach. Methods that return a flag return false
/// when the connection has ended.
pub(crate) struct Exchange<'a> {
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) publishing: &'a mut Publishing,
    pub(crate) io: &'a mut Io,
    pub(crate) id: ConnId,
}

impl Exchange<'_> {
    /// Return the connection's state, unless it has ended.
    pub(crate) fn http(&mut self) -> Option<&mut Http> {
        self.io.conn_mut(self.id)?.session.http_mut()
    }

    /// Set a timer of the connection, if there is a time to set it for.
    pub(crate) fn set_timer(&mut self, kind: u8, after: Option<Duration>) {
        if let Some(after) = after {
            self.io.set_timer(self.id, kind, after);
        }
    }

    /// Answer a call.
    pub(crate) fn respond(&mut self, call: &Call, answer: &Answer<'_>) -> bool {
        let envelope = call.envelope(self.publishing.delivery.date.at(self.io.now()));
        let Some(conn) = self.io.writer(self.id) else {
            return false;
        };
        if conn.output.tail_is_full() {
            conn.output.seal();
        }
        answer::encode_answer(conn.output.tail(), answer, envelope);
        let (is_client, pending) = (conn.session.is_client(), conn.output.len());
        self.io.spend(answer.body.len());
        if call.keep_alive {
            // A caller of the monitor has one answer at a time, which may be longer than a client's share.
            return !is_client || self.is_read(pending);
        }
        self.end(call.ends_for.unwrap_or(Reason::HttpAnswered))
    }

    /// Answer a call with a problem (RFC 9457).
    pub(crate) fn fail(&mut self, call: &Call, problem: Problem<'_>) -> bool {
        let Problem {
            status,
            detail,
            allow,
        } = problem;
        self.note_refused(status, detail);
        let body = answer::problem_body(status, detail);
        let answer = Answer {
            status,
            kind: answer::PROBLEM,
            fields: &[("Allow", allow.unwrap_or_default())],
            policy: answer::POLICY,
            body: body.as_bytes(),
        };
        self.respond(call, &answer)
    }

    /// Answer a call that needs random numbers which the system does not have.
    pub(crate) fn fail_random(&mut self, call: &Call, error: &std::io::Error) -> bool {
        let detail = format!("the system has no random numbers: {error}");
        self.fail(call, Problem::new(503, &detail))
    }

    /// Answer a call that has waited, and go on with the requests behind it.
    pub(crate) fn fail_late(&mut self, call: &Call, problem: Problem<'_>) {
        if self.fail(call, problem) {
            reply::end_exchange(self.sessions, self.io, self.id, true);
        }
    }

    /// Count and log an error that a request is answered with.
    pub(super) fn note_refused(&mut self, status: u16, detail: &str) {
        self.sessions.counts.add(Counter::HttpErrors, 1);
        let session = self.io.conn(self.id).map(|conn| &conn.session);
        let now = self.io.now();
        self.sessions.log.refused(now, session, status, detail);
    }

    /// Answer `GET /byte`.
    pub(super) fn append_byte(&mut self) -> bool {
        let byte = &self.publishing.delivery.date.at(self.io.now()).byte;
        let Some(conn) = self.io.writer(self.id) else {
            return false;
        };
        if conn.output.tail_is_full() {
            conn.output.seal();
        }
        conn.output.tail().extend_from_slice(byte);
        let pending = conn.output.len();
        self.io.spend(byte.len());
        self.is_read(pending)
    }

    /// Append the beginning of an answer whose body goes on until the connection ends.
    pub(super) fn begin_endless(&mut self, call: &Call, answer: &Answer<'_>) -> bool {
        let envelope = call.envelope(self.publishing.delivery.date.at(self.io.now()));
        let Some(conn) = self.io.writer(self.id) else {
            return false;
        };
        answer::encode_endless(conn.output.tail(), answer, envelope);
        !call.head_only || self.end(Reason::HttpAnswered)
    }

    /// End the connection; return false.
    pub(super) fn end(&mut self, reason: Reason) -> bool {
        self.sessions.end(self.io, self.id, reason, None);
        false
    }

    /// End a client that sends requests and does not read the answers.
    fn is_read(&mut self, pending: usize) -> bool {
        let is_read = pending <= self.sessions.shared.limits.max_pending;
        if !is_read {
            self.sessions.abort(self.io, self.id, Reason::SlowConsumer);
        }
        is_read
    }
}
