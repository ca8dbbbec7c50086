//! The books of one requestor thread, from the start to the end of the drain: what is due, what was
//! sent, and what became of it. No I/O and no clock; times are nanoseconds since the start.
//!
//! Every request that was due ends as exactly one of received, timed out and error, whatever the
//! server does, and however late the engine runs.
//!
//! A sweep, where there is one, comes first: one request of each user, all of which end before
//! anything else begins. Numbers go on after it, so that its late replies are known for what they
//! are; times begin anew.

use protocol::nats::Headers;

use crate::config::{Arrivals, RequestorConfig};
use crate::crew::share;
use crate::inflight::{Inflight, Verdict};
use crate::link::Message;
use crate::payload::{self, Stream};
use crate::profile::Profile;
use crate::recorder::{Interval, Recorder, SECOND_NS, Second, Summary};
use crate::rng::Rng;
use crate::schedule::Schedule;
use crate::subject::parse_provider;

use std::collections::BTreeMap;
use std::time::Duration;

mod answers;

/// Bits of an id below those that name the thread.
const SEQ_BITS: u32 = 48;
const NO_RESPONDERS: u16 = 503;

/// What became of the requests of one phase: `sent == received + timed_out + errors` when all have
/// ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that were due, those without a connection to send them on included.
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

/// What became of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) counts: Counts,
    /// From its start until the last of its requests had ended; 0 where that was not awaited.
    pub(crate) duration: u64,
}

/// Everything that a thread measured.
#[derive(Debug)]
pub(crate) struct Totals {
    /// Absent where none was asked for.
    pub(crate) sweep: Option<Sweep>,
    pub(crate) warmup: Counts,
    pub(crate) measured: Counts,
    /// Messages that are no reply to any request.
    pub(crate) unmatched: u64,
    /// How long after its planned time a measured request was sent at worst.
    pub(crate) max_send_lag: u64,
    /// Length of the measured phase, drain excluded: as planned, or until the last request was sent
    /// where that was later.
    pub(crate) duration: u64,
    pub(crate) latency: Summary,
    pub(crate) service: Summary,
    /// Answers to measured requests that are errors, by status; of HTTP only.
    pub(crate) statuses: BTreeMap<u16, u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Run {
    schedule: Schedule,
    /// What follows the sweep, until it does.
    rest: Option<Schedule>,
    is_stopped: bool,
    inflight: Inflight,
    /// From when a request was due until its reply came.
    recorder: Recorder,
    /// From when it was sent.
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
    /// Whether an answer's body is no reply with an id.
    fetch: bool,
    /// Measured requests after which nothing more is sent.
    calls: u64,
    /// Answers that are errors, by status; of measured requests.
    statuses: BTreeMap<u16, u64>,
    thread: u64,
}

impl Run {
    /// The share of `users` of all users' requests, for thread `thread`.
    pub(crate) fn new(config: &RequestorConfig, thread: u32, users: u32) -> Self {
        let begin = Duration::from_secs_f64(config.warmup_s);
        let end = begin + Duration::from_secs_f64(config.duration_s);
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let end = nanoseconds(end);
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
        let profile = Profile::new(begin.as_nanos() as f64, &config.profile);
        let mut run = Self {
            schedule: schedule(config.arrivals, profile, end),
            rest: None,
            is_stopped: false,
            inflight,
            recorder: Recorder::new(nanoseconds(begin)),
            service: Summary::new(),
            has_sweep: config.sweep,
            sweep: Sweep::default(),
            warmup: Counts::default(),
            measured: Counts::default(),
            unmatched: 0,
            first_warmup: 0,
            first_measured: u64::MAX,
            measured_from: nanoseconds(begin),
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

    /// Whether the sweep has not been followed by anything yet.
    #[inline]
    pub(crate) fn is_in_sweep(&self) -> bool {
        self.first_warmup == u64::MAX
    }

    /// Whose request the sweep is at, while there are any to come.
    #[inline]
    pub(crate) fn sweep_user(&self) -> Option<u32> {
        // Each user so far has been counted once.
        self.is_in_sweep().then_some(self.sweep.counts.sent as u32)
    }

    /// Whether all requests of the sweep have ended, which it says once.
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

    /// Goes on to the warm-up once the sweep is over; times are since the new start from now on.
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

    /// Whether requests have no planned times, so that whichever user can may send the next one.
    #[inline]
    pub(crate) fn is_closed_loop(&self) -> bool {
        self.schedule.is_closed()
    }

    /// The planned time of a request that is due at `now`, and that must be begun or refused next; in
    /// a closed loop `now`, and it may also be left.
    #[inline]
    pub(crate) fn poll_due(&mut self, now: u64) -> Option<u64> {
        let due = self.schedule.peek(now)?;
        if due > now || self.inflight.is_full() {
            return None;
        }
        self.schedule.advance();
        Some(due)
    }

    /// Notes a request that was due at `due` and is sent at `now`; returns the id that its payload
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

    /// Notes a request that was due at `due` and cannot be sent: its user has no connection.
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

    /// Accounts for a message that `user` received at `now`; whether a request of theirs has ended.
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
            Verdict::Awaited { planned, sent } => {
                let is_intact =
                    payload::is_intact(message.payload, Stream::Reply, self.reply_bytes);
                self.accept(seq, is_intact, (planned, sent, now));
                return true;
            }
            Verdict::Duplicate => self.counts(seq).duplicates += 1,
            Verdict::Late => self.counts(seq).late += 1,
            Verdict::Unmatched => self.unmatched += 1,
        }
        false
    }

