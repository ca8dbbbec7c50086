//! Accounting for the requests of one requestor thread, from the start to the end of the drain. No
//! I/O and no clock; times are nanoseconds since the start.
//!
//! Every request that was due ends as exactly one of received, timed out and error, even if the
//! server misbehaves or the engine runs late.
//!
//! A sweep comes first, if there is one: one request of each user, all of which end before the
//! warm-up begins. Request numbers go on after it, so that late replies are recognised. Times start
//! at zero again.

use protocol::nats::{Headers, Message};
use serde::Serialize;

use crate::config::{Arrivals, RequestorConfig};
use crate::inflight::{Inflight, ReplyKind};
use crate::payload::{self, PayloadKind};
use crate::profile::Profile;
use crate::recorder::{Interval, Recorder, SECOND_NS, Second, Summary};
use crate::rng::Rng;
use crate::schedule::{Schedule, nanoseconds};
use crate::shared::share;
use crate::subject::parse_provider;

use std::collections::BTreeMap;
use std::time::Duration;

mod responses;

/// Bits of an id below the thread's number.
const SEQ_BITS: u32 = 48;
const NO_RESPONDERS: u16 = 503;

/// Outcomes of the requests of one phase: `sent == received + timed_out + errors` when all have
/// ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Requests that were due, including those without a connection to send them on.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) timed_out: u64,
    /// Corrupt replies, requests without a responder, and requests without a connection.
    pub(crate) errors: u64,
    /// Replies to requests that had been replied to.
    pub(crate) duplicates: u64,
    /// Replies to requests that had timed out.
    pub(crate) late: u64,
    pub(crate) corrupt: u64,
    pub(crate) no_responders: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.timed_out += other.timed_out;
        self.errors += other.errors;
        self.duplicates += other.duplicates;
        self.late += other.late;
        self.corrupt += other.corrupt;
        self.no_responders += other.no_responders;
    }
}

/// Outcome of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) counts: Counts,
    /// Time from the start until the last request had ended; 0 if the run ended before.
    pub(crate) duration: u64,
}

/// All measurements of a thread.
#[derive(Debug)]
pub(crate) struct Totals {
    /// Absent without a sweep.
    pub(crate) sweep: Option<Sweep>,
    pub(crate) warmup: Counts,
    pub(crate) measured: Counts,
    /// Messages that are not a reply to any request.
    pub(crate) unmatched: u64,
    /// Longest time from the planned send time of a measured request to its sending.
    pub(crate) max_send_lag: u64,
    /// Length of the measured phase without the drain: as planned, or until the last request was
    /// sent if that was later.
    pub(crate) duration: u64,
    pub(crate) latency: Summary,
    pub(crate) service: Summary,
    /// Answers to measured requests that are errors, by status; of HTTP only.
    pub(crate) statuses: BTreeMap<u16, u64>,
}

/// Accounting of one thread.
#[derive(Debug)]
pub(crate) struct Run {
    schedule: Schedule,
    /// Schedule after the sweep, while that lasts.
    rest: Option<Schedule>,
    is_stopped: bool,
    inflight: Inflight,
    /// Latencies, from the planned send time to the reply.
    recorder: Recorder,
    /// Service times, from the actual sending to the reply.
    service: Summary,
    has_sweep: bool,
    sweep: Sweep,
    warmup: Counts,
    measured: Counts,
    unmatched: u64,
    /// Number of the first request after the sweep; `u64::MAX` while that lasts.
    first_warmup: u64,
    /// Number of the first measured request that was sent.
    first_measured: u64,
    /// Requests due from this time on are measured.
    measured_from: u64,
    max_send_lag: u64,
    last_sent: u64,
    second: Second,
    reply_bytes: usize,
    /// Whether a response's body is a page rather than a reply with an id.
    fetch: bool,
    /// Measured requests after which nothing more is sent.
    calls: u64,
    /// Answers that are errors, by status; of measured requests.
    statuses: BTreeMap<u16, u64>,
    thread: u64,
}

