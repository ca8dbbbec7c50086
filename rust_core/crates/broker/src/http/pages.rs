//! The monitor's pages as answers.

use std::sync::Arc;
use std::time::Instant;

use reactor::ConnId;

use super::answer::{self, Answer};
use super::route::Call;
use super::{Http, State};
use crate::metrics::table::Counter;
use crate::monitor::{self, Page, Survey};
use crate::reason::Reason;
use crate::session::Transport;
use crate::shard::{Io, Shard, Timer};

/// A request whose answer the shards have to be asked for.
pub(crate) struct Asking {
    /// Of the survey.
    number: u32,
    deadline: Instant,
    keep_alive: bool,
    head_only: bool,
}

impl Asking {
    /// The call that asked, as far as its answer needs it.
    fn call(&self, is_draining: bool) -> Call {
        Call {
            keep_alive: self.keep_alive && !is_draining,
            head_only: self.head_only,
            ..Call::default()
        }
    }
}

impl Shard {
    /// Serves a connection of the monitor, or refuses to where too many are open.
    pub(crate) fn open_monitor(&mut self, io: &mut Io, id: ConnId) {
        let is_served = self.monitor.as_mut().is_some_and(|monitor| monitor.admit());
        if is_served {
            io.set_timer(id, Timer::HANDSHAKE, self.shared.limits.http_check());
            return;
        }
        self.counts.add(Counter::HttpErrors, 1);
        if let Some(conn) = io.writer(id) {
            let most = monitor::MAX_CONNECTIONS;
            let detail = format!("the monitor has {most} connections, and serves no more at once");
            let problem = answer::problem(503, &detail);
            conn.output.tail().extend_from_slice(&problem);
        }
        self.end(io, id, Reason::HttpAnswered, None);
    }

    /// Answers with a page, or has the connection wait until the shards have said what is on it; false when
    /// the connection has ended.
    pub(super) fn show(
        &mut self,
        io: &mut Io,
        id: ConnId,
        http: &mut Http,
        call: &Call,
        page: &Page,
    ) -> bool {
        let is_ready = self.draining.is_none();
        self.publish_counts(io);
        let Some(monitor) = &self.monitor else {
            return false;
        };
        let text;
        let answer = match page {
            Page::Console => return self.show_console(io, id, call),
            Page::Varz => {
                text = monitor.varz(&self.shared, is_ready).to_string();
                Answer::json(&text)
            }
            Page::Health => Answer::json(r#"{"status":"ok"}"#),
            Page::Ready if is_ready => Answer::json(r#"{"status":"ok"}"#),
            Page::Ready => Answer {
                status: 503,
                ..Answer::json(r#"{"status":"unavailable","error":"draining"}"#)
            },
            Page::History { resolution, since } => {
                text = monitor.history(*resolution, *since).unwrap_or_default();
                Answer::json(&text)
            }
            Page::Metrics(format) => {
                text = monitor.metrics(&self.shared, *format, is_ready);
                Answer {
                    kind: format.content_type(),
                    ..Answer::json(&text)
                }
            }
            Page::Survey(question) => {
                let asking = Asking {
                    number: self.begin_survey(io, id, Arc::clone(question)),
                    deadline: io.now() + monitor::PATIENCE,
                    keep_alive: call.keep_alive,
                    head_only: call.head_only,
                };
                io.set_timer(id, Timer::SURVEY, monitor::PATIENCE);
                http.enter(State::Survey(asking), io.now());
                return true;
            }
        };
        self.respond(io, id, call, &answer)
    }

    fn show_console(&mut self, io: &mut Io, id: ConnId, call: &Call) -> bool {
        let (html, policy) = match monitor::console(&mut self.random) {
            Ok(page) => page,
            Err(error) => return self.fail_random(io, id, call, &error),
        };
        let answer = Answer {
            status: 200,
            kind: "text/html; charset=utf-8",
            fields: &[("Cache-Control", "no-store")],
            policy: &policy,
            body: html.as_bytes(),
        };
        self.respond(io, id, call, &answer)
    }

    /// Answers the request that the survey was for, if its connection waits for it still.
    pub(crate) fn answer_survey(&mut self, io: &mut Io, id: ConnId, number: u32, json: &str) {
        if let Some(asking) = take_asking(io, id, |asking| asking.number == number) {
            let call = asking.call(self.draining.is_some());
            if self.respond(io, id, &call, &Answer::json(json)) {
                self.end_exchange(io, id, true);
            }
        }
    }

    /// Answers a request whose survey takes too long.
    pub(crate) fn handle_survey_timer(&mut self, io: &mut Io, id: ConnId) {
        let now = io.now();
        let Some(asking) = take_asking(io, id, |asking| asking.deadline <= now) else {
            return;
        };
        if let Some(monitor) = &mut self.monitor {
            monitor.give_up(id);
        }
        let call = asking.call(self.draining.is_some());
        let detail = "the shards did not answer in time";
        if self.fail(io, id, &call, 503, detail, None) {
            self.end_exchange(io, id, true);
        }
    }

    /// A survey's part that its shard will not do any more: it has ended.
    pub(crate) fn return_survey(&self, survey: Box<Survey>) {
        let (asker, mail) = survey.abandoned();
        // If whoever asks has ended, too, nobody waits.
        drop(self.mailboxes.post(asker, mail));
    }
}

/// Ends a connection's wait for a survey that is the right one.
fn take_asking(io: &mut Io, id: ConnId, is_it: impl Fn(&Asking) -> bool) -> Option<Asking> {
    let now = io.now();
    let conn = io.conn_mut(id)?;
    let Transport::Http(http) = &mut conn.session.transport else {
        return None;
    };
    if !matches!(&http.state, State::Survey(asking) if is_it(asking)) {
        return None;
    }
    http.since = now;
    match std::mem::replace(&mut http.state, State::Idle) {
        State::Survey(asking) => Some(asking),
        _ => None,
    }
}
