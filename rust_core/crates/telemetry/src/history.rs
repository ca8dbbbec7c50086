//! Metrics measured once a second: rates and quantiles follow from two readings.

use std::time::{Duration, Instant};

use crate::histogram::Distribution;
use crate::metric::{Column, Measure, Metric};
use crate::rings::Rings;
use crate::samples::{Number, Samples, sum};

/// Shortest time over which rates are computed.
const SHORTEST: Duration = Duration::from_millis(100);

/// The columns of all metrics at one time.
#[derive(Debug)]
pub struct Reading {
    at: Instant,
    columns: Vec<(String, ColumnInput)>,
}

/// Part of a metric's samples that a column needs.
#[derive(Debug)]
enum ColumnInput {
    Level(f64),
    Total(Number),
    Times(Box<Distribution>, f64),
}

impl Reading {
    /// Begin a reading at this time.
    #[must_use]
    pub const fn new(at: Instant) -> Self {
        Self {
            at,
            columns: Vec::new(),
        }
    }

    /// Add the samples of one metric. All readings must have the same metrics, labels and order.
    pub fn take(&mut self, metric: &Metric, samples: &Samples) {
        for column in metric.columns {
            match samples {
                Samples::Numbers(samples) if column.name.contains('*') => {
                    for sample in samples {
                        let label = sample.labels.first().map_or("", |label| label);
                        if column.only.is_empty() || column.only.contains(&label) {
                            self.push(column.name.replace('*', label), column, sample.value);
                        }
                    }
                }
                Samples::Numbers(samples) => {
                    let sum = sum(samples).unwrap_or(Number::Whole(0));
                    self.push(column.name.to_owned(), column, sum);
                }
                Samples::Times(values) | Samples::Counts(values) => {
                    if let Measure::Quantile(quantile) = column.measure {
                        let input = ColumnInput::Times(values.clone(), quantile);
                        self.columns.push((column.name.to_owned(), input));
                    }
                }
            }
        }
    }

    fn push(&mut self, name: String, column: &Column, value: Number) {
        let input = match column.measure {
            Measure::PerSecond => ColumnInput::Total(value),
            Measure::Level | Measure::Quantile(_) => ColumnInput::Level(value.as_real()),
        };
        self.columns.push((name, input));
    }
}

impl ColumnInput {
    fn since(&self, earlier: &Self, passed: Duration) -> f64 {
        match (self, earlier) {
            (Self::Total(now), Self::Total(before)) => now.since(*before) / passed.as_secs_f64(),
            (Self::Times(now, quantile), Self::Times(before, _)) => {
                now.since(before).quantile(*quantile) as f64 / 1e3
            }
            (Self::Level(value), _) => *value,
            (Self::Total(_) | Self::Times(..), _) => 0.0,
        }
    }
}

/// History of all columns, stored by the second, ten seconds and minute.
pub struct History {
    rings: Rings,
    last: Reading,
}

impl History {
    /// Make an empty history with the columns of a first reading, from which rates are measured.
    #[must_use]
    pub fn new(first: Reading) -> Self {
        let names = first.columns.iter().map(|(name, _)| name.clone());
        Self {
            rings: Rings::new(names.collect()),
            last: first,
        }
    }

    /// Return whether enough time has passed since the last reading to compute rates.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last.at) >= SHORTEST
    }

    /// Add the time since the last reading, which ends at `end` in Unix time, in seconds.
    pub fn feed(&mut self, reading: Reading, end: u64) {
        debug_assert!(
            reading.columns.iter().map(|(name, _)| name).eq(self
                .last
                .columns
                .iter()
                .map(|(name, _)| name)),
            "all readings have the same columns"
        );
        let passed = reading
            .at
            .saturating_duration_since(self.last.at)
            .max(SHORTEST);
        let columns = reading.columns.iter().zip(&self.last.columns);
        let row: Vec<f64> = columns
            .map(|((_, now), (_, before))| now.since(before, passed))
            .collect();
        self.rings.feed(end, &row);
        self.last = reading;
    }

    /// Write the points of one resolution that end after `since`, as JSON; `None` for an unknown
    /// resolution.
    #[must_use]
    pub fn to_json(&self, resolution: u32, since: Option<u64>, now: u64) -> Option<String> {
        self.rings.to_json(resolution, since, now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::histogram::Histogram;

    const MSGS: Metric = Metric::counter("msgs", "Messages.").columns(&[
        Column::per_second("msgs_per_s"),
        Column::level("msgs_of_*").only(&["tcp"]),
    ]);
    const WAIT: Metric =
        Metric::histogram("wait_seconds", "Waits.").columns(&[Column::quantile("p50_us", 0.5)]);

    fn reading(at: Instant, msgs: [u64; 2], waits: &Histogram) -> Reading {
        let mut reading = Reading::new(at);
        reading.take(&MSGS, &Samples::by(["tcp", "http"].into_iter().zip(msgs)));
        let waits = Distribution::sum([waits]);
        reading.take(&WAIT, &Samples::Times(Box::new(waits)));
        reading
    }

    #[test]
    fn columns_are_rates_levels_and_quantiles_of_the_time_between_two_readings() {
        let (start, waits) = (Instant::now(), Histogram::new());
        waits.record(1_000_000);
        let mut history = History::new(reading(start, [100, 10], &waits));
        waits.record(2000);
        let later = start + Duration::from_secs(2);
        history.feed(reading(later, [150, 20], &waits), 1000);
        let json = history.to_json(1, None, 1001).expect("a resolution");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            json,
            json!({
                "resolution_s": 1,
                "now": 1001,
                "start": 1000,
                "columns": {"msgs_per_s": [30], "msgs_of_tcp": [150], "p50_us": [2.048]},
            })
        );
        assert_eq!(history.to_json(2, None, 1001), None);
    }

    #[test]
    fn a_moment_is_too_short_for_rates() {
        let (start, waits) = (Instant::now(), Histogram::new());
        let history = History::new(reading(start, [0, 0], &waits));
        assert!(!history.is_due(start + Duration::from_millis(99)));
        assert!(history.is_due(start + Duration::from_millis(100)));
    }

    #[test]
    fn a_counter_that_is_read_smaller_has_not_grown() {
        let (start, waits) = (Instant::now(), Histogram::new());
        let mut history = History::new(reading(start, [5, 0], &waits));
        history.feed(reading(start + Duration::from_secs(1), [4, 0], &waits), 1);
        let json = history.to_json(1, None, 1).expect("a resolution");
        assert!(json.contains("\"msgs_per_s\":[0]"), "{json}");
    }
}
