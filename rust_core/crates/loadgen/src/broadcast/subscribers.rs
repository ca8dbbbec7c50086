//! The users of one thread: each is subscribed to one subject, and receives.

use std::sync::Arc;
use std::time::Instant;

use protocol::nats::Message;

use super::audience::Audience;
use super::config::{BroadcasterConfig, PUBLISHING_THREAD};
use super::message::Checker;
use super::receipt_batch::ReceiptBatch;
use super::receipts::Receipts;
use super::report::{DeliveryErrors, SubscriberTotals, Totals};
use super::window::SharedWindow;
use crate::clock::RunClock;
use crate::intervals::Reporter;
use crate::link::Link;
use crate::session::{Io, Mail};
use crate::shared::{ThreadCounters, set};
use crate::subject::Subject;
use crate::workload::Reconnect;

/// Users of one thread. Times are nanoseconds of the run's clock.
pub(crate) struct Subscribers {
    window: Arc<SharedWindow>,
    audience: Audience,
    clock: RunClock,
    first: u32,
    /// Number of the message that each user expects next.
    next: Box<[u64]>,
    checker: Checker,
    warmup_ns: u64,
    /// Time when the warm-up begins: no message is older.
    start: u64,
    /// Time when the bytes that are being handed out were received.
    now: u64,
    /// Receipts, from the start to the end of the run.
    receipts: Option<Receipts>,
    /// Receipts of this turn.
    batch: ReceiptBatch,
    /// Messages that a user did not receive, as was seen in this turn: from one to before another.
    gaps: Vec<(u64, u64)>,
    /// Whether the window may have changed in this turn for another reason than receipts.
    window_changed: bool,
    errors: DeliveryErrors,
    reporter: Reporter<Totals>,
}

impl Subscribers {
    /// Return the `users` users from number `first` on.
    pub(crate) fn new(
        config: &BroadcasterConfig,
        clock: RunClock,
        (first, users): (u32, u32),
        window: Arc<SharedWindow>,
        reporter: Reporter<Totals>,
    ) -> Self {
        let numbers = first..first + users;
        Self {
            window,
            audience: Audience::new(first, users, config.subjects),
            clock,
            first,
            next: numbers
                .map(|user| u64::from(user % config.subjects))
                .collect(),
            checker: Checker::new(config.message_bytes, config.seed),
            warmup_ns: config.warmup_ns(),
            start: u64::MAX,
            now: 0,
            receipts: None,
            batch: ReceiptBatch::new(),
            gaps: Vec::new(),
            window_changed: false,
            errors: DeliveryErrors::default(),
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

    /// Note that a connection is gone; return the policy for it. Once messages are published,
    /// a new connection would only hide the loss.
    pub(crate) fn handle_lost(&mut self, member: u32) -> Reconnect {
        if self.receipts.is_some()
            && let Some(next) = self.next.get(member as usize)
        {
            self.window.lock().lose(*next);
            self.window_changed = true;
        }
        match self.start {
            u64::MAX => Reconnect::Retry,
            _ => Reconnect::Never,
        }
    }

    #[inline]
    pub(crate) fn handle_slice(&mut self, now: Instant) {
        if self.start == u64::MAX {
            // The first message may arrive before the mail with the start.
            self.handle_start();
        }
        self.now = self.clock.ns(now);
        self.report_intervals(self.now);
    }

    #[inline]
    pub(crate) fn handle_message(&mut self, member: u32, message: &Message<'_>) {
        let Some(stamp) = self.checker.check(message.payload) else {
            self.errors.corrupt += 1;
            return;
        };
        let is_ours = message.subject == self.subject(member).as_bytes();
        if !is_ours || stamp.planned < self.start {
            self.errors.misrouted += 1;
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
            self.batch.note(stamp.number, stamp.planned, self.now);
        }
    }

    /// Count an unexpected message; return whether it follows a gap and counts as received.
    #[cold]
    fn is_after_gap(&mut self, expected: Option<u64>, number: u64) -> bool {
        let Some(expected) = expected else {
            return false;
        };
        if self.audience.subject_of(number) != self.audience.subject_of(expected) {
            self.errors.misrouted += 1;
            return false;
        }
        if number < expected {
            // The message is a duplicate or out of order; both are errors of the server.
            self.errors.duplicates += 1;
            return false;
        }
        self.errors.missing += self.audience.messages(expected, number);
        self.gaps.push((expected, number));
        self.window_changed = true;
        true
    }

    pub(crate) fn handle_start(&mut self) {
        if let Some(start) = self.window.start.get()
            && self.start == u64::MAX
        {
            self.start = *start;
            self.receipts = Some(Receipts::new(start + self.warmup_ns));
        }
    }

    #[inline]
    pub(crate) fn poll_turn(&mut self, io: &mut Io<Link>, counters: &ThreadCounters) {
        let now = self.clock.ns(io.clock().now());
        self.report_intervals(now);
        self.tell(io);
        let Some(receipts) = &mut self.receipts else {
            return;
        };
        if let Some(second) = receipts.second.poll(now) {
            counters.set_second(&second);
        }
        set(&counters.received, receipts.received());
        set(&counters.timed_out, self.errors.missing);
        if self.window.is_over() {
            self.finish(now);
        } else {
            io.wake_at(self.clock.instant(receipts.wakes_at()));
        }
    }

    /// Add the receipts of this turn to the shared window.
    #[inline]
    fn tell(&mut self, io: &mut Io<Link>) {
        if self.batch.is_empty() && !self.window_changed {
            return;
        }
        self.window_changed = false;
        let mut window = self.window.lock();
        for (from, to) in self.gaps.drain(..) {
            window.record_missing(from, to);
        }
        self.batch.drain(|part| window.receive(&part));
        if window.waits_for_publisher() {
            io.mail(PUBLISHING_THREAD, Mail::Wake);
        }
    }

    /// Report the intervals that are over at `now`.
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
        let published = self.window.lock().next();
        let remaining = self
            .next
            .iter()
            .map(|next| self.audience.messages(*next, published));
        self.errors.missing += remaining.sum::<u64>();
        let (latency, last) = receipts.recorder.finish(now);
        let received = SubscriberTotals {
            errors: self.errors,
            warmup: receipts.warmup,
            latency,
        };
        self.reporter
            .finish(last, Totals::Subscriber(received.into()));
    }
}
