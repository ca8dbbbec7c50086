//! The messages that are under way, and who has received them: what all threads of a process know
//! together. No I/O and no clock; times are nanoseconds of the run's clock.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use serde::Serialize;

use super::audience::Audience;
use super::parts::Part;
use crate::recorder::Summary;
use crate::shared::lock;

/// How far ahead of the plan a receipt may be for its message to be remembered. Only where another
/// process publishes can it be ahead at all, by as much as the two are apart.
const MOST_AHEAD: u64 = 1 << 20;

/// What the threads of an engine share.
#[derive(Debug)]
pub(crate) struct Board {
    window: Mutex<Window>,
    /// When the warm-up begins, once that is known.
    pub(crate) start: OnceLock<u64>,
    is_over: AtomicBool,
}

impl Board {
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window: Mutex::new(window),
            start: OnceLock::new(),
            is_over: AtomicBool::new(false),
        }
    }

    /// The window, for a moment.
    #[inline]
    pub(crate) fn window(&self) -> MutexGuard<'_, Window> {
        lock(&self.window)
    }

    /// Nothing is to be waited for any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// The messages of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Messages that were due, where this process publishes.
    pub(crate) sent: u64,
    /// Those of them that could not be published: their publisher had no connection.
    pub(crate) errors: u64,
    /// Their deliveries to this process's users, if none is lost.
    pub(crate) expected: u64,
}

/// The receipts of one message, for whoever adds those of several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Row(
    /// The message's number.
    pub(crate) u64,
    /// How many users received it.
    pub(crate) u32,
    /// When the first did.
    pub(crate) u64,
    /// When the last did.
    pub(crate) u64,
);

/// One message under way.
#[derive(Debug, Clone, Copy)]
struct Entry {
    planned: u64,
    first: u64,
    last: u64,
    receipts: u32,
    /// Receipts that may still come.
    missing: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    audience: Audience,
    /// Messages under way at once in a closed loop; 0 in an open one.
    outstanding: u64,
    /// When the measured phase begins.
    measured_from: u64,
    /// The number of the first entry.
    front: u64,
    entries: VecDeque<Entry>,
    /// The number of the next message that is due.
    next: u64,
    /// Entries that somebody has not received.
    under_way: u64,
    /// Users who have lost their connection, by subject.
    lost: HashMap<u32, u32>,
    received: u64,
    /// Deliveries that will never come.
    forgone: u64,
    /// Whether every message that was due has been published.
    pub(crate) has_ended: bool,
    pub(crate) warmup: Tally,
    pub(crate) measured: Tally,
    /// From the first receipt to the last, of every measured message that all users received.
    pub(crate) spread: Summary,
    /// Measured messages that somebody did not receive.
    pub(crate) incomplete: u64,
    /// Every measured message, where that is wanted.
    pub(crate) rows: Option<Vec<Row>>,
}

impl Window {
    /// For the users of `audience`; `outstanding` is 0 in an open loop.
    pub(crate) fn new(audience: Audience, outstanding: u32, list_messages: bool) -> Self {
        Self {
            audience,
            outstanding: outstanding.into(),
            measured_from: u64::MAX,
            front: 0,
            entries: VecDeque::new(),
            next: 0,
            under_way: 0,
            lost: HashMap::new(),
            received: 0,
            forgone: 0,
            has_ended: false,
            warmup: Tally::default(),
            measured: Tally::default(),
            spread: Summary::new(),
            incomplete: 0,
            rows: list_messages.then(Vec::new),
        }
    }

    /// Messages due from `at` on are measured.
    pub(crate) fn measure_from(&mut self, at: u64) {
        self.measured_from = at;
    }

    /// Whether a message due at `planned` is measured.
    #[inline]
    pub(crate) fn is_measured(&self, planned: u64) -> bool {
        planned >= self.measured_from
    }

