//! The text formats in which Prometheus reads metrics: its own, version 0.0.4, and OpenMetrics 1.0.0.
//!
//! Sources: "Exposition formats" of the Prometheus documentation, and the OpenMetrics specification.

use std::fmt::Write;

use crate::histogram::Distribution;
use crate::metric::{Kind, Metric};
use crate::samples::{Label, Number, Samples, sum};

/// Powers of two in nanoseconds that bound the buckets of times: from 1 us to 17 s.
const NANOS: (u32, u32) = (10, 34);
/// Powers of two that bound the buckets of counts.
const COUNTS: (u32, u32) = (1, 16);

/// Text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// Return the format that the value of an `Accept` field prefers; OpenMetrics only when the field
    /// names it.
    #[must_use]
    pub fn negotiate(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0_f64, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let (mut quality, mut version) = (1.0, None);
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            if name.eq_ignore_ascii_case(OPEN_METRICS) && matches!(version, None | Some("1.0.0")) {
                open = open.max(quality);
            } else if name.eq_ignore_ascii_case("text/plain")
                && matches!(version, None | Some("0.0.4"))
            {
                plain = plain.max(quality);
            }
        }
        if open > 0.0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Return the media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Text of an exposition, written metric after metric.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// Begin a text.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::with_capacity(16 << 10),
        }
    }

    /// Write a metric with its samples. A metric without a name or without samples is omitted.
    pub fn write(&mut self, metric: &Metric, samples: &Samples) {
        if metric.name.is_empty() {
            return;
        }
        match samples {
            Samples::Numbers(samples) => {
                let Some(sum) = sum(samples) else { return };
                let suffix = self.begin(metric);
                if metric.labels.is_empty() {
                    self.line(metric, suffix, &[], None, sum);
                    return;
                }
                for sample in samples {
                    self.line(metric, suffix, &sample.labels, None, sample.value);
                }
            }
            Samples::Times(times) => {
                let bounds = times.cumulative(NANOS.0, NANOS.1);
                let bounds = bounds.map(|(bound, count)| (bound as f64 / 1e9, count));
                self.histogram(metric, times, bounds, 1e9);
            }
            Samples::Counts(counts) => {
                // A count below a bound is at most the number before the bound.
                let bounds = counts.cumulative(COUNTS.0, COUNTS.1);
                let bounds = bounds.map(|(bound, count)| ((bound - 1) as f64, count));
                self.histogram(metric, counts, bounds, 1.0);
            }
        }
    }

    /// Return the whole text.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Describe a family; return the suffix of its samples' names.
    fn begin(&mut self, metric: &Metric) -> &'static str {
        let is_open = self.format == Format::OpenMetrics;
        let (kind, samples) = match metric.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
            Kind::Info if is_open => ("info", "_info"),
            Kind::Info => ("gauge", "_info"),
        };
        // OpenMetrics describes a family by its own name, the older format by the samples' name.
        let suffix = if is_open { "" } else { samples };
        let name = metric.name;
        self.text.extend(["# HELP ", name, suffix, " "]);
        escape(&mut self.text, metric.help, is_open);
        let _ = writeln!(self.text, "\n# TYPE {name}{suffix} {kind}");
        if is_open && !metric.unit().is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {}", metric.unit());
        }
        samples
    }

    /// Write a histogram; `units` recorded units make one displayed unit.
    fn histogram(
        &mut self,
        metric: &Metric,
        values: &Distribution,
        bounds: impl Iterator<Item = (f64, u64)>,
        units: f64,
    ) {
        self.begin(metric);
        let all = (f64::INFINITY, values.count());
        for (bound, count) in bounds.chain([all]) {
            self.line(metric, "_bucket", &[], Some(bound), Number::Whole(count));
        }
        let total = Number::Real(values.total() as f64 / units);
        self.line(metric, "_sum", &[], None, total);
        self.line(metric, "_count", &[], None, Number::Whole(all.1));
    }

    fn line(
        &mut self,
        metric: &Metric,
        suffix: &str,
        labels: &[Label],
        bound: Option<f64>,
        value: Number,
    ) {
        let text = &mut self.text;
        text.extend([metric.name, suffix]);
        let mut separator = '{';
        for (name, value) in metric.labels.iter().zip(labels) {
            text.push(separator);
            text.extend([name, "=\""]);
            escape(text, value, true);
            text.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            text.push(separator);
            text.push_str("le=\"");
            write_real(text, bound);
            text.push('"');
            separator = ',';
        }
        text.push_str(if separator == ',' { "} " } else { " " });
        // Writing to a string cannot fail.
        let _ = match value {
            Number::Whole(value) => write!(text, "{value}"),
            Number::Signed(value) => write!(text, "{value}"),
            Number::Real(value) => {
                write_real(text, value);
                Ok(())
            }
        };
        text.push('\n');
    }
}

