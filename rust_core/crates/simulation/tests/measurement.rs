//! The measurement itself: latencies of known size, and those of queueing theory. Virtual time adds
//! nothing to them, so the expected values follow from the model alone, and are met exactly.
#![allow(clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::{Value, json};
use subjectbus_simulation::load::Stage;
use subjectbus_simulation::results::{LatencySummary, Provided, Requested};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// Time within which requests and replies that are due leave together, since the thread's last
/// turn.
const PACING: u64 = MS / 10;
/// Longest time that a histogram distinguishes.
const HIGHEST: u64 = 3600 * SECOND;

// Providers that stall: replies to requests in the first second of every ten leave 50 ms later.

const DELAY: u64 = 50 * MS;
const STALL: u64 = SECOND;
const EVERY: u64 = 10 * SECOND;
/// Length of the warm-up, which contains the whole first stall.
const WARMUP: u64 = 1500 * MS;
const DURATION: u64 = 10 * SECOND;

fn stalling() -> Value {
    json!({"transport": "ws", "providers": 4, "delay_s": 0.05, "delay_for_s": 1, "delay_every_s": 10})
}

/// One request; times are nanoseconds from the start of the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    due: u64,
    sent: u64,
    ended: u64,
}

impl Request {
    fn latency(&self) -> u64 {
        self.ended - self.due
    }

    fn service(&self) -> u64 {
        self.ended - self.sent
    }
}

/// Return the planned times of `rate` requests a second at equal distances until `end`.
fn plan(rate: f64, end: u64) -> impl Iterator<Item = u64> {
    let due = move |number: u32| (f64::from(number) * 1e9 / rate).round() as u64;
    (0..).map(due).take_while(move |due| *due < end)
}

fn stalled(sent: u64) -> u64 {
    if sent % EVERY < STALL { DELAY } else { 0 }
}

/// Return the requests of a plan, each sent by the first of `users` that is free.
fn users_who_wait(users: usize, due: impl Iterator<Item = u64>) -> Vec<Request> {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..users).map(|_| Reverse(0)).collect();
    let request = |due: u64| {
        let Reverse(free) = free_at.pop().unwrap();
        let sent = due.max(free);
        let ended = sent + stalled(sent);
        free_at.push(Reverse(ended));
        Request { due, sent, ended }
    };
    due.map(request).collect()
}

/// Return the requests of a plan, served in order by one server that takes `service` for each.
fn one_server(service: u64, due: impl Iterator<Item = u64>) -> Vec<Request> {
    let mut free = 0;
    let request = |due: u64| {
        free = due.max(free) + service;
        Request {
            due,
            sent: due,
            ended: free,
        }
    };
    due.map(request).collect()
}

fn histogram(values: impl Iterator<Item = u64>) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, HIGHEST, 3).unwrap();
    values.for_each(|value| histogram.saturating_record(value));
    histogram
}

fn decode(text: &str) -> Histogram<u64> {
    let bytes = STANDARD.decode(text).unwrap();
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .unwrap()
}

/// Check exact sums and the histogram of `found` against `values`.
fn check_summary(found: &LatencySummary, values: impl Iterator<Item = u64>) {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let sum = |power| {
        values
            .iter()
            .map(|value| u128::from(*value).pow(power))
            .sum()
    };
    let exact = (values.len() as u64, sum(1), sum(2));
    assert_eq!((found.count, found.sum_ns, found.sum_sq_ns2), exact);
    let (lowest, highest) = (values[0], values[values.len() - 1]);
    assert_eq!((found.min_ns, found.max_ns), (lowest, highest));
    let counted = decode(&found.hdr);
    // Histograms are too long to be printed.
    assert!(
        counted == histogram(values.iter().copied()),
        "{}",
        counted.len()
    );
    for percentile in [1.0, 25.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0] {
        let rank = (percentile / 100.0 * values.len() as f64).ceil() as usize;
        let value = values[rank.clamp(1, values.len()) - 1];
        let reported = counted.value_at_percentile(percentile);
        assert!(
            counted.equivalent(reported, value),
            "p{percentile}: {reported}, {value}"
        );
    }
}

