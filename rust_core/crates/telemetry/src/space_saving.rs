//! The most frequent keys of a stream of the last minute, in bounded memory.
//!
//! Source: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
//! Data Streams" (2005), Space-Saving.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::time::{Duration, Instant};

/// Most keys that one window follows.
pub const MAX_KEYS: usize = 128;
/// Time after which a window is closed. Results cover the open window and the one before.
const WINDOW: Duration = Duration::from_secs(30);

/// The counts of one key.
#[derive(Default)]
struct Entry {
    key: Vec<u8>,
    /// Notes of this key, and of earlier keys in this entry.
    count: u64,
    /// Part of `count` that may belong to other keys.
    error: u64,
    /// Weight of this key's notes since it took this entry.
    weight: u64,
}

/// Space-Saving summary, which contains every key with more than one in [`MAX_KEYS`] notes.
#[derive(Default)]
struct Summary {
    /// Hashes of the keys in `entries`, in one array that is quick to search.
    hashes: Vec<u64>,
    entries: Vec<Entry>,
    /// Notes of all keys.
    total: u64,
}

impl Summary {
    fn note(&mut self, hash: u64, key: &[u8], weight: u64) {
        self.total += 1;
        let mut hits = self.hashes.iter().enumerate();
        let place = hits.find(|(place, one)| **one == hash && self.entries[*place].key == key);
        let entry = match place {
            Some((place, _)) => &mut self.entries[place],
            None => self.admit(hash, key),
        };
        entry.count += 1;
        entry.weight += weight;
    }

    /// Give an entry to a new key: a free one, or that of the key with the fewest notes, whose
    /// count it inherits.
    fn admit(&mut self, hash: u64, key: &[u8]) -> &mut Entry {
        let fewest = self
            .entries
            .iter()
            .enumerate()
            .min_by_key(|(_, one)| one.count);
        let place = match fewest {
            Some((place, _)) if self.entries.len() == MAX_KEYS => place,
            _ => {
                self.hashes.push(0);
                self.entries.push(Entry::default());
                self.entries.len() - 1
            }
        };
        self.hashes[place] = hash;
        let entry = &mut self.entries[place];
        entry.error = entry.count;
        entry.weight = 0;
        entry.key.clear();
        entry.key.extend_from_slice(key);
        entry
    }

    fn clear(&mut self) {
        self.hashes.clear();
        self.entries.clear();
        self.total = 0;
    }
}

/// Most frequent keys that one shard has noted. Counts are lower bounds: a key that took over an
/// entry counts from then on. So of a million equally rare keys none looks frequent.
pub struct Recent {
    hasher: RandomState,
    open: Summary,
    opened: Instant,
    closed: Summary,
    /// Time for which the closed window was open.
    closed_for: Duration,
}

impl Recent {
    /// Open the first window.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            hasher: RandomState::new(),
            open: Summary::default(),
            opened: now,
            closed: Summary::default(),
            closed_for: Duration::ZERO,
        }
    }

    /// Note a key once, with a weight.
    pub fn note(&mut self, key: &[u8], weight: u64) {
        let hash = self.hasher.hash_one(key);
        self.open.note(hash, key, weight);
    }

    /// Close the window if it has been open for long enough. Call it about once a second.
    pub fn advance(&mut self, now: Instant) {
        let open_for = now.saturating_duration_since(self.opened);
        if open_for < WINDOW {
            return;
        }
        mem::swap(&mut self.open, &mut self.closed);
        self.open.clear();
        self.opened = now;
        self.closed_for = open_for;
    }

    /// Return the keys of both windows.
    #[must_use]
    pub fn frequent(&self, now: Instant) -> Frequent {
        let open_for = now.saturating_duration_since(self.opened);
        let mut frequent = Frequent {
            seconds: (open_for + self.closed_for).as_secs_f64(),
            total: self.open.total + self.closed.total,
            keys: HashMap::new(),
        };
        for entry in self.open.entries.iter().chain(&self.closed.entries) {
            let counts = KeyCounts {
                count: entry.count - entry.error,
                weight: entry.weight,
            };
            frequent.add(&entry.key, counts);
        }
        frequent
    }
}

/// Notes of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Number of notes.
    pub count: u64,
    /// Sum of their weights.
    pub weight: u64,
}

/// Keys that one or several shards have noted in the last minute or so.
#[derive(Debug, Default)]
pub struct Frequent {
    /// Time covered, in seconds.
    pub seconds: f64,
    /// Notes of all keys, including keys without an entry.
    pub total: u64,
    keys: HashMap<Vec<u8>, KeyCounts>,
}

