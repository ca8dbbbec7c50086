//! The time of the worst look-up when the tokens and the wildcards of a pattern are limited.
//!
//! `cargo run --release -p subjectbus-router --example worst [TOKENS WILDCARDS]...`
//!
//! The table holds every pattern within the limits that matches one subject of the most tokens. No
//! client can make a look-up dearer by subscribing to anything else.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use subjectbus_router::{InvalidSubject, Matches, Rng, SharedRouter, Work};

const ROUNDS: usize = 100;
const DEFAULT: [usize; 10] = [16, 4, 16, 5, 16, 6, 24, 4, 32, 3];

fn main() -> Result<(), Box<dyn Error>> {
    let args = std::env::args().skip(1).map(|text| text.parse());
    let mut limits = args.collect::<Result<Vec<usize>, _>>()?;
    if limits.is_empty() {
        limits.extend(DEFAULT);
    }
    println!("milliseconds; the subscribers of the third column accept no message");
    println!("tokens  wildcards  patterns  no match  all refuse  all accept");
    for limits in limits.chunks_exact(2) {
        measure(limits[0], limits[1])?;
    }
    Ok(())
}

fn measure(tokens: usize, wildcards: usize) -> Result<(), InvalidSubject> {
    // The shortest tokens, so that most patterns are kept in place.
    let subject: Vec<&str> = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
        .split("")
        .filter(|token| !token.is_empty())
        .take(tokens)
        .collect();
    let router = SharedRouter::new();
    let mut patterns = 0;
    subscribe(&mut subject.clone(), 0, wildcards, &mut |pattern| {
        patterns += 1;
        router.subscribe(pattern.as_bytes(), None, [patterns, 0, 0, 0])?;
        Ok(())
    })?;
    let other: Vec<String> = subject.iter().map(|token| token.to_uppercase()).collect();
    let (subject, other) = (subject.join("."), other.join("."));
    let (none, _) = time(&router, &other, true);
    let (refused, work) = time(&router, &subject, false);
    let (accepted, _) = time(&router, &subject, true);
    assert_eq!((work.lookups, work.members), (2 * patterns, patterns));
    println!("{tokens:6} {wildcards:10} {patterns:9} {none:9.3} {refused:11.3} {accepted:11.3}");
    Ok(())
}

/// Subscribe to every pattern that differs from `tokens` in at most `left` places from `from` on.
fn subscribe(
    tokens: &mut Vec<&str>,
    from: usize,
    left: usize,
    add: &mut impl FnMut(String) -> Result<(), InvalidSubject>,
) -> Result<(), InvalidSubject> {
    if left == 0 {
        return Ok(());
    }
    for at in from..tokens.len() {
        let literal = std::mem::replace(&mut tokens[at], "*");
        add(tokens.join("."))?;
        subscribe(tokens, at + 1, left - 1, add)?;
        tokens[at] = ">";
        add(tokens[..=at].join("."))?;
        tokens[at] = literal;
    }
    Ok(())
}

/// The time of the fastest of many look-ups, and the work that one takes.
fn time(router: &SharedRouter<[u32; 4]>, subject: &str, accept: bool) -> (f64, Work) {
    let (mut matches, mut rng) = (Matches::new(), Rng::with_seed(1));
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        matches.clear();
        let start = Instant::now();
        router.match_into(subject.as_bytes(), &mut matches, &mut rng, |_| accept);
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        black_box(matches.len());
    }
    (best, matches.work())
}
