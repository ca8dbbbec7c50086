//! The requestor's side of the workload: users who publish requests at their planned times, and
//! receive the replies on their own subjects.

use std::time::{Duration, Instant};

use protocol::nats::encode::{encode_pub, msg_len};
use protocol::ws::close;
use reactor::{ConnId, Io};

use crate::churn::{Churn, next_connected};
use crate::client::{Client, Loss, Workload, Writer};
use crate::config::RequestorConfig;
use crate::intervals::Reporter;
use crate::link::Message;
use crate::payload::{self, Stream};
use crate::rng::Rng;
use crate::run::{Run, Totals};
use crate::schedule::{PACING_NS, SENDS_PER_TURN};
use crate::shared::{Gauges, publish};
use crate::subject::Subject;

enum State {
    Idle(Box<Run>),
    Running { run: Box<Run>, start: Instant },
    Done,
}

/// The users of one thread.
pub(crate) struct Users {
    first: u32,
    /// The connection of each user; [`ConnId::NONE`] without one.
    conns: Box<[ConnId]>,
    providers: Box<[Subject]>,
    /// Where the request is composed.
    payload: Box<[u8]>,
    /// Chooses users and providers.
    choices: Rng,
    churn: Churn,
    state: State,
    /// When the bytes that are being handed out were received, in nanoseconds since the start.
    received_at: u64,
    reporter: Reporter<Box<Totals>>,
}

impl Users {
    /// The `users` users of thread `thread`, of whom the first has the number `first`.
    pub(crate) fn new(
        config: &RequestorConfig,
        thread: u32,
        first: u32,
        users: u32,
        reporter: Reporter<Box<Totals>>,
    ) -> Self {
        Self {
            first,
            conns: vec![ConnId::NONE; users as usize].into_boxed_slice(),
            providers: (0..config.providers).map(Subject::provider).collect(),
            payload: vec![0; config.request_bytes].into_boxed_slice(),
            choices: Rng::new(config.seed.wrapping_add(u64::from(thread) << 32)),
            churn: Churn::new(config, thread, users),
            state: State::Idle(Box::new(Run::new(config, thread, users))),
            received_at: 0,
            reporter,
        }
    }

    /// Sends one request that was due at `due`; false when nobody can.
    #[inline]
    fn send(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, due: u64, now: u64) -> bool {
        let State::Running { run, .. } = &mut self.state else {
            return false;
        };
        let providers = self.providers.len() as u32;
        // Each user's turn comes once in a sweep, and nobody takes another one's.
        let swept = run.sweep_user();
        let (mut user, provider) = match swept {
            Some(user) => (user, (self.first + user) % providers),
            None => (
                self.choices.below(self.conns.len() as u32),
                self.choices.below(providers),
            ),
        };
        let may_wait = run.is_closed_loop() && swept.is_none();
        let is_gone = self.conns[user as usize] == ConnId::NONE;
        if is_gone && (may_wait || (swept.is_none() && self.churn.is_absent(user))) {
            user = next_connected(&self.conns, user).unwrap_or(user);
        }
        let to = &self.providers[provider as usize];
        let Some(conn) = io.writer(self.conns[user as usize]) else {
            if may_wait {
                return false;
            }
            run.refuse(due);
            return true;
        };
        let request = run.begin(user, provider as u16, due, now);
        payload::fill(&mut self.payload, Stream::Request, request);
        let reply = Subject::user(self.first + user);
        let (to, reply, payload) = (to.as_bytes(), Some(reply.as_bytes()), &self.payload);
        let len = msg_len(to, b"", reply, payload);
        conn.session
            .link
            .outbox
            .append(&mut conn.output, keys, len, |out| {
                encode_pub(out, to, reply, payload);
            });
        true
    }

    /// Reports the intervals that are over at `now`.
    #[inline]
    fn report_intervals(&mut self, now: u64) {
        if let State::Running { run, .. } = &mut self.state
            && let Some(recorder) = run.recorder()
        {
            self.reporter.report_intervals(recorder, now);
        }
    }