/// Write a number; a whole one ends with `.0`, as OpenMetrics requires of bounds.
fn write_real(text: &mut String, value: f64) {
    let _ = match value {
        f64::INFINITY => text.write_str("+Inf"),
        f64::NEG_INFINITY => text.write_str("-Inf"),
        value => write!(text, "{value:?}"),
    };
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    for one in value.chars() {
        match one {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::histogram::Histogram;

    fn labelled(format: Format) -> String {
        let mut exposition = Exposition::new(format);
        let sent = Metric::counter("x_sent_bytes", "A \"b\\c\"\nd").labels(&["to", "é"]);
        exposition.write(
            &sent,
            &Samples::by_two([
                ("a\"b\\c\nd", "", Number::Whole(7)),
                ("e", "f", Number::Real(0.5)),
            ]),
        );
        let build = Metric::info("x_build", "B").labels(&["version"]);
        exposition.write(&build, &Samples::by([("1", 1_u64)]));
        exposition.finish()
    }

    #[test]
    fn the_older_format() {
        assert_eq!(
            labelled(Format::Prometheus),
            "# HELP x_sent_bytes_total A \"b\\\\c\"\\nd\n\
             # TYPE x_sent_bytes_total counter\n\
             x_sent_bytes_total{to=\"a\\\"b\\\\c\\nd\",é=\"\"} 7\n\
             x_sent_bytes_total{to=\"e\",é=\"f\"} 0.5\n\
             # HELP x_build_info B\n\
             # TYPE x_build_info gauge\n\
             x_build_info{version=\"1\"} 1\n"
        );
    }

    #[test]
    fn open_metrics() {
        assert_eq!(
            labelled(Format::OpenMetrics),
            "# HELP x_sent_bytes A \\\"b\\\\c\\\"\\nd\n\
             # TYPE x_sent_bytes counter\n\
             # UNIT x_sent_bytes bytes\n\
             x_sent_bytes_total{to=\"a\\\"b\\\\c\\nd\",é=\"\"} 7\n\
             x_sent_bytes_total{to=\"e\",é=\"f\"} 0.5\n\
             # HELP x_build B\n\
             # TYPE x_build info\n\
             x_build_info{version=\"1\"} 1\n\
             # EOF\n"
        );
    }

    #[test]
    fn samples_of_labels_that_the_metric_does_not_name_are_summed() {
        let mut exposition = Exposition::new(Format::Prometheus);
        let waiting = Metric::gauge("x_waiting", "Waiting.");
        exposition.write(&waiting, &Samples::by([("0", 3_i64), ("1", -4)]));
        assert!(exposition.finish().ends_with("\nx_waiting -1\n"));
    }

    #[test]
    fn a_metric_without_a_name_or_without_samples_is_left_out() {
        let mut exposition = Exposition::new(Format::Prometheus);
        exposition.write(&Metric::internal("Help."), &Samples::one(1_u64));
        exposition.write(&Metric::gauge("x", "Help."), &Samples::none());
        assert_eq!(exposition.finish(), "");
    }

    fn histogram(samples: impl FnOnce(Box<Distribution>) -> Samples) -> String {
        let histogram = Histogram::new();
        for value in [1, 1, 3, 3_000_000_000] {
            histogram.record(value);
        }
        let mut exposition = Exposition::new(Format::Prometheus);
        let values = Box::new(Distribution::sum([&histogram]));
        exposition.write(&Metric::histogram("x", "How long."), &samples(values));
        exposition.finish()
    }

    #[test]
    fn times_have_bounds_in_seconds() {
        let text = histogram(Samples::Times);
        assert!(text.starts_with("# HELP x How long.\n# TYPE x histogram\n"));
        assert!(text.contains("\nx_bucket{le=\"1.024e-6\"} 3\n"), "{text}");
        assert!(
            text.contains("\nx_bucket{le=\"2.147483648\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("\nx_bucket{le=\"4.294967296\"} 4\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\nx_bucket{le=\"+Inf\"} 4\nx_sum 3.000000005\nx_count 4\n"),
            "{text}"
        );
    }

    #[test]
    fn counts_have_whole_bounds() {
        let text = histogram(Samples::Counts);
        assert!(
            text.contains("\nx_bucket{le=\"1.0\"} 2\nx_bucket{le=\"3.0\"} 3\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\nx_sum 3000000005.0\nx_count 4\n"),
            "{text}"
        );
    }

    #[test]
    fn numbers() {
        for (value, want) in [
            (0.0, "0.0"),
            (-1.5, "-1.5"),
            (1e300, "1e300"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            let mut text = String::new();
            write_real(&mut text, value);
            assert_eq!(text, want);
        }
    }

    #[test]
    fn the_format_is_what_is_accepted() {
        for (accept, want) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\"",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=0.0.1",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4, application/openmetrics-text;q=0.5",
                Format::Prometheus,
            ),
        ] {
            assert_eq!(Format::negotiate(accept), want, "{accept}");
        }
    }
}
