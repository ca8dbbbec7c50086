//! Rows measured once a second, kept for a day: rings of points of a second, of ten and of a minute.

use std::collections::VecDeque;
use std::fmt::Write;

/// Resolution in seconds and number of points of each ring.
const RINGS: [(u32, usize); 3] = [(1, 600), (10, 720), (60, 1440)];
/// Resolutions of the rings, in seconds.
pub const RESOLUTIONS: [u32; 3] = [RINGS[0].0, RINGS[1].0, RINGS[2].0];

/// A point's values, one for each column, written as JSON when the point was complete: pages with
/// many points are requested often.
struct Row {
    text: Box<str>,
    /// Ends of the values in the text.
    ends: Box<[u32]>,
}

impl Row {
    fn new(values: impl ExactSizeIterator<Item = f64>) -> Self {
        let mut text = String::with_capacity(values.len() * 8);
        let ends = values
            .map(|value| {
                write_value(&mut text, value);
                text.len() as u32
            })
            .collect();
        Self {
            text: text.into(),
            ends,
        }
    }

    fn value(&self, column: usize) -> &str {
        let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[column] as usize]
    }
}

/// Points of equal length, the last of which ends at or before [`Rings::last`].
struct Ring {
    resolution: u32,
    capacity: usize,
    rows: VecDeque<Row>,
    /// Unix time at which the newest point ends.
    end: u64,
    /// Sums over the seconds of the unfinished point.
    sums: Box<[f64]>,
    seconds: u32,
}

impl Ring {
    fn new((resolution, capacity): (u32, usize), columns: usize) -> Self {
        Self {
            resolution,
            capacity,
            rows: VecDeque::new(),
            end: 0,
            sums: vec![0.0; columns].into(),
            seconds: 0,
        }
    }

    /// Add the seconds that end from `first` to `last`, all with these values.
    fn feed_all(&mut self, first: u64, last: u64, values: &[f64]) {
        let reach = (self.capacity as u64 + 1) * u64::from(self.resolution);
        let kept = (last + 1).saturating_sub(reach);
        if first < kept {
            // After a long gap all points before `kept` would be dropped again.
            *self = Self::new((self.resolution, self.capacity), self.sums.len());
        }
        for end in first.max(kept)..=last {
            self.feed(end, values);
        }
    }

    /// Add one second, which ends at `end`. A point is complete when `end` is a multiple of the
    /// resolution.
    fn feed(&mut self, end: u64, values: &[f64]) {
        for (sum, value) in self.sums.iter_mut().zip(values) {
            *sum += value;
        }
        self.seconds += 1;
        if !end.is_multiple_of(u64::from(self.resolution)) {
            return;
        }
        if self.rows.len() == self.capacity {
            self.rows.pop_front();
        }
        let seconds = f64::from(self.seconds);
        let sums = self.sums.iter_mut();
        let row = Row::new(sums.map(|sum| std::mem::take(sum) / seconds));
        self.seconds = 0;
        self.end = end;
        self.rows.push_back(row);
    }

    /// Return the Unix time of the end of the point with this index.
    fn end_of(&self, index: usize) -> u64 {
        self.end - (self.rows.len() - 1 - index) as u64 * u64::from(self.resolution)
    }
}

/// Points of the last ten minutes by the second, two hours by ten seconds, and a day by the minute.
/// Memory grows with the points and is bounded.
pub struct Rings {
    columns: Box<[String]>,
    rings: [Ring; 3],
    /// Unix time of the end of the last added second.
    last: Option<u64>,
}

impl Rings {
    /// Make empty rings with these columns.
    #[must_use]
    pub fn new(columns: Vec<String>) -> Self {
        Self {
            rings: RINGS.map(|ring| Ring::new(ring, columns.len())),
            columns: columns.into(),
            last: None,
        }
    }

