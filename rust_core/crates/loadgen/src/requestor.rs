//! The requestor's side of the workload: users who publish requests at their planned times, and
//! receive the replies on their own subjects.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use protocol::nats::encode::{encode_pub, msg_len};
use protocol::ws::close;
use reactor::{ConnId, Io};

use crate::churn::{Churn, next_connected};
use crate::client::{Client, Loss, Workload, Writer};
use crate::config::RequestorConfig;
use crate::link::Message;
use crate::payload::{self, Stream};
use crate::recorder::{self, Interval};
use crate::rng::Rng;
use crate::run::{Run, Totals};
use crate::shared::{Gauges, publish};
use crate::subject::Subject;

/// Least time between two turns that only the plan begins, in nanoseconds. Requests due within it
/// leave together: at tens of thousands a second, a timer for each would cost more than the requests.
/// Latency runs from the planned time and so includes the wait.
pub(crate) const PACING_NS: u64 = 100_000;

/// Requests sent in one turn at most, so that replies are read in time even when the engine is late.
pub(crate) const SENDS_PER_TURN: u32 = 1024;

/// What a thread reports to the collector.
#[derive(Debug)]
pub(crate) enum Report {
    /// A second of the measured phase is over.
    Interval(Interval),
    /// Every request has ended.
    Done(Box<Totals>),
}

/// Empty histograms for the intervals to come; handed back by the collector.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<Histogram<u64>>>>);

impl Spares {
    pub(crate) fn take(&self) -> Histogram<u64> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(recorder::histogram)
    }

    pub(crate) fn give(&self, mut histogram: Histogram<u64>) {
        histogram.reset();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(histogram);
    }
}

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
    reports: SyncSender<Report>,
    spares: Spares,
}

impl Users {
    /// The `users` users of thread `thread`, of whom the first has the number `first`.
    pub(crate) fn new(
        config: &RequestorConfig,
        thread: u32,
        first: u32,
        users: u32,
        reports: SyncSender<Report>,
        spares: Spares,
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
            reports,
            spares,
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

    /// Reports the intervals that are over at `now`. The collector always has room but for when it
    /// is kept from running for seconds; waiting for it then loses no figure.
    #[inline]
    fn report_intervals(&mut self, now: u64) {
        let State::Running { run, .. } = &mut self.state else {
            return;
        };
        while let Some(interval) = run.poll_interval(now, || self.spares.take()) {
            // Without a collector the engine is being closed.
            let _ = self.reports.send(Report::Interval(interval));
        }
    }

    fn finish(&mut self, now: u64) {
        if let State::Running { run, .. } = std::mem::replace(&mut self.state, State::Done) {
            let (totals, last) = run.finish(now);
            for report in last
                .map(Report::Interval)
                .into_iter()
                .chain([Report::Done(totals.into())])
            {
                let _ = self.reports.send(report);
            }
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
            publish(&gauges.second_count, second.count);
            publish(&gauges.second_sum, second.sum);
            publish(&gauges.second_max, second.max);
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
