//! In steady state no look-up costs an allocation, whichever parts of the table it visits.

use std::hint::black_box;

use allocation_counter::measure;
use subjectbus_router::{Matches, Rng, SharedRouter};

const LOOKUPS: usize = 1000;

/// A table with subscriptions of every kind.
fn table() -> SharedRouter<u32> {
    let router = SharedRouter::new();
    let subscribe = |pattern: &str, queue: Option<&[u8]>, n| {
        assert_eq!(
            router.subscribe(pattern.as_bytes(), queue, n),
            Ok(true),
            "{pattern}"
        );
    };
    for n in 0..LOOKUPS as u32 {
        subscribe(&format!("a.{n}"), None, n);
        subscribe(&format!("_INBOX.{n}.*"), None, n);
    }
    for n in 0..100 {
        subscribe("jobs.new", Some(b"workers"), n);
        subscribe("jobs.*", Some(b"auditors"), n);
        subscribe("a.*", None, n);
    }
    router
}

/// Looks up [`LOOKUPS`] subjects twice: buffers grow the first time only. Each subject must have
/// `receivers`.
fn check(subject: impl Fn(usize) -> String, receivers: usize) {
    let router = table();
    let subjects: Vec<String> = (0..LOOKUPS).map(subject).collect();
    let (mut matches, mut rng) = (Matches::new(), Rng::with_seed(1));
    let mut look_up_all = || {
        let mut found = 0;
        for subject in &subjects {
            matches.clear();
            router.match_into(subject.as_bytes(), &mut matches, &mut rng, |_| true);
            found += matches.receivers().map(black_box).count();
        }
        found
    };
    assert_eq!(look_up_all(), LOOKUPS * receivers);
    let mut found = 0;
    let allocations = measure(|| found = look_up_all());
    assert_eq!(found, LOOKUPS * receivers);
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
}

#[test]
fn the_counter_counts() {
    let allocations = measure(|| drop(black_box(vec![0_u8; 100])));
    assert_eq!((allocations.count_total, allocations.bytes_total), (1, 100));
}

#[test]
fn literals_and_a_wildcard_with_many_subscribers() {
    check(|n| format!("a.{n}"), 101);
}

#[test]
fn inboxes() {
    check(|n| format!("_INBOX.{n}.7"), 1);
}

#[test]
fn queue_groups() {
    check(|_| "jobs.new".to_owned(), 2);
}

#[test]
fn nobody() {
    check(|n| format!("b.{n}"), 0);
}
