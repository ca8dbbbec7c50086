//! Pauses of the listeners.

use std::time::Instant;

/// The pauses of a shard's listeners, each by its index.
#[derive(Default)]
pub(crate) struct Pauses(Vec<Pause>);

#[derive(Clone, Copy, Default)]
struct Pause {
    /// When accepting goes on, while it is paused.
    until: Option<Instant>,
    /// Whether the driver has been told to stop accepting.
    is_told: bool,
}

impl Pauses {
    /// Pause a listener until `until`, or longer if it is paused for longer already.
    pub(crate) fn pause(&mut self, listener: usize, until: Instant) {
        if listener >= self.0.len() {
            self.0.resize(listener + 1, Pause::default());
        }
        let pause = &mut self.0[listener].until;
        *pause = Some(pause.map_or(until, |before| before.max(until)));
    }

    pub(crate) fn is_paused(&self, listener: usize) -> bool {
        self.0
            .get(listener)
            .is_some_and(|pause| pause.until.is_some())
    }

    /// Return the time of the first pause that ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|pause| pause.until).min()
    }

    /// End the pauses that are over at `now`; return the listeners that the driver is to accept on again.
    pub(crate) fn end_due(&mut self, now: Instant) -> Vec<usize> {
        let mut resumed = Vec::new();
        for (listener, pause) in self.0.iter_mut().enumerate() {
            if pause.until.is_some_and(|until| until <= now) {
                pause.until = None;
                if std::mem::take(&mut pause.is_told) {
                    resumed.push(listener);
                }
            }
        }
        resumed
    }

    /// Note that the driver stops accepting on the listeners that are returned: those of new pauses whose
    /// end is not before the next turn. `now` is the time of this turn.
    pub(crate) fn begin_long(&mut self, now: Instant) -> Vec<usize> {
        let mut stopped = Vec::new();
        for (listener, pause) in self.0.iter_mut().enumerate() {
            if !pause.is_told && pause.until.is_some_and(|until| until > now) {
                pause.is_told = true;
                stopped.push(listener);
            }
        }
        stopped
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pause_ends_when_it_is_over_and_the_driver_hears_only_of_long_ones() {
        let now = Instant::now();
        let later = now + Duration::from_millis(10);
        let mut pauses = Pauses::default();
        assert_eq!(pauses.next_end(), None);
        pauses.pause(2, later);
        pauses.pause(2, now);
        pauses.pause(0, now);
        assert!(pauses.is_paused(0) && !pauses.is_paused(1) && pauses.is_paused(2));
        assert_eq!(pauses.next_end(), Some(now));
        assert_eq!(pauses.begin_long(now), [2]);
        assert_eq!(pauses.begin_long(now), []);
        assert_eq!(pauses.end_due(now), []);
        assert!(!pauses.is_paused(0) && pauses.is_paused(2));
        assert_eq!(pauses.end_due(later), [2]);
        assert!(!pauses.is_paused(2));
    }
}
