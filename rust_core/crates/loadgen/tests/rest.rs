//! Requests over HTTP against a correct gateway and against faulty servers: every request is
//! accounted for.
#![allow(clippy::unwrap_used)]

mod common;
mod server;
mod site;

use std::time::Duration;

use common::{assert_accounted, assert_clean, count, provider, refusing, result, wait_for};
use serde_json::Value;
use server::Server;
use site::{Content, Done, Faults, Site};
use subjectbus_loadgen::{Requestor, RequestorConfig};

fn caller(transport: &str, site: &Site, more: &str) -> Requestor {
    let load = if more.contains("rate") || more.contains("outstanding") {
        ""
    } else {
        r#","outstanding":8"#
    };
    let json = format!(
        r#"{{"transport":"{transport}","address":"{}","users":8,"providers":4,"duration_s":1,
        "timeout_s":5{load}{more}}}"#,
        site.address
    );
    Requestor::new(RequestorConfig::from_json(&json).unwrap())
}

/// Run HTTP users to their end.
fn call(transport: &str, site: &Site, more: &str) -> Value {
    let requestor = caller(transport, site, more);
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    requestor.start(None).unwrap();
    if more.contains("sweep") {
        wait_for("swept", || requestor.progress());
        requestor.start(None).unwrap();
    }
    let result = result(&requestor);
    requestor.close();
    assert_accounted(&result);
    result
}

/// Run HTTP users against a gateway with all four providers behind it.
fn call_providers(transport: &str, faults: Faults, more: &str) -> (Value, Site) {
    let server = Server::start(false, server::Faults::default());
    let provider = provider(false, server.address, "");
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    let site = Site::start(Content::Gateway(server.address), faults);
    let result = call(transport, &site, more);
    provider.close();
    (result, site)
}