/// Check a requestor's results of the measured phase against the outcome of its requests.
fn check(found: &Requested, requests: &[Request], warmup: u64, duration: u64) {
    found.check_clean().unwrap();
    let measured = || requests.iter().filter(|request| request.due >= warmup);
    let count = measured().count() as u64;
    assert_eq!((found.counts.sent, found.counts.received), (count, count));
    assert_eq!(found.warmup.received, requests.len() as u64 - count);
    check_summary(&found.latency, measured().map(Request::latency));
    check_summary(&found.service, measured().map(Request::service));
    let lag = |request: &Request| request.sent - request.due;
    assert_eq!(found.max_send_lag_ns, measured().map(lag).max().unwrap());
    let last_sent = measured().map(|request| request.sent).max().unwrap();
    let length = duration.max(last_sent - warmup);
    assert_eq!(found.duration_s, length as f64 / 1e9);
    for (index, second) in found.intervals.iter().enumerate() {
        let begin = warmup + index as u64 * SECOND;
        let within = begin..begin + SECOND;
        assert_eq!(second.start_s, index as f64);
        let sent = || measured().filter(|request| within.contains(&request.sent));
        assert_eq!(second.sent, sent().count() as u64);
        assert_eq!(second.max_send_lag_ns, sent().map(lag).max().unwrap_or(0));
        let ended = measured().filter(|request| within.contains(&request.ended));
        let (found, expected) = (decode(&second.hdr), histogram(ended.map(Request::latency)));
        assert!(
            found == expected,
            "second {index}: {}, {}",
            found.len(),
            expected.len()
        );
    }
    let total = |count: fn(&subjectbus_simulation::results::Interval) -> u64| {
        found.intervals.iter().map(count).sum::<u64>()
    };
    assert_eq!((total(|s| s.sent), total(|s| s.received)), (count, count));
}

fn check_provided(found: &Provided, requests: &[Request]) {
    let answered = requests.len() as u64;
    assert_eq!(
        (found.received, found.sent, found.dropped),
        (answered, answered, 0)
    );
    assert_eq!(
        (found.unanswerable, found.misrouted, found.corrupt),
        (0, 0, 0)
    );
}

const USERS: u64 = 10;
const RATE: f64 = 400.0;

#[test]
fn the_model_is_what_can_be_worked_out_by_hand() {
    // In the stall 10 users send a generation of 10 requests every 50 ms, and 20 requests are due
    // in that time: generation g is due from 25 g ms on, and sent from 50 g ms on.
    let requests = users_who_wait(USERS as usize, plan(RATE, WARMUP + DURATION));
    let measured: Vec<_> = requests.iter().filter(|one| one.due >= WARMUP).collect();
    let generations = STALL / DELAY;
    let in_stall = (USERS * generations) as usize;
    let are_stalled = measured.iter().filter(|one| one.service() == DELAY);
    assert_eq!((are_stalled.count(), in_stall), (200, 200));
    let gap = (1e9 / RATE) as u64;
    let wait = DELAY - USERS * gap;
    let in_stall = (0..generations).flat_map(|g| (0..USERS).map(move |_| DELAY + wait * g));
    // The other half of the due requests waits until the stall is over, and then takes no time. The
    // users become free one after the other within the last generation.
    let after = (USERS * generations..2 * USERS * generations).map(|k| STALL - k * gap);
    let mut expected: Vec<u64> = in_stall.chain(after).collect();
    expected.sort_unstable_by_key(|one| Reverse(*one));
    let mut found: Vec<u64> = measured.iter().map(|one| one.latency()).collect();
    found.sort_unstable_by_key(|one| Reverse(*one));
    assert_eq!((expected[0], found[0]), (525 * MS, 525 * MS));
    for (found, expected) in found.iter().zip(&expected) {
        assert!(
            found.abs_diff(*expected) <= USERS * gap,
            "{found} {expected}"
        );
    }
}

