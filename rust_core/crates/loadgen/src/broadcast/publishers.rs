//! The publishers of an engine, all on one thread, and the schedule that every process follows.

use std::sync::Arc;
use std::time::Instant;

use protocol::nats::Message;
use protocol::nats::encode::{encode_pub, pub_len};
use reactor::{Conn, ConnId};

use super::audience::Audience;
use super::config::BroadcasterConfig;
use super::message::Stamp;
use super::report::{PublisherTotals, Totals};
use super::window::SharedWindow;
use crate::clock::RunClock;
use crate::intervals::Reporter;
use crate::link::Link;
use crate::recorder::Recorder;
use crate::rng::Rng;
use crate::schedule::{PACING_NS, SENDS_PER_TURN, Schedule};
use crate::session::{Io, Mail};
use crate::shared::{ThreadCounters, set};
use crate::subject::Subject;
use crate::workload::Reconnect;

/// Publishers of a process, and its schedule. Times are nanoseconds of the run's clock, except the
/// schedule's.
pub(crate) struct Publishers {
    window: Arc<SharedWindow>,
    audience: Audience,
    clock: RunClock,
    /// The connection of each publisher; [`ConnId::NONE`] without one. Empty in a process that only
    /// follows the schedule.
    conns: Box<[ConnId]>,
    /// Buffer in which a message is composed.
    message: Box<[u8]>,
    seed: u64,
    schedule: Schedule,
    /// Messages in flight at once in a closed loop.
    outstanding: u64,
    warmup_ns: u64,
    timeout_ns: u64,
    is_stopped: bool,
    /// Start of the run, and the recorder of the messages sent, while the run lasts.
    running: Option<(u64, Recorder)>,
    last_sent: u64,
    max_send_lag: u64,
    misrouted: u64,
    /// Messages handed to connections.
    published: u64,
    /// Published messages that the sockets have taken whole.
    sent: u64,
    /// Published messages that were lost with their connections.
    lost: u64,
    reporter: Reporter<Totals>,
}

impl Publishers {
    /// Return all publishers of the process.
    pub(crate) fn new(
        config: &BroadcasterConfig,
        clock: RunClock,
        window: Arc<SharedWindow>,
        reporter: Reporter<Totals>,
    ) -> Self {
        Self {
            window,
            audience: config.audience(),
            clock,
            conns: vec![ConnId::NONE; config.publishers as usize].into_boxed_slice(),
            message: vec![0; config.message_bytes].into_boxed_slice(),
            seed: config.seed,
            schedule: config.schedule(),
            outstanding: config.outstanding.into(),
            warmup_ns: config.warmup_ns(),
            timeout_ns: config.timeout_ns(),
            is_stopped: false,
            running: None,
            last_sent: 0,
            max_send_lag: 0,
            misrouted: 0,
            published: 0,
            sent: 0,
            lost: 0,
            reporter,
        }
    }

    #[inline]
    pub(crate) fn subject(member: u32) -> Subject {
        Subject::publisher(member)
    }

    pub(crate) fn handle_ready(&mut self, member: u32, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(member as usize) {
            *conn = id;
        }
    }

    pub(crate) fn handle_lost(&mut self, member: u32) -> Reconnect {
        self.handle_ready(member, ConnId::NONE);
        match self.window.start.get() {
            None => Reconnect::Retry,
            Some(_) => Reconnect::Never,
        }
    }

    /// Count a message to a publisher, whose subject has no publications.
    #[cold]
    pub(crate) fn handle_message(&mut self) {
        self.misrouted += 1;
    }

    pub(crate) fn handle_unsent(&mut self, items: u64) {
        self.lost += items;
    }

    pub(crate) fn handle_written(&mut self, items: u64, counters: &ThreadCounters) {
        self.sent = items;
        counters.set_published(self.published, self.message.len());
    }

    pub(crate) fn handle_start(&mut self) {
        if let Some(start) = self.window.start.get().copied() {
            let measured_from = start + self.warmup_ns;
            self.window.lock().measure_from(measured_from);
            self.running = Some((start, Recorder::new(measured_from)));
        }
    }

    /// Publish no more. A second call ends the wait for deliveries, too.
    pub(crate) fn handle_stop(&mut self, now: Instant) {
        if let Some((start, _)) = &self.running {
            self.schedule
                .stop(self.clock.ns(now).saturating_sub(*start));
            if std::mem::replace(&mut self.is_stopped, true) {
                self.timeout_ns = 0;
            }
        }
    }