impl Run {
    /// Return the share of `users` of all users' requests, for thread `thread`.
    pub(crate) fn new(config: &RequestorConfig, thread: u32, users: u32) -> Self {
        let begin = nanoseconds(config.warmup_s);
        let end = begin + nanoseconds(config.duration_s);
        let timeout = Duration::from_secs_f64(config.timeout_s);
        let rate = config.rate * f64::from(users) / f64::from(config.users);
        let inflight = if config.outstanding > 0 {
            let outstanding = share(config.outstanding, config.threads, thread).1;
            Inflight::closed(outstanding, timeout, users)
        } else {
            let peak = config.peak_rate() * f64::from(users) / f64::from(config.users);
            Inflight::open(peak, timeout, users)
        };
        let schedule = |arrivals, profile, end| {
            if config.outstanding > 0 {
                return Schedule::closed(end);
            }
            let phase = (f64::from(thread) + config.phase) / f64::from(config.threads);
            let rng = Rng::new(config.seed ^ (u64::from(thread) << 32) ^ 1);
            Schedule::open(arrivals, rate, profile, phase, end, rng)
        };
        let profile = Profile::new(begin as f64, &config.profile);
        let mut run = Self {
            schedule: schedule(config.arrivals, profile, end),
            rest: None,
            is_stopped: false,
            inflight,
            recorder: Recorder::new(begin),
            service: Summary::new(),
            has_sweep: config.sweep,
            sweep: Sweep::default(),
            warmup: Counts::default(),
            measured: Counts::default(),
            unmatched: 0,
            first_warmup: 0,
            first_measured: u64::MAX,
            measured_from: begin,
            max_send_lag: 0,
            last_sent: 0,
            second: Second::until(SECOND_NS),
            reply_bytes: config.reply_bytes,
            fetch: config.fetch,
            calls: match config.calls {
                0 => u64::MAX,
                calls => share(calls, config.threads, thread).1.into(),
            },
            statuses: BTreeMap::new(),
            thread: u64::from(thread),
        };
        if config.sweep {
            let sweep = schedule(Arrivals::Uniform, Profile::constant(), u64::MAX).limited(users);
            run.rest = Some(std::mem::replace(&mut run.schedule, sweep));
            run.first_warmup = u64::MAX;
            run.measured_from = u64::MAX;
        }
        run
    }

    /// Return whether the sweep has not been followed by anything yet.
    #[inline]
    pub(crate) fn is_in_sweep(&self) -> bool {
        self.first_warmup == u64::MAX
    }

    /// Return the user whose request is next in the sweep; `None` after the sweep.
    #[inline]
    pub(crate) fn sweep_user(&self) -> Option<u32> {
        // Each user so far has been counted once.
        self.is_in_sweep().then_some(self.sweep.counts.sent as u32)
    }

    /// Return whether all requests of the sweep have just ended; true once.
    #[inline]
    pub(crate) fn poll_swept(&mut self, now: u64) -> bool {
        if !self.is_in_sweep() || self.sweep.duration > 0 {
            return false;
        }
        let is_swept = !self.is_sending(now) && self.outstanding() == 0;
        if is_swept {
            self.sweep.duration = now.max(1);
        }
        is_swept
    }

    /// Go on to the warm-up once the sweep is over; times are since the new start from now on.
    /// Whether it did.
    pub(crate) fn begin_warmup(&mut self) -> bool {
        let is_swept = self.sweep.duration > 0;
        let Some(rest) = self.rest.take_if(|_| is_swept) else {
            return false;
        };
        self.schedule = rest;
        self.first_warmup = self.inflight.next();
        self.measured_from = self.recorder.begin();
        self.last_sent = 0;
        self.second = Second::until(SECOND_NS);
        true
    }

    /// Return whether requests have no planned times, so that any user may send the next one.
    #[inline]
    pub(crate) fn is_closed_loop(&self) -> bool {
        self.schedule.is_closed()
    }

    /// Return the planned time of a request that is due at `now`, and that must be begun or refused
    /// next; in a closed loop `now`, and it may also be left.
    #[inline]
    pub(crate) fn poll_due(&mut self, now: u64) -> Option<u64> {
        let due = self.schedule.peek(now)?;
        if due > now || self.inflight.is_full() {
            return None;
        }
        self.schedule.advance();
        Some(due)
    }

