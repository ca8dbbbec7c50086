//! What random small sequences do not reach: fairness, size, hostile depth, threads.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use subjectbus_router::{
    InvalidSubject, MAX_PATTERN_TOKENS, Matches, Patterns, Rng, SharedRouter, Table, Work,
};

fn plain(router: &SharedRouter<u32>, subject: &[u8]) -> Vec<u32> {
    let mut matches = Matches::new();
    router.match_into(subject, &mut matches, &mut Rng::with_seed(0), |_| true);
    let mut plain = matches.plain().to_vec();
    plain.sort_unstable();
    plain
}

#[test]
fn queue_members_are_chosen_evenly_over_all_patterns() {
    let router = SharedRouter::new();
    let patterns: [(&[u8], u32); 4] = [(b"a.b.c", 20), (b"a.b.*", 3), (b"a.*.c", 1), (b">", 6)];
    let mut members = 0;
    for (pattern, count) in patterns {
        for _ in 0..count {
            router.subscribe(pattern, Some(b"q"), members).unwrap();
            members += 1;
        }
    }
    let draws = 60_000;
    let mut chosen = BTreeMap::new();
    let mut matches = Matches::new();
    let mut rng = Rng::with_seed(42);
    for _ in 0..draws {
        matches.clear();
        router.match_into(b"a.b.c", &mut matches, &mut rng, |_| true);
        assert_eq!(matches.len(), 1);
        let (name, member) = matches.groups().next().unwrap();
        assert_eq!(name, b"q");
        *chosen.entry(member).or_insert(0_u32) += 1;
    }
    let mean = f64::from(draws) / f64::from(members);
    let chi_square: f64 = (0..members)
        .map(|member| f64::from(chosen.get(&member).copied().unwrap_or(0)) - mean)
        .map(|excess| excess * excess / mean)
        .sum();
    // 29 degrees of freedom: 58.3 is exceeded once in a thousand seeds.
    assert!(chi_square < 58.3, "{chi_square}");
}

#[test]
fn a_group_falls_back_to_a_member_that_accepts() {
    let router = SharedRouter::new();
    for member in 0..50 {
        router.subscribe(b"jobs.*", Some(b"q"), member).unwrap();
    }
    router.subscribe(b"jobs.x", Some(b"q"), 50).unwrap();
    let mut matches = Matches::new();
    let mut rng = Rng::with_seed(3);
    for only in [0, 17, 49, 50] {
        for _ in 0..20 {
            matches.clear();
            router.match_into(b"jobs.x", &mut matches, &mut rng, |s| *s == only);
            assert_eq!(matches.receivers().collect::<Vec<_>>(), [only]);
        }
    }
    matches.clear();
    router.match_into(b"jobs.x", &mut matches, &mut rng, |_| false);
    assert!(matches.is_empty());
}

#[test]
fn invalid_patterns_change_nothing() {
    let router = SharedRouter::new();
    let cases: [(&[u8], InvalidSubject); 4] = [
        (b"", InvalidSubject::EmptyToken),
        (b"a..b", InvalidSubject::EmptyToken),
        (b"a b", InvalidSubject::ForbiddenByte(b' ')),
        (b"a.>.b", InvalidSubject::TailNotLast),
    ];
    for (pattern, fault) in cases {
        assert_eq!(router.subscribe(pattern, None, 1), Err(fault));
        assert!(!router.unsubscribe(pattern, None, &1));
    }
    assert!(router.is_empty());
}

#[test]
fn a_pattern_may_have_64_tokens_and_a_tail() {
    let router = SharedRouter::new();
    let pattern = |tokens: usize, last: &str| [vec!["*"; tokens].join("."), last.into()].concat();
    let longest = pattern(MAX_PATTERN_TOKENS, ".>");
    router.subscribe(longest.as_bytes(), None, 1).unwrap();
    let whole = pattern(MAX_PATTERN_TOKENS, "");
    router.subscribe(whole.as_bytes(), None, 2).unwrap();
    let too_long = pattern(MAX_PATTERN_TOKENS + 1, "");
    let refused = router.subscribe(too_long.as_bytes(), None, 3);
    assert_eq!(refused, Err(InvalidSubject::TooManyTokens));
    // A literal subject may have any number.
    let literal = vec!["a"; 2000].join(".");
    router.subscribe(literal.as_bytes(), None, 4).unwrap();
    for (tokens, receivers) in [
        (63, vec![]),
        (64, vec![2]),
        (65, vec![1]),
        (2000, vec![1, 4]),
    ] {
        let subject = vec!["a"; tokens].join(".");
        assert_eq!(
            plain(&router, subject.as_bytes()),
            receivers,
            "{tokens} tokens"
        );
    }
    assert!(router.unsubscribe(longest.as_bytes(), None, &1));
    assert!(router.unsubscribe(whole.as_bytes(), None, &2));
    assert!(router.unsubscribe(literal.as_bytes(), None, &4));
    router.check_invariants();
}

