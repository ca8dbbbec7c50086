//! Points and lengths of time as nats-server's monitor writes them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Write a length of time in whole seconds, like `1d2h3m4s`; a year has 365 days.
#[must_use]
pub fn uptime(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [
        (seconds / YEAR, 'y', YEAR),
        (seconds % YEAR / DAY, 'd', DAY),
        (seconds % DAY / HOUR, 'h', HOUR),
        (seconds % HOUR / MINUTE, 'm', MINUTE),
        (seconds % MINUTE, 's', 1),
    ];
    let shown = parts
        .iter()
        .filter(|(_, _, unit)| seconds >= *unit || *unit == 1);
    shown
        .map(|(count, letter, _)| format!("{count}{letter}"))
        .collect()
}

/// Start of a process, on the calendar and on a clock that is never set. Both together give an
/// event a stable time on the calendar.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: SystemTime,
    started: Instant,
}

impl Clock {
    /// Make a clock from simultaneous readings of both.
    #[must_use]
    pub const fn new(start: SystemTime, started: Instant) -> Self {
        Self { start, started }
    }

    /// Return the calendar's time `second` seconds after the start.
    #[must_use]
    pub fn at(&self, second: u32) -> SystemTime {
        self.start + Duration::from_secs(second.into())
    }

    /// Return the whole seconds from `second` seconds after the start to `now`.
    #[must_use]
    pub fn since(&self, second: u32, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.started).as_secs();
        Duration::from_secs(passed.saturating_sub(second.into()))
    }
}

/// Return whole seconds of Unix time.
#[must_use]
pub fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Write a time in UTC with microseconds, in the form of RFC 3339.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_micros(time.max(UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (seconds, want) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m0s"),
            (3600, "1h0m0s"),
            (93_784, "1d2h3m4s"),
            (400 * DAY, "1y35d0h0m0s"),
        ] {
            assert_eq!(uptime(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn a_clock_counts_from_the_start() {
        let (start, started) = (UNIX_EPOCH + Duration::from_secs(1000), Instant::now());
        let clock = Clock::new(start, started);
        assert_eq!(unix(clock.at(7)), 1007);
        let now = started + Duration::from_millis(9900);
        assert_eq!(clock.since(7, now), Duration::from_secs(2));
        assert_eq!(clock.since(10, now), Duration::ZERO);
    }

    #[test]
    fn points() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000250Z"),
            (951_782_400, "2000-02-29T00:00:00.000250Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000250Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000250Z"),
            (1_790_000_000, "2026-09-21T14:13:20.000250Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(250);
            assert_eq!(rfc3339(time), want);
            assert_eq!(unix(time), seconds);
        }
    }
}
