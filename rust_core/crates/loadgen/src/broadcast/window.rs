//! The messages in flight and their receipts, shared by all threads of a process. No I/O and no
//! clock; times are nanoseconds of the run's clock.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use serde::Serialize;

use super::audience::Audience;
use super::receipt_batch::MessageReceipts;
use crate::recorder::Summary;
use crate::shared::lock;

/// Farthest a receipt may be ahead of the schedule. It can be ahead only if another process
/// publishes, by the difference of the two processes' clocks.
const MOST_AHEAD: u64 = 1 << 20;

/// State that the threads of an engine share.
#[derive(Debug)]
pub(crate) struct SharedWindow {
    window: Mutex<Window>,
    /// Time when the warm-up begins, once that is known.
    pub(crate) start: OnceLock<u64>,
    is_over: AtomicBool,
}

impl SharedWindow {
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window: Mutex::new(window),
            start: OnceLock::new(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Return the window, for a moment.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Window> {
        lock(&self.window)
    }

    /// End the wait for deliveries.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Counts of the messages of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PhaseCounts {
    /// Messages that were due, in a process that publishes.
    pub(crate) sent: u64,
    /// Sent messages that failed, because their publisher had no connection.
    pub(crate) errors: u64,
    /// Deliveries of the messages to this process's users, if none is lost.
    pub(crate) expected: u64,
}

/// Receipts of one message, to be added to those of other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Row(
    /// The message's number.
    pub(crate) u64,
    /// Number of users who received it.
    pub(crate) u32,
    /// Time when the first did.
    pub(crate) u64,
    /// Time when the last did.
    pub(crate) u64,
);

/// One message in flight.
#[derive(Debug, Clone, Copy)]
struct Entry {
    planned: u64,
    first: u64,
    last: u64,
    receipts: u32,
    /// Receipts that may still come.
    awaited: u32,
}

/// Messages in flight and totals of the finished ones.
#[derive(Debug)]
pub(crate) struct Window {
    audience: Audience,
    /// Messages in flight at once in a closed loop; 0 in an open one.
    outstanding: u64,
    /// Time when the measured phase begins.
    measured_from: u64,
    /// The number of the first entry.
    front: u64,
    entries: VecDeque<Entry>,
    /// The number of the next message that is due.
    next: u64,
    /// Entries that some user has not received.
    in_flight: u64,
    /// Users who have lost their connection, by subject.
    lost: HashMap<u32, u32>,
    received: u64,
    /// Deliveries that will never come.
    missing: u64,
    /// Whether every message that was due has been published.
    pub(crate) has_ended: bool,
    pub(crate) warmup: PhaseCounts,
    pub(crate) measured: PhaseCounts,
    /// Times from the first receipt to the last, of every measured message that all users received.
    pub(crate) spread: Summary,
    /// Measured messages that some user did not receive.
    pub(crate) incomplete: u64,
    /// Receipts of every measured message, if the configuration asks for them.
    pub(crate) rows: Option<Vec<Row>>,
}

impl Window {
    /// Make the window for the users of `audience`; `outstanding` is 0 in an open loop.
    pub(crate) fn new(audience: Audience, outstanding: u32, list_messages: bool) -> Self {
        Self {
            audience,
            outstanding: outstanding.into(),
            measured_from: u64::MAX,
            front: 0,
            entries: VecDeque::new(),
            next: 0,
            in_flight: 0,
            lost: HashMap::new(),
            received: 0,
            missing: 0,
            has_ended: false,
            warmup: PhaseCounts::default(),
            measured: PhaseCounts::default(),
            spread: Summary::new(),
            incomplete: 0,
            rows: list_messages.then(Vec::new),
        }
    }

    /// Measure the messages that are due from `at` on.
    pub(crate) fn measure_from(&mut self, at: u64) {
        self.measured_from = at;
    }

    /// Return whether a message due at `planned` is measured.
    #[inline]
    pub(crate) fn is_measured(&self, planned: u64) -> bool {
        planned >= self.measured_from
    }

