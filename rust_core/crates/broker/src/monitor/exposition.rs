//! The text formats in which Prometheus reads metrics: its own, version 0.0.4, and OpenMetrics 1.0.0.
//!
//! Sources: "Exposition formats" of the Prometheus documentation, and the OpenMetrics specification.

use std::fmt::Write;

/// Which of the two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// What the value of an `Accept` field prefers; OpenMetrics only where it is asked for by name.
    pub(crate) fn negotiate(accept: &str) -> Self {
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

    /// The media type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family's samples mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// Texts about the process as labels, with the value 1.
    Info,
}

/// A metric family's description.
#[derive(Clone, Copy)]
pub(crate) struct Metric<'a> {
    /// Without `_total` or `_info`.
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    /// The name's last word where it is a unit, else empty.
    pub(crate) unit: &'a str,
    pub(crate) help: &'a str,
}

/// The labels of a sample: names and values.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A number as a sample has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// What a histogram has observed.
#[derive(Clone, Copy)]
pub(crate) struct Buckets<'a> {
    /// Bounds, ascending, and how many observations are not above each.
    pub(crate) cumulative: &'a [(f64, u64)],
    /// All observations.
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

/// Metrics as they are written, family after family.
pub(crate) struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            text: String::with_capacity(16 << 10),
        }
    }

    /// Begins a family.
    pub(crate) fn family<'a>(&'a mut self, metric: Metric<'a>) -> Family<'a> {
        let is_open = self.format == Format::OpenMetrics;
        let (kind, samples) = match metric.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
            Kind::Info if is_open => ("info", "_info"),
            Kind::Info => ("gauge", "_info"),
        };
        // OpenMetrics describes a family by its name, the older format by that of its samples.
        let suffix = if is_open { "" } else { samples };
        let name = metric.name;
        self.text.extend(["# HELP ", name, suffix, " "]);
        escape(&mut self.text, metric.help, is_open);
        let _ = writeln!(self.text, "\n# TYPE {name}{suffix} {kind}");
        if is_open && !metric.unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {}", metric.unit);
        }
        Family {
            text: &mut self.text,
            name,
            samples,
        }
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A family whose samples are being written.
pub(crate) struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    /// What the samples' names have behind the family's.
    samples: &'static str,
}

impl Family<'_> {
    /// Writes a sample of a counter, a gauge or an info.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: impl Into<Number>) -> &mut Self {
        let suffix = self.samples;
        self.line(suffix, labels, None, value.into());
        self
    }

    /// Writes one histogram.
    pub(crate) fn histogram(&mut self, labels: Labels<'_>, buckets: Buckets<'_>) -> &mut Self {
        let all = (f64::INFINITY, buckets.count);
        for (bound, count) in buckets.cumulative.iter().chain([&all]) {
            self.line("_bucket", labels, Some(*bound), (*count).into());
        }
        self.line("_sum", labels, None, buckets.sum.into());
        self.line("_count", labels, None, buckets.count.into());
        self
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<f64>, value: Number) {
        let text = &mut *self.text;
        text.extend([self.name, suffix]);
        let mut separator = '{';
        for (name, value) in labels {
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
        match value {
            Number::Whole(value) => {
                let _ = write!(text, "{value}");
            }
            Number::Real(value) => write_real(text, value),
        }
        text.push('\n');
    }
}

/// Whole numbers with `.0`, as OpenMetrics wants bounds to be.
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

    const WAIT: Metric<'_> = Metric {
        name: "x_wait_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        help: "How long.",
    };

    fn counter(format: Format) -> String {
        let mut exposition = Exposition::new(format);
        exposition
            .family(Metric {
                name: "x_sent_bytes",
                kind: Kind::Counter,
                unit: "bytes",
                help: "A \"b\\c\"\nd",
            })
            .sample(&[("to", "a\"b\\c\nd"), ("é", "")], 7_u64)
            .sample(&[], 0.5);
        exposition
            .family(Metric {
                name: "x_build",
                kind: Kind::Info,
                unit: "",
                help: "B",
            })
            .sample(&[("version", "1")], 1_u64);
        exposition.finish()
    }

    #[test]
    fn the_older_format() {
        assert_eq!(
            counter(Format::Prometheus),
            "# HELP x_sent_bytes_total A \"b\\\\c\"\\nd\n\
             # TYPE x_sent_bytes_total counter\n\
             x_sent_bytes_total{to=\"a\\\"b\\\\c\\nd\",é=\"\"} 7\n\
             x_sent_bytes_total 0.5\n\
             # HELP x_build_info B\n\
             # TYPE x_build_info gauge\n\
             x_build_info{version=\"1\"} 1\n"
        );
    }

    #[test]
    fn open_metrics() {
        assert_eq!(
            counter(Format::OpenMetrics),
            "# HELP x_sent_bytes A \\\"b\\\\c\\\"\\nd\n\
             # TYPE x_sent_bytes counter\n\
             # UNIT x_sent_bytes bytes\n\
             x_sent_bytes_total{to=\"a\\\"b\\\\c\\nd\",é=\"\"} 7\n\
             x_sent_bytes_total 0.5\n\
             # HELP x_build B\n\
             # TYPE x_build info\n\
             x_build_info{version=\"1\"} 1\n\
             # EOF\n"
        );
    }

    #[test]
    fn histograms() {
        let mut exposition = Exposition::new(Format::Prometheus);
        exposition.family(WAIT).histogram(
            &[("a", "b")],
            Buckets {
                cumulative: &[(0.001, 3), (2.0, 3)],
                count: 7,
                sum: 31.5,
            },
        );
        assert_eq!(
            exposition.finish(),
            "# HELP x_wait_seconds How long.\n\
             # TYPE x_wait_seconds histogram\n\
             x_wait_seconds_bucket{a=\"b\",le=\"0.001\"} 3\n\
             x_wait_seconds_bucket{a=\"b\",le=\"2.0\"} 3\n\
             x_wait_seconds_bucket{a=\"b\",le=\"+Inf\"} 7\n\
             x_wait_seconds_sum{a=\"b\"} 31.5\n\
             x_wait_seconds_count{a=\"b\"} 7\n"
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