    fn finish(&mut self, now: u64) {
        if let State::Running { run, .. } = std::mem::replace(&mut self.state, State::Done) {
            let (totals, last) = run.finish(now);
            self.reporter.finish(last, totals.into());
        }
    }

    /// Nanoseconds since the start, once that has come.
    #[inline]
    fn elapsed(&self) -> Option<u64> {
        let State::Running { start, .. } = &self.state else {
            return None;
        };
        Instant::now()
            .checked_duration_since(*start)
            .map(|elapsed| elapsed.as_nanos() as u64)
    }
}

/// Ends a connection in good order.
fn hang_up(io: &mut Io<Client<Users>>, keys: &mut Rng, id: ConnId) {
    if let Some(conn) = io.writer(id) {
        let (link, output) = (&mut conn.session.link, &mut conn.output);
        link.close(output, keys, close::NORMAL);
    }
    io.close(id);
}

impl Workload for Users {
    const ANSWERS: bool = false;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::user(self.number(member))
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.conns[member as usize] = id;
        self.churn.handle_ready(member);
    }

    fn handle_lost(&mut self, member: u32) -> Loss {
        self.conns[member as usize] = ConnId::NONE;
        match self.state {
            _ if self.churn.handle_lost(member) => Loss::Churn,
            State::Idle(_) => Loss::Repair,
            _ => Loss::Accept,
        }
    }

    #[inline]
    fn handle_slice(&mut self) {
        if let Some(now) = self.elapsed() {
            self.received_at = now;
            self.report_intervals(now);
        }
    }

    #[inline]
    fn handle_message(&mut self, member: u32, message: &Message<'_>, _: Option<Writer<'_>>) {
        if let State::Running { run, .. } = &mut self.state {
            run.handle_reply(member, message, self.received_at);
        }
    }

    fn handle_start(&mut self, at: Instant) {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(run) => State::Running { run, start: at },
            State::Running { mut run, start } => {
                let start = if run.begin_warmup() { at } else { start };
                State::Running { run, start }
            }
            State::Done => State::Done,
        };
    }

    fn handle_stop(&mut self) {
        let now = self.elapsed().unwrap_or(0);
        if let State::Running { run, .. } = &mut self.state {
            run.stop(now);
            self.churn.stop(now);
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, gauges: &Gauges) {
        let Some(now) = self.elapsed() else {
            if let State::Running { start, .. } = &self.state {
                io.wake_at(*start);
            }
            return;
        };
        self.report_intervals(now);
        let State::Running { run, .. } = &mut self.state else {
            return;
        };
        run.expire(now);
        if let Some(second) = run.poll_second(now) {
            gauges.publish_second(&second);
        }
        if !run.is_in_sweep() {
            self.churn.poll_turns(now, &mut self.conns);
            while let Some(id) = self.churn.poll_leaver(|user| run.is_awaited(user)) {
                hang_up(io, keys, id);
            }
        }
        for _ in 0..SENDS_PER_TURN {
            let State::Running { run, .. } = &mut self.state else {
                return;
            };
            let Some(due) = run.poll_due(now) else { break };
            if !self.send(io, keys, due, now) || io.is_spent() {
                break;
            }
        }
        let State::Running { run, start } = &mut self.state else {
            return;
        };
        let counts = run.so_far();
        publish(&gauges.sent, counts.sent);
        publish(&gauges.received, counts.received);
        publish(&gauges.timed_out, counts.timed_out);
        publish(&gauges.errors, counts.errors);
        publish(&gauges.outstanding, run.outstanding());
        publish(&gauges.sending, run.is_sending(now).into());
        if run.poll_swept(now) {
            publish(&gauges.swept, 1);
        }
        publish(&gauges.churned, self.churn.closed);
        publish(&gauges.reconnected, self.churn.restored);
        if run.is_over(now) && self.churn.is_over(now) {
            self.finish(now);
        } else {
            let turn = self.churn.wakes_at(now).unwrap_or(u64::MAX);
            let at = run.wakes_at(now).min(turn).max(now + PACING_NS);
            io.wake_at(*start + Duration::from_nanos(at));
        }
    }

    fn handle_written(&mut self, _: u64, _: &Gauges) {}
}
