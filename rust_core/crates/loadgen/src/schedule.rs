//! Due times of requests.
//!
//! In an open loop the plan is fixed before anything is sent: however late the engine runs or the
//! server answers, no request is moved or left out. A closed loop has no plan: a request is due as
//! soon as there is room for it, which is when one before it has ended.

use crate::config::Arrivals;
use crate::profile::Profile;
use crate::rng::Rng;

/// Nanoseconds of a second.
pub(crate) const NS_PER_S: f64 = 1e9;

/// Least time between two turns that only the plan begins, in nanoseconds. What is due within it
/// leaves together: at tens of thousands of requests a second, a timer for each would cost more than
/// the requests. Latency runs from the planned time and so includes the wait.
pub(crate) const PACING_NS: u64 = 100_000;

/// Most requests sent in one turn, so that replies are read in time even if the engine is late.
pub(crate) const SENDS_PER_TURN: u32 = 1024;

/// Convert seconds to nanoseconds.
pub(crate) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * NS_PER_S).round() as u64
}

/// Due times of one thread's requests; times are nanoseconds since the start.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Absent in a closed loop.
    plan: Option<Plan>,
    end: u64,
    /// Requests that may still come.
    left: u64,
}

/// Planned times without an end.
#[derive(Debug)]
struct Plan {
    arrivals: Arrivals,
    /// Mean time between two requests at the rate that is set, in nanoseconds.
    gap: f64,
    /// How the rate changes.
    profile: Profile,
    /// Offset of all planned times before the profile is applied, in nanoseconds.
    offset: f64,
    /// Sum of the random gaps so far.
    elapsed: f64,
    count: u64,
    next: u64,
    rng: Rng,
}

impl Schedule {
    /// Make a schedule of `rate` requests a second, changed by `profile`, until `end` nanoseconds.
    /// Planned times are shifted by `phase` mean gaps, so that threads with the same rate
    /// alternate.
    pub(crate) fn open(
        arrivals: Arrivals,
        rate: f64,
        profile: Profile,
        phase: f64,
        end: u64,
        rng: Rng,
    ) -> Self {
        Self {
            plan: Some(Plan::new(arrivals, rate, profile, phase, rng)),
            end,
            left: u64::MAX,
        }
    }

    /// Make a closed loop's schedule, which has a request whenever there is room for one, until
    /// `end` nanoseconds.
    pub(crate) fn closed(end: u64) -> Self {
        Self {
            plan: None,
            end,
            left: u64::MAX,
        }
    }

    /// Limit the schedule to `requests` requests.
    pub(crate) fn limited(self, requests: u32) -> Self {
        Self {
            left: requests.into(),
            ..self
        }
    }

    /// Return whether the schedule has no planned times.
    pub(crate) fn is_closed(&self) -> bool {
        self.plan.is_none()
    }

    /// Return the due time of the next request as seen at `now`, if there is room for it; `None` if
    /// the end comes before.
    #[inline]
    pub(crate) fn peek(&self, now: u64) -> Option<u64> {
        let next = self.plan.as_ref().map_or(now, |plan| plan.next);
        (next < self.end && self.left > 0).then_some(next)
    }

    /// Go on to the request after the next.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.left = self.left.saturating_sub(1);
        if let Some(plan) = &mut self.plan {
            plan.advance();
        }
    }

    /// End the schedule at `now`; requests that were due before and were not taken are dropped.
    pub(crate) fn stop(&mut self, now: u64) {
        self.end = self.end.min(now);
        if let Some(plan) = &mut self.plan {
            plan.next = u64::MAX;
        }
    }

    /// Return when the schedule ends, in nanoseconds since the start.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

impl Plan {
    fn new(arrivals: Arrivals, rate: f64, profile: Profile, phase: f64, rng: Rng) -> Self {
        let gap = NS_PER_S / rate;
        let mut plan = Self {
            arrivals,
            gap,
            profile,
            offset: gap * phase,
            elapsed: 0.0,
            count: 0,
            next: 0,
            rng,
        };
        plan.next = plan.due();
        plan
    }

    #[inline]
    fn advance(&mut self) {
        self.count += 1;
        self.next = self.due();
    }

