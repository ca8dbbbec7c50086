//! The broadcaster against a correct server and against faulty ones: every delivery is accounted
//! for.
#![allow(clippy::unwrap_used)]

mod server;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use server::{Done, Faults, Server};
use subjectbus_loadgen::{Broadcaster, BroadcasterConfig, EngineError, Phase};

const PATIENCE: Duration = Duration::from_secs(30);

/// Make a broadcaster of 60 users and 100 messages a second for one second.
fn broadcaster(is_ws: bool, address: SocketAddr, more: &str) -> Broadcaster {
    let base = format!(
        r#"{{"transport":"{}","address":"{address}","users":60,"rate":100,"duration_s":1,
        "timeout_s":5}}"#,
        if is_ws { "ws" } else { "tcp" }
    );
    let mut fields: serde_json::Map<String, Value> = serde_json::from_str(&base).unwrap();
    let changes: serde_json::Map<String, Value> = serde_json::from_str(more).unwrap();
    if changes.contains_key("outstanding") {
        fields.remove("rate");
    }
    fields.extend(changes);
    let json = serde_json::to_string(&fields).unwrap();
    Broadcaster::new(BroadcasterConfig::from_json(&json).unwrap())
}

fn snapshot(engine: &Broadcaster) -> Value {
    serde_json::from_str(&engine.progress()).unwrap()
}

/// Poll the progress until `condition` holds.
fn wait_until(engine: &Broadcaster, condition: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let progress = snapshot(engine);
        if condition(&progress) {
            return;
        }
        assert_ne!(progress["phase"], "failed", "{progress}");
        assert!(Instant::now() < deadline, "{progress}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for(engine: &Broadcaster, phase: &str) {
    wait_until(engine, |progress| progress["phase"] == phase);
}

fn connected(is_ws: bool, server: &Server, more: &str) -> Broadcaster {
    let engine = broadcaster(is_ws, server.address, more);
    engine.connect().unwrap();
    wait_for(&engine, "connected");
    engine
}

fn result(engine: &Broadcaster) -> Value {
    wait_for(engine, "done");
    let result = serde_json::from_str(&engine.result().unwrap()).unwrap();
    engine.close();
    assert_accounted(&result);
    result
}

fn run(is_ws: bool, server: &Server, more: &str) -> Value {
    let engine = connected(is_ws, server, more);
    engine.start(None).unwrap();
    result(&engine)
}

fn count(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

/// Both phases together.
fn in_all(result: &Value, key: &str) -> u64 {
    count(result, key) + count(&result["warmup"], key)
}

/// Assert the identities that hold in every run.
fn assert_accounted(result: &Value) {
    let ended = in_all(result, "received") + count(result, "missing");
    assert_eq!(in_all(result, "expected"), ended, "{result}");
    let received = count(result, "received");
    assert_eq!(count(&result["latency"], "count"), received);
    let intervals = result["intervals"].as_array().unwrap();
    let total = |key| intervals.iter().map(|row| count(row, key)).sum::<u64>();
    assert_eq!(total("received"), received);
    assert_eq!(total("sent"), count(result, "sent"));
}

/// Assert that all counts that a run without faults has at zero are zero, except those in `except`.
fn assert_clean(result: &Value, except: &[&str]) {
    for key in [
        "connect_failures",
        "errors",
        "missing",
        "incomplete",
        "duplicates",
        "corrupt",
        "misrouted",
        "disconnected",
        "server_errors",
    ] {
        let is_zero = count(result, key) == 0;
        assert!(except.contains(&key) || is_zero, "{key}: {result}");
    }
}

#[test]
fn every_message_reaches_every_user_of_its_subject() {
    for (is_ws, subjects) in [(false, 1), (true, 1), (true, 7)] {
        let server = Server::start(is_ws, Faults::default());
        let more = format!(
            r#"{{"subjects":{subjects},"publishers":{},"threads":2,"warmup_s":0.5,
            "duration_s":1.5}}"#,
            subjects.min(3)
        );
        let result = run(is_ws, &server, &more);
        assert_clean(&result, &[]);
        assert_eq!(
            (count(&result, "sent"), in_all(&result, "sent")),
            (150, 200)
        );
        if subjects == 1 {
            assert_eq!(count(&result, "received"), 150 * 60);
            assert_eq!(count(&result["warmup"], "received"), 50 * 60);
        }
        assert_eq!(
            in_all(&result, "received"),
            Done::count(&server.done().deliveries)
        );
        assert_eq!(count(&result["spread"], "count"), 150);
        let spread = count(&result["spread"], "max_ns");
        assert!(spread > 0 && spread <= count(&result["latency"], "max_ns"));
        // Longer if the machine kept the last message from leaving in time.
        assert!(result["duration_s"].as_f64() >= Some(1.5), "{result}");
        assert_eq!(count(&result, "connections"), 60 + subjects.min(3));
        assert_eq!(result["messages"], Value::Null);
        assert!(result["intervals"].as_array().unwrap().len() >= 2);
    }
}