#[test]
fn users_who_wait_for_their_replies() {
    let requests = users_who_wait(USERS as usize, plan(RATE, WARMUP + DURATION));
    for (shards, seed) in [(1, 1), (2, 2), (3, 3)] {
        let mut stage = Stage::exact(shards, seed).unwrap();
        let users = json!({"transport": "rest", "users": USERS, "rate": RATE, "providers": 4,
            "warmup_s": 1.5, "duration_s": 10, "timeout_s": 20, "seed": seed});
        let (requested, provided) = stage.exchange(&users, &stalling()).unwrap();
        check(&requested, &requests, WARMUP, DURATION);
        check_provided(&provided, &requests);
        // Requests queue at the users: service time shows the stall alone, latency the wait of
        // users, too.
        assert_eq!(
            (requested.latency.max_ns, requested.service.max_ns),
            (525 * MS, DELAY)
        );
        // Requests are sent late in the second of the stall and the next one, and in no other.
        let late = requested
            .intervals
            .iter()
            .map(|second| second.max_send_lag_ns > 0);
        let late: Vec<usize> = late
            .enumerate()
            .filter_map(|(n, is)| is.then_some(n))
            .collect();
        assert_eq!(late, [8, 9]);
    }
}

#[test]
fn users_who_do_not_wait_for_their_replies() {
    let rate = 500.0;
    let request = |due| Request {
        due,
        sent: due,
        ended: due + stalled(due),
    };
    let requests: Vec<_> = plan(rate, WARMUP + DURATION).map(request).collect();
    for (transport, threads, shards) in [("ws", 1, 1), ("tcp", 2, 2), ("ws", 3, 3)] {
        let mut stage = Stage::exact(shards, 7).unwrap();
        let users = json!({"transport": transport, "users": 48, "rate": rate, "threads": threads,
            "providers": 4, "warmup_s": 1.5, "duration_s": 10, "timeout_s": 20});
        let mut providers = stalling();
        providers["threads"] = threads.into();
        let (requested, provided) = stage.exchange(&users, &providers).unwrap();
        check(&requested, &requests, WARMUP, DURATION);
        check_provided(&provided, &requests);
        // No request waits for another: a tenth is 50 ms late, by both times, and nothing else.
        let late = (rate * STALL as f64 / 1e9) as u64;
        for found in [&requested.latency, &requested.service] {
            let counted = decode(&found.hdr);
            assert_eq!(counted.count_between(DELAY, DELAY), late);
            assert_eq!(counted.count_between(0, 0), found.count - late);
            assert_eq!(found.sum_ns, u128::from(late * DELAY));
        }
    }
}

// Providers with a limited rate, which answer requests one after the other.

const CAPACITY: f64 = 200.0;
const SERVICE: u64 = 5 * MS;

#[test]
fn providers_that_are_asked_for_more_than_they_can_answer() {
    // At one and a half times the rate, a request due t after the start waits for t / 2.
    let (rate, duration) = (1.5 * CAPACITY, 3 * SECOND);
    let requests = one_server(SERVICE, plan(rate, duration));
    let mut stage = Stage::exact(2, 1).unwrap();
    let users = json!({"transport": "ws", "users": 50, "rate": rate, "providers": 4, "duration_s": 3,
        "timeout_s": 20});
    let providers = json!({"transport": "tcp", "providers": 4, "threads": 2, "rate": CAPACITY});
    let (requested, provided) = stage.exchange(&users, &providers).unwrap();
    check(&requested, &requests, 0, duration);
    check_provided(&provided, &requests);
    // The providers are never idle, and answer the rest in the drain.
    let seconds = requested.intervals.iter().map(|second| second.received);
    assert_eq!(seconds.collect::<Vec<_>>(), [199, 200, 200, 200, 101]);
    let counted = decode(&requested.latency.hdr);
    for share in [0.5, 0.9, 1.0] {
        let wait = share * duration as f64 * (rate / CAPACITY - 1.0);
        let found = counted.value_at_quantile(share) as f64;
        assert!(
            (found - wait).abs() <= SERVICE as f64 + 1e-3 * wait,
            "{found} {wait}"
        );
    }
    // The providers are slow, not the sending.
    assert_eq!(requested.max_send_lag_ns, 0);
    assert_eq!(requested.latency, requested.service);
}

