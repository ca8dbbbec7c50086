//! The requestor's side of the workload: users who publish requests at their planned times, and
//! receive the replies on their own subjects.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use protocol::nats::encode::{encode_pub, msg_len};
use reactor::{ConnId, Io};

use crate::client::{Client, Workload, Writer};
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
const PACING_NS: u64 = 100_000;

/// Requests sent in one turn at most, so that replies are read in time even when the engine is late.
const SENDS_PER_TURN: u32 = 1024;

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
    fn take(&self) -> Histogram<u64> {
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
            state: State::Idle(Box::new(Run::new(config, thread, users))),
            received_at: 0,
            reports,
            spares,
        }
    }

    /// Sends one request that was due at `due`.
    #[inline]
    fn send(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, due: u64, now: u64) {
        let State::Running { run, .. } = &mut self.state else {
            return;
        };
        let user = self.choices.below(self.conns.len() as u32);
        let provider = self.choices.below(self.providers.len() as u32);
        let (Some(id), Some(to)) = (
            self.conns.get(user as usize),
            self.providers.get(provider as usize),
        ) else {
            return;
        };
        let Some(conn) = io.writer(*id) else {
            run.refuse(due);
            return;
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

impl Workload for Users {
    const ANSWERS: bool = false;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(number: u32) -> Subject {
        Subject::user(number)
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(member as usize) {
            *conn = id;
        }
    }

    fn handle_lost(&mut self, member: u32) -> bool {
        self.handle_ready(member, ConnId::NONE);
        matches!(self.state, State::Idle(_))
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
            other => other,
        };
    }

    fn handle_stop(&mut self) {
        let now = self.elapsed().unwrap_or(0);
        if let State::Running { run, .. } = &mut self.state {
            run.stop(now);
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
        for _ in 0..SENDS_PER_TURN {
            let State::Running { run, .. } = &mut self.state else {
                return;
            };
            let Some(due) = run.poll_due(now) else { break };
            self.send(io, keys, due, now);
            if io.is_spent() {
                break;
            }
        }
        let State::Running { run, start } = &self.state else {
            return;
        };
        let counts = run.so_far();
        publish(&gauges.sent, counts.sent);
        publish(&gauges.received, counts.received);
        publish(&gauges.timed_out, counts.timed_out);
        publish(&gauges.errors, counts.errors);
        publish(&gauges.outstanding, run.outstanding());
        publish(&gauges.sending, run.is_sending().into());
        if run.is_over(now) {
            self.finish(now);
        } else {
            let at = run.wakes_at().max(now + PACING_NS);
            io.wake_at(*start + Duration::from_nanos(at));
        }
    }

    fn handle_written(&mut self, _: u64, _: &Gauges) {}
}