fn fetch(transport: &str, faults: Faults, more: &str) -> (Value, Site) {
    let site = Site::start(Content::Page(b"a"), faults);
    let more = format!(r#","fetch":true,"reply_bytes":1{more}"#);
    (call(transport, &site, &more), site)
}

#[test]
fn every_call_is_answered_on_connections_that_are_kept() {
    let more = r#","calls":500,"duration_s":30,"threads":2"#;
    let (result, site) = call_providers("rest", Faults::default(), more);
    assert_clean(&result, &[]);
    let ended = ["sent", "received"].map(|key| count(&result, key));
    assert_eq!(ended, [500, 500]);
    // The calls have ended it, not the time.
    assert!(result["duration_s"].as_f64() < Some(30.0), "{result}");
    assert_eq!(count(&result, "connections_opened"), 8);
    assert_eq!(Done::count(&site.done().accepted), 8);
    assert_eq!(Done::count(&site.done().requests), 500);
    assert!(Done::count(&site.done().most_in_flight) <= 8);
}

#[test]
fn every_call_has_a_connection_of_its_own() {
    let more = r#","calls":300,"duration_s":30"#;
    let (result, site) = call_providers("rest-new", Faults::default(), more);
    assert_clean(&result, &[]);
    assert_eq!(count(&result, "received"), 300);
    // Each user's first call is made on the connection that showed that the server is there.
    assert_eq!(count(&result, "connections_opened"), 300);
    assert_eq!(Done::count(&site.done().accepted), 300);
}

#[test]
fn bytes_are_those_that_the_server_saw() {
    for transport in ["rest", "rest-new"] {
        let (result, site) = call_providers(
            transport,
            Faults::default(),
            r#","calls":100,"warmup_s":0.1"#,
        );
        let (traffic, done) = (&result["traffic"], site.done());
        let counted =
            ["wire_bytes_out", "wire_bytes_in", "head_bytes_out"].map(|key| count(traffic, key));
        let seen = [&done.bytes_in, &done.bytes_out, &done.head_bytes_in].map(Done::count);
        assert_eq!(counted, seen);
        let calls = count(&result, "received") + count(&result["warmup"], "received");
        let bodies = count(traffic, "wire_bytes_in") - count(traffic, "head_bytes_in");
        assert_eq!(bodies, calls * 256);
    }
}

#[test]
fn answers_may_come_in_pieces() {
    let faults = Faults {
        in_pieces: true,
        ..Faults::default()
    };
    for transport in ["rest", "rest-new"] {
        let (result, _) =
            call_providers(transport, faults.clone(), r#","calls":40,"duration_s":30"#);
        assert_clean(&result, &[]);
        assert_eq!(count(&result, "received"), 40);
    }
}

#[test]
fn errors_are_counted_by_their_status() {
    let faults = Faults {
        fail_every: 10,
        ..Faults::default()
    };
    let (result, _) = call_providers("rest", faults, r#","calls":200,"duration_s":30"#);
    assert_clean(&result, &["errors", "server_errors"]);
    let ended = ["received", "errors", "server_errors"].map(|key| count(&result, key));
    assert_eq!(ended, [180, 20, 20]);
    assert_eq!(result["statuses"], serde_json::json!({"500": 20}));
    let first = "500 Internal Server Error: a fault";
    assert_eq!(result["first_server_error"], first);
    assert_eq!(count(&result, "connections_opened"), 8);
}

#[test]
fn requests_without_a_provider_are_errors_at_once() {
    let server = Server::start(false, server::Faults::default());
    let site = Site::start(Content::Gateway(server.address), Faults::default());
    let result = call("rest", &site, r#","calls":50,"duration_s":30"#);
    assert_clean(&result, &["errors", "no_responders", "server_errors"]);
    assert_eq!(
        (count(&result, "errors"), count(&result, "no_responders")),
        (50, 50)
    );
    assert_eq!(result["statuses"], serde_json::json!({"503": 50}));
}

#[test]
fn wrong_bodies_are_corrupt() {
    let faults = Faults {
        corrupt_every: 4,
        ..Faults::default()
    };
    let (result, _) = call_providers("rest", faults, r#","calls":100,"duration_s":30"#);
    assert_clean(&result, &["errors", "corrupt"]);
    assert_eq!(
        (count(&result, "received"), count(&result, "corrupt")),
        (75, 25)
    );
    let site = Site::start(Content::Page(b"ab"), Faults::default());
    let result = call("rest", &site, r#","fetch":true,"reply_bytes":1,"calls":20"#);
    assert_clean(&result, &["errors", "corrupt"]);
    assert_eq!(count(&result, "corrupt"), 20);
}

#[test]
fn what_is_no_answer_is_said() {
    let faults = Faults {
        unframed_every: 20,
        ..Faults::default()
    };
    let (result, _) = fetch("rest", faults, r#","calls":100,"duration_s":30"#);
    assert_clean(&result, &["errors", "disconnected", "server_errors"]);
    let ended = ["received", "errors", "disconnected", "server_errors"];
    assert_eq!(ended.map(|key| count(&result, key)), [95, 5, 5, 5]);
    assert_eq!(
        result["first_server_error"],
        "HTTP: a response without a length"
    );
}

#[test]
fn a_connection_that_ends_under_a_request_is_lost_and_established_again() {
    for transport in ["rest", "rest-new"] {
        let faults = Faults {
            close_every: 10,
            ..Faults::default()
        };
        let (result, _) = fetch(transport, faults, r#","calls":100,"duration_s":30"#);
        assert_clean(&result, &["errors", "disconnected"]);
        let ended = ["sent", "received", "errors", "disconnected"].map(|key| count(&result, key));
        assert_eq!(ended, [100, 90, 10, 10], "{transport}");
    }
}

#[test]
fn a_connection_that_ends_after_an_answer_is_not_lost() {
    let said = Faults {
        end_every: 5,
        ..Faults::default()
    };
    let (result, site) = fetch("rest", said, r#","calls":100,"duration_s":30"#);
    assert_clean(&result, &[]);
    assert_eq!(count(&result, "received"), 100);
    let accepted = Done::count(&site.done().accepted);
    // No request needed a connection after the last ones.
    assert!((20..=28).contains(&accepted), "{accepted}");
    // Without an announcement the next request may be lost with the connection, and is an error
    // then.
    let unsaid = Faults {
        leave_every: 5,
        ..Faults::default()
    };
    let (result, _) = fetch("rest", unsaid, r#","rate":100"#);
    assert_clean(&result, &["errors", "disconnected"]);
    assert_eq!(count(&result, "errors"), count(&result, "disconnected"));
    assert_eq!(count(&result, "received") + count(&result, "errors"), 100);
}

#[test]
fn unanswered_requests_time_out_and_their_connections_with_them() {
    let faults = Faults {
        ignore_every: 25,
        ..Faults::default()
    };
    let (result, site) = fetch(
        "rest",
        faults,
        r#","calls":100,"timeout_s":2,"duration_s":30"#,
    );
    assert_clean(&result, &["timed_out"]);
    let ended = ["sent", "received", "timed_out"].map(|key| count(&result, key));
    assert_eq!(ended, [100, 96, 4]);
    let accepted = Done::count(&site.done().accepted);
    assert!((8..=12).contains(&accepted), "{accepted}");
}

#[test]
fn an_open_loop_sends_late_what_finds_nobody_free() {
    let faults = Faults {
        delay: Duration::from_millis(20),
        ..Faults::default()
    };
    // Two users make at most 100 requests a second, and 150 are due in the first second.
    let (result, site) = fetch("rest", faults, r#","users":2,"rate":150"#);
    assert_clean(&result, &[]);
    assert_eq!(
        (count(&result, "sent"), count(&result, "received")),
        (150, 150)
    );
    assert_eq!(Done::count(&site.done().most_in_flight), 2);
    // However slow the machine is, the wait for a free user is in the latency alone.
    let sum = |key: &str| count(&result[key], "sum_ns");
    assert!(sum("latency") > sum("service"), "{result}");
    assert!(result["duration_s"].as_f64() > Some(1.0), "{result}");
}

#[test]
fn every_user_makes_one_call_in_a_sweep() {
    let more = r#","users":50,"sweep":true,"calls":60,"duration_s":30"#;
    let (result, _) = call_providers("rest-new", Faults::default(), more);
    assert_clean(&result, &[]);
    assert_eq!(count(&result["sweep"], "received"), 50);
    assert_eq!(count(&result, "received"), 60);
}

#[test]
fn a_server_that_is_not_there_fails_the_connect_phase() {
    let (_socket, address) = refusing();
    let json = format!(
        r#"{{"transport":"rest","address":"{address}","path":"/x","users":2,"outstanding":1,"duration_s":1}}"#
    );
    let requestor = Requestor::new(RequestorConfig::from_json(&json).unwrap());
    requestor.connect().unwrap();
    let snapshot = wait_for("failed", || requestor.progress());
    let error = snapshot["error"].as_str().unwrap();
    assert!(error.starts_with("http://127.0.0.1:"), "{error}");
    assert!(
        error.contains("/x: 0 of 2 connections established"),
        "{error}"
    );
}