/// Return the probability that a request waits no longer than `t` for the server of an M/D/1 queue
/// (Erlang 1909). `load` is the share of time in which the server is busy. Times are in units of
/// its service time.
fn waits_at_most(t: f64, load: f64) -> f64 {
    let mut sum = 0.0;
    let mut factorial = 1.0;
    for k in 0..=t as u32 {
        let x = load * (f64::from(k) - t);
        factorial *= f64::from(k.max(1));
        sum += x.powi(k as i32) / factorial * (-x).exp();
    }
    (1.0 - load) * sum
}

#[test]
fn providers_that_could_answer_more() {
    // Poisson arrivals at half of the providers' rate: an M/D/1 queue with the load 1/2.
    let (load, duration_s) = (0.5, 400);
    let mut stage = Stage::exact(1, 1).unwrap();
    let users = json!({"transport": "tcp", "users": 20, "rate": load * CAPACITY, "arrivals": "poisson",
        "seed": 42, "providers": 2, "duration_s": duration_s});
    let providers = json!({"transport": "tcp", "providers": 2, "rate": CAPACITY});
    let (requested, _) = stage.exchange(&users, &providers).unwrap();
    requested.check_clean().unwrap();
    let latency = &requested.latency;
    let count = latency.count as f64;
    // Counts of Poisson arrivals deviate by their root; four deviations are allowed here and below.
    let expected = load * CAPACITY * f64::from(duration_s);
    assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{count}");
    // Pollaczek and Khinchine: the mean wait is 2.5 ms, and waits deviate by 3.8 ms. About three
    // consecutive waits are correlated. Each may be late by two paces, and is never early.
    let service_s = SERVICE as f64 / 1e9;
    let wait_s = load / (2.0 * (1.0 - load)) * service_s;
    let variance = wait_s.powi(2) + load * service_s.powi(2) / (3.0 * (1.0 - load));
    assert!((wait_s - 0.0025).abs() < 1e-9 && (variance.sqrt() - 0.0038).abs() < 1e-4);
    let error_s = 4.0 * (3.0 * variance / count).sqrt();
    let mean_s = latency.sum_ns as f64 / count / 1e9 - service_s;
    let late_s = 2.0 * PACING as f64 / 1e9;
    assert!(latency.min_ns >= SERVICE && error_s < wait_s / 10.0);
    assert!(
        (wait_s - error_s..wait_s + error_s + late_s).contains(&mean_s),
        "{mean_s}"
    );
    // The whole distribution of the wait is Erlang's.
    let counted = decode(&latency.hdr);
    for wait in [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0] {
        let upto = |ns: u64| counted.count_between(0, ns) as f64 / count;
        let time = SERVICE + (wait * service_s * 1e9) as u64;
        // Buckets are a thousandth wide.
        let least = waits_at_most(wait, load);
        let most = waits_at_most(wait + (1.0 + wait) / 1000.0, load);
        let error = 4.0 * (3.0 * 0.25 / count).sqrt();
        let found = (upto(time), upto(time + 2 * PACING));
        assert!(found.0 <= most + error, "{wait}: {found:?}, {most}");
        assert!(found.1 >= least - error, "{wait}: {found:?}, {least}");
    }
}
