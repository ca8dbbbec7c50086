//! The intervals of an engine's threads, merged second by second.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::course::Spares;
use crate::recorder::{self, Interval};
use crate::report::NS_PER_S;

/// Times are relative to the start of the measured phase.
#[derive(Serialize)]
pub(crate) struct IntervalRow {
    start_s: f64,
    end_s: f64,
    sent: u64,
    received: u64,
    hdr: String,
}

impl From<&Interval> for IntervalRow {
    fn from(interval: &Interval) -> Self {
        Self {
            start_s: f64::from(interval.index),
            end_s: interval.end as f64 / NS_PER_S,
            sent: interval.sent,
            received: interval.latency.len(),
            hdr: recorder::encode(&interval.latency),
        }
    }
}

/// See the module.
pub(crate) struct Intervals {
    threads: u32,
    spares: Spares,
    /// Intervals that some threads have reported, with how many.
    open: BTreeMap<u32, (Interval, u32)>,
    rows: Vec<IntervalRow>,
}

impl Intervals {
    /// Of `threads` threads; histograms that are not needed any more go back to `spares`.
    pub(crate) fn new(threads: u32, spares: Spares) -> Self {
        let (open, rows) = (BTreeMap::new(), Vec::new());
        Self {
            threads,
            spares,
            open,
            rows,
        }
    }

    /// Adds one thread's interval.
    pub(crate) fn add(&mut self, interval: Interval) {
        let index = interval.index;
        let reported = match self.open.get_mut(&index) {
            None => {
                self.open.insert(index, (interval, 1));
                1
            }
            Some((open, reported)) => {
                open.end = open.end.max(interval.end);
                open.sent += interval.sent;
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
    pub(crate) fn close(&mut self) {
        while let Some((index, _)) = self.open.first_key_value() {
            self.close_one(*index);
        }
    }

    /// The intervals that are complete.
    pub(crate) fn rows(&self) -> &[IntervalRow] {
        &self.rows
    }
}
