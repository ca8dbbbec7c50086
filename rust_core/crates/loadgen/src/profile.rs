//! Changes of an open loop's rate over time, as multiples of the configured rate.

use serde::Deserialize;

use crate::error::ConfigError;

/// Most multiple of the configured rate.
const MAX_FACTOR: f64 = 1e6;
/// Durations are added, and so rounded.
const TOLERANCE: f64 = 1e-6;

/// A time in which the factor changes evenly; in JSON `[duration_s, from, to]`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Segment {
    /// Its length.
    pub duration_s: f64,
    /// The factor at its beginning.
    pub from: f64,
    /// The factor at its end.
    pub to: f64,
}

impl Segment {
    /// Make a segment in which the factor goes from `from` to `to` in `duration_s` seconds.
    #[must_use]
    pub const fn new(duration_s: f64, from: f64, to: f64) -> Self {
        Self {
            duration_s,
            from,
            to,
        }
    }

    fn is_usable(&self) -> bool {
        let factors = [self.from, self.to];
        self.duration_s > 0.0 && factors.iter().all(|f| (0.0..=MAX_FACTOR).contains(f))
    }
}

/// Return the highest factor; 1 without any segment.
pub(crate) fn peak(segments: &[Segment]) -> f64 {
    let factors = segments
        .iter()
        .flat_map(|segment| [segment.from, segment.to]);
    factors.reduce(f64::max).unwrap_or(1.0)
}

/// Return an error unless `segments` is empty, or an open loop's `duration_s` is filled exactly.
pub(crate) fn check(
    segments: &[Segment],
    duration_s: f64,
    is_closed: bool,
) -> Result<(), ConfigError> {
    let refused = |what: String| Err(ConfigError::new("profile", what));
    if segments.is_empty() {
        return Ok(());
    }
    if is_closed {
        return refused("a closed loop has no rate that could change".into());
    }
    if let Some(wrong) = segments.iter().find(|segment| !segment.is_usable()) {
        return refused(format!(
            "{wrong:?} is not a duration above 0 and two factors between 0 and {MAX_FACTOR}"
        ));
    }
    let total: f64 = segments.iter().map(|segment| segment.duration_s).sum();
    if (total - duration_s).abs() > duration_s * TOLERANCE {
        return refused(format!("lasts {total} s, and duration_s is {duration_s}"));
    }
    if peak(segments) == 0.0 {
        return refused("all factors are 0: no request would be sent".into());
    }
    Ok(())
}

/// Map from the planned times of a rate of 1 to the planned times of the changing rate. Each time
/// moves to where the integral of the factor is as large. Times are nanoseconds.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Pieces in order, without gaps.
    pieces: Vec<Piece>,
    /// The piece that the last time was in.
    current: usize,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    begin: f64,
    length: f64,
    from: f64,
    to: f64,
    /// Integral of the factor over all that lies before.
    before: f64,
}

impl Profile {
    /// Return a rate that never changes.
    pub(crate) fn constant() -> Self {
        Self::of([(f64::INFINITY, 1.0, 1.0)])
    }

    /// Return the profile of `segments`, after a warm-up of `warmup` nanoseconds with the first factor.
    pub(crate) fn new(warmup: f64, segments: &[Segment]) -> Self {
        let Some(first) = segments.first() else {
            return Self::constant();
        };
        let warmup = (warmup, first.from, first.from);
        let nanoseconds = segments
            .iter()
            .map(|segment| (segment.duration_s * 1e9, segment.from, segment.to));
        Self::of(std::iter::once(warmup).chain(nanoseconds))
    }

    fn of(parts: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        let (mut begin, mut before) = (0.0, 0.0);
        let pieces = parts.into_iter().map(|(length, from, to)| {
            let piece = Piece {
                begin,
                length,
                from,
                to,
                before,
            };
            begin += length;
            before += piece.area();
            piece
        });
        Self {
            pieces: pieces.collect(),
            current: 0,
        }
    }

