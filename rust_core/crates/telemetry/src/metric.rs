//! Description of a metric: everything on the pages except its values.

/// The meaning of a metric's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Number that only grows while the process runs.
    Counter,
    /// Number that rises and falls.
    Gauge,
    /// Distribution of values.
    Histogram,
    /// Texts about the process as labels, with the value 1.
    Info,
}

/// Rule by which a column of the history follows from a metric's samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// Value at the end of the second.
    Level,
    /// Growth, divided by the elapsed time.
    PerSecond,
    /// Quantile (0 to 1) of the times observed within the second, in microseconds.
    Quantile(f64),
}

/// Column of the history. A name with `*` stands for one column for each value of the metric's
/// label; without it, the column is the sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Name, unique in the history.
    pub name: &'static str,
    /// Rule from samples to the column's value.
    pub measure: Measure,
    /// Values of the label that have a column; empty for all.
    pub only: &'static [&'static str],
}

impl Column {
    /// Describe a column of values as they are.
    #[must_use]
    pub const fn level(name: &'static str) -> Self {
        Self::new(name, Measure::Level)
    }

    /// Describe a column of growth per second.
    #[must_use]
    pub const fn per_second(name: &'static str) -> Self {
        Self::new(name, Measure::PerSecond)
    }

    /// Describe a column of a quantile (0 to 1) in microseconds.
    #[must_use]
    pub const fn quantile(name: &'static str, quantile: f64) -> Self {
        Self::new(name, Measure::Quantile(quantile))
    }

    /// Keep only the columns of these label values.
    #[must_use]
    pub const fn only(mut self, labels: &'static [&'static str]) -> Self {
        self.only = labels;
        self
    }

    const fn new(name: &'static str, measure: Measure) -> Self {
        Self {
            name,
            measure,
            only: &[],
        }
    }
}

/// Metric: one row of the table that all pages read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Name of the family for Prometheus, without `_total` or `_info`; empty if it is not exported.
    pub name: &'static str,
    /// Meaning of the samples.
    pub kind: Kind,
    /// Help text of one or more sentences that stand alone.
    pub help: &'static str,
    /// Names of the labels that the family's samples have. Without labels the sum is exported.
    pub labels: &'static [&'static str],
    /// Places in the JSON document; see [`Document`](crate::document::Document).
    pub places: &'static [&'static str],
    /// Columns of the history.
    pub columns: &'static [Column],
}

impl Metric {
    /// Describe a counter.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Counter, help)
    }

    /// Describe a gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Gauge, help)
    }

    /// Describe a histogram.
    #[must_use]
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Histogram, help)
    }

    /// Describe texts about the process.
    #[must_use]
    pub const fn info(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Info, help)
    }

    /// Describe a number that is not exported to Prometheus, because others imply it or it only
    /// serves them.
    #[must_use]
    pub const fn internal(help: &'static str) -> Self {
        Self::new("", Kind::Gauge, help)
    }

    /// Name the labels of the exported samples.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// Name the places in the JSON document.
    #[must_use]
    pub const fn places(mut self, places: &'static [&'static str]) -> Self {
        self.places = places;
        self
    }

    /// Name the columns of the history.
    #[must_use]
    pub const fn columns(mut self, columns: &'static [Column]) -> Self {
        self.columns = columns;
        self
    }

    /// Return the unit at the end of the name, as OpenMetrics requires; empty for plain numbers.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self.name.rsplit_once('_') {
            Some((_, unit @ ("seconds" | "bytes"))) => unit,
            _ => "",
        }
    }

    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self {
            name,
            kind,
            help,
            labels: &[],
            places: &[],
            columns: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_names_last_word() {
        for (name, unit) in [
            ("sent_bytes", "bytes"),
            ("wait_seconds", "seconds"),
            ("writes", ""),
            ("bytes", ""),
        ] {
            assert_eq!(Metric::counter(name, "Help.").unit(), unit, "{name}");
        }
    }
}
