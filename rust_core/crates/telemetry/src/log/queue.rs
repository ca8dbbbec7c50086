//! Events on their way to the writer, bounded in number. Adding an event never waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::event::Event;
use super::record::Record;

/// Most events that may wait. Further events are counted and lost.
pub(super) const CAPACITY: usize = 1024;

/// Time between two reports of lost lines while there is more to write.
const REPORT_LOST_EVERY: Duration = Duration::from_secs(1);

/// Queue of events. Its lock is held briefly, and never while a line is written.
pub(super) struct Queue<E: Event> {
    state: Mutex<State<E>>,
    /// Signal to the writer that there is work.
    arrived: Condvar,
    /// Signal to [`Queue::wait_written`] that the writer is idle.
    idle: Condvar,
}

struct State<E: Event> {
    records: VecDeque<Record<E>>,
    /// Records that were never written, since the start.
    lost: u64,
    /// Lost records that a line has reported.
    lost_reported: u64,
    /// Time of that line, or of the writer's start; `None` before the start.
    reported_at: Option<Instant>,
    /// Whether the writer is at work.
    is_busy: bool,
    /// Whether the writer waits for work.
    is_waiting: bool,
    is_closed: bool,
}

/// The writer's next work.
pub(super) struct Work<E: Event> {
    pub(super) record: Option<Record<E>>,
    /// Number of records lost since the last report.
    pub(super) lost: u64,
    /// Whether no further work will come.
    pub(super) is_end: bool,
}

impl<E: Event> Queue<E> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                records: VecDeque::new(),
                lost: 0,
                lost_reported: 0,
                reported_at: None,
                is_busy: false,
                is_waiting: false,
                is_closed: false,
            }),
            arrived: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Add a record, or count it as lost.
    pub(super) fn push(&self, record: Record<E>) {
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

    /// Count a record as lost that was taken but could not be written.
    pub(super) fn count_lost(&self) {
        self.lock().lost += 1;
    }

    pub(super) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Wait for work until `until` at the latest. The writer calls it when its last work is done.
    pub(super) fn take(&self, until: Instant) -> Work<E> {
        let mut state = self.lock();
        state.is_busy = false;
        loop {
            let now = Instant::now();
            let has_work = !state.records.is_empty() || state.lost > state.lost_reported;
            if has_work || state.is_closed || now >= until {
                return state.begin_work(now);
            }
            self.idle.notify_all();
            state.is_waiting = true;
            let waited = self.arrived.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_waiting = false;
        }
    }

    /// Take no more records; the writer ends when it has written the queued ones.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Wait until the writer is idle, for `timeout` at most.
    pub(super) fn wait_written(&self, timeout: Duration) {
        let state = self.lock();
        let is_at_work = |state: &mut State<E>| state.is_busy || !state.records.is_empty();
        drop(self.idle.wait_timeout_while(state, timeout, is_at_work));
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Event> State<E> {
    fn begin_work(&mut self, now: Instant) -> Work<E> {
        let record = self.records.pop_front();
        let is_last = self.records.is_empty();
        let mut lost = 0;
        let reported_at = *self.reported_at.get_or_insert(now);
        if is_last || now.saturating_duration_since(reported_at) >= REPORT_LOST_EVERY {
            lost = self.lost - self.lost_reported;
            self.lost_reported = self.lost;
            self.reported_at = Some(now);
        }
        // The writer is busy until it asks for more. Its last line is work, too.
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

    use super::super::record::Content;
    use super::super::testing::Sample;
    use super::*;

    fn record() -> Record<Sample> {
        Record {
            time: SystemTime::UNIX_EPOCH,
            shard: None,
            content: Content::Event(Sample::Ended(Duration::ZERO)),
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