    /// Add the seconds since the last row, up to the Unix time `end`. `values` has one value for
    /// each column; a value that is not finite counts as 0. Seconds without a row of their own get
    /// this row. A row that is not later than the last one is ignored, unless the clock was set
    /// back by more than a minute: then the rings are emptied.
    pub fn feed(&mut self, end: u64, values: &[f64]) {
        debug_assert_eq!(values.len(), self.columns.len());
        let last = self.last.unwrap_or(end.saturating_sub(1));
        if end + 60 < last {
            let columns = self.columns.len();
            self.rings = RINGS.map(|ring| Ring::new(ring, columns));
        } else if end <= last {
            return;
        }
        let first = (last + 1).min(end);
        let values: Vec<f64> = values
            .iter()
            .map(|value| if value.is_finite() { *value } else { 0.0 })
            .collect();
        for ring in &mut self.rings {
            ring.feed_all(first, end, &values);
        }
        self.last = Some(end);
    }

    /// Write the points of one resolution that end after `since`, by column, as JSON; `None` for an
    /// unknown resolution.
    #[must_use]
    pub fn to_json(&self, resolution: u32, since: Option<u64>, now: u64) -> Option<String> {
        let ring = self
            .rings
            .iter()
            .find(|ring| ring.resolution == resolution)?;
        let is_known = |index: &usize| since.is_none_or(|since| ring.end_of(*index) > since);
        let skipped = (0..ring.rows.len())
            .find(is_known)
            .unwrap_or(ring.rows.len());
        let start = if skipped < ring.rows.len() {
            ring.end_of(skipped)
        } else {
            ring.end + u64::from(resolution)
        };
        let rows = || ring.rows.range(skipped..);
        let names: usize = self.columns.iter().map(|name| name.len() + 8).sum();
        let values: usize = rows().map(|row| row.text.len() + row.ends.len()).sum();
        let mut json = String::with_capacity(128 + names + values);
        let _ = write!(
            json,
            "{{\"resolution_s\":{resolution},\"now\":{now},\"start\":{start},\"columns\":{{"
        );
        for (index, name) in self.columns.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(json, "{comma}\"{name}\":[");
            for (point, row) in rows().enumerate() {
                if point > 0 {
                    json.push(',');
                }
                json.push_str(row.value(index));
            }
            json.push(']');
        }
        json.push_str("}}");
        Some(json)
    }
}