impl Frequent {
    fn add(&mut self, key: &[u8], counts: KeyCounts) {
        let sum = match self.keys.get_mut(key) {
            Some(sum) => sum,
            None => self.keys.entry(key.to_vec()).or_default(),
        };
        sum.count += counts.count;
        sum.weight += counts.weight;
    }

    /// Add the keys that another shard has noted.
    pub fn merge(&mut self, other: &Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.total += other.total;
        for (key, counts) in &other.keys {
            self.add(key, *counts);
        }
    }

    /// Return the notes of a key that has an entry.
    #[must_use]
    pub fn counts(&self, key: &[u8]) -> Option<KeyCounts> {
        self.keys.get(key).copied()
    }

    /// Return all keys with their notes, the most frequent first, equally frequent ones by name.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&[u8], KeyCounts)> {
        let keys = self.keys.iter();
        let mut ranked: Vec<_> = keys.map(|(key, counts)| (&key[..], *counts)).collect();
        ranked.sort_unstable_by(|(a, x), (b, y)| y.count.cmp(&x.count).then(a.cmp(b)));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_most_frequent_come_first() {
        let start = Instant::now();
        let mut recent = Recent::new(start);
        for n in 0..100 {
            recent.note(b"often", 10);
            if n % 4 == 0 {
                recent.note(b"seldom", 100);
            }
        }
        let frequent = recent.frequent(after(start, 16));
        assert_eq!((frequent.seconds, frequent.total), (16.0, 125));
        let counts = |count, weight| KeyCounts { count, weight };
        assert_eq!(
            frequent.ranked(),
            [
                (&b"often"[..], counts(100, 1000)),
                (&b"seldom"[..], counts(25, 2500))
            ]
        );
    }

    #[test]
    fn a_window_that_is_over_is_forgotten() {
        let start = Instant::now();
        let mut recent = Recent::new(start);
        let count = |recent: &Recent, seconds, key: &[u8]| {
            let frequent = recent.frequent(after(start, seconds));
            frequent.counts(key).map(|counts| counts.count)
        };
        recent.note(b"a", 0);
        recent.advance(after(start, 29));
        assert_eq!(count(&recent, 29, b"a"), Some(1));
        recent.advance(after(start, 30));
        recent.note(b"a", 0);
        recent.note(b"b", 0);
        assert_eq!(count(&recent, 59, b"a"), Some(2));
        assert_eq!(recent.frequent(after(start, 59)).seconds, 59.0);
        recent.advance(after(start, 60));
        assert_eq!(count(&recent, 60, b"a"), Some(1));
        recent.advance(after(start, 90));
        assert_eq!(count(&recent, 90, b"a"), None);
        assert_eq!(count(&recent, 90, b"b"), None);
        assert_eq!(recent.frequent(after(start, 95)).seconds, 35.0);
    }

    #[test]
    fn shards_are_merged() {
        let start = Instant::now();
        let mut sum = Frequent::default();
        for (age, weight) in [(10, 5), (20, 7)] {
            let mut recent = Recent::new(start);
            recent.note(b"a", weight);
            sum.merge(&recent.frequent(after(start, age)));
        }
        assert_eq!((sum.seconds, sum.total), (20.0, 2));
        let counts = KeyCounts {
            count: 2,
            weight: 12,
        };
        assert_eq!(sum.counts(b"a"), Some(counts));
        assert_eq!(Frequent::default().ranked(), []);
    }

    proptest! {
        #[test]
        fn what_is_frequent_is_found_and_never_overestimated(
            rare in prop::collection::vec(0_u16..4096, 0..4000),
            often in 1_usize..6,
            every in 1_usize..12,
        ) {
            let mut summary = Summary::default();
            let mut truth = HashMap::<Vec<u8>, u64>::new();
            for (n, rare) in rare.iter().enumerate() {
                let frequent = format!("often.{}", n % often);
                let rare = format!("rare.{rare}");
                for key in [rare].into_iter().chain((n % every == 0).then_some(frequent)) {
                    let hash = u64::from(key.len() as u32); // Collides on purpose.
                    summary.note(hash, key.as_bytes(), 1);
                    *truth.entry(key.into_bytes()).or_default() += 1;
                }
            }
            prop_assert!(summary.entries.len() <= MAX_KEYS);
            prop_assert_eq!(summary.total, truth.values().sum::<u64>());
            let counts: u64 = summary.entries.iter().map(|one| one.count).sum();
            prop_assert_eq!(counts, summary.total);
            for one in &summary.entries {
                let count = truth[&one.key];
                prop_assert!(one.count - one.error <= count && count <= one.count);
                prop_assert!(one.weight == one.count - one.error);
            }
            for (key, count) in truth {
                if count > summary.total / MAX_KEYS as u64 {
                    prop_assert!(summary.entries.iter().any(|one| one.key == key));
                }
            }
        }
    }
}
