//! The subjects with the most messages of the last minute, estimated from one publish in so many.
//!
//! Source: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
//! Data Streams" (2005), Space-Saving.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::time::{Duration, Instant};

use router::Rng;
use serde_json::{Value, json};

/// One publish in this many is noted.
pub(crate) const ONE_IN: u64 = 64;
/// Subjects that are followed at once in one window of one shard.
const MAX_SUBJECTS: usize = 128;
/// After this long a window is closed; what is shown covers the open one and the one before.
const WINDOW: Duration = Duration::from_secs(30);

/// What is counted of one subject.
#[derive(Default)]
struct Entry {
    subject: Vec<u8>,
    /// Publishes, those included that may have been of the subjects that had this place before.
    count: u64,
    /// Of these, at most so many were not of this subject.
    error: u64,
    /// Of its messages since it has this place.
    bytes: u64,
}

/// A Space-Saving summary: whatever has more than one in [`MAX_SUBJECTS`] publishes is in it.
#[derive(Default)]
struct Summary {
    /// Of the subjects in `entries`: to be searched first, since they lie side by side.
    hashes: Vec<u64>,
    entries: Vec<Entry>,
    /// All publishes noted.
    total: u64,
}

impl Summary {
    fn note(&mut self, hash: u64, subject: &[u8], bytes: u64) {
        self.total += 1;
        let mut hits = self.hashes.iter().enumerate();
        let place =
            hits.find(|(place, one)| **one == hash && self.entries[*place].subject == subject);
        let entry = match place {
            Some((place, _)) => &mut self.entries[place],
            None => self.admit(hash, subject),
        };
        entry.count += 1;
        entry.bytes += bytes;
    }

    /// A place for a subject that has none: a free one, or that of the subject with the fewest publishes,
    /// whose count it inherits.
    fn admit(&mut self, hash: u64, subject: &[u8]) -> &mut Entry {
        let fewest = self
            .entries
            .iter()
            .enumerate()
            .min_by_key(|(_, one)| one.count);
        let place = match fewest {
            Some((place, _)) if self.entries.len() == MAX_SUBJECTS => place,
            _ => {
                self.hashes.push(0);
                self.entries.push(Entry::default());
                self.entries.len() - 1
            }
        };
        self.hashes[place] = hash;
        let entry = &mut self.entries[place];
        entry.error = entry.count;
        entry.bytes = 0;
        entry.subject.clear();
        entry.subject.extend_from_slice(subject);
        entry
    }

    fn clear(&mut self) {
        self.hashes.clear();
        self.entries.clear();
        self.total = 0;
    }
}

/// The hottest subjects of one shard. Counts are lower bounds: a subject that had to share its place counts
/// from when it came into the summary, so that of a million equally rare ones none looks hot.
pub(crate) struct Hot {
    hasher: RandomState,
    rng: Rng,
    /// Publishes until the next one that is noted. At random, so that subjects which take turns all have
    /// their chance.
    until: u64,
    open: Summary,
    opened: Instant,
    closed: Summary,
    /// How long the closed window was open.
    closed_for: Duration,
}

impl Hot {
    pub(crate) fn new(now: Instant, seed: u64) -> Self {
        Self {
            hasher: RandomState::new(),
            rng: Rng::new(seed),
            until: ONE_IN,
            open: Summary::default(),
            opened: now,
            closed: Summary::default(),
            closed_for: Duration::ZERO,
        }
    }

    /// Notes one message in [`ONE_IN`] on average.
    #[inline]
    pub(crate) fn offer(&mut self, subject: &[u8], bytes: usize) {
        self.until -= 1;
        if self.until == 0 {
            self.until = 1 + self.rng.below(2 * ONE_IN - 1);
            self.note(subject, bytes);
        }
    }

    /// Notes a message: `bytes` are those of its headers and payload.
    pub(crate) fn note(&mut self, subject: &[u8], bytes: usize) {
        // Of the inboxes of requests each is used once; what they say is how many replies there are.
        let is_inbox = subject.starts_with(b"_INBOX.");
        let subject = if is_inbox { b"_INBOX.>" } else { subject };
        let hash = self.hasher.hash_one(subject);
        self.open.note(hash, subject, bytes as u64);
    }

    /// Closes the window if it has been open for long enough; to be called about once a second.
    pub(crate) fn advance(&mut self, now: Instant) {
        let open_for = now.saturating_duration_since(self.opened);
        if open_for < WINDOW {
            return;
        }
        mem::swap(&mut self.open, &mut self.closed);
        self.open.clear();
        self.opened = now;
        self.closed_for = open_for;
    }

    /// What has been seen.
    pub(crate) fn seen(&self, now: Instant) -> Seen {
        let mut seen = Seen {
            seconds: (now.saturating_duration_since(self.opened) + self.closed_for).as_secs_f64(),
            total: self.open.total + self.closed.total,
            subjects: HashMap::new(),
        };
        for entry in self.open.entries.iter().chain(&self.closed.entries) {
            let heat = Heat {
                msgs: entry.count - entry.error,
                bytes: entry.bytes,
            };
            seen.add(&entry.subject, heat);
        }
        seen
    }
}

/// What was noted of one subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Heat {
    msgs: u64,
    bytes: u64,
}

/// What shards have noted in the last minute or so.
#[derive(Default)]
pub(crate) struct Seen {
    /// How long.
    seconds: f64,
    /// All publishes noted.
    total: u64,
    subjects: HashMap<Vec<u8>, Heat>,
}

