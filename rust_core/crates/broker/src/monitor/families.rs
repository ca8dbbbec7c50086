//! Families of metrics as this broker has them: the common beginning of their names, and labels for
//! transports, reasons and shards.

use super::exposition::{Buckets, Exposition, Family, Format, Kind, Labels, Metric, Number};
use crate::counters::{Counter, Flow, Published, Totals};
use crate::histogram::Distribution;
use crate::session::TransportKind;
use crate::shared::Shared;

/// Powers of two in nanoseconds that are told apart: from 1 us to 17 s.
const NANOS: (u32, u32) = (10, 34);
/// Powers of two that are told apart where things are counted.
const COUNTS: (u32, u32) = (1, 16);

/// What a family is: its name without `subjectbus_` and `_total`, its unit where the name ends with one,
/// and its help.
#[derive(Clone, Copy)]
pub(super) struct About(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// The metrics as they are put together.
pub(super) struct Families<'a> {
    pub(super) shared: &'a Shared,
    pub(super) totals: Totals,
    out: Exposition,
}

impl<'a> Families<'a> {
    pub(super) fn new(shared: &'a Shared, format: Format) -> Self {
        Self {
            shared,
            totals: shared.totals(),
            out: Exposition::new(format),
        }
    }

    pub(super) fn finish(self) -> String {
        self.out.finish()
    }

    /// A family of one sample with a name of its own.
    pub(super) fn foreign(&mut self, metric: Metric<'_>, value: impl Into<Number>) {
        self.out.family(metric).sample(&[], value);
    }

    /// A family with one sample.
    pub(super) fn gauge(&mut self, about: About, value: impl Into<Number>) {
        self.family(Kind::Gauge, about, |family| {
            family.sample(&[], value);
        });
    }

    /// Texts about the broker.
    pub(super) fn info(&mut self, about: About, labels: Labels<'_>) {
        self.family(Kind::Info, about, |family| {
            family.sample(labels, 1_u64);
        });
    }

    pub(super) fn counter(&mut self, about: About, counter: Counter) {
        self.total(about, self.totals.value(counter));
    }

    /// A counter with one sample, counted elsewhere.
    pub(super) fn total(&mut self, about: About, value: u64) {
        self.family(Kind::Counter, about, |family| {
            family.sample(&[], value);
        });
    }

    /// A counter for each transport.
    pub(super) fn flow(&mut self, about: About, flow: Flow) {
        let values = TransportKind::ALL.map(|kind| (kind.name(), self.totals.flow(kind, flow)));
        self.by(Kind::Counter, about, "transport", values);
    }

    /// A sample for each value of a label.
    pub(super) fn by(
        &mut self,
        kind: Kind,
        about: About,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        self.family(kind, about, |family| {
            for (text, value) in values {
                family.sample(&[(label, text)], value);
            }
        });
    }

    /// A sample for each shard.
    pub(super) fn by_shard(
        &mut self,
        kind: Kind,
        about: About,
        value: impl Fn(&Published) -> Number,
    ) {
        let shared = self.shared;
        self.family(kind, about, |family| {
            for (index, shard) in shared.published.iter().enumerate() {
                family.sample(&[("shard", &index.to_string())], value(shard));
            }
        });
    }

    /// A sample for each shard and each value of another label.
    pub(super) fn by_shard_and<const N: usize>(
        &mut self,
        kind: Kind,
        about: About,
        label: &str,
        values: impl Fn(&Published) -> [(&'static str, u64); N],
    ) {
        let shared = self.shared;
        self.family(kind, about, |family| {
            for (index, shard) in shared.published.iter().enumerate() {
                for (text, value) in values(shard) {
                    family.sample(&[("shard", &index.to_string()), (label, text)], value);
                }
            }
        });
    }

    /// A histogram of lengths of time in nanoseconds.
    pub(super) fn seconds(&mut self, about: About, times: &Distribution) {
        let in_seconds = |(bound, count)| (bound as f64 / 1e9, count);
        let cumulative: Vec<_> = times.cumulative(NANOS.0, NANOS.1).map(in_seconds).collect();
        self.histogram(about, times, &cumulative, 1e9);
    }

    /// A histogram of whole numbers.
    pub(super) fn counts(&mut self, about: About, counts: &Distribution) {
        // What is below a bound is not above the number before it.
        let not_above = |(bound, count)| ((bound - 1) as f64, count);
        let cumulative: Vec<_> = counts
            .cumulative(COUNTS.0, COUNTS.1)
            .map(not_above)
            .collect();
        self.histogram(about, counts, &cumulative, 1.0);
    }

    fn histogram(
        &mut self,
        about: About,
        values: &Distribution,
        cumulative: &[(f64, u64)],
        units: f64,
    ) {
        let buckets = Buckets {
            cumulative,
            count: values.count(),
            sum: values.total() as f64 / units,
        };
        self.family(Kind::Histogram, about, |family| {
            family.histogram(&[], buckets);
        });
    }

    fn family(&mut self, kind: Kind, about: About, write: impl FnOnce(&mut Family<'_>)) {
        let About(name, unit, help) = about;
        let metric = Metric {
            name: &format!("subjectbus_{name}"),
            kind,
            unit,
            help,
        };
        write(&mut self.out.family(metric));
    }
}
