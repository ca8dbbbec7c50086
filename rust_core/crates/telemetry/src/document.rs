//! A JSON object with a value for each metric, at the places that the metric names.
//!
//! A place is a path such as `conservation.matched`. A part `*` is the member named by the sample's
//! next label. A part `name[]` is the element of the list `name` with the label's number:
//! `shard[].calls.*` takes the labels `shard` and `call`. A place without such parts takes the sum
//! of all samples. A distribution becomes an object of count, mean and quantiles, times in
//! microseconds.

use serde_json::{Map, Value, json};

use crate::histogram::Distribution;
use crate::metric::Metric;
use crate::samples::{Label, Samples, sum};

/// JSON object that is being built.
#[derive(Debug, Default)]
pub struct Document(Value);

impl Document {
    /// Make an empty object.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Write the samples of a metric to its places. A metric without samples writes nothing.
    pub fn write(&mut self, metric: &Metric, samples: &Samples) {
        for place in metric.places {
            match samples {
                Samples::Numbers(samples) if place.contains(['*', '[']) => {
                    for sample in samples {
                        *self.value_at(place, &sample.labels) = sample.value.into();
                    }
                }
                Samples::Numbers(samples) => {
                    if let Some(sum) = sum(samples) {
                        *self.value_at(place, &[]) = sum.into();
                    }
                }
                Samples::Times(times) => *self.value_at(place, &[]) = summary(times, 1e3),
                Samples::Counts(counts) => *self.value_at(place, &[]) = summary(counts, 1.0),
            }
        }
    }

    /// Return the finished object.
    #[must_use]
    pub fn finish(self) -> Map<String, Value> {
        match self.0 {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }

    fn value_at(&mut self, place: &str, labels: &[Label]) -> &mut Value {
        let mut labels = labels.iter();
        let mut next = || labels.next().map_or("", |label| label);
        place.split('.').fold(&mut self.0, |value, part| {
            if let Some(name) = part.strip_suffix("[]") {
                element(member(value, name), next().parse().unwrap_or(0))
            } else if part == "*" {
                member(value, next())
            } else {
                member(value, part)
            }
        })
    }
}

fn member<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    &mut value[name]
}

fn element(value: &mut Value, index: usize) -> &mut Value {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    if let Value::Array(elements) = value
        && elements.len() <= index
    {
        elements.resize(index + 1, Value::Null);
    }
    &mut value[index]
}

/// Summarise a distribution; `units` is the number of recorded units in one displayed unit.
fn summary(values: &Distribution, units: f64) -> Value {
    let quantile = |quantile| values.quantile(quantile) as f64 / units;
    json!({
        "count": values.count(),
        "mean": values.total() as f64 / units / values.count().max(1) as f64,
        "p50": quantile(0.5),
        "p95": quantile(0.95),
        "p99": quantile(0.99),
        "max_bucket": quantile(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    fn written(places: &'static [&'static str], samples: &Samples) -> Value {
        let mut document = Document::new();
        document.write(&Metric::internal("Help.").places(places), samples);
        Value::Object(document.finish())
    }

    #[test]
    fn a_place_without_labels_takes_the_sum() {
        let samples = Samples::by([("tcp", 1_u64), ("http", 2)]);
        assert_eq!(
            written(&["msgs", "transports.*.msgs"], &samples),
            json!({"msgs": 3, "transports": {"tcp": {"msgs": 1}, "http": {"msgs": 2}}})
        );
    }

    #[test]
    fn lists_are_ordered_by_the_labels_number() {
        let samples = Samples::by_two([("1", "a", 10_u64), ("0", "a", 20), ("1", "b", 30)]);
        assert_eq!(
            written(&["shard[].calls.*"], &samples),
            json!({"shard": [{"calls": {"a": 20}}, {"calls": {"a": 10, "b": 30}}]})
        );
    }

    #[test]
    fn metrics_share_objects() {
        let mut document = Document::new();
        for (place, value) in [(&["a.x"], 1_u64), (&["a.y"], 2), (&["b"], 3)] {
            let metric = Metric::internal("Help.").places(place);
            document.write(&metric, &Samples::one(value));
        }
        assert_eq!(
            Value::Object(document.finish()),
            json!({"a": {"x": 1, "y": 2}, "b": 3})
        );
    }

    #[test]
    fn a_metric_without_samples_leaves_no_trace() {
        assert_eq!(written(&["a", "b.*"], &Samples::none()), json!({}));
        assert!(Document::new().finish().is_empty());
    }

    #[test]
    fn numbers_keep_their_kind() {
        assert_eq!(written(&["n"], &Samples::one(-1_i64)), json!({"n": -1}));
        assert_eq!(written(&["n"], &Samples::one(0.5)), json!({"n": 0.5}));
        assert_eq!(written(&["n"], &Samples::one(f64::NAN)), json!({"n": null}));
    }

    #[test]
    fn a_distribution_is_summarised() {
        let histogram = Histogram::new();
        histogram.record(2000);
        let values = || Box::new(Distribution::sum([&histogram]));
        let times = &written(&["t"], &Samples::Times(values()))["t"];
        assert_eq!((&times["count"], &times["mean"]), (&json!(1), &json!(2.0)));
        assert_eq!(
            (&times["p50"], &times["max_bucket"]),
            (&json!(2.048), &json!(2.048))
        );
        let counts = &written(&["t"], &Samples::Counts(values()))["t"];
        assert_eq!(
            (&counts["mean"], &counts["p99"]),
            (&json!(2000.0), &json!(2048.0))
        );
    }
}
