//! Memory and time of the routing table with a million subscriptions of each common kind.
//!
//! `cargo run --release -p subjectbus-router --example million [COUNT]`

#![allow(clippy::print_stdout)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};
use subjectbus_router::{InvalidSubject, Matches, Rng, SharedRouter};

/// The size of the broker's subscriber handle.
type Subscriber = [u32; 4];

/// How to write the n-th pattern and a subject that matches it.
struct Workload {
    name: &'static str,
    pattern: fn(u64) -> String,
    subject: fn(u64) -> String,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "/c/N",
        pattern: |n| format!("/c/{n}"),
        subject: |n| format!("/c/{n}"),
    },
    Workload {
        name: "_INBOX.<22 bytes>.*",
        pattern: |n| format!("_INBOX.{}.*", inbox(n)),
        subject: |n| format!("_INBOX.{}.7", inbox(n)),
    },
    Workload {
        name: "*.N (one lock)",
        pattern: |n| format!("*.{n}"),
        subject: |n| format!("x.{n}"),
    },
    Workload {
        name: "all on one subject",
        pattern: |_| "news".to_owned(),
        subject: |_| "nobody".to_owned(),
    },
];

/// 22 bytes that look random, as the clients make them.
fn inbox(n: u64) -> String {
    format!(
        "{:022}",
        u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * 541
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count = args.next().map_or(Ok(1_000_000), |count| count.parse())?;
    if let Some(only) = args.next() {
        let workload = WORKLOADS.iter().find(|workload| workload.name == only);
        measure(workload.ok_or("no such pattern")?, count)?;
        return Ok(());
    }
    println!(
        "{count} subscriptions each; resident bytes per subscription; ns per call: mean (p99.9)"
    );
    println!(
        "{:20} {:>5} {:>13} {:>13} {:>13} {:>7}",
        "pattern", "bytes", "subscribe", "match", "unsubscribe", "after"
    );
    // Each in a process of its own: memory once resident would hide the next one's need.
    for workload in &WORKLOADS {
        Command::new(std::env::current_exe()?)
            .args([&count.to_string(), workload.name])
            .status()?;
    }
    Ok(())
}

fn measure(workload: &Workload, count: u64) -> Result<(), InvalidSubject> {
    // Visited in random order, as connections come and go.
    let mut order: Vec<u64> = (0..count).collect();
    let mut rng = Rng::with_seed(1);
    for at in (1..order.len()).rev() {
        order.swap(at, rng.usize(..=at));
    }
    let router = SharedRouter::new();
    let before = resident();
    let mut result = Ok(true);
    let subscribe = time(&order, workload.pattern, |n, pattern| {
        let subscribed = router.subscribe(pattern, None, subscriber(n));
        result = result.and(subscribed);
    });
    result?;
    let full = resident();
    assert_eq!(router.len() as u64, count);
    order.reverse();
    let mut matches = Matches::new();
    let lookup = time(&order, workload.subject, |_, subject| {
        matches.clear();
        router.match_into(subject, &mut matches, &mut rng, |_| true);
        black_box(matches.len());
    });
    let unsubscribe = time(&order, workload.pattern, |n, pattern| {
        assert!(router.unsubscribe(pattern, None, &subscriber(n)));
    });
    let per = |now: u64| now.saturating_sub(before) as f64 / count as f64;
    println!(
        "{:20} {:5.1} {subscribe:>13} {lookup:>13} {unsubscribe:>13} {:7.1}",
        workload.name,
        per(full),
        per(resident())
    );
    Ok(())
}

fn subscriber(n: u64) -> Subscriber {
    [1, n as u32, 0, 0]
}

/// Calls `call` for every number and its text. Even batches are timed as a whole, for the mean;
/// in the odd ones each call is timed, for the 99.9th percentile.
fn time(order: &[u64], text: fn(u64) -> String, mut call: impl FnMut(u64, &[u8])) -> String {
    let mut total = Duration::ZERO;
    let mut calls = 0;
    let mut longest = BinaryHeap::new();
    let kept = order.len().div_ceil(2000);
    for (at, batch) in order.chunks(1000).enumerate() {
        let batch: Vec<(u64, String)> = batch.iter().map(|&n| (n, text(n))).collect();
        let mut last = Instant::now();
        if at % 2 == 0 {
            for (n, text) in &batch {
                call(*n, text.as_bytes());
            }
            total += last.elapsed();
            calls += batch.len();
            continue;
        }
        for (n, text) in &batch {
            call(*n, text.as_bytes());
            let now = Instant::now();
            longest.push(Reverse(now - last));
            if longest.len() > kept {
                longest.pop();
            }
            last = Instant::now();
        }
    }
    let mean = total.as_nanos() as f64 / calls as f64;
    let p999 = longest.peek().map_or(0, |Reverse(time)| time.as_nanos());
    format!("{mean:.0} ({p999})")
}

/// Resident memory of the process in bytes; 0 where /proc is missing.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    pages.and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}
