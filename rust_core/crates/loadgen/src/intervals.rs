//! What the threads of an engine measure, on its way to the collector: intervals, merged there second
//! by second, and at the end the totals of each thread.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::recorder::{self, Interval, Recorder};
use crate::report::NS_PER_S;
use crate::shared::lock;

/// Reports that wait for the collector, per thread, before a thread waits for it.
const REPORTS_PER_THREAD: usize = 64;

/// What a thread reports.
enum Report<T> {
    /// A second of the measured phase is over.
    Interval(Interval),
    /// The thread has ended, and measured this.
    Totals(T),
}

/// Empty histograms for the intervals to come; handed back by the collector.
#[derive(Clone, Default)]
struct Spares(Arc<Mutex<Vec<Histogram<u64>>>>);

impl Spares {
    fn take(&self) -> Histogram<u64> {
        lock(&self.0).pop().unwrap_or_else(recorder::histogram)
    }

    fn give(&self, mut histogram: Histogram<u64>) {
        histogram.reset();
        lock(&self.0).push(histogram);
    }
}

/// A way from `threads` threads to their collector. Each is to [finish](Reporter::finish) once.
pub(crate) fn channel<T>(threads: u32) -> (Reporter<T>, Reports<T>) {
    let (sender, receiver) = sync_channel(threads as usize * REPORTS_PER_THREAD);
    let spares = Spares::default();
    let reporter = Reporter {
        sender,
        spares: spares.clone(),
    };
    let reports = Reports {
        receiver,
        spares,
        threads,
    };
    (reporter, reports)
}

/// A thread's end. The collector always has room but for when it is kept from running for seconds;
/// waiting for it then loses no figure. Without a collector the engine is being closed.
pub(crate) struct Reporter<T> {
    sender: SyncSender<Report<T>>,
    spares: Spares,
}

impl<T> Clone for Reporter<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            spares: self.spares.clone(),
        }
    }
}

impl<T> Reporter<T> {
    /// Reports the intervals that are over at `now`.
    #[inline]
    pub(crate) fn report_intervals(&self, recorder: &mut Recorder, now: u64) {
        while let Some(interval) = recorder.poll_interval(now, || self.spares.take()) {
            let _ = self.sender.send(Report::Interval(interval));
        }
    }

    /// Reports the last interval, if any, and what the thread has measured.
    pub(crate) fn finish(&self, last: Option<Interval>, totals: T) {
        let last = last.map(Report::Interval);
        for report in last.into_iter().chain([Report::Totals(totals)]) {
            let _ = self.sender.send(report);
        }
    }
}

/// The collector's end.
pub(crate) struct Reports<T> {
    receiver: Receiver<Report<T>>,
    spares: Spares,
    threads: u32,
}

impl<T> Reports<T> {
    /// Waits until every thread has ended, hands each one's totals to `add` and returns the intervals
    /// of all; `None` where the engine was closed before.
    pub(crate) fn collect(self, mut add: impl FnMut(T)) -> Option<Vec<IntervalRow>> {
        let mut intervals = Intervals::new(self.threads, self.spares);
        let mut running = self.threads;
        while running > 0 {
            match self.receiver.recv().ok()? {
                Report::Interval(interval) => intervals.add(interval),
                Report::Totals(totals) => {
                    add(totals);
                    running -= 1;
                }
            }
        }
        Some(intervals.close())
    }
}

/// Times are relative to the start of the measured phase.
#[derive(Serialize)]
pub(crate) struct IntervalRow {
    start_s: f64,
    end_s: f64,
    sent: u64,
    received: u64,
    max_send_lag_ns: u64,
    hdr: String,
}

impl From<&Interval> for IntervalRow {
    fn from(interval: &Interval) -> Self {
        Self {
            start_s: f64::from(interval.index),
            end_s: interval.end as f64 / NS_PER_S,
            sent: interval.sent,
            received: interval.latency.len(),
            max_send_lag_ns: interval.max_send_lag,
            hdr: recorder::encode(&interval.latency),
        }
    }
}

/// Those of several threads, merged.
struct Intervals {
    threads: u32,
    spares: Spares,
    /// Intervals that some threads have reported, with how many.
    open: BTreeMap<u32, (Interval, u32)>,
    rows: Vec<IntervalRow>,
}

impl Intervals {
    /// Of `threads` threads; histograms that are not needed any more go back to `spares`.
    fn new(threads: u32, spares: Spares) -> Self {
        let (open, rows) = (BTreeMap::new(), Vec::new());
        Self {
            threads,
            spares,
            open,
            rows,
        }
    }

    /// Adds one thread's interval.
    fn add(&mut self, interval: Interval) {
        let index = interval.index;
        let reported = match self.open.get_mut(&index) {
            None => {
                self.open.insert(index, (interval, 1));
                1
            }
            Some((open, reported)) => {
                open.end = open.end.max(interval.end);
                open.sent += interval.sent;
                open.max_send_lag = open.max_send_lag.max(interval.max_send_lag);
                open.latency
                    .add(&interval.latency)
                    .expect("all histograms have the same bounds");
                self.spares.give(interval.latency);
                *reported += 1;
                *reported
            }
        };
        if reported == self.threads {
            self.close_one(index);
        }
    }

    /// Each thread reports its intervals in order, so they become complete in order, too.
    fn close_one(&mut self, index: u32) {
        if let Some((interval, _)) = self.open.remove(&index) {
            self.rows.push(IntervalRow::from(&interval));
            self.spares.give(interval.latency);
        }
    }

    /// Every thread has ended; some may have had nothing to report after the end of the schedule.
    fn close(mut self) -> Vec<IntervalRow> {
        while let Some((index, _)) = self.open.first_key_value() {
            self.close_one(*index);
        }
        self.rows
    }
}
