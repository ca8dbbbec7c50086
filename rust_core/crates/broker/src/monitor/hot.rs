//! The subjects with the most messages of the last minute, estimated from one publish in so many.

use std::time::Instant;

use fastrand::Rng;
use serde_json::{Value, json};
use telemetry::space_saving::{Frequent, Recent};

use super::shown::{SUBJECT, shown};

/// Publishes of which one is noted.
const ONE_IN: u64 = 64;

/// The hottest subjects of one shard.
pub(crate) struct Hot {
    rng: Rng,
    /// Publishes until the next one that is noted. At random, so that subjects which take turns all have
    /// their chance.
    until: u64,
    recent: Recent,
}

impl Hot {
    pub(crate) fn new(now: Instant, seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            until: ONE_IN,
            recent: Recent::new(now),
        }
    }

    /// Note one message in [`ONE_IN`] on average.
    #[inline]
    pub(crate) fn offer(&mut self, subject: &[u8], bytes: usize) {
        self.until -= 1;
        if self.until == 0 {
            self.until = self.rng.u64(1..2 * ONE_IN);
            self.note(subject, bytes);
        }
    }

    /// Note a message, whose headers and payload have so many bytes. Subjects that look alike on pages
    /// count as one.
    fn note(&mut self, subject: &[u8], bytes: usize) {
        // Each inbox of a request is used once. Together they say how many replies there are.
        let is_inbox = subject.starts_with(b"_INBOX.");
        let subject = if is_inbox { b"_INBOX.>" } else { subject };
        let seen = &subject[..subject.len().min(SUBJECT + 1)];
        self.recent.note(seen, bytes as u64);
    }

    /// Forget messages of more than a minute ago; to be called about once a second.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.recent.advance(now);
    }

    /// Return the subjects noted.
    pub(crate) fn frequent(&self, now: Instant) -> Frequent {
        self.recent.frequent(now)
    }
}

/// Write the busiest subjects first, at most `limit`, as JSON: rates are estimates of all publishes.
pub(super) fn to_json(frequent: &Frequent, limit: usize) -> Value {
    let seconds = frequent.seconds.max(1e-3);
    let per_s = |count: u64| (count * ONE_IN) as f64 / seconds;
    let busiest = frequent.ranked().into_iter().take(limit);
    let subjects = busiest.map(|(subject, noted)| {
        json!({
            "subject": shown(subject, SUBJECT),
            "msgs_per_s": per_s(noted.count),
            "bytes_per_s": per_s(noted.weight),
            "share": noted.count as f64 / frequent.total as f64,
        })
    });
    json!({
        "one_in": ONE_IN,
        "seconds": frequent.seconds,
        "subjects": subjects.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
        let json = to_json(&hot.frequent(start + Duration::from_secs(16)), 64);
        assert_eq!(json["one_in"], 64);
        assert_eq!(json["seconds"], 16.0);
        assert_eq!(
            json["subjects"],
            json!([
                {"subject": "often", "msgs_per_s": 400.0, "bytes_per_s": 4000.0, "share": 0.8},
                {"subject": "seldom", "msgs_per_s": 100.0, "bytes_per_s": 10_000.0, "share": 0.2},
            ])
        );
        let json = to_json(&hot.frequent(start + Duration::from_secs(16)), 1);
        assert_eq!(json["subjects"].as_array().map(Vec::len), Some(1));
        assert_eq!(to_json(&Frequent::default(), 9)["subjects"], json!([]));
    }

    #[test]
    fn subjects_that_take_turns_are_sampled_alike() {
        let start = Instant::now();
        let mut hot = Hot::new(start, 1);
        for n in 0..1_280_000 {
            hot.offer(if n % 64 == 0 { b"a" } else { b"b" }, 0);
        }
        let frequent = hot.frequent(start);
        let count = frequent.counts(b"a").map_or(0, |noted| noted.count);
        assert!(
            (19_000..21_000).contains(&frequent.total),
            "{}",
            frequent.total
        );
        assert!((200..450).contains(&count), "{count}");
    }

    #[test]
    fn long_subjects_are_cut() {
        let start = Instant::now();
        let mut hot = Hot::new(start, 1);
        for end in [b"1", b"2"] {
            hot.note(&[&[b'a'; 4000], &end[..]].concat(), 1);
        }
        let frequent = hot.frequent(start);
        assert_eq!(frequent.ranked().len(), 1);
        let json = to_json(&frequent, 64);
        let subject = json["subjects"][0]["subject"].as_str();
        assert_eq!(subject, Some(&*format!("{}…", "a".repeat(SUBJECT))));
    }

    #[test]
    fn inboxes_are_one_subject() {
        let start = Instant::now();
        let mut hot = Hot::new(start, 1);
        hot.note(b"_INBOX.a.1", 1);
        hot.note(b"_INBOX.b.2", 2);
        let noted = hot.frequent(start).counts(b"_INBOX.>");
        assert_eq!(noted.map(|noted| (noted.count, noted.weight)), Some((2, 3)));
    }
}
