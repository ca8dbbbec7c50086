//! Points and lengths of time as nats-server's monitor writes them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::shared::Shared;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// A length of time in whole seconds, like `1d2h3m4s`; years of 365 days.
pub(crate) fn uptime(time: Duration) -> String {
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

/// When a broker started, by the calendar and by a clock that nobody sets: what happened at which second
/// since then stays the same, whoever asks and whenever.
pub(crate) struct Clock {
    start: SystemTime,
    started: Instant,
}

impl Clock {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            start: shared.start,
            started: shared.started,
        }
    }

    /// The time so many seconds after the start.
    pub(crate) fn at(&self, second: u32) -> SystemTime {
        self.start + Duration::from_secs(second.into())
    }

    /// Whole seconds that have passed since then.
    pub(crate) fn since(&self, second: u32) -> Duration {
        let passed = self.started.elapsed().as_secs();
        Duration::from_secs(passed.saturating_sub(second.into()))
    }
}

/// Seconds of Unix time.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// UTC with microseconds, in the form of RFC 3339.
pub(crate) fn rfc3339(time: SystemTime) -> String {
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