    /// Return the time at which the integral of the factor is `area`; infinity if it never is.
    /// `area` must not decrease from call to call.
    #[inline]
    pub(crate) fn time_of(&mut self, area: f64) -> f64 {
        while let Some(next) = self.pieces.get(self.current + 1)
            && area >= next.before
        {
            self.current += 1;
        }
        self.pieces[self.current].time_of(area)
    }
}

impl Piece {
    fn area(&self) -> f64 {
        self.length * (self.from + self.to) / 2.0
    }

    #[inline]
    fn time_of(&self, area: f64) -> f64 {
        let rest = area - self.before;
        if rest >= self.area() {
            return f64::INFINITY;
        }
        // This form of the quadratic equation's root also holds without the square term.
        let slope = (self.to - self.from) / self.length;
        let root = (self.from * self.from + 2.0 * slope * rest).max(0.0).sqrt();
        let divisor = self.from + root;
        if divisor > 0.0 {
            self.begin + 2.0 * rest / divisor
        } else {
            self.begin
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: f64 = 1e9;

    #[test]
    fn a_constant_rate_moves_nothing() {
        let mut profile = Profile::constant();
        for area in [0.0, 1.0, 33_333.3, 2.5e15] {
            assert_eq!(profile.time_of(area), area);
        }
    }

    #[test]
    fn the_warm_up_has_the_first_level() {
        let mut spike = Profile::new(
            2.0 * SECOND,
            &[Segment::new(1.0, 0.5, 0.5), Segment::new(1.0, 4.0, 4.0)],
        );
        for (area, time) in [(0.5, 1.0), (1.0, 2.0), (1.25, 2.5), (1.5, 3.0), (3.5, 3.5)] {
            assert_eq!(spike.time_of(area * SECOND), time * SECOND);
        }
        assert_eq!(spike.time_of(5.5 * SECOND), f64::INFINITY);
    }

    #[test]
    fn a_time_without_any_requests_is_passed_over() {
        let idle = Segment::new(3.0, 0.0, 0.0);
        let mut profile = Profile::new(
            SECOND,
            &[
                idle,
                Segment::new(2.0, 0.0, 1.0),
                idle,
                Segment::new(1.0, 1.0, 0.0),
            ],
        );
        for (area, time) in [(0.0, 4.0), (0.25, 5.0), (1.0, 9.0), (1.375, 9.5)] {
            assert_eq!(profile.time_of(area * SECOND), time * SECOND);
        }
        assert_eq!(profile.time_of(1.5 * SECOND), f64::INFINITY);
    }

    fn integral(warmup: f64, segments: &[Segment], time: f64) -> f64 {
        let mut sum = warmup.min(time) * segments.first().map_or(1.0, |s| s.from);
        let mut left = time - warmup;
        for segment in segments {
            let part = left.clamp(0.0, segment.duration_s);
            let at_end = segment.from + (segment.to - segment.from) * part / segment.duration_s;
            sum += part * (segment.from + at_end) / 2.0;
            left -= segment.duration_s;
        }
        sum
    }

    proptest! {
        #[test]
        fn the_integral_up_to_a_time_is_its_area(
            warmup in 0.0..5.0f64,
            parts in prop::collection::vec((0.01..10.0f64, 0.0..8.0f64, 0.0..8.0f64), 1..6),
            mut shares in prop::collection::vec(0.0..1.0f64, 1..50),
        ) {
            let segments: Vec<_> =
                parts.iter().map(|(d, from, to)| Segment::new(*d, *from, *to)).collect();
            let total = integral(warmup, &segments, f64::MAX);
            let mut profile = Profile::new(warmup * SECOND, &segments);
            shares.sort_by(f64::total_cmp);
            let mut last = 0.0;
            for share in shares {
                let time = profile.time_of(share * total * SECOND) / SECOND;
                prop_assert!(time >= last, "{time} after {last}");
                let found = integral(warmup, &segments, time);
                prop_assert!((found - share * total).abs() < 1e-7 * total.max(1.0), "{found}");
                last = time;
            }
        }
    }
}