    /// Note a request that was due at `due` and is sent at `now`; return the id that its payload
    /// opens with.
    #[inline]
    pub(crate) fn begin(&mut self, user: u32, provider: u16, due: u64, now: u64) -> u64 {
        if due >= self.measured_from {
            self.first_measured = self.first_measured.min(self.inflight.next());
            let lag = now.saturating_sub(due);
            self.max_send_lag = self.max_send_lag.max(lag);
            self.recorder.record_sent(lag);
            self.measured.sent += 1;
            if self.measured.sent == self.calls {
                self.schedule.stop(now);
            }
        } else {
            self.counts_before().sent += 1;
        }
        self.last_sent = now;
        self.thread << SEQ_BITS | self.inflight.begin(user, provider, due, now)
    }

    /// Note a request that was due at `due` and cannot be sent: its user has no connection.
    pub(crate) fn refuse(&mut self, due: u64) {
        let is_measured = due >= self.measured_from;
        let counts = if is_measured {
            &mut self.measured
        } else {
            self.counts_before()
        };
        counts.sent += 1;
        counts.errors += 1;
        if is_measured {
            self.recorder.record_sent(0);
        }
    }

    /// Account for a message that `user` received at `now`; whether a request of theirs has ended.
    #[inline]
    pub(crate) fn handle_reply(&mut self, user: u32, message: &Message<'_>, now: u64) -> bool {
        if let Some(headers) = message.headers
            && message.is_status()
        {
            return self.handle_status(user, headers);
        }
        let Some(id) =
            payload::parse_id(message.payload).filter(|id| id >> SEQ_BITS == self.thread)
        else {
            self.unmatched += 1;
            return false;
        };
        let seq = id & ((1 << SEQ_BITS) - 1);
        match self.inflight.end(seq, user) {
            ReplyKind::Awaited { planned, sent } => {
                let is_intact =
                    payload::is_intact(message.payload, PayloadKind::Reply, self.reply_bytes);
                self.accept(seq, is_intact, (planned, sent, now));
                return true;
            }
            ReplyKind::Duplicate => self.counts(seq).duplicates += 1,
            ReplyKind::Late => self.counts(seq).late += 1,
            ReplyKind::Unmatched => self.unmatched += 1,
        }
        false
    }

    /// Count the reply to request `seq`; `times` are when it was due, sent and replied to.
    #[inline]
    fn accept(&mut self, seq: u64, is_intact: bool, times: (u64, u64, u64)) {
        let (planned, sent, now) = times;
        let counts = self.counts(seq);
        if !is_intact {
            counts.corrupt += 1;
            counts.errors += 1;
            return;
        }
        counts.received += 1;
        let latency = now.saturating_sub(planned);
        self.second.record(latency);
        if planned >= self.measured_from {
            self.recorder.record(latency);
            self.service.record(now.saturating_sub(sent));
        }
    }

    /// Account for a status message; 503 means that the request's subject has no subscriber.
    #[cold]
    fn handle_status(&mut self, user: u32, headers: &[u8]) -> bool {
        let refused = Headers::parse(headers).ok().and_then(|headers| {
            headers
                .status()
                .filter(|status| status.code == NO_RESPONDERS)?;
            // nats-server names the subject since 2.12; the id is not given by any.
            let provider = headers.value(b"Nats-Subject").and_then(parse_provider);
            let provider = provider.and_then(|number| u16::try_from(number).ok());
            self.inflight.end_latest(user, provider)
        });
        match refused {
            Some(seq) => {
                let counts = self.counts(seq);
                counts.no_responders += 1;
                counts.errors += 1;
            }
            None => self.unmatched += 1,
        }
        refused.is_some()
    }

    /// End the requests that have timed out at `now`, and pass their users to `handle`.
    #[inline]
    pub(crate) fn expire(&mut self, now: u64, mut say: impl FnMut(u32)) {
        while let Some(user) = self.expire_one(now) {
            say(user);
        }
    }