    /// Return the number of messages that some user has not received.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Return how many messages were due so far; the number of the next one.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Return whether no delivery is to be waited for, of the messages so far.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.received + self.missing >= self.warmup.expected + self.measured.expected
    }

    /// Return whether there may be something for the publishing thread to do.
    #[inline]
    pub(crate) fn waits_for_publisher(&self) -> bool {
        self.in_flight < self.outstanding || (self.has_ended && self.is_drained())
    }

    /// Note the message that is due at `planned`; return its number.
    #[inline]
    pub(crate) fn begin(&mut self, planned: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        let subject = self.audience.subject_of(number);
        self.missing += u64::from(self.lost_of(subject));
        let expected = u64::from(self.audience.subscribers(subject));
        self.phase_counts(planned).expected += expected;
        if let Some(entry) = self.entry(number, planned) {
            entry.planned = planned;
        }
        number
    }

    /// Count a message that this process publishes.
    #[inline]
    pub(crate) fn count_sent(&mut self, planned: u64) {
        self.phase_counts(planned).sent += 1;
    }

    /// Note that a message could not be published.
    #[cold]
    pub(crate) fn refuse(&mut self, number: u64, planned: u64) {
        self.phase_counts(planned).errors += 1;
        self.settle(number, u32::MAX);
    }

    /// Add the receipts of a thread.
    #[inline]
    pub(crate) fn receive(&mut self, part: &MessageReceipts) {
        self.received += u64::from(part.count);
        if let Some(entry) = self.entry(part.number, part.planned) {
            entry.receipts += part.count;
            entry.first = entry.first.min(part.first);
            entry.last = entry.last.max(part.last);
            self.settle(part.number, part.count);
        }
    }

    /// Note that one user will not receive the messages of a subject from number `from` to before
    /// `to`.
    #[cold]
    pub(crate) fn record_missing(&mut self, from: u64, to: u64) {
        self.missing += self.audience.messages(from, to.min(self.next));
        let before = self.audience.messages(from, self.front);
        let mut number = from + before * self.audience.step();
        while number < to.min(self.front + self.entries.len() as u64) {
            self.settle(number, 1);
            number += self.audience.step();
        }
    }

    /// Note the loss of a user's connection, whose next message would have been number `next`.
    #[cold]
    pub(crate) fn lose(&mut self, next: u64) {
        self.record_missing(next, u64::MAX);
        *self.lost.entry(self.audience.subject_of(next)).or_default() += 1;
    }

    /// Remove the messages that all users have received, and those that were due before `limit`.
    #[inline]
    pub(crate) fn retire(&mut self, limit: u64) {
        while self.front < self.next
            && let Some(entry) = self.entries.front().copied()
            && (entry.awaited == 0 || entry.planned < limit)
        {
            self.in_flight -= u64::from(entry.awaited > 0);
            self.entries.pop_front();
            self.record(self.front, &entry);
            self.front += 1;
        }
    }

    /// Return when the oldest message was due.
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

    /// Return the entry of a message, which is made if missing. `None` for a message that was
    /// removed, or that cannot be of this run.
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
            let awaited = self.audience.subscribers(subject) - self.lost_of(subject);
            self.in_flight += u64::from(awaited > 0);
            self.entries.push_back(Entry {
                planned,
                first: u64::MAX,
                last: 0,
                receipts: 0,
                awaited,
            });
        }
        self.entries.get_mut(index as usize)
    }

    /// Reduce the number of awaited receipts of a message.
    #[inline]
    fn settle(&mut self, number: u64, count: u32) {
        let index = number.checked_sub(self.front);
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index as usize))
            && entry.awaited > 0
        {
            entry.awaited = entry.awaited.saturating_sub(count);
            self.in_flight -= u64::from(entry.awaited == 0);
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
    fn phase_counts(&mut self, planned: u64) -> &mut PhaseCounts {
        if self.is_measured(planned) {
            &mut self.measured
        } else {
            &mut self.warmup
        }
    }
}

#[cfg(test)]
mod tests;