#[test]
fn poisson_arrivals_large_messages_and_the_smallest() {
    for bytes in [24, 90_001] {
        let server = Server::start(true, Faults::default());
        let more = format!(r#"{{"arrivals":"poisson","seed":9,"message_bytes":{bytes}}}"#);
        let result = run(true, &server, &more);
        assert_clean(&result, &[]);
        let sent = count(&result, "sent");
        assert!((60..150).contains(&sent), "{sent}");
        assert_eq!(count(&result, "received"), sent * 60);
    }
}

#[test]
fn a_closed_loop_keeps_its_messages_in_flight() {
    for (outstanding, threads) in [(1, 1), (16, 2)] {
        let server = Server::start(false, Faults::default());
        let more = format!(
            r#"{{"outstanding":{outstanding},"threads":{threads},"warmup_s":0.2,
            "duration_s":0.5}}"#
        );
        let engine = connected(false, &server, &more);
        engine.start(None).unwrap();
        wait_until(&engine, |progress| {
            assert!(count(progress, "outstanding") <= outstanding, "{progress}");
            progress["phase"] == "done"
        });
        let result = result(&engine);
        assert_clean(&result, &[]);
        assert!(count(&result, "sent") > 5, "{result}");
        assert_eq!(in_all(&result, "received"), in_all(&result, "sent") * 60);
    }
}