impl Seen {
    fn add(&mut self, subject: &[u8], heat: Heat) {
        let sum = match self.subjects.get_mut(subject) {
            Some(sum) => sum,
            None => self.subjects.entry(subject.to_vec()).or_default(),
        };
        sum.msgs += heat.msgs;
        sum.bytes += heat.bytes;
    }

    /// Adds what another shard has noted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.total += other.total;
        for (subject, heat) in &other.subjects {
            self.add(subject, *heat);
        }
    }

    /// The busiest subjects first, at most `limit`, as JSON: rates are estimates of all publishes.
    pub(crate) fn to_json(&self, limit: usize) -> Value {
        let mut busiest: Vec<_> = self.subjects.iter().collect();
        busiest.sort_unstable_by(|(a, x), (b, y)| y.msgs.cmp(&x.msgs).then(a.cmp(b)));
        let seconds = self.seconds.max(1e-3);
        let per_s = |count: u64| (count * ONE_IN) as f64 / seconds;
        let subjects = busiest.into_iter().take(limit).map(|(subject, heat)| {
            json!({
                "subject": String::from_utf8_lossy(subject),
                "msgs_per_s": per_s(heat.msgs),
                "bytes_per_s": per_s(heat.bytes),
                "share": heat.msgs as f64 / self.total as f64,
            })
        });
        json!({
            "one_in": ONE_IN,
            "seconds": self.seconds,
            "subjects": subjects.collect::<Vec<_>>(),
        })
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
    fn the_busiest_come_first_with_their_rates() {
        let start = Instant::now();
        let mut hot = Hot::new(start, 1);
        for n in 0..100 {
            hot.note(b"often", 10);
            if n % 4 == 0 {
                hot.note(b"seldom", 100);
            }
        }
        let json = hot.seen(after(start, 16)).to_json(64);
        assert_eq!(json["one_in"], 64);
        assert_eq!(json["seconds"], 16.0);
        assert_eq!(
            json["subjects"],
            json!([
                {"subject": "often", "msgs_per_s": 400.0, "bytes_per_s": 4000.0, "share": 0.8},
                {"subject": "seldom", "msgs_per_s": 100.0, "bytes_per_s": 10_000.0, "share": 0.2},
            ])
        );
        let json = hot.seen(after(start, 16)).to_json(1);
        assert_eq!(json["subjects"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn subjects_that_take_turns_are_sampled_alike() {
        let start = Instant::now();
        let mut hot = Hot::new(start, 1);
        for n in 0..1_280_000 {
            hot.offer(if n % 64 == 0 { b"a" } else { b"b" }, 0);
        }
        let seen = hot.seen(after(start, 1));
        let msgs = |subject: &[u8]| seen.subjects[subject].msgs;
        assert!((19_000..21_000).contains(&seen.total), "{}", seen.total);
        assert!((200..450).contains(&msgs(b"a")), "{}", msgs(b"a"));
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let start = Instant::now();
        let mut hot = Hot::new(start, 1);
        let msgs = |hot: &Hot, seconds, subject: &[u8]| {
            let seen = hot.seen(after(start, seconds));
            seen.subjects.get(subject).map(|heat| heat.msgs)
        };
        hot.note(b"a", 0);
        hot.advance(after(start, 29));
        assert_eq!(msgs(&hot, 29, b"a"), Some(1));
        hot.advance(after(start, 30));
        hot.note(b"a", 0);
        hot.note(b"b", 0);
        assert_eq!(msgs(&hot, 59, b"a"), Some(2));
        assert_eq!(hot.seen(after(start, 59)).seconds, 59.0);
        hot.advance(after(start, 60));
        assert_eq!(msgs(&hot, 60, b"a"), Some(1));
        hot.advance(after(start, 90));
        assert_eq!(msgs(&hot, 90, b"a"), None);
        assert_eq!(msgs(&hot, 90, b"b"), None);
        assert_eq!(hot.seen(after(start, 95)).seconds, 35.0);
    }

    #[test]
    fn shards_are_merged() {
        let start = Instant::now();
        let mut sum = Seen::default();
        for (age, bytes) in [(10, 5), (20, 7)] {
            let mut hot = Hot::new(start, 1);
            hot.note(b"a", bytes);
            sum.merge(&hot.seen(after(start, age)));
        }
        assert_eq!((sum.seconds, sum.total), (20.0, 2));
        let heat = Heat { msgs: 2, bytes: 12 };
        assert_eq!(sum.subjects[&b"a"[..]], heat);
        assert_eq!(Seen::default().to_json(9)["subjects"], json!([]));
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
                for subject in [rare].into_iter().chain((n % every == 0).then_some(frequent)) {
                    let hash = u64::from(subject.len() as u32); // Collides on purpose.
                    summary.note(hash, subject.as_bytes(), 1);
                    *truth.entry(subject.into_bytes()).or_default() += 1;
                }
            }
            prop_assert!(summary.entries.len() <= MAX_SUBJECTS);
            prop_assert_eq!(summary.total, truth.values().sum::<u64>());
            let counts: u64 = summary.entries.iter().map(|one| one.count).sum();
            prop_assert_eq!(counts, summary.total);
            for one in &summary.entries {
                let count = truth[&one.subject];
                prop_assert!(one.count - one.error <= count && count <= one.count);
                prop_assert!(one.bytes == one.count - one.error);
            }
            for (subject, count) in truth {
                if count > summary.total / MAX_SUBJECTS as u64 {
                    prop_assert!(summary.entries.iter().any(|one| one.subject == subject));
                }
            }
        }
    }
}