    #[inline]
    fn due(&mut self) -> u64 {
        let after = match self.arrivals {
            // A product, not a sum: rounding does not add up.
            Arrivals::Uniform => self.count as f64 * self.gap,
            Arrivals::Poisson => {
                self.elapsed -= (1.0 - self.rng.fraction()).ln() * self.gap;
                self.elapsed
            }
        };
        // The cast saturates after the end of the profile, so the time is never reached.
        (self.profile.time_of(self.offset + after) + 0.5) as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::profile::Segment;

    fn open(rate: f64, end: u64) -> Schedule {
        let profile = Profile::constant();
        Schedule::open(Arrivals::Uniform, rate, profile, 0.0, end, Rng::new(1))
    }

    fn times(arrivals: Arrivals, rate: f64, phase: f64, end: u64) -> Vec<u64> {
        profiled(arrivals, rate, Profile::constant(), phase, end)
    }

    fn profiled(arrivals: Arrivals, rate: f64, profile: Profile, phase: f64, end: u64) -> Vec<u64> {
        let mut schedule = Schedule::open(arrivals, rate, profile, phase, end, Rng::new(3));
        let mut times = Vec::new();
        while let Some(due) = schedule.peek(0) {
            times.push(due);
            schedule.advance();
        }
        times
    }

    #[test]
    fn uniform_times_are_exact() {
        let times = times(Arrivals::Uniform, 4.0, 0.0, 2_000_000_000);
        let expected: Vec<u64> = (0..8).map(|k| k * 250_000_000).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn uniform_times_do_not_drift() {
        let times = times(Arrivals::Uniform, 30_000.0, 0.0, 60_000_000_000);
        assert_eq!(times.len(), 1_800_000);
        assert_eq!(times[1_500_000], 50_000_000_000);
    }

    #[test]
    fn threads_take_turns() {
        let times = times(Arrivals::Uniform, 10.0, 0.25, 1_000_000_000);
        assert_eq!(times[0], 25_000_000);
        assert_eq!(times[9], 925_000_000);
        assert_eq!(times.len(), 10);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_deviation_of_the_exponential_distribution() {
        let times = times(Arrivals::Poisson, 1000.0, 0.0, 100_000_000_000);
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e6)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.98..1.02).contains(&mean), "{mean}");
        assert!((0.97..1.03).contains(&variance.sqrt()), "{variance}");
    }

    #[test]
    fn uniform_times_follow_the_profile() {
        let ramp = || Profile::new(1e9, &[Segment::new(4.0, 0.0, 2.0)]);
        let times = profiled(Arrivals::Uniform, 400.0, ramp(), 0.0, 5_000_000_000);
        // After t seconds of the ramp 100 t^2 requests were due.
        assert_eq!(times.len(), 1600);
        for (number, due) in [(0, 1.0), (25, 1.5), (100, 2.0), (900, 4.0), (1225, 4.5)] {
            assert_eq!(times[number], (due * 1e9) as u64);
        }
        let shifted = profiled(Arrivals::Uniform, 400.0, ramp(), 0.25, 5_000_000_000);
        assert_eq!(shifted.len(), 1600);
        assert_eq!(shifted[0], 1_050_000_000);
    }

    #[test]
    fn poisson_times_follow_the_profile() {
        let segments = [Segment::new(50.0, 1.0, 1.0), Segment::new(50.0, 0.0, 6.0)];
        let end = 100_000_000_000;
        let times = profiled(
            Arrivals::Poisson,
            1000.0,
            Profile::new(0.0, &segments),
            0.0,
            end,
        );
        let within = |from: u64, to: u64| {
            let is_within = |due: &&u64| (from * 1_000_000_000..to * 1_000_000_000).contains(*due);
            times.iter().filter(is_within).count() as f64
        };
        // Counts are Poisson distributed, too: five deviations of each.
        for (from, to, mean) in [
            (0, 50, 50e3),
            (50, 75, 37.5e3),
            (75, 100, 112.5e3),
            (50, 55, 1.5e3),
        ] {
            let count = within(from, to);
            assert!(
                (count - mean).abs() < 5.0 * mean.sqrt(),
                "{count} for {mean}"
            );
        }
        // Within a stretch so short that the rate hardly changes, gaps are exponential.
        let gaps: Vec<f64> = times
            .windows(2)
            .filter(|pair| pair[0] > 99_000_000_000)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (0.93..1.07).contains(&(variance.sqrt() / mean)),
            "{variance}"
        );
    }

    #[test]
    fn a_stopped_schedule_plans_no_more() {
        let mut schedule = open(1000.0, 1_000_000_000);
        assert_eq!(schedule.peek(9), Some(0));
        schedule.stop(500_000);
        assert_eq!(schedule.peek(9), None);
        assert_eq!(schedule.end(), 500_000);
        schedule.stop(900_000);
        assert_eq!(schedule.end(), 500_000);
    }

    #[test]
    fn a_limited_schedule_has_no_more() {
        let open = open(10.0, u64::MAX);
        for mut schedule in [open.limited(3), Schedule::closed(u64::MAX).limited(3)] {
            for _ in 0..3 {
                assert!(schedule.peek(5).is_some());
                schedule.advance();
            }
            assert_eq!(schedule.peek(5), None);
        }
    }

    #[test]
    fn a_closed_loop_is_always_due_until_its_end() {
        let mut schedule = Schedule::closed(1_000);
        for now in [0, 7, 7, 999] {
            assert_eq!(schedule.peek(now), Some(now));
            schedule.advance();
        }
        assert_eq!(schedule.peek(1_000), None);
        schedule.stop(500);
        assert_eq!((schedule.peek(499), schedule.peek(500)), (Some(499), None));
    }
}