#[test]
fn a_lost_delivery_is_missing_and_does_not_stop_a_closed_loop() {
    for loop_of in [r#""rate":100"#, r#""outstanding":4"#] {
        let drop_every = 997;
        let faults = Faults {
            drop_every,
            ..Faults::default()
        };
        let server = Server::start(true, faults);
        let more = format!(r#"{{"timeout_s":2,{loop_of}}}"#);
        let result = run(true, &server, &more);
        assert_clean(&result, &["missing", "incomplete"]);
        let dropped = Done::count(&server.done().dropped);
        assert!(dropped > 0);
        assert_eq!(count(&result, "missing"), dropped);
        assert_eq!(count(&result, "incomplete"), dropped);
        let sent = count(&result, "sent");
        assert_eq!(count(&result["spread"], "count") + dropped, sent);
        assert_eq!(count(&result, "expected"), sent * 60);
    }
}

#[test]
fn duplicates_and_corrupt_messages_are_no_deliveries() {
    let faults = Faults {
        duplicate_every: 500,
        corrupt_every: 501,
        ..Faults::default()
    };
    let server = Server::start(false, faults);
    let result = run(false, &server, r#"{"timeout_s":0.5}"#);
    assert_clean(&result, &["duplicates", "corrupt", "missing", "incomplete"]);
    let corrupted = Done::count(&server.done().corrupted);
    assert_eq!(corrupted, 6000 / 501);
    assert_eq!(count(&result, "corrupt"), corrupted);
    assert_eq!(count(&result, "missing"), corrupted);
    let duplicated = Done::count(&server.done().duplicated);
    // The very last one may come after everything has been accounted for.
    let noticed = count(&result, "duplicates");
    assert!((duplicated - 1..=duplicated).contains(&noticed), "{result}");
}

#[test]
fn who_loses_the_connection_misses_the_rest() {
    let server = Server::start(true, Faults::default());
    // The engine would wait for this user longer than the test does.
    let more = r#"{"threads":2,"subjects":3,"duration_s":600,"timeout_s":600}"#;
    let engine = connected(true, &server, more);
    engine.start(None).unwrap();
    wait_until(&engine, |progress| count(progress, "sent") > 30);
    server.disconnect("/b/1");
    let is_seen = |progress: &Value| count(progress, "connections") == 60;
    wait_until(&engine, is_seen);
    let before = count(&snapshot(&engine), "sent");
    wait_until(&engine, |progress| count(progress, "sent") > before + 6);
    engine.stop().unwrap();
    let result = result(&engine);
    assert_clean(&result, &["disconnected", "missing", "incomplete"]);
    assert_eq!(
        (
            count(&result, "disconnected"),
            count(&result, "connections")
        ),
        (1, 60)
    );
    let missing = count(&result, "missing");
    let on_its_subject = count(&result, "sent").div_ceil(3);
    assert!((2..on_its_subject).contains(&missing), "{missing}");
    assert_eq!(count(&result, "incomplete"), missing);
}

#[test]
fn a_closed_loop_goes_on_without_those_who_have_gone() {
    let server = Server::start(false, Faults::default());
    let more = r#"{"outstanding":2,"duration_s":600,"timeout_s":600}"#;
    let engine = connected(false, &server, more);
    engine.start(None).unwrap();
    wait_until(&engine, |progress| count(progress, "sent") > 10);
    server.disconnect("/b/0");
    wait_until(&engine, |progress| count(progress, "connections") == 60);
    let before = count(&snapshot(&engine), "sent");
    wait_until(&engine, |progress| count(progress, "sent") > before + 100);
    engine.stop().unwrap();
    let result = result(&engine);
    assert_clean(&result, &["disconnected", "missing", "incomplete"]);
    assert_eq!(count(&result, "missing"), count(&result, "incomplete"));
}

#[test]
fn a_message_that_cannot_be_published_is_an_error_and_missing() {
    let server = Server::start(false, Faults::default());
    let engine = connected(false, &server, r#"{"duration_s":600}"#);
    engine.start(None).unwrap();
    wait_until(&engine, |progress| count(progress, "sent") > 30);
    server.disconnect("/p/0");
    wait_until(&engine, |progress| count(progress, "errors") > 10);
    engine.stop().unwrap();
    let result = result(&engine);
    assert_clean(
        &result,
        &["disconnected", "missing", "incomplete", "errors"],
    );
    let (sent, errors) = (count(&result, "sent"), count(&result, "errors"));
    assert!(errors > 10 && sent - errors > 30, "{result}");
    // Messages in flight when the connection broke are missing, too.
    assert!(count(&result, "missing") >= errors * 60, "{result}");
}

#[test]
fn a_closed_loop_without_its_publisher_waits() {
    let server = Server::start(true, Faults::default());
    let engine = connected(true, &server, r#"{"outstanding":4,"timeout_s":0.5}"#);
    engine.start(None).unwrap();
    wait_until(&engine, |progress| count(progress, "sent") > 10);
    server.disconnect("/p/0");
    let result = result(&engine);
    assert_clean(&result, &["disconnected", "missing", "incomplete"]);
    assert_eq!(result["duration_s"], 1.0);
    // Only messages that were in flight when the connection broke.
    assert!(count(&result, "missing") <= 4 * 60, "{result}");
}

#[test]
fn processes_that_share_the_users_are_one_together() {
    let server = Server::start(true, Faults::default());
    let common = r#""subjects":2,"warmup_s":0.3,"list_messages":true,"arrivals":"poisson",
        "clock_offset_ns":-3600000000000"#;
    let leader = connected(true, &server, &format!(r#"{{"users":25,{common}}}"#));
    let follower = connected(
        true,
        &server,
        &format!(r#"{{"users":35,"first_user":25,"publishers":0,{common}}}"#),
    );
    let now = clock_gettime(ClockId::Monotonic);
    let at = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 + 100_000_000;
    // On the run's clock, which is an hour ahead.
    let at = at + 3_600_000_000_000;
    follower.start(Some(at)).unwrap();
    leader.start(Some(at)).unwrap();
    let results = [result(&leader), result(&follower)];
    let total = |key| in_all(&results[0], key) + in_all(&results[1], key);
    assert_eq!(in_all(&results[1], "sent"), 0);
    assert_eq!(total("received"), Done::count(&server.done().deliveries));
    assert_eq!(total("received"), total("expected"));
    assert_eq!(total("expected"), in_all(&results[0], "sent") * 30);
    for result in &results {
        assert_clean(result, &[]);
        let rows = result["messages"].as_array().unwrap();
        assert_eq!(rows.len() as u64, count(&results[0], "sent"));
        let widest = rows.iter().map(|row| {
            let time = |index: usize| row[index].as_u64().unwrap();
            assert!(time(2) >= at, "{row}");
            time(3) - time(2)
        });
        assert_eq!(widest.max(), result["spread"]["max_ns"].as_u64());
    }
}

#[test]
fn messages_of_another_run_are_told_apart() {
    let server = Server::start(false, Faults::default());
    let engine = connected(false, &server, r#"{"timeout_s":0.5,"seed":1}"#);
    let other = connected(false, &server, r#"{"users":1,"seed":2,"timeout_s":0.5}"#);
    engine.start(None).unwrap();
    other.start(None).unwrap();
    let (result, others) = (result(&engine), result(&other));
    assert_clean(&result, &["corrupt"]);
    assert_clean(&others, &["corrupt"]);
    assert!(count(&result, "corrupt") > 0);
}

#[test]
fn stopping_early_keeps_what_was_measured() {
    for loop_of in [r#""rate":100"#, r#""outstanding":4"#] {
        let server = Server::start(true, Faults::default());
        let more = format!(r#"{{"duration_s":600,{loop_of}}}"#);
        let engine = connected(true, &server, &more);
        engine.start(None).unwrap();
        wait_until(&engine, |progress| {
            progress["phase"] == "measuring" && progress["mean_us"].as_f64() > Some(0.0)
        });
        engine.stop().unwrap();
        let result = result(&engine);
        assert_clean(&result, &[]);
        assert!(result["duration_s"].as_f64() < Some(600.0));
        assert!(count(&result, "received") >= 60);
    }
}

#[test]
fn calls_out_of_order_are_refused() {
    let server = Server::start(false, Faults::default());
    let engine = broadcaster(false, server.address, "{}");
    let refused = |call, phase| EngineError::State {
        call,
        phase,
        error: None,
    };
    assert_eq!(engine.start(None), Err(refused("start", Phase::Idle)));
    assert_eq!(engine.stop(), Err(refused("stop", Phase::Idle)));
    assert_eq!(engine.result(), Err(refused("result", Phase::Idle)));
    engine.connect().unwrap();
    wait_for(&engine, "connected");
    assert_eq!(engine.connect(), Err(refused("connect", Phase::Connected)));
    assert_eq!(engine.stop(), Err(refused("stop", Phase::Connected)));
    engine.close();
    engine.close();
}

#[test]
fn each_thread_needs_descriptors_for_its_own_users() {
    let engine = broadcaster(
        false,
        ([127, 0, 0, 1], 1).into(),
        r#"{"users":15999999,"driver":"epoll"}"#,
    );
    match engine.connect() {
        Err(EngineError::Descriptors { needed, allowed }) => {
            assert!(needed >= 15_999_999 + 32);
            assert!(allowed < needed);
        }
        other => panic!("{other:?}"),
    }
}