#[test]
fn wildcards_in_a_published_subject_are_literal_text() {
    let router = SharedRouter::new();
    let patterns = ["a.*", "*.*", "*.>", ">", "*.b", "a.b.*", "a.b.>", "*.b.*"];
    for (n, pattern) in (0..).zip(patterns) {
        router.subscribe(pattern.as_bytes(), None, n).unwrap();
    }
    for (subject, receivers) in [
        ("*", vec![3]),
        (">", vec![3]),
        ("a.*", vec![0, 1, 2, 3]),
        ("a.>", vec![0, 1, 2, 3]),
        ("*.b", vec![1, 2, 3, 4]),
        ("*.*", vec![1, 2, 3]),
        ("a.b.*", vec![2, 3, 5, 6, 7]),
        ("a.b.>", vec![2, 3, 5, 6, 7]),
        ("*.b.>", vec![2, 3, 7]),
        ("a.*.c", vec![2, 3]),
    ] {
        assert_eq!(plain(&router, subject.as_bytes()), receivers, "{subject}");
    }
}

/// Work of a look-up, and the number of its receivers.
fn work(router: &SharedRouter<u32>, subject: &str, accept: impl Fn(&u32) -> bool) -> (Work, usize) {
    let mut matches = Matches::new();
    router.match_into(
        subject.as_bytes(),
        &mut matches,
        &mut Rng::with_seed(1),
        accept,
    );
    (matches.work(), matches.len())
}

#[test]
fn the_work_of_a_lookup_is_told() {
    let router = SharedRouter::new();
    for n in 0..100 {
        router.subscribe(b"many", None, n).unwrap();
        router.subscribe(b"queue", Some(b"q"), n).unwrap();
        router
            .subscribe(format!("a.b.{n}.*").as_bytes(), None, n)
            .unwrap();
    }
    let told = |lookups, members| Work { lookups, members };
    assert_eq!(work(&router, "none", |_| true), (told(0, 0), 0));
    assert_eq!(work(&router, "many", |_| true), (told(0, 100), 100));
    assert_eq!(work(&router, "many", |_| false), (told(0, 100), 0));
    assert_eq!(work(&router, "many", |n| n % 2 == 0), (told(0, 100), 50));
    // A group is a look-up, and is asked until one accepts.
    assert_eq!(work(&router, "queue", |_| true), (told(1, 1), 1));
    assert_eq!(work(&router, "queue", |_| false), (told(1, 100), 0));
    // 100 patterns are of one form, and a pattern that is found is another look-up.
    assert_eq!(work(&router, "a.b.7.x", |_| true), (told(2, 1), 1));
    assert_eq!(work(&router, "a.b.x.x", |_| true), (told(1, 0), 0));
    assert_eq!(work(&router, "a.b.x", |_| true), (told(0, 0), 0));
    router.subscribe(b"*.*.*", None, 1).unwrap();
    router.subscribe(b"*.>", None, 2).unwrap();
    router.subscribe(b"*.*", None, 3).unwrap();
    assert_eq!(work(&router, "a.b.7.x", |_| true), (told(4, 2), 2));
    assert_eq!(work(&router, "x.y", |_| true), (told(4, 2), 2));
    assert_eq!(work(&router, "x.y.z", |_| true), (told(4, 2), 2));
    assert_eq!(work(&router, "v.w.x.y.z", |_| true), (told(2, 1), 1));
    assert_eq!(work(&router, "x..z", |_| true), (told(0, 0), 0));
    // The work of several look-ups adds up until the list is cleared.
    let (mut matches, mut rng) = (Matches::new(), Rng::with_seed(1));
    router.match_into(b"many", &mut matches, &mut rng, |n| *n < 10);
    router.match_into(b"x.y", &mut matches, &mut rng, |_| true);
    assert_eq!(matches.work(), told(4, 102));
    matches.clear();
    assert_eq!(matches.work(), Work::default());
}

#[test]
fn a_short_subject_costs_little_whatever_is_subscribed_to() {
    let router = SharedRouter::new();
    // Every way of taking a star or an `a` in eight to twelve tokens.
    for tokens in 8..=12 {
        for choice in 1..1_u32 << tokens {
            let pattern: Vec<&str> = (0..tokens)
                .map(|bit| if choice >> bit & 1 == 1 { "*" } else { "a" })
                .collect();
            router
                .subscribe(pattern.join(".").as_bytes(), None, choice)
                .unwrap();
        }
    }
    for n in 0..10_000 {
        router
            .subscribe(format!("*.{n}.>").as_bytes(), None, n)
            .unwrap();
    }
    router.check_invariants();
    let lookups = |subject: &str| work(&router, subject, |_| true).0.lookups;
    assert_eq!(lookups("a.b.c.d"), 1);
    assert_eq!(lookups("a.a.a.a.a.a.a"), 1);
    // 255 patterns of this length, and one with a tail that is not found.
    assert_eq!(lookups("a.a.a.a.a.a.a.a"), 255 + 255 + 1);
    assert!(lookups("b.b.b.b.b.b.b.b") < 255 + 1 + 1);
    assert_eq!(lookups(&["a"; 12].join(".")), 4095 + 4095 + 1);
    assert_eq!(lookups(&["a"; 13].join(".")), 1);
}