    /// Counts the reply to request `seq`; `times` are when it was due, sent and replied to.
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

    /// A message without payload: 503 when nobody is subscribed to the request's subject.
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

    /// Ends the requests that have waited too long at `now`, and says whose they were.
    #[inline]
    pub(crate) fn expire(&mut self, now: u64, mut say: impl FnMut(u32)) {
        while let Some(user) = self.expire_one(now) {
            say(user);
        }
    }

    /// Ends a request that has waited too long at `now`; whose it was.
    #[inline]
    pub(crate) fn expire_one(&mut self, now: u64) -> Option<u32> {
        let seq = self.inflight.expire(now)?;
        self.counts(seq).timed_out += 1;
        Some(self.inflight.user(seq))
    }

    /// See [`Inflight::is_awaited`].
    pub(crate) fn is_awaited(&self, user: u32) -> bool {
        self.inflight.is_awaited(user)
    }

    /// What records the measured phase, second by second; absent in the sweep.
    #[inline]
    pub(crate) fn recorder(&mut self) -> Option<&mut Recorder> {
        (!self.is_in_sweep()).then_some(&mut self.recorder)
    }

    /// The replies of the second that is over at `now`.
    #[inline]
    pub(crate) fn poll_second(&mut self, now: u64) -> Option<Second> {
        self.second.poll(now)
    }

    /// Sends nothing from `now` on; told so again, it waits for no more replies, either.
    pub(crate) fn stop(&mut self, now: u64) {
        self.schedule.stop(now);
        self.rest = None;
        if std::mem::replace(&mut self.is_stopped, true) {
            self.inflight.give_up();
        }
    }

    /// Whether nothing is planned and nothing awaited any more at `now`.
    #[inline]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.rest.is_none()
            && now >= self.schedule.end()
            && !self.is_sending(now)
            && self.inflight.waiting() == 0
    }

    /// When something is to be done next, as seen at `now` and if nothing arrives before; `may_send` is
    /// whether there is anybody to send a request that is due.
    #[inline]
    pub(crate) fn wakes_at(&self, now: u64, may_send: bool) -> u64 {
        // While full, room comes only from what arrives or expires.
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

    /// Whether there are requests to come at `now`.
    #[inline]
    pub(crate) fn is_sending(&self, now: u64) -> bool {
        self.schedule.peek(now).is_some()
    }

    /// Requests that wait for their replies.
    pub(crate) fn outstanding(&self) -> u64 {
        self.inflight.waiting()
    }

    /// What became of all requests so far.
    pub(crate) fn so_far(&self) -> Counts {
        let mut counts = self.warmup;
        counts.add(&self.measured);
        counts.add(&self.sweep.counts);
        counts
    }

    /// Closes the books at `now`: the totals, and the last interval.
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

    /// The counts of what is sent before anything is measured.
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
