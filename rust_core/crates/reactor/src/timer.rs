//! A hashed timer wheel: constant time to set, no cancellation. The owner of a timer checks, when
//! it fires, whether it still matters; so a connection needs one entry of 16 bytes and no handle.
//!
//! Source: G. Varghese and A. Lauck, "Hashed and Hierarchical Timing Wheels" (1987), scheme 6.

use std::time::{Duration, Instant};

use crate::conn_id::ConnId;
use crate::shrink::give_back_list;

/// Resolution of the wheel.
pub const TICK: Duration = Duration::from_millis(8);

const SLOTS: usize = 8192;
/// Ticks ahead that a 32-bit tick can tell from ticks past.
const FARTHEST: u64 = 1 << 31;

#[derive(Clone, Copy)]
struct Entry {
    id: ConnId,
    /// The tick at which it is due, modulo 2^32; never more than 2^31 ticks (198 days) away.
    due: u32,
    kind: u8,
}

/// Timers of one shard.
pub struct Wheel {
    slots: Vec<Vec<Entry>>,
    start: Instant,
    /// Ticks already fired.
    fired: u64,
    len: usize,
    ready: Vec<Entry>,
}

impl Wheel {
    /// Return an empty wheel whose time begins at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let slots = (0..SLOTS).map(|_| Vec::new()).collect();
        Self {
            slots,
            start: now,
            fired: 0,
            len: 0,
            ready: Vec::new(),
        }
    }

    /// Return how many bytes are allocated for timers that are set.
    #[must_use]
    pub fn bytes(&self) -> usize {
        SLOTS * size_of::<Vec<Entry>>() + self.len * size_of::<Entry>()
    }

    /// Ask for `(id, kind)` once `at` has passed, at most one [`TICK`] late.
    pub fn set(&mut self, at: Instant, id: ConnId, kind: u8) {
        let after = at.saturating_duration_since(self.start).as_nanos();
        let due = u64::try_from(after.div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX);
        let due = due.clamp(self.fired + 1, self.fired + FARTHEST);
        let entry = Entry {
            id,
            due: due as u32,
            kind,
        };
        self.slots[due as usize % SLOTS].push(entry);
        self.len += 1;
    }

    /// Return the next timer that is due at `now`, if any.
    pub fn poll(&mut self, now: Instant) -> Option<(ConnId, u8)> {
        loop {
            if let Some(entry) = self.ready.pop() {
                self.len -= 1;
                return Some((entry.id, entry.kind));
            }
            give_back_list(&mut self.ready);
            let elapsed = now.saturating_duration_since(self.start).as_nanos() / TICK.as_nanos();
            let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
            if self.fired >= elapsed {
                return None;
            }
            if self.len == 0 {
                self.fired = elapsed;
                return None;
            }
            self.fired += 1;
            let tick = self.fired;
            let slot = &mut self.slots[tick as usize % SLOTS];
            let is_due =
                |entry: &mut Entry| u64::from((tick as u32).wrapping_sub(entry.due)) < FARTHEST;
            self.ready.extend(slot.extract_if(.., is_due));
            if slot.is_empty() && slot.capacity() > 64 {
                *slot = Vec::new();
            }
        }
    }

    /// Return whether timers have fired that [`poll`](Self::poll) has not told yet.
    #[inline]
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Return how long it is from `now` until something may be due; `None` when nothing is set.
    #[must_use]
    pub fn until_next(&self, now: Instant) -> Option<Duration> {
        if self.len == 0 {
            return None;
        }
        // Scanning further than this would cost more than one idle wake-up a second.
        const LOOK_AHEAD: u64 = 128;
        let ahead = (1..LOOK_AHEAD)
            .find(|ahead| !self.slots[(self.fired + ahead) as usize % SLOTS].is_empty())
            .unwrap_or(LOOK_AHEAD);
        let ticks = self.fired + ahead;
        let at = self.start + Duration::from_nanos(ticks * TICK.as_nanos() as u64);
        Some(at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_time_never_early_and_only_once() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let delays = [1u64, 8, 9, 500, 65_536, 65_544, 200_000];
        for (n, delay) in delays.iter().enumerate() {
            wheel.set(
                start + Duration::from_millis(*delay),
                ConnId::from_bits(n as u64),
                n as u8,
            );
        }
        let mut fired = vec![0u64; delays.len()];
        for ms in 0..200_100 {
            while let Some((id, kind)) = wheel.poll(start + Duration::from_millis(ms)) {
                assert_eq!(id.to_bits(), u64::from(kind));
                assert_eq!(fired[kind as usize], 0);
                fired[kind as usize] = ms;
            }
        }
        for (delay, fired) in delays.iter().zip(&fired) {
            assert!(
                fired >= delay && *fired <= delay + 8,
                "{delay} fired at {fired}"
            );
        }
        assert_eq!(wheel.until_next(start), None);
    }

    #[test]
    fn tells_how_long_to_sleep() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        assert_eq!(wheel.until_next(start), None);
        wheel.set(start + Duration::from_millis(80), ConnId::NONE, 0);
        assert_eq!(wheel.until_next(start), Some(Duration::from_millis(80)));
        assert!(wheel.poll(start + Duration::from_millis(79)).is_none());
        assert!(wheel.poll(start + Duration::from_millis(80)).is_some());
    }

    #[test]
    fn a_timer_in_the_past_fires_at_the_next_tick() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        assert!(wheel.poll(start + Duration::from_secs(1)).is_none());
        wheel.set(start, ConnId::NONE, 3);
        assert_eq!(
            wheel.poll(start + Duration::from_millis(1008)),
            Some((ConnId::NONE, 3))
        );
    }
}