    pub(crate) fn poll_turn(
        &mut self,
        io: &mut Io<Link>,
        keys: &mut Rng,
        counters: &ThreadCounters,
    ) {
        let now = self.clock.ns(io.clock().now());
        let Some((start, recorder)) = &mut self.running else {
            return;
        };
        let start = *start;
        self.reporter.report_intervals(recorder, now);
        if now < start {
            return io.wake_at(self.clock.instant(start));
        }
        let limit = now.saturating_sub(self.timeout_ns);
        self.window.lock().retire(limit);
        let mut has_more = true;
        for _ in 0..SENDS_PER_TURN {
            has_more = self.send_next(io, keys, start, now);
            if !has_more || io.is_spent() {
                break;
            }
        }
        match self.look_ahead(start, now, has_more, counters) {
            Some(at) => io.wake_at(self.clock.instant(at.max(now + PACING_NS))),
            None => self.finish(io, now),
        }
    }

    /// Update the counters; return the time of the next action if nothing arrives before, or `None`
    /// if all deliveries have arrived or timed out.
    fn look_ahead(
        &self,
        start: u64,
        now: u64,
        has_more: bool,
        counters: &ThreadCounters,
    ) -> Option<u64> {
        let elapsed = now - start;
        let next = self.schedule.peek(elapsed);
        let is_sending = next.is_some() || elapsed < self.schedule.end();
        let give_up = (start + self.schedule.end()).max(self.last_sent) + self.timeout_ns;
        let mut window = self.window.lock();
        window.has_ended = !is_sending;
        let errors = window.warmup.errors + window.measured.errors;
        set(&counters.sent, window.warmup.sent + window.measured.sent);
        set(&counters.errors, errors);
        set(&counters.outstanding, window.in_flight());
        set(&counters.sending, is_sending.into());
        if has_more {
            return Some(now);
        }
        let due = if is_sending {
            // In a closed loop only receipts make room.
            let planned = next.filter(|_| !self.schedule.is_closed());
            start + planned.unwrap_or(self.schedule.end())
        } else if now >= give_up {
            return None;
        } else if !window.is_drained() {
            give_up
        } else if self.sent + self.lost == self.published {
            return None;
        } else {
            // Messages without receivers may still wait for their sockets.
            return Some(now);
        };
        let expiry = window.oldest().map(|planned| planned + self.timeout_ns);
        Some(expiry.map_or(due, |expiry| due.min(expiry)))
    }

    /// Publish the next message if it is due at `now`; return whether it was.
    #[inline]
    fn send_next(&mut self, io: &mut Io<Link>, keys: &mut Rng, start: u64, now: u64) -> bool {
        let mut window = self.window.lock();
        let due = self.schedule.peek(now - start);
        let Some(due) = due.filter(|due| *due <= now - start) else {
            return false;
        };
        let subject = self.audience.subject_of(window.next());
        let publisher = (subject as usize).checked_rem(self.conns.len());
        let id = publisher.and_then(|publisher| self.conns.get(publisher));
        let id = id.copied().unwrap_or(ConnId::NONE);
        // A closed loop waits for room and for the publisher.
        if self.schedule.is_closed()
            && (window.in_flight() >= self.outstanding || !io.conn(id).is_some_and(Conn::is_open))
        {
            return false;
        }
        self.schedule.advance();
        let planned = start + due;
        let number = window.begin(planned);
        self.last_sent = now;
        if self.conns.is_empty() {
            return true;
        }
        window.count_sent(planned);
        if window.is_measured(planned)
            && let Some((_, recorder)) = &mut self.running
        {
            recorder.record_sent(now - planned);
            self.max_send_lag = self.max_send_lag.max(now - planned);
        }
        let Some(conn) = io.writer(id) else {
            window.refuse(number, planned);
            return true;
        };
        drop(window);
        Stamp { number, planned }.fill(&mut self.message, self.seed);
        let subject = Subject::broadcast(subject);
        let message = Message {
            subject: subject.as_bytes(),
            reply: None,
            headers: None,
            payload: &self.message,
        };
        let len = pub_len(&message);
        let outbox = &mut conn.session.link.outbox;
        outbox.append(&mut conn.output, keys, len, |out| encode_pub(out, &message));
        conn.output.add_items(1);
        io.spend(len);
        self.published += 1;
        true
    }

    /// End the wait for deliveries on every thread.
    fn finish(&mut self, io: &mut Io<Link>, now: u64) {
        let Some((start, recorder)) = self.running.take() else {
            return;
        };
        self.window.end();
        for thread in 1..io.shards() {
            io.mail(thread, Mail::Wake);
        }
        let end = (start + self.schedule.end()).max(self.last_sent);
        let published = PublisherTotals {
            max_send_lag: self.max_send_lag,
            misrouted: self.misrouted,
            duration: end.saturating_sub(start + self.warmup_ns),
        };
        let (_, last) = recorder.finish(now);
        self.reporter.finish(last, Totals::Publisher(published));
    }
}
