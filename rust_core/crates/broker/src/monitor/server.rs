//! Requests to the monitor: when each is carried out, and the pages as answers.
//!
//! A connection has one request under way, and one answer: while it has not taken the last one, its next
//! request waits. So a reader that is slow holds one page, however much it asks for.

use std::sync::Arc;
use std::time::Duration;

use reactor::ConnId;

use super::callers::{Activity, Callers};
use super::console;
use super::figures::Figures;
use super::page::Page;
use super::queue::Queue;
use super::survey::Survey;
use super::surveys::Surveys;
use crate::http::answer::Answer;
use crate::http::reply::end_exchange;
use crate::http::{Action, Asking, Call, Exchange, Problem, State};
use crate::io::{Io, Timer};
use crate::publishing::Publishing;
use crate::reason::Reason;
use crate::sessions::Sessions;

/// Work of a request, besides the bytes of its answer.
const REQUEST: usize = 3_000;
/// Work of looking at all metrics.
const SNAPSHOT: usize = 40_000;
/// Work of a byte of `/varz`, which is a tree of values before it is text.
const VARZ_BYTE: usize = 8;
/// Time after which a connection that has not taken its last answer is looked at again.
const UNTAKEN: Duration = Duration::from_millis(20);
/// Time that a survey may take.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(10);

/// The monitor's part of a shard.
pub(crate) struct Monitor {
    /// On the shard that has the monitor's listener.
    desk: Option<Box<Desk>>,
    pub(crate) surveys: Surveys,
}

/// The callers of the monitor and their pages.
struct Desk {
    callers: Callers,
    queue: Queue,
    figures: Figures,
}

impl Monitor {
    /// Return the part of a shard that serves nothing yet.
    pub(crate) fn new(sessions: &Sessions) -> Self {
        let shared = &sessions.shared;
        let desk = || {
            Box::new(Desk {
                callers: Callers::new(shared.room.monitor),
                queue: Queue::default(),
                figures: Figures::new(shared),
            })
        };
        Self {
            desk: sessions.listeners.has_monitor().then(desk),
            surveys: Surveys::default(),
        }
    }