/// Write a value with at most three decimals.
fn write_value(json: &mut String, value: f64) {
    let rounded = (value * 1000.0).round() / 1000.0;
    let _ = if rounded.is_finite() {
        write!(json, "{rounded}")
    } else {
        write!(json, "{value:e}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn points(history: &Rings, resolution: u32, since: Option<u64>) -> (u64, Vec<f64>) {
        let json = history.to_json(resolution, since, 0).expect("a resolution");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let column = json["columns"]["a"].as_array().expect("a column");
        assert_eq!(
            column.len(),
            json["columns"]["b"].as_array().map_or(0, Vec::len)
        );
        let start = json["start"].as_u64().expect("a start");
        let column = column.iter().map(|one| one.as_f64().expect("a number"));
        (start, column.collect())
    }

    fn history() -> Rings {
        Rings::new(vec!["a".into(), "b".into()])
    }

    #[test]
    fn points_end_at_multiples_of_their_resolution() {
        let mut history = history();
        for second in 995..=1025 {
            history.feed(second, &[second as f64, 0.25]);
        }
        let (start, values) = points(&history, 1, None);
        assert_eq!((start, values.len(), values[0]), (995, 31, 995.0));
        // The first point has the six seconds so far.
        assert_eq!(
            points(&history, 10, None),
            (1000, vec![997.5, 1005.5, 1015.5])
        );
        assert_eq!(points(&history, 60, None), (1020, vec![1007.5]));
        assert_eq!(history.to_json(5, None, 0), None);
    }

    #[test]
    fn only_what_is_later_is_shown() {
        let mut history = history();
        for second in 1001..=1050 {
            history.feed(second, &[second as f64, 0.0]);
        }
        assert_eq!(
            points(&history, 1, Some(1048)),
            (1049, vec![1049.0, 1050.0])
        );
        assert_eq!(points(&history, 1, Some(1050)), (1051, vec![]));
        assert_eq!(points(&history, 1, Some(9999)), (1051, vec![]));
        assert_eq!(points(&history, 1, Some(3)).1.len(), 50);
        assert_eq!(
            points(&history, 10, Some(1039)),
            (1040, vec![1035.5, 1045.5])
        );
    }

    #[test]
    fn missed_seconds_are_as_the_next_and_no_second_counts_twice() {
        let mut history = history();
        history.feed(1000, &[1.0, 0.0]);
        history.feed(1003, &[5.0, 0.0]);
        history.feed(1003, &[9.0, 0.0]);
        history.feed(999, &[9.0, 0.0]);
        assert_eq!(points(&history, 1, None), (1000, vec![1.0, 5.0, 5.0, 5.0]));
        history.feed(1_000_000, &[f64::NAN, f64::INFINITY]);
        let (start, values) = points(&history, 1, None);
        assert_eq!((start, values), (1_000_000 - 599, vec![0.0; 600]));
        for (resolution, capacity) in RINGS {
            let (start, values) = points(&history, resolution, None);
            let end = 1_000_000 / u64::from(resolution) * u64::from(resolution);
            let first = end - (capacity as u64 - 1) * u64::from(resolution);
            assert_eq!((start, values), (first, vec![0.0; capacity]));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let mut history = history();
        history.feed(5000, &[1.0, 0.0]);
        history.feed(4940, &[2.0, 0.0]);
        assert_eq!(points(&history, 1, None), (5000, vec![1.0]));
        history.feed(4000, &[3.0, 0.0]);
        history.feed(4001, &[4.0, 0.0]);
        assert_eq!(points(&history, 1, None), (4000, vec![3.0, 4.0]));
    }

    #[test]
    fn an_empty_history_has_no_points() {
        assert_eq!(points(&history(), 1, None), (1, vec![]));
    }

    proptest! {
        #[test]
        fn coarse_points_are_means_of_fine_ones(
            begin in 0_u64..2_000_000_000,
            values in prop::collection::vec(0_u32..1_000_000, 1..1500),
        ) {
            let mut history = history();
            for (second, value) in (begin..).zip(&values) {
                history.feed(second, &[f64::from(*value), 0.0]);
            }
            for (resolution, capacity) in RINGS {
                let (start, seen) = points(&history, resolution, None);
                let step = u64::from(resolution);
                prop_assert!(seen.len() <= capacity);
                for (end, seen) in (start..).step_by(resolution as usize).zip(&seen) {
                    prop_assert_eq!(end % step, 0);
                    let covered = (end + 1).saturating_sub(step).max(begin)..=end;
                    let count = covered.clone().count() as f64;
                    let sum: f64 = covered.map(|second| f64::from(values[(second - begin) as usize])).sum();
                    prop_assert!((seen - sum / count).abs() < 0.001);
                }
                let complete = (begin + values.len() as u64 - 1) / step + 1 - begin.div_ceil(step);
                prop_assert_eq!(seen.len(), (complete as usize).min(capacity));
            }
        }

        #[test]
        fn memory_is_bounded_and_grows_with_the_points(
            gaps in prop::collection::vec(1_u64..400, 1..40),
        ) {
            let mut history = history();
            let mut second = 1_790_000_000;
            for gap in gaps {
                second += gap;
                history.feed(second, &[1.0, 2.0]);
                for ring in &history.rings {
                    prop_assert!(ring.rows.len() <= ring.capacity);
                    prop_assert!(ring.rows.capacity() <= (2 * ring.rows.len()).max(4));
                }
            }
        }
    }
}
