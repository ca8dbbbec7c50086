//! The way of measured figures from an engine's shards to the result: intervals, merged second by
//! second, and at the end the totals of each shard.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::recorder::{self, Interval, Recorder};
use crate::schedule::NS_PER_S;
use crate::shared::lock;

/// Reports that wait for the collector, per shard, before a shard waits for it.
const REPORTS_PER_SHARD: usize = 64;

/// A report of a shard.
enum Report<T> {
    /// A second of the measured phase is over.
    Interval(Interval),
    /// The shard has ended, and measured this.
    Totals(T),
}

/// The sum of all shards' totals, from which the result is made.
pub(crate) trait Sum<T>: Send + 'static {
    /// Add the totals of a shard.
    fn add(&mut self, totals: T);

    /// Return the result as JSON, once all totals have been added.
    fn encode(&self, intervals: &[IntervalRow]) -> String;
}

/// Empty histograms for the intervals to come; handed back when an interval has been merged.
#[derive(Clone, Default)]
struct HistogramPool(Arc<Mutex<Vec<Histogram<u64>>>>);

impl HistogramPool {
    fn take(&self) -> Histogram<u64> {
        lock(&self.0).pop().unwrap_or_else(recorder::histogram)
    }

    fn give(&self, mut histogram: Histogram<u64>) {
        histogram.reset();
        lock(&self.0).push(histogram);
    }
}

/// A shard's way to the collector. Each shard is to [finish](Reporter::finish) once.
pub(crate) struct Reporter<T> {
    report: Arc<dyn Fn(Report<T>) + Send + Sync>,
    spares: HistogramPool,
}

impl<T> Clone for Reporter<T> {
    fn clone(&self) -> Self {
        Self {
            report: Arc::clone(&self.report),
            spares: self.spares.clone(),
        }
    }
}

impl<T> Reporter<T> {
    /// Report the intervals that are over at `now`.
    #[inline]
    pub(crate) fn report_intervals(&self, recorder: &mut Recorder, now: u64) {
        while let Some(interval) = recorder.poll_interval(now, || self.spares.take()) {
            (self.report)(Report::Interval(interval));
        }
    }

    /// Report the last interval, if any, and the totals.
    pub(crate) fn finish(&self, last: Option<Interval>, totals: T) {
        let last = last.map(Report::Interval);
        for report in last.into_iter().chain([Report::Totals(totals)]) {
            (self.report)(report);
        }
    }
}

/// The result of an engine: absent until every shard has finished.
pub(crate) struct Collector {
    result: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Collect in a thread of its own, which the shards wait for only when that was kept from running
    /// for seconds. So no figure is lost, and merging delays no request.
    ///
    /// # Errors
    /// The operating system refuses the thread.
    pub(crate) fn in_thread<T: Send + 'static>(
        shards: u32,
        sum: impl Sum<T>,
    ) -> std::io::Result<(Reporter<T>, Self)> {
        let (sender, receiver) = sync_channel(shards as usize * REPORTS_PER_SHARD);
        let mut aggregate = Aggregate::new(shards, sum);
        let (spares, result) = (
            aggregate.intervals.spares.clone(),
            Arc::clone(&aggregate.result),
        );
        let thread = std::thread::Builder::new()
            .name("loadgen-collect".into())
            .spawn(move || {
                // All senders are gone if the engine was closed early.
                while !aggregate.is_complete()
                    && let Ok(report) = receiver.recv()
                {
                    aggregate.add(report);
                }
            })?;
        let report = move |report| {
            // The receiver is gone if the engine is being closed.
            let _ = sender.send(report);
        };
        let report = Arc::new(report);
        let thread = Some(thread);
        Ok((Reporter { report, spares }, Self { result, thread }))
    }

    /// Collect each report on the calling thread, for shards that share one thread.
    #[cfg(feature = "sim")]
    pub(crate) fn at_once<T: Send + 'static>(shards: u32, sum: impl Sum<T>) -> (Reporter<T>, Self) {
        let aggregate = Aggregate::new(shards, sum);
        let (spares, result) = (
            aggregate.intervals.spares.clone(),
            Arc::clone(&aggregate.result),
        );
        let aggregate = Mutex::new(aggregate);
        let report = Arc::new(move |report| lock(&aggregate).add(report));
        let thread = None;
        (Reporter { report, spares }, Self { result, thread })
    }

    /// Return everything measured, as JSON, once it is there.
    pub(crate) fn result(&self) -> Option<&str> {
        self.result.get().map(String::as_str)
    }

    /// Wait for the thread, which ends with the shards.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Only a defect of the engine could make it panic; the result is missing then.
            let _ = thread.join();
        }
    }
}

/// The reports so far, and the result.
struct Aggregate<S> {
    intervals: Intervals,
    sum: S,
    /// Shards that have not finished.
    running: u32,
    result: Arc<OnceLock<String>>,
}

impl<S> Aggregate<S> {
    fn new(shards: u32, sum: S) -> Self {
        Self {
            intervals: Intervals::new(shards),
            sum,
            running: shards,
            result: Arc::default(),
        }
    }

    fn is_complete(&self) -> bool {
        self.running == 0
    }

    fn add<T>(&mut self, report: Report<T>)
    where
        S: Sum<T>,
    {
        match report {
            Report::Interval(interval) => self.intervals.add(interval),
            Report::Totals(totals) => {
                self.sum.add(totals);
                self.running -= 1;
            }
        }
        if self.is_complete() {
            self.intervals.close();
            let result = || self.sum.encode(&self.intervals.rows);
            self.result.get_or_init(result);
        }
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

/// The intervals of all shards, merged.
struct Intervals {
    shards: u32,
    /// Histograms that are not needed any more.
    spares: HistogramPool,
    /// Intervals that some shards have reported, with how many.
    open: BTreeMap<u32, (Interval, u32)>,
    rows: Vec<IntervalRow>,
}

impl Intervals {
    fn new(shards: u32) -> Self {
        Self {
            shards,
            spares: HistogramPool::default(),
            open: BTreeMap::new(),
            rows: Vec::new(),
        }
    }

    /// Add one shard's interval.
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
        if reported == self.shards {
            self.close_one(index);
        }
    }

    /// Close an interval. Each shard reports its intervals in order, so they become complete in order, too.
    fn close_one(&mut self, index: u32) {
        if let Some((interval, _)) = self.open.remove(&index) {
            self.rows.push(IntervalRow::from(&interval));
            self.spares.give(interval.latency);
        }
    }

    /// Close the open intervals: shards without anything to report leave them incomplete.
    fn close(&mut self) {
        while let Some((index, _)) = self.open.first_key_value() {
            self.close_one(*index);
        }
    }
}
