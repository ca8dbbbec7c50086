//! The users of one thread: each is subscribed to one subject, and receives.

use std::sync::Arc;

use reactor::Io;

use super::audience::Audience;
use super::config::BroadcasterConfig;
use super::message::Checker;
use super::parts::Parts;
use super::receipts::Receipts;
use super::report::{Flaws, Received, Totals};
use super::window::Board;
use super::workload::{PUBLISHING_THREAD, Role, wake_at};
use crate::client::{Client, Mail};
use crate::clock::Clock;
use crate::intervals::Reporter;
use crate::link::Message;
use crate::shared::{Gauges, publish};
use crate::subject::Subject;
use crate::workload::Loss;

/// See the module. Times are nanoseconds of the run's clock.
pub(crate) struct Subscribers {
    board: Arc<Board>,
    audience: Audience,
    clock: Clock,
    first: u32,
    /// For each user the number of the message that comes next.
    next: Box<[u64]>,
    checker: Checker,
    warmup_ns: u64,
    /// When the warm-up begins: no message is older.
    start: u64,
    /// When the bytes that are being handed out were received.
    now: u64,
    /// From the start to the end.
    receipts: Option<Receipts>,
    /// Receipts of this turn.
    parts: Parts,
    /// Messages that a user did not receive, as was seen in this turn: from one to before another.
    gaps: Vec<(u64, u64)>,
    /// Whether the window may have changed in this turn for another reason than receipts.
    has_news: bool,
    flaws: Flaws,
    reporter: Reporter<Totals>,
}

impl Subscribers {
    /// The `users` users from number `first` on.
    pub(crate) fn new(
        config: &BroadcasterConfig,
        (first, users): (u32, u32),
        board: Arc<Board>,
        reporter: Reporter<Totals>,
    ) -> Self {
        let numbers = first..first + users;
        Self {
            board,
            audience: Audience::new(first, users, config.subjects),
            clock: config.clock(),
            first,
            next: numbers
                .map(|user| u64::from(user % config.subjects))
                .collect(),
            checker: Checker::new(config.message_bytes, config.seed),
            warmup_ns: config.warmup_ns(),
            start: u64::MAX,
            now: 0,
            receipts: None,
            parts: Parts::new(),
            gaps: Vec::new(),
            has_news: false,
            flaws: Flaws::default(),
            reporter,
        }
    }

    pub(crate) fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    #[inline]
    pub(crate) fn subject(&self, member: u32) -> Subject {
        let number = u64::from(self.number(member));
        Subject::broadcast(self.audience.subject_of(number))
    }

    /// A connection is gone. To establish it again, once messages are published, would only hide the
    /// loss.
    pub(crate) fn handle_lost(&mut self, member: u32) -> Loss {
        if self.receipts.is_some()
            && let Some(next) = self.next.get(member as usize)
        {
            self.board.window().lose(*next);
            self.has_news = true;
        }
        match self.start {
            u64::MAX => Loss::Repair,
            _ => Loss::Accept,
        }
    }

    #[inline]
    pub(crate) fn handle_slice(&mut self) {
        if self.start == u64::MAX {
            // The first message may be here before the mail is read that tells of the start.
            self.handle_start();
        }
        self.now = self.clock.now();
        self.report_intervals(self.now);
    }

    #[inline]
    pub(crate) fn handle_message(&mut self, member: u32, message: &Message<'_>) {
        let Some(stamp) = self.checker.check(message.payload) else {
            self.flaws.corrupt += 1;
            return;
        };
        let is_ours = message.subject == self.subject(member).as_bytes();
        if !is_ours || stamp.planned < self.start {
            self.flaws.misrouted += 1;
            return;
        }
        let expected = self.next.get(member as usize).copied();
        if expected != Some(stamp.number) && !self.is_after_gap(expected, stamp.number) {
            return;
        }
        if let Some(next) = self.next.get_mut(member as usize) {
            *next = stamp.number + self.audience.step();
        }
        if let Some(receipts) = &mut self.receipts {
            receipts.record(stamp.planned, self.now);
            self.parts.note(stamp.number, stamp.planned, self.now);
        }
    }

    /// What another message than the expected one is: one after a gap, or none that counts.
    #[cold]
    fn is_after_gap(&mut self, expected: Option<u64>, number: u64) -> bool {
        let Some(expected) = expected else {
            return false;
        };
        if self.audience.subject_of(number) != self.audience.subject_of(expected) {
            self.flaws.misrouted += 1;
            return false;
        }
        if number < expected {
            // Or out of order, which no server may do either.
            self.flaws.duplicates += 1;
            return false;
        }
        self.flaws.missing += self.audience.messages(expected, number);
        self.gaps.push((expected, number));
        self.has_news = true;
        true
    }

    pub(crate) fn handle_start(&mut self) {
        if let Some(start) = self.board.start.get()
            && self.start == u64::MAX
        {
            self.start = *start;
            self.receipts = Some(Receipts::new(start + self.warmup_ns));
        }
    }

    #[inline]
    pub(crate) fn poll_turn(&mut self, io: &mut Io<Client<Role>>, gauges: &Gauges) {
        let now = self.clock.now();
        self.report_intervals(now);
        self.tell(io);
        let Some(receipts) = &mut self.receipts else {
            return;
        };
        if let Some(second) = receipts.second.poll(now) {
            gauges.publish_second(&second);
        }
        publish(&gauges.received, receipts.received());
        publish(&gauges.timed_out, self.flaws.missing);
        if self.board.is_over() {
            self.finish(now);
        } else {
            wake_at(io, now, receipts.wakes_at());
        }
    }

    /// Tells the other threads what came in this turn.
    #[inline]
    fn tell(&mut self, io: &mut Io<Client<Role>>) {
        if self.parts.is_empty() && !self.has_news {
            return;
        }
        self.has_news = false;
        let mut window = self.board.window();
        for (from, to) in self.gaps.drain(..) {
            window.forgo(from, to);
        }
        self.parts.drain(|part| window.receive(&part));
        if window.waits_for_publisher() {
            io.mail(PUBLISHING_THREAD, Mail::Wake);
        }
    }

    /// Reports the intervals that are over at `now`.
    #[inline]
    fn report_intervals(&mut self, now: u64) {
        if let Some(receipts) = &mut self.receipts {
            self.reporter.report_intervals(&mut receipts.recorder, now);
        }
    }

    fn finish(&mut self, now: u64) {
        let Some(receipts) = self.receipts.take() else {
            return;
        };
        let published = self.board.window().next();
        let remaining = self
            .next
            .iter()
            .map(|next| self.audience.messages(*next, published));
        self.flaws.missing += remaining.sum::<u64>();
        let (latency, last) = receipts.recorder.finish(now);
        let received = Received {
            flaws: self.flaws,
            warmup: receipts.warmup,
            latency,
        };
        self.reporter
            .finish(last, Totals::Received(received.into()));
    }
}