#[test]
fn large_tables_stay_consistent_while_they_empty() {
    let mut table = Table::new();
    let mut patterns = Patterns::new();
    let subject = |n: u32| format!("/c/{n}").into_bytes();
    let inbox = |n: u32| format!("_INBOX.{n:022}.*").into_bytes();
    for n in 0..20_000 {
        assert!(table.insert(&subject(n), None, n));
        assert!(patterns.insert(&inbox(n), None, n));
    }
    table.check_invariants();
    patterns.check_invariants();
    assert_eq!(patterns.patterns(), 20_000);
    for n in (0..20_000).filter(|n| n % 3 != 0) {
        assert!(table.remove(&subject(n), None, &n));
        assert!(patterns.remove(&inbox(n), None, &n));
    }
    table.check_invariants();
    patterns.check_invariants();
    let mut matches = Matches::new();
    for n in 0..20_000 {
        matches.clear();
        table.match_into(&subject(n), &mut matches, &mut Rng::with_seed(0), |_| true);
        let answer = format!("_INBOX.{n:022}.1");
        patterns.match_into(
            answer.as_bytes(),
            &mut matches,
            &mut Rng::with_seed(0),
            |_| true,
        );
        assert_eq!(
            matches.plain(),
            if n % 3 == 0 { vec![n, n] } else { vec![] }
        );
    }
    for n in (0..20_000).step_by(3) {
        assert!(table.remove(&subject(n), None, &n));
        assert!(patterns.remove(&inbox(n), None, &n));
    }
    assert!(table.is_empty() && patterns.is_empty());
    assert_eq!(patterns.patterns(), 0);
    table.check_invariants();
    patterns.check_invariants();
    assert!(patterns.insert(b"a.*", None, 1) && table.insert(b"a", None, 1));
}

#[test]
fn partitions_share_the_load() {
    let router = SharedRouter::new();
    for n in 0..5_000 {
        router
            .subscribe(format!("/c/{n}").as_bytes(), None, n)
            .unwrap();
        router
            .subscribe(format!("_INBOX.{n}.*").as_bytes(), None, n)
            .unwrap();
        router
            .subscribe(format!("*.{n}").as_bytes(), None, n)
            .unwrap();
    }
    router.subscribe(b"_INBOX.>", None, 7_000).unwrap();
    assert_eq!(router.len(), 15_001);
    router.check_invariants();
    let extent = router.extent();
    assert_eq!((extent.subscriptions, extent.subjects), (15_001, 15_001));
    assert!(
        (40 * 15_001..200 * 15_001).contains(&extent.bytes),
        "{extent:?}"
    );
    for n in 0..5_000 {
        assert_eq!(plain(&router, format!("/c/{n}").as_bytes()), [n]);
        assert_eq!(
            plain(&router, format!("_INBOX.{n}.x").as_bytes()),
            [n, 7_000]
        );
        assert_eq!(plain(&router, format!("x.{n}").as_bytes()), [n]);
    }
}

#[test]
fn lookups_see_stable_subscriptions_while_others_come_and_go() {
    const STABLE: u32 = u32::MAX;
    const ROUNDS: u32 = 3_000;
    let patterns: [&[u8]; 4] = [b"a.b.c", b"a.b.*", b"a.*.c", b">"];
    let router = SharedRouter::new();
    for pattern in patterns {
        router.subscribe(pattern, None, STABLE).unwrap();
        router.subscribe(pattern, Some(b"q"), STABLE).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            let (router, done) = (&router, &done);
            scope.spawn(move || {
                let mut matches = Matches::new();
                let mut rng = Rng::with_seed(seed);
                let mut lookups = 0_u32;
                while !done.load(Ordering::Relaxed) || lookups == 0 {
                    matches.clear();
                    router.match_into(b"a.b.c", &mut matches, &mut rng, |_| true);
                    let stable = matches.plain().iter().filter(|s| **s == STABLE).count();
                    assert_eq!(stable, 4);
                    assert_eq!(
                        matches.groups().filter(|(name, _)| *name == b"q").count(),
                        1
                    );
                    lookups += 1;
                }
                lookups
            })
        });
        let writers = [0, 1].map(|writer| {
            let router = &router;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let s = round * 2 + writer;
                    let pattern = patterns[round as usize % patterns.len()];
                    let own = format!("a.b.{s}.*");
                    assert_eq!(router.subscribe(pattern, None, s), Ok(true));
                    assert_eq!(router.subscribe(pattern, Some(b"q"), s), Ok(true));
                    assert_eq!(router.subscribe(own.as_bytes(), None, s), Ok(true));
                    assert!(plain(router, format!("a.b.{s}.x").as_bytes()).contains(&s));
                    assert!(router.unsubscribe(own.as_bytes(), None, &s));
                    assert!(router.unsubscribe(pattern, Some(b"q"), &s));
                    assert!(router.unsubscribe(pattern, None, &s));
                }
            })
        });
        let written = writers.map(|writer| writer.join());
        done.store(true, Ordering::Relaxed);
        assert!(written.iter().all(Result::is_ok));
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    assert_eq!(router.len(), 8);
    router.check_invariants();
}
