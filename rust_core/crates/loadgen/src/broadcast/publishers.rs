//! The publishers of an engine, all on one thread, and the schedule that every process follows.

use std::sync::Arc;

use protocol::nats::encode::{encode_pub, msg_len};
use reactor::{Conn, ConnId, Io};

use super::audience::Audience;
use super::config::BroadcasterConfig;
use super::message::Stamp;
use super::report::{Published, Totals};
use super::window::Board;
use super::workload::{Role, wake_at};
use crate::client::{Client, Mail};
use crate::clock::Clock;
use crate::intervals::Reporter;
use crate::recorder::Recorder;
use crate::rng::Rng;
use crate::schedule::{PACING_NS, SENDS_PER_TURN, Schedule};
use crate::shared::{Gauges, publish};
use crate::subject::Subject;
use crate::workload::Loss;

/// See the module. Times are nanoseconds of the run's clock, but for the schedule's.
pub(crate) struct Publishers {
    board: Arc<Board>,
    audience: Audience,
    clock: Clock,
    /// The connection of each publisher; [`ConnId::NONE`] without one. Empty in a process that only
    /// follows the schedule.
    conns: Box<[ConnId]>,
    /// Where the message is composed.
    message: Box<[u8]>,
    seed: u64,
    schedule: Schedule,
    /// Messages under way at once in a closed loop.
    outstanding: u64,
    warmup_ns: u64,
    timeout_ns: u64,
    is_stopped: bool,
    /// The start, and what counts by the second what is sent from then to the end.
    running: Option<(u64, Recorder)>,
    last_sent: u64,
    max_send_lag: u64,
    misrouted: u64,
    /// Messages handed to connections.
    published: u64,
    reporter: Reporter<Totals>,
}

impl Publishers {
    /// All publishers of the process.
    pub(crate) fn new(
        config: &BroadcasterConfig,
        board: Arc<Board>,
        reporter: Reporter<Totals>,
    ) -> Self {
        Self {
            board,
            audience: config.audience(),
            clock: config.clock(),
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

    pub(crate) fn handle_lost(&mut self, member: u32) -> Loss {
        self.handle_ready(member, ConnId::NONE);
        match self.board.start.get() {
            None => Loss::Repair,
            Some(_) => Loss::Accept,
        }
    }

    /// Nobody publishes to a publisher.
    #[cold]
    pub(crate) fn handle_message(&mut self) {
        self.misrouted += 1;
    }

    pub(crate) fn handle_written(&self, gauges: &Gauges) {
        gauges.publish_published(self.published, self.message.len());
    }

    pub(crate) fn handle_start(&mut self) {
        if let Some(start) = self.board.start.get().copied() {
            let measured_from = start + self.warmup_ns;
            self.board.window().measure_from(measured_from);
            self.running = Some((start, Recorder::new(measured_from)));
        }
    }

    /// Publishes no more; told so again, it waits for no more deliveries, either.
    pub(crate) fn handle_stop(&mut self) {
        if let Some((start, _)) = &self.running {
            self.schedule.stop(self.clock.now().saturating_sub(*start));
            if std::mem::replace(&mut self.is_stopped, true) {
                self.timeout_ns = 0;
            }
        }
    }

    pub(crate) fn poll_turn(&mut self, io: &mut Io<Client<Role>>, keys: &mut Rng, gauges: &Gauges) {
        let now = self.clock.now();
        let Some((start, recorder)) = &mut self.running else {
            return;
        };
        let start = *start;
        self.reporter.report_intervals(recorder, now);
        if now < start {
            return wake_at(io, now, start);
        }
        let limit = now.saturating_sub(self.timeout_ns);
        self.board.window().retire(limit);
        let mut has_more = true;
        for _ in 0..SENDS_PER_TURN {
            has_more = self.send_next(io, keys, start, now);
            if !has_more || io.is_spent() {
                break;
            }
        }
        match self.look_ahead(start, now, has_more, gauges) {
            Some(at) => wake_at(io, now, at.max(now + PACING_NS)),
            None => self.finish(io, now),
        }
    }

    /// Says how things stand. Returns when there is something to do next, if nothing arrives before;
    /// `None` when nothing is to be waited for any more.
    fn look_ahead(&self, start: u64, now: u64, has_more: bool, gauges: &Gauges) -> Option<u64> {
        let elapsed = now - start;
        let next = self.schedule.peek(elapsed);
        let is_sending = next.is_some() || elapsed < self.schedule.end();
        let give_up = (start + self.schedule.end()).max(self.last_sent) + self.timeout_ns;
        let mut window = self.board.window();
        window.has_ended = !is_sending;
        let errors = window.warmup.errors + window.measured.errors;
        publish(&gauges.sent, window.warmup.sent + window.measured.sent);
        publish(&gauges.errors, errors);
        publish(&gauges.outstanding, window.under_way());
        publish(&gauges.sending, is_sending.into());
        if has_more {
            return Some(now);
        }
        let due = if is_sending {
            // In a closed loop only receipts make room.
            let planned = next.filter(|_| !self.schedule.is_closed());
            start + planned.unwrap_or(self.schedule.end())
        } else if window.is_drained() || now >= give_up {
            return None;
        } else {
            give_up
        };
        let expiry = window.oldest().map(|planned| planned + self.timeout_ns);
        Some(expiry.map_or(due, |expiry| due.min(expiry)))
    }

    /// Publishes the next message if it is due at `now`. Returns whether it was.
    #[inline]
    fn send_next(
        &mut self,
        io: &mut Io<Client<Role>>,
        keys: &mut Rng,
        start: u64,
        now: u64,
    ) -> bool {
        let mut window = self.board.window();
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
            && (window.under_way() >= self.outstanding || !io.conn(id).is_some_and(Conn::is_open))
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
        let (subject, message) = (Subject::broadcast(subject), &self.message);
        let len = msg_len(subject.as_bytes(), b"", None, message);
        let outbox = &mut conn.session.link.outbox;
        outbox.append(&mut conn.output, keys, len, |out| {
            encode_pub(out, subject.as_bytes(), None, message);
        });
        io.spend(len);
        self.published += 1;
        true
    }

    /// Tells every thread that nothing is to be waited for any more.
    fn finish(&mut self, io: &mut Io<Client<Role>>, now: u64) {
        let Some((start, recorder)) = self.running.take() else {
            return;
        };
        self.board.end();
        for thread in 1..io.shards() {
            io.mail(thread, Mail::Wake);
        }
        let end = (start + self.schedule.end()).max(self.last_sent);
        let published = Published {
            max_send_lag: self.max_send_lag,
            misrouted: self.misrouted,
            duration: end.saturating_sub(start + self.warmup_ns),
        };
        let (_, last) = recorder.finish(now);
        self.reporter.finish(last, Totals::Published(published));
    }
}
