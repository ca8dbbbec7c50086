//! Instruction counts of look-ups, compared with the record by `make instructions`.
//!
//! Each benchmark looks up [`LOOKUPS`] subjects, so that the random hash seed and what surrounds
//! the code under test hardly count, and its teardown checks how many receivers that found.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "what the macros of the harness make"
)]

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use subjectbus_router::{Matches, Rng, SharedRouter};

const LITERALS: usize = 100_000;
const WILDCARDS: usize = 10_000;
const LOOKUPS: usize = 1000;
const MEMBERS: u32 = 16;

/// Of the size of the broker's.
type Subscriber = [u32; 4];

/// A routing table, the subjects to look up, and what a caller keeps between messages.
struct Lookups {
    router: SharedRouter<Subscriber>,
    subjects: Vec<String>,
    matches: Matches<Subscriber>,
    rng: Rng,
}

impl Lookups {
    fn new(subject: fn(usize) -> String) -> Self {
        Self {
            router: SharedRouter::new(),
            // Spread over the whole table.
            subjects: (0..LOOKUPS).map(|n| subject(n * 7919)).collect(),
            matches: Matches::new(),
            rng: Rng::with_seed(42),
        }
    }

    fn subscribe(&self, pattern: &str, queue: Option<&[u8]>, n: usize) {
        let subscriber = [0, n as u32, 0, 0];
        let added = self.router.subscribe(pattern.as_bytes(), queue, subscriber);
        assert_eq!(added, Ok(true), "{pattern}");
    }

    /// Looks every subject up; the number of receivers.
    #[inline]
    fn run(&mut self) -> usize {
        let mut receivers = 0;
        for subject in &self.subjects {
            let (matches, rng) = (&mut self.matches, &mut self.rng);
            matches.clear();
            self.router
                .match_into(subject.as_bytes(), matches, rng, |to| to[0] == 0);
            receivers += matches.receivers().map(black_box).count();
        }
        receivers
    }

    /// Lets the buffers grow before anything is counted.
    fn warmed(mut self) -> Self {
        self.run();
        self
    }
}

fn literal(n: usize) -> String {
    format!("autocomplete.v1.{}", n % LITERALS)
}

fn absent(n: usize) -> String {
    format!("autocomplete.v2.{n}")
}

/// The subject of a reply; 22 bytes of it are as random as its client makes them.
fn reply(n: usize) -> String {
    let n = (n % WILDCARDS) as u64;
    let unique = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("_INBOX.{unique:022}.7")
}

fn event(n: usize) -> String {
    format!("events.eu.{}", n % WILDCARDS)
}

fn inbox_pattern(n: usize) -> String {
    let reply = reply(n);
    format!("{}*", reply.trim_end_matches('7'))
}

fn event_pattern(n: usize) -> String {
    format!("events.*.{n}")
}

fn with_literals(subject: fn(usize) -> String) -> Lookups {
    let lookups = Lookups::new(subject);
    (0..LITERALS).for_each(|n| lookups.subscribe(&literal(n), None, n));
    lookups.warmed()
}

fn with_wildcards(pattern: fn(usize) -> String, subject: fn(usize) -> String) -> Lookups {
    let lookups = Lookups::new(subject);
    (0..WILDCARDS).for_each(|n| lookups.subscribe(&pattern(n), None, n));
    lookups.warmed()
}

/// Subscriptions of every kind, so that each part of the table is visited.
fn with_all(subject: fn(usize) -> String) -> Lookups {
    let lookups = with_literals(subject);
    (0..WILDCARDS).for_each(|n| lookups.subscribe(&inbox_pattern(n), None, n));
    (0..WILDCARDS).for_each(|n| lookups.subscribe(&event_pattern(n), None, n));
    lookups.warmed()
}

/// As many forms of patterns as eight tokens allow. Lookups of one subject alone, or in a table more than half full,
/// would make the count a matter of the hash seed.
fn with_forms() -> Lookups {
    let lookups = Lookups::new(|n| format!("b.b.a.a.a.a.a.a.a.a.{n:03}"));
    for stars in 0..1_usize << 8 {
        let token = |at: u32| if stars >> at & 1 == 1 { "*." } else { "a." };
        let tokens: String = (0..8).map(token).collect();
        lookups.subscribe(&format!("b.b.{tokens}x"), None, stars);
    }
    lookups.warmed()
}

fn with_queue_group() -> Lookups {
    let lookups = Lookups::new(|_| literal(0));
    (0..MEMBERS).for_each(|n| lookups.subscribe(&literal(0), Some(b"providers"), n as usize));
    lookups.warmed()
}

/// The table comes back with the number, so that it is freed outside of what is counted.
type Found = (usize, Lookups);

fn one_each((receivers, _): Found) {
    assert_eq!(receivers, LOOKUPS);
}

fn none((receivers, _): Found) {
    assert_eq!(receivers, 0);
}

#[library_benchmark(teardown = one_each)]
#[bench::literal(args = (literal), setup = with_literals)]
#[bench::literal_beside_wildcards(args = (literal), setup = with_all)]
#[bench::inbox(args = (inbox_pattern, reply), setup = with_wildcards)]
#[bench::star_in_the_middle(args = (event_pattern, event), setup = with_wildcards)]
#[bench::queue_group(setup = with_queue_group)]
fn lookup(mut lookups: Lookups) -> Found {
    (lookups.run(), lookups)
}

#[library_benchmark(teardown = none)]
#[bench::among_literals(args = (absent), setup = with_literals)]
#[bench::among_all(args = (absent), setup = with_all)]
#[bench::among_forms(setup = with_forms)]
fn no_match(mut lookups: Lookups) -> Found {
    (lookups.run(), lookups)
}

library_benchmark_group!(name = router; benchmarks = lookup, no_match);

main!(library_benchmark_groups = router);
