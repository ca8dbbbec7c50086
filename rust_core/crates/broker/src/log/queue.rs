//! Events on their way to the writer: bounded, and nobody who adds one waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Record;

/// Events that may wait. What comes beyond is counted and lost.
pub(super) const CAPACITY: usize = 1024;

/// Between two lines that say how much was lost while there is more to write.
const SAY_LOST_EVERY: Duration = Duration::from_secs(1);

/// The queue. Its lock is held for moments only, and never while anything is written.
pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer waits for it.
    arrived: Condvar,
    /// Whoever waits until everything is written waits for it.
    rested: Condvar,
}

struct State {
    records: VecDeque<Record>,
    lost: u64,
    /// Of these, those that a line has told of.
    lost_told: u64,
    told_at: Instant,
    /// The writer has something in hand.
    is_busy: bool,
    is_waiting: bool,
    is_closed: bool,
}

/// What the writer is to do next.
pub(super) struct Work {
    pub(super) record: Option<Record>,
    /// Records that were lost since the last time.
    pub(super) lost: u64,
    /// Nothing more will come.
    pub(super) is_end: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                records: VecDeque::new(),
                lost: 0,
                lost_told: 0,
                told_at: Instant::now(),
                is_busy: false,
                is_waiting: false,
                is_closed: false,
            }),
            arrived: Condvar::new(),
            rested: Condvar::new(),
        }
    }

    /// Adds a record, or counts it as lost.
    pub(super) fn push(&self, record: Record) {
        let mut state = self.lock();
        if state.is_closed || state.records.len() >= CAPACITY {
            state.lost += 1;
            return;
        }
        state.records.push_back(record);
        let is_waiting = state.is_waiting;
        drop(state);
        if is_waiting {
            self.arrived.notify_one();
        }
    }

    /// Counts a record as lost that was taken and could not be written.
    pub(super) fn count_lost(&self) {
        self.lock().lost += 1;
    }

    pub(super) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Waits for something to write, at most until `until`. The writer calls it when it has done what
    /// it was given before.
    pub(super) fn take(&self, until: Instant) -> Work {
        let mut state = self.lock();
        state.is_busy = false;
        loop {
            let now = Instant::now();
            let has_work = !state.records.is_empty() || state.lost > state.lost_told;
            if has_work || state.is_closed || now >= until {
                return state.begin_work(now);
            }
            self.rested.notify_all();
            state.is_waiting = true;
            let waited = self.arrived.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_waiting = false;
        }
    }

    /// Takes no more records; the writer ends when it has written those that are there.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Waits until the writer has nothing to do, at most `patience`.
    pub(super) fn wait_written(&self, patience: Duration) {
        let state = self.lock();
        let is_at_work = |state: &mut State| state.is_busy || !state.records.is_empty();
        drop(self.rested.wait_timeout_while(state, patience, is_at_work));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin_work(&mut self, now: Instant) -> Work {
        let record = self.records.pop_front();
        let is_last = self.records.is_empty();
        let mut lost = 0;
        if is_last || now.saturating_duration_since(self.told_at) >= SAY_LOST_EVERY {
            lost = self.lost - self.lost_told;
            self.lost_told = self.lost;
            self.told_at = now;
        }
        // Until it asks for more, also at the end: what it does last counts as work as well.
        self.is_busy = true;
        Work {
            record,
            lost,
            is_end: self.is_closed && is_last,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::event::Event;
    use super::*;

    fn record() -> Record {
        Record {
            time: SystemTime::now(),
            shard: None,
            event: Event::Stopped,
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_and_told_once() {
        let queue = Queue::new();
        for _ in 0..CAPACITY + 7 {
            queue.push(record());
        }
        assert_eq!(queue.lost(), 7);
        let soon = Instant::now() + Duration::from_secs(60);
        let work: Vec<_> = (0..CAPACITY).map(|_| queue.take(soon)).collect();
        assert!(work.iter().all(|work| work.record.is_some()));
        assert_eq!(work.iter().map(|work| work.lost).sum::<u64>(), 7);
        let idle = queue.take(Instant::now());
        assert!(idle.record.is_none() && idle.lost == 0 && !idle.is_end);
    }

    #[test]
    fn after_the_close_what_is_there_is_handed_out_and_no_more() {
        let queue = Queue::new();
        queue.push(record());
        queue.push(record());
        queue.close();
        queue.push(record());
        let soon = Instant::now() + Duration::from_secs(60);
        assert!(!queue.take(soon).is_end);
        let last = queue.take(soon);
        assert!(last.is_end && last.record.is_some());
        assert_eq!(last.lost, 1);
    }
}
