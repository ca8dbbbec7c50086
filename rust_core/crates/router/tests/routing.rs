//! What random small sequences do not reach: fairness, size, hostile depth, threads.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use subjectbus_router::{InvalidSubject, Matches, Rng, SharedRouter, Table, Trie};

fn plain(router: &SharedRouter<u32>, subject: &[u8]) -> Vec<u32> {
    let mut matches = Matches::new();
    router.match_into(subject, &mut matches, &mut Rng::new(0), |_| true);
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
    let mut rng = Rng::new(42);
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
    let mut rng = Rng::new(3);
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
    assert!(router.has_interest(b"jobs.x"));
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
fn thousands_of_tokens_neither_overflow_nor_explode() {
    let mut trie = Trie::new();
    let deep = |token: &str| [token; 2000].join(".") + ".>";
    let stars = deep("*");
    let letters = deep("a");
    trie.insert(stars.as_bytes(), None, 1);
    trie.insert(letters.as_bytes(), None, 2);
    // Every way of taking a star or an `a` in the first twelve tokens.
    for choice in 0..4096_u32 {
        let tokens: Vec<&str> = (0..12)
            .map(|bit| if choice >> bit & 1 == 0 { "*" } else { "a" })
            .collect();
        trie.insert(
            format!("{}.>", tokens.join(".")).as_bytes(),
            None,
            10 + choice,
        );
    }
    let mut matches = Matches::new();
    let subject = ["a"; 2048].join(".");
    trie.match_into(subject.as_bytes(), &mut matches, &mut Rng::new(0), |_| true);
    assert_eq!(matches.len(), 4098);
    trie.check_invariants();
    assert!(trie.remove(stars.as_bytes(), None, &1));
    assert!(trie.remove(letters.as_bytes(), None, &2));
    assert!(trie.node_count() < 10_000);
    trie.check_invariants();
}

#[test]
fn large_tables_stay_consistent_while_they_empty() {
    let mut table = Table::new();
    let mut trie = Trie::new();
    let subject = |n: u32| format!("/c/{n}").into_bytes();
    let inbox = |n: u32| format!("_INBOX.{n:022}.*").into_bytes();
    for n in 0..20_000 {
        assert!(table.insert(&subject(n), None, n));
        assert!(trie.insert(&inbox(n), None, n));
    }
    table.check_invariants();
    trie.check_invariants();
    assert_eq!(trie.node_count(), 20_002);
    for n in (0..20_000).filter(|n| n % 3 != 0) {
        assert!(table.remove(&subject(n), None, &n));
        assert!(trie.remove(&inbox(n), None, &n));
    }
    table.check_invariants();
    trie.check_invariants();
    let mut matches = Matches::new();
    for n in 0..20_000 {
        matches.clear();
        table.match_into(&subject(n), &mut matches, &mut Rng::new(0), |_| true);
        let answer = format!("_INBOX.{n:022}.1");
        trie.match_into(answer.as_bytes(), &mut matches, &mut Rng::new(0), |_| true);
        assert_eq!(
            matches.plain(),
            if n % 3 == 0 { vec![n, n] } else { vec![] }
        );
    }
    for n in (0..20_000).step_by(3) {
        assert!(table.remove(&subject(n), None, &n));
        assert!(trie.remove(&inbox(n), None, &n));
    }
    assert!(table.is_empty() && trie.is_empty());
    assert_eq!(trie.node_count(), 1);
    table.check_invariants();
    trie.check_invariants();
    assert!(trie.insert(b"a.*", None, 1) && table.insert(b"a", None, 1));
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
                let mut rng = Rng::new(seed);
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