    /// Messages that somebody has not received.
    #[inline]
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way
    }

    /// How many messages were due so far; the number of the next one.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether no delivery is to be waited for, of the messages so far.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.received + self.forgone >= self.warmup.expected + self.measured.expected
    }

    /// Whether there may be something for the publishing thread to do.
    #[inline]
    pub(crate) fn waits_for_publisher(&self) -> bool {
        self.under_way < self.outstanding || (self.has_ended && self.is_drained())
    }

    /// Notes the message that is due at `planned`; returns its number.
    #[inline]
    pub(crate) fn begin(&mut self, planned: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        let subject = self.audience.subject_of(number);
        self.forgone += u64::from(self.lost_of(subject));
        let expected = u64::from(self.audience.subscribers(subject));
        self.tally(planned).expected += expected;
        if let Some(entry) = self.entry(number, planned) {
            entry.planned = planned;
        }
        number
    }

    /// Counts a message that this process publishes.
    #[inline]
    pub(crate) fn count_sent(&mut self, planned: u64) {
        self.tally(planned).sent += 1;
    }

    /// Notes that a message could not be published.
    #[cold]
    pub(crate) fn refuse(&mut self, number: u64, planned: u64) {
        self.tally(planned).errors += 1;
        self.settle(number, u32::MAX);
    }

    /// Adds what a thread has received.
    #[inline]
    pub(crate) fn receive(&mut self, part: &Part) {
        self.received += u64::from(part.count);
        if let Some(entry) = self.entry(part.number, part.planned) {
            entry.receipts += part.count;
            entry.first = entry.first.min(part.first);
            entry.last = entry.last.max(part.last);
            self.settle(part.number, part.count);
        }
    }

    /// One user will not receive the messages of a subject from number `from` to before `to`.
    #[cold]
    pub(crate) fn forgo(&mut self, from: u64, to: u64) {
        self.forgone += self.audience.messages(from, to.min(self.next));
        let before = self.audience.messages(from, self.front);
        let mut number = from + before * self.audience.step();
        while number < to.min(self.front + self.entries.len() as u64) {
            self.settle(number, 1);
            number += self.audience.step();
        }
    }

    /// A user has lost the connection, whose next message would have been number `next`.
    #[cold]
    pub(crate) fn lose(&mut self, next: u64) {
        self.forgo(next, u64::MAX);
        *self.lost.entry(self.audience.subject_of(next)).or_default() += 1;
    }

    /// Forgets the messages that everybody has received, and those that were due before `limit`.
    #[inline]
    pub(crate) fn retire(&mut self, limit: u64) {
        while self.front < self.next
            && let Some(entry) = self.entries.front().copied()
            && (entry.missing == 0 || entry.planned < limit)
        {
            self.under_way -= u64::from(entry.missing > 0);
            self.entries.pop_front();
            self.record(self.front, &entry);
            self.front += 1;
        }
    }

    /// When the oldest message was due.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.planned)
    }

    fn record(&mut self, number: u64, entry: &Entry) {
        if !self.is_measured(entry.planned) {
            return;
        }
        if let Some(rows) = &mut self.rows
            && entry.receipts > 0
        {
            rows.push(Row(number, entry.receipts, entry.first, entry.last));
        }
        let subscribers = self.audience.subscribers(self.audience.subject_of(number));
        if entry.receipts < subscribers {
            self.incomplete += 1;
        } else if subscribers > 0 {
            self.spread.record(entry.last - entry.first);
        }
    }

    /// The entry of a message, made where there is none yet; `None` for one that was retired, or that
    /// cannot be of this run.
    #[inline]
    fn entry(&mut self, number: u64, planned: u64) -> Option<&mut Entry> {
        let index = number.checked_sub(self.front)?;
        while index >= self.entries.len() as u64 {
            if number >= self.next + MOST_AHEAD {
                return None;
            }
            let subject = self
                .audience
                .subject_of(self.front + self.entries.len() as u64);
            let missing = self.audience.subscribers(subject) - self.lost_of(subject);
            self.under_way += u64::from(missing > 0);
            self.entries.push_back(Entry {
                planned,
                first: u64::MAX,
                last: 0,
                receipts: 0,
                missing,
            });
        }
        self.entries.get_mut(index as usize)
    }

    /// So many fewer receipts of a message are to come.
    #[inline]
    fn settle(&mut self, number: u64, count: u32) {
        let index = number.checked_sub(self.front);
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index as usize))
            && entry.missing > 0
        {
            entry.missing = entry.missing.saturating_sub(count);
            self.under_way -= u64::from(entry.missing == 0);
        }
    }

    #[inline]
    fn lost_of(&self, subject: u32) -> u32 {
        if self.lost.is_empty() {
            return 0;
        }
        self.lost.get(&subject).copied().unwrap_or(0)
    }

    #[inline]
    fn tally(&mut self, planned: u64) -> &mut Tally {
        if self.is_measured(planned) {
            &mut self.measured
        } else {
            &mut self.warmup
        }
    }
}

#[cfg(test)]
mod tests;