    /// Begin to serve a caller, to which another one may have to give way.
    pub(crate) fn open(&mut self, sessions: &Sessions, io: &mut Io, id: ConnId) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        let activity = |id| {
            let conn = io.conn(id)?;
            let http = conn.session.http();
            let is_waiting = http.is_some_and(|http| http.is_waiting());
            Some(Activity {
                is_busy: is_waiting || !conn.output.is_empty(),
                since: http.map(|http| http.since),
            })
        };
        let admitted = desk.callers.add(id, activity);
        let is_full = desk.callers.is_full();
        if let Some(other) = admitted.instead_of
            && let Some(conn) = io.conn_mut(other)
        {
            conn.session.ended.get_or_insert(Reason::Evicted);
            io.abort(other);
        }
        if is_full {
            sessions.listeners.pause_monitor(io, io.now());
        }
        let http = io.conn_mut(id).and_then(|conn| conn.session.http_mut());
        if let Some(http) = http {
            http.is_for_health = !admitted.is_served;
            http.is_watched = true;
            let check = sessions.shared.limits.http_check();
            io.set_timer(id, Timer::HANDSHAKE, check);
        }
    }

    /// Forget a caller that is gone.
    pub(crate) fn close(&mut self, id: ConnId) {
        if let Some(desk) = &mut self.desk {
            desk.callers.remove(id);
            self.surveys.forget(id);
        }
    }

    /// Measure the broker once a second.
    pub(crate) fn watch(&mut self, sessions: &Sessions, io: &mut Io) {
        if let Some(desk) = &mut self.desk {
            let work = desk.figures.advance(&sessions.shared, io.clock().now());
            io.spend(work);
        }
    }

    /// Carry a request out at once if it is the first in its turn and none waits, so that it is answered
    /// even if its caller ends its side behind it. Otherwise let it wait until clients have been served.
    /// Return false when the connection has ended.
    pub(crate) fn ask(&mut self, on: &mut Exchange<'_>, call: Call) -> bool {
        on.io.spend(REQUEST);
        let (id, now) = (on.id, on.io.now());
        let Some(desk) = &mut self.desk else {
            return false;
        };
        let has_taken_all = on.io.conn(id).is_some_and(|conn| conn.output.is_empty());
        if has_taken_all && desk.queue.may_pass(now) {
            return self.carry_out(on, &call);
        }
        desk.queue.push(id);
        if let Some(http) = on.http() {
            http.enter(State::Queued(Box::new(call)), now);
        }
        true
    }

    /// Carry out requests that wait, for a slice of the turn: one at least, and none that comes meanwhile.
    pub(crate) fn answer_queued(
        &mut self,
        sessions: &mut Sessions,
        publishing: &mut Publishing,
        io: &mut Io,
    ) {
        let mut left = self.queued();
        if left == 0 {
            return;
        }
        io.begin_slice();
        while left > 0
            && let Some(id) = self.desk.as_mut().and_then(|desk| desk.queue.pop())
        {
            self.answer_next(&mut Exchange {
                sessions: &mut *sessions,
                publishing: &mut *publishing,
                io: &mut *io,
                id,
            });
            left = if io.is_spent() { 0 } else { left - 1 };
        }
        io.end_slice();
        if self.queued() > 0 {
            io.wake_at(io.now());
        }
    }

    fn queued(&self) -> usize {
        self.desk.as_ref().map_or(0, |desk| desk.queue.len())
    }

    /// Put a caller's request behind those that wait.
    fn queue(&mut self, id: ConnId) {
        if let Some(desk) = &mut self.desk {
            desk.queue.push(id);
        }
    }

    /// Carry out the request of a caller, if it has taken the answer before.
    fn answer_next(&mut self, on: &mut Exchange<'_>) {
        let now = on.io.now();
        let Some(conn) = on.io.conn_mut(on.id) else {
            return;
        };
        let (is_blocked, has_taken_all) = (conn.is_blocked(), conn.output.is_empty());
        let Some(http) = conn.session.http_mut() else {
            return;
        };
        if !matches!(http.state, State::Queued(_)) {
            return;
        }
        if is_blocked {
            let after = http.next_timer(now, UNTAKEN);
            return on.set_timer(Timer::SURVEY, after);
        }
        if !has_taken_all {
            // Written at the end of this turn.
            return self.queue(on.id);
        }
        let State::Queued(mut call) = http.enter(State::Idle, now) else {
            return;
        };
        call.keep_alive &= !on.sessions.is_draining;
        if self.carry_out(on, &call) && on.http().is_some_and(|http| !http.is_waiting()) {
            end_exchange(on.sessions, on.io, on.id, true);
        }
    }

    /// Carry out a request. Return false when the connection has ended.
    fn carry_out(&mut self, on: &mut Exchange<'_>, call: &Call) -> bool {
        match &call.action {
            Action::Monitor(page) => self.show(on, call, page),
            // The monitor's routes have no other actions.
            _ => Problem::of(call).is_some_and(|problem| on.fail(call, problem)),
        }
    }

    /// Answer with a page, or have the connection wait until the shards have said what is on it. Return
    /// false when the connection has ended.
    fn show(&mut self, on: &mut Exchange<'_>, call: &Call, page: &Page) -> bool {
        let is_ready = !on.sessions.is_draining;
        on.sessions.publish_counts(on.io);
        let is_for_health = on.http().is_some_and(|http| http.is_for_health);
        let Some(desk) = &self.desk else {
            return false;
        };
        let shared = &on.sessions.shared;
        let (text, policy);
        let answer = match page {
            Page::Health => Answer::json(r#"{"status":"ok"}"#),
            Page::Ready if is_ready => Answer::json(r#"{"status":"ok"}"#),
            Page::Ready => Answer {
                status: 503,
                ..Answer::json(r#"{"status":"unavailable","error":"draining"}"#)
            },
            _ if is_for_health => {
                text = format!(
                    "the monitor has {} busy callers and serves no more at once; /healthz and /readyz are \
                     always answered",
                    desk.callers.served()
                );
                return on.fail(call, Problem::new(503, &text));
            }
            Page::Console => match console::page(&mut on.sessions.random) {
                Ok(page) => {
                    (text, policy) = page;
                    Answer {
                        status: 200,
                        kind: "text/html; charset=utf-8",
                        fields: &[("Cache-Control", "no-store")],
                        policy: &policy,
                        body: text.as_bytes(),
                    }
                }
                Err(error) => return on.fail_random(call, &error),
            },
            Page::Varz => {
                text = desk.figures.varz(shared, is_ready).to_string();
                on.io.spend(SNAPSHOT + text.len() * VARZ_BYTE);
                Answer::json(&text)
            }
            Page::History { resolution, since } => {
                let history = desk.figures.history(*resolution, *since);
                text = history.unwrap_or_default();
                on.io.spend(text.len());
                Answer::json(&text)
            }
            Page::Metrics(format) => {
                text = desk.figures.metrics(shared, *format, is_ready);
                on.io.spend(SNAPSHOT + text.len());
                Answer {
                    kind: format.content_type(),
                    ..Answer::json(&text)
                }
            }
            Page::Survey(question) => {
                let number = self.surveys.begin(shared, on.id, Arc::clone(question));
                let now = on.io.now();
                let asking = Asking {
                    number,
                    deadline: now + SURVEY_TIMEOUT,
                    keep_alive: call.keep_alive,
                    head_only: call.head_only,
                };
                let Some(http) = on.http() else { return false };
                http.enter(State::Survey(asking), now);
                let after = http.next_timer(now, SURVEY_TIMEOUT);
                on.set_timer(Timer::SURVEY, after);
                return true;
            }
        };
        on.respond(call, &answer)
    }

    /// Take in the findings of a shard, and answer the request if they are complete.
    pub(crate) fn handle_surveyed(
        &mut self,
        sessions: &mut Sessions,
        publishing: &mut Publishing,
        io: &mut Io,
        survey: Box<Survey>,
    ) {
        let answered = self.surveys.handle_surveyed(&sessions.shared, io, survey);
        let Some(answered) = answered else { return };
        let on = &mut Exchange {
            sessions,
            publishing,
            io,
            id: answered.conn,
        };
        let now = on.io.now();
        let is_it = |asking: &Asking| asking.number == answered.number;
        let asking = on.http().and_then(|http| http.take_asking(now, is_it));
        if let Some(asking) = asking {
            let call = asking.call(on.sessions.is_draining);
            if on.respond(&call, &Answer::json(&answered.page)) {
                end_exchange(on.sessions, on.io, on.id, true);
            }
        }
    }

    /// Look after a request that waits until the answer before it is taken, or for a survey.
    pub(crate) fn handle_timer(&mut self, on: &mut Exchange<'_>) {
        let now = on.io.now();
        let Some(http) = on.http() else { return };
        if !http.note_timer(now) {
            return;
        }
        match &http.state {
            State::Queued(_) => self.queue(on.id),
            State::Survey(asking) if asking.deadline > now => {
                let left = asking.deadline - now;
                let after = http.next_timer(now, left);
                on.set_timer(Timer::SURVEY, after);
            }
            State::Survey(_) => self.give_up(on),
            _ => {}
        }
    }

    /// Answer a request whose survey takes too long.
    fn give_up(&mut self, on: &mut Exchange<'_>) {
        let now = on.io.now();
        let Some(asking) = on.http().and_then(|http| http.take_asking(now, |_| true)) else {
            return;
        };
        self.surveys.forget(on.id);
        let call = asking.call(on.sessions.is_draining);
        on.fail_late(
            &call,
            Problem::new(503, "the shards did not answer in time"),
        );
    }
}
