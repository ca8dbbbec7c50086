//! The values of a metric at one time.

use std::borrow::Cow;

use serde_json::Value;

use crate::histogram::Distribution;

/// The value of a label.
pub type Label = Cow<'static, str>;

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Count.
    Whole(u64),
    /// Difference, which may be below zero.
    Signed(i64),
    /// Measured value.
    Real(f64),
}

impl Number {
    /// Return the value as a real number.
    #[must_use]
    pub fn as_real(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Signed(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// Return the growth of a counter since it was `earlier`; 0 if it has not grown.
    #[must_use]
    pub fn since(self, earlier: Self) -> f64 {
        match (self, earlier) {
            (Self::Whole(now), Self::Whole(before)) => now.saturating_sub(before) as f64,
            (now, before) => (now.as_real() - before.as_real()).max(0.0),
        }
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Self::Whole(a.wrapping_add(b)),
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.wrapping_add(b)),
            (a, b) => Self::Real(a.as_real() + b.as_real()),
        }
    }
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

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Whole(value) => value.into(),
            Number::Signed(value) => value.into(),
            Number::Real(value) => value.into(),
        }
    }
}

/// Number with the values of its labels, in the order of the metric's label names.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Values of the labels.
    pub labels: Vec<Label>,
    /// The number.
    pub value: Number,
}

/// All values of one metric at one time.
#[derive(Debug, Clone)]
pub enum Samples {
    /// Numbers, each with its labels.
    Numbers(Vec<Sample>),
    /// Lengths of time in nanoseconds.
    Times(Box<Distribution>),
    /// Whole numbers that were counted.
    Counts(Box<Distribution>),
}

impl Samples {
    /// Return the samples of a metric without a value.
    #[must_use]
    pub const fn none() -> Self {
        Self::Numbers(Vec::new())
    }

    /// Return one sample without labels.
    pub fn one(value: impl Into<Number>) -> Self {
        Self::labelled([(Vec::new(), value)])
    }

    /// Return a sample for each value of one label.
    pub fn by<L: Into<Label>, N: Into<Number>>(values: impl IntoIterator<Item = (L, N)>) -> Self {
        let values = values.into_iter();
        Self::labelled(values.map(|(label, value)| (vec![label.into()], value)))
    }

    /// Return a sample for each value of each of two labels.
    pub fn by_two<L: Into<Label>, M: Into<Label>, N: Into<Number>>(
        values: impl IntoIterator<Item = (L, M, N)>,
    ) -> Self {
        let values = values.into_iter();
        Self::labelled(values.map(|(a, b, value)| (vec![a.into(), b.into()], value)))
    }

    /// Return a sample for each list of labels.
    pub fn labelled<N: Into<Number>>(values: impl IntoIterator<Item = (Vec<Label>, N)>) -> Self {
        let values = values.into_iter();
        let samples = values.map(|(labels, value)| Sample {
            labels,
            value: value.into(),
        });
        Self::Numbers(samples.collect())
    }
}

/// Add up the values of samples; `None` without any.
pub(crate) fn sum(samples: &[Sample]) -> Option<Number> {
    let values = samples.iter().map(|sample| sample.value);
    values.reduce(Number::plus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of<N: Into<Number>>(values: impl IntoIterator<Item = N>) -> Option<Number> {
        match Samples::by(values.into_iter().map(|value| ("a", value))) {
            Samples::Numbers(samples) => sum(&samples),
            _ => None,
        }
    }

    #[test]
    fn sums_keep_the_kind_of_their_numbers() {
        assert_eq!(sum_of([1_u64, u64::MAX]), Some(Number::Whole(0)));
        assert_eq!(sum_of([3_i64, -5]), Some(Number::Signed(-2)));
        assert_eq!(sum_of([0.5, 0.25]), Some(Number::Real(0.75)));
        assert_eq!(sum_of(Vec::<u64>::new()), None);
    }

    #[test]
    fn growth_is_never_below_zero() {
        let since = |now: u64, before: u64| Number::from(now).since(before.into());
        assert_eq!(since(u64::MAX, u64::MAX - 1), 1.0);
        assert_eq!(since(1, 2), 0.0);
        assert_eq!(Number::from(1.5).since(1.0.into()), 0.5);
        assert_eq!(Number::from(-1_i64).since(Number::from(2_i64)), 0.0);
    }
}
