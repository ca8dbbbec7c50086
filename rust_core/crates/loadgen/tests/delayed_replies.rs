//! Providers whose replies are delayed, by a limited rate or by stalls.
#![allow(clippy::unwrap_used)]

mod common;
mod server;

use common::{assert_accounted, assert_clean, count, provider, requestor, result, run, wait_for};
use serde_json::Value;
use server::{Done, Faults, Server};

#[test]
fn a_limited_rate_is_that_of_all_providers_together() {
    for (is_ws, threads) in [(false, 1), (true, 3)] {
        let server = Server::start(is_ws, Faults::default());
        let limited = format!(r#","rate":500,"threads":{threads}"#);
        let (result, provided) = run(&server, is_ws, r#","outstanding":50"#, &limited);
        assert_clean(&result, &[]);
        // Each takes two milliseconds, and begins when the one before has ended.
        let received = count(&result, "received");
        let last = result["intervals"].as_array().unwrap().last().unwrap();
        let most = 500.0 * last["end_s"].as_f64().unwrap() + 1.0;
        assert!(received > 0 && received as f64 <= most, "{result}");
        assert!(count(&result["service"], "min_ns") >= 2_000_000, "{result}");
        let answered = ["received", "sent"].map(|key| count(&provided, key));
        assert_eq!(answered, [received; 2], "{provided}");
        assert_eq!(count(&provided, "dropped"), 0);
    }
}

#[test]
fn what_still_waits_at_the_end_is_sent() {
    let server = Server::start(true, Faults::default());
    let (result, provided) = run(&server, true, r#","timeout_s":0.2"#, r#","rate":20"#);
    assert_clean(&result, &["timed_out", "late"]);
    let (received, sent) = (count(&result, "received"), count(&result, "sent"));
    assert!(received < 100, "{result}");
    let answered = ["received", "sent", "dropped"].map(|key| count(&provided, key));
    assert_eq!(answered, [sent, sent, 0], "{provided}");
    assert_eq!(Done::count(&server.done().requests), sent);
}

#[test]
fn a_stall_delays_every_reply() {
    let server = Server::start(false, Faults::default());
    let stalling = r#","delay_s":0.1,"delay_for_s":60,"delay_every_s":60"#;
    let provider = provider(false, server.address, stalling);
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    let requestor = requestor(false, server.address, "");
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    provider.start(None).unwrap();
    requestor.start(None).unwrap();
    let stalled = result(&requestor);
    assert_accounted(&stalled);
    assert_clean(&stalled, &[]);
    assert_eq!(count(&stalled, "sent"), 2000);
    for of in ["latency", "service"] {
        assert!(count(&stalled[of], "min_ns") >= 100_000_000, "{stalled}");
    }
    provider.stop().unwrap();
    wait_for("done", || provider.progress());
    let provided: Value = serde_json::from_str(&provider.result().unwrap()).unwrap();
    assert_eq!(count(&provided, "sent"), 2000);
    assert!(provider.start(None).is_err());
}

#[test]
fn the_replies_of_a_lost_connection_are_counted() {
    let faults = Faults {
        close_after: 300,
        closed: vec!["/s/2"],
        ..Faults::default()
    };
    let server = Server::start(false, faults);
    let stalling = r#","delay_s":0.3,"delay_for_s":60,"delay_every_s":60"#;
    let provider = provider(false, server.address, stalling);
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    provider.start(None).unwrap();
    let requestor = requestor(false, server.address, r#","timeout_s":1"#);
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    requestor.start(None).unwrap();
    let result = result(&requestor);
    assert_accounted(&result);
    provider.stop().unwrap();
    wait_for("done", || provider.progress());
    let provided: Value = serde_json::from_str(&provider.result().unwrap()).unwrap();
    assert_eq!(count(&provided, "disconnected"), 1, "{provided}");
    let ended = count(&provided, "sent") + count(&provided, "dropped");
    assert_eq!(count(&provided, "received"), ended, "{provided}");
}