    /// End a request that has timed out at `now`, and return its user.
    #[inline]
    pub(crate) fn expire_one(&mut self, now: u64) -> Option<u32> {
        let seq = self.inflight.expire(now)?;
        self.counts(seq).timed_out += 1;
        Some(self.inflight.user(seq))
    }

    /// Return whether a request of `user` waits; see [`Inflight::is_awaited`].
    pub(crate) fn is_awaited(&self, user: u32) -> bool {
        self.inflight.is_awaited(user)
    }

    /// Return the recorder of the measured phase; `None` in the sweep.
    #[inline]
    pub(crate) fn recorder(&mut self) -> Option<&mut Recorder> {
        (!self.is_in_sweep()).then_some(&mut self.recorder)
    }

    /// Return the replies of the second that is over at `now`.
    #[inline]
    pub(crate) fn poll_second(&mut self, now: u64) -> Option<Second> {
        self.second.poll(now)
    }

    /// Send nothing from `now` on. A second call ends the wait for replies, too.
    pub(crate) fn stop(&mut self, now: u64) {
        self.schedule.stop(now);
        self.rest = None;
        if std::mem::replace(&mut self.is_stopped, true) {
            self.inflight.expire_all();
        }
    }

    /// Return whether nothing is planned and nothing awaited any more at `now`.
    #[inline]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.rest.is_none()
            && now >= self.schedule.end()
            && !self.is_sending(now)
            && self.inflight.waiting() == 0
    }

    /// Return the time of the next action, as seen at `now`, if nothing arrives before. `may_send`
    /// is whether a user can send a request that is due.
    #[inline]
    pub(crate) fn wakes_at(&self, now: u64, may_send: bool) -> u64 {
        // While the ring is full, only replies and timeouts make room.
        let may_send = may_send && !self.inflight.is_full();
        let due = self.schedule.peek(now).filter(|_| may_send);
        let end = due
            .is_none()
            .then(|| self.schedule.end())
            .filter(|_| self.inflight.waiting() == 0);
        let interval = (!self.is_in_sweep()).then(|| self.recorder.interval_end());
        [due, end, interval, self.inflight.expires_at()]
            .into_iter()
            .flatten()
            .fold(self.second.end(), u64::min)
    }

    /// Return whether there are requests to come at `now`.
    #[inline]
    pub(crate) fn is_sending(&self, now: u64) -> bool {
        self.schedule.peek(now).is_some()
    }

    /// Return the number of requests that wait for their replies.
    pub(crate) fn outstanding(&self) -> u64 {
        self.inflight.waiting()
    }

    /// Return the outcomes of all requests so far.
    pub(crate) fn so_far(&self) -> Counts {
        let mut counts = self.warmup;
        counts.add(&self.measured);
        counts.add(&self.sweep.counts);
        counts
    }

    /// End the run at `now`; return the totals and the last interval.
    pub(crate) fn finish(self, now: u64) -> (Totals, Option<Interval>) {
        let end = self.schedule.end().max(self.last_sent);
        // A run that was stopped in its sweep measured nothing.
        let duration = end.saturating_sub(self.measured_from);
        let (latency, last) = self.recorder.finish(now);
        let totals = Totals {
            sweep: self.has_sweep.then_some(self.sweep),
            warmup: self.warmup,
            measured: self.measured,
            unmatched: self.unmatched,
            max_send_lag: self.max_send_lag,
            duration,
            latency,
            service: self.service,
            statuses: self.statuses,
        };
        (totals, last)
    }

    #[inline]
    fn counts(&mut self, seq: u64) -> &mut Counts {
        if seq >= self.first_measured {
            &mut self.measured
        } else if seq >= self.first_warmup {
            &mut self.warmup
        } else {
            &mut self.sweep.counts
        }
    }

    /// Return the counts of the phase before the measured one.
    #[inline]
    fn counts_before(&mut self) -> &mut Counts {
        if self.is_in_sweep() {
            &mut self.sweep.counts
        } else {
            &mut self.warmup
        }
    }
}

#[cfg(test)]
mod tests;
