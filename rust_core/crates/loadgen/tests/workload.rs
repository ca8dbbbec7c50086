//! Requestor and provider against a correct server and against faulty ones: every request is
//! accounted for.
#![allow(clippy::unwrap_used)]

mod common;
mod server;

use std::net::TcpListener;
use std::time::Duration;

use common::{
    assert_accounted, assert_clean, count, provider, refusing, requestor, result, run, transport,
    wait_for, wait_until,
};
use serde_json::Value;
use server::{Done, Faults, Server};
use subjectbus_loadgen::{EngineError, Phase, Provider, ProviderConfig, Requestor};

#[test]
fn every_request_is_answered_over_tcp_and_websocket() {
    for is_ws in [false, true] {
        let server = Server::start(is_ws, Faults::default());
        let more = r#","warmup_s":0.5,"duration_s":1.5,"threads":2,"connect_in_flight":20"#;
        let (result, provided) = run(&server, is_ws, more, r#","threads":2"#);
        assert_clean(&result, &[]);
        assert_eq!(
            (count(&result, "sent"), count(&result, "received")),
            (3000, 3000)
        );
        assert_eq!(count(&result["warmup"], "received"), 1000);
        assert_eq!(count(&result, "connections"), 200);
        // Longer if the machine kept the last request from leaving in time.
        assert!(result["duration_s"].as_f64() >= Some(1.5), "{result}");
        assert!(result["intervals"].as_array().unwrap().len() >= 2);
        assert_eq!(
            (count(&provided, "received"), count(&provided, "sent")),
            (4000, 4000)
        );
        assert_eq!(
            (
                count(&provided, "connections"),
                count(&provided, "unanswerable")
            ),
            (4, 0)
        );
        assert_eq!(Done::count(&server.done().requests), 4000);
    }
}

#[test]
fn poisson_arrivals_and_large_payloads() {
    let server = Server::start(true, Faults::default());
    let more = r#","arrivals":"poisson","seed":9,"rate":500,"request_bytes":70001,
        "reply_bytes":90003"#;
    let (result, provided) = run(&server, true, more, r#","reply_bytes":90003"#);
    assert_clean(&result, &[]);
    let sent = count(&result, "sent");
    assert!((400..600).contains(&sent), "{sent}");
    assert_eq!(count(&provided, "sent"), sent);
}

#[test]
fn lost_replies_time_out() {
    let server = Server::start(
        false,
        Faults {
            drop_every: 10,
            ..Faults::default()
        },
    );
    let (result, _) = run(&server, false, r#","timeout_s":2"#, "");
    assert_clean(&result, &["timed_out"]);
    assert_eq!(
        (count(&result, "sent"), count(&result, "timed_out")),
        (2000, 200)
    );
    assert_eq!(Done::count(&server.done().dropped), 200);
}

#[test]
fn late_replies_are_told_from_lost_ones() {
    let delay = Duration::from_secs(2);
    let server = Server::start(
        true,
        Faults {
            delay_first: 7,
            delay,
            ..Faults::default()
        },
    );
    let more = r#","timeout_s":1,"duration_s":3.5"#;
    let (result, _) = run(&server, true, more, "");
    assert_clean(&result, &["timed_out", "late"]);
    assert_eq!(
        (count(&result, "timed_out"), count(&result, "late")),
        (7, 7)
    );
}

#[test]
fn duplicates_count_once() {
    let server = Server::start(
        true,
        Faults {
            duplicate_every: 8,
            ..Faults::default()
        },
    );
    let (result, _) = run(&server, true, "", "");
    assert_clean(&result, &["duplicates"]);
    assert_eq!(count(&result, "received"), 2000);
    let duplicated = Done::count(&server.done().duplicated);
    assert_eq!(duplicated, 250);
    // The very last one may come after everything has been accounted for.
    assert!(
        (duplicated - 1..=duplicated).contains(&count(&result, "duplicates")),
        "{result}"
    );
}

#[test]
fn corrupt_replies_are_errors() {
    let server = Server::start(
        false,
        Faults {
            corrupt_every: 4,
            ..Faults::default()
        },
    );
    let (result, _) = run(&server, false, "", "");
    assert_clean(&result, &["corrupt", "errors"]);
    assert_eq!(
        (count(&result, "corrupt"), count(&result, "errors")),
        (500, 500)
    );
    assert_eq!(Done::count(&server.done().corrupted), 500);
}

#[test]
fn replies_of_the_wrong_size_are_corrupt() {
    let server = Server::start(true, Faults::default());
    let (result, _) = run(&server, true, r#","rate":200"#, r#","reply_bytes":255"#);
    assert_eq!(
        (count(&result, "received"), count(&result, "corrupt")),
        (0, 200)
    );
}

#[test]
fn requests_without_a_provider_are_errors() {
    for is_ws in [false, true] {
        let server = Server::start(is_ws, Faults::default());
        // Requests go to 4 providers, of which the first is missing.
        let json = format!(
            r#"{{"transport":"{}","address":"{}","providers":3,"first_provider":1}}"#,
            transport(is_ws),
            server.address
        );
        let provider = Provider::new(ProviderConfig::from_json(&json).unwrap());
        provider.connect().unwrap();
        wait_for("connected", || provider.progress());
        let requestor = requestor(is_ws, server.address, "");
        requestor.connect().unwrap();
        wait_for("connected", || requestor.progress());
        requestor.start(None).unwrap();
        let result = result(&requestor);
        assert_accounted(&result);
        assert_clean(&result, &["errors", "no_responders"]);
        let refused = Done::count(&server.done().no_responders);
        assert!((400..600).contains(&refused), "{refused}");
        assert_eq!(count(&result, "no_responders"), refused);
        assert_eq!(count(&result, "errors"), refused);
    }
}

#[test]
fn lost_connections_are_counted_and_their_requests_with_them() {
    let closed = vec!["/c/3", "/c/5", "/c/7", "/c/11", "/c/150"];
    let faults = Faults {
        close_after: 500,
        closed,
        ..Faults::default()
    };
    let server = Server::start(true, faults);
    let (result, _) = run(&server, true, r#","timeout_s":2"#, "");
    assert_clean(&result, &["disconnected", "errors", "timed_out"]);
    assert_eq!(
        (
            count(&result, "disconnected"),
            count(&result, "connections")
        ),
        (5, 195)
    );
    assert_eq!(count(&result, "sent"), 2000);
    assert!(count(&result, "errors") > 5, "{result}");
}

#[test]
fn refused_connections_are_tried_again() {
    for is_ws in [false, true] {
        let server = Server::start(
            is_ws,
            Faults {
                refused: 0..25,
                ..Faults::default()
            },
        );
        let (result, provided) = run(&server, is_ws, "", "");
        assert_clean(&result, &["connect_failures"]);
        assert_eq!(count(&result, "connections"), 200);
        let failures = count(&result, "connect_failures") + count(&provided, "connect_failures");
        assert_eq!(failures, 25);
    }
}

#[test]
fn a_server_that_comes_late_is_waited_for() {
    let (socket, address) = refusing();
    let provider = provider(false, address, "");
    provider.connect().unwrap();
    wait_until(
        || provider.progress(),
        |now| count(now, "connect_failures") >= 4,
    );
    rustix::net::listen(&socket, 128).unwrap();
    let listener = TcpListener::from(socket);
    let server = Server::serve(listener, false, Faults::default());
    wait_for("connected", || provider.progress());
    drop(server);
}

#[test]
fn a_provider_that_loses_its_connection_comes_back() {
    let server = Server::start(true, Faults::default());
    let provider = provider(true, server.address, "");
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    server.disconnect("/s/2");
    wait_until(
        || provider.progress(),
        |now| Done::count(&server.done().accepted) == 5 && count(now, "connections") == 4,
    );
    provider.stop().unwrap();
    wait_for("done", || provider.progress());
    let result: Value = serde_json::from_str(&provider.result().unwrap()).unwrap();
    assert_eq!(
        (
            count(&result, "disconnected"),
            count(&result, "connections")
        ),
        (1, 4)
    );
}

fn failure(requestor: &Requestor) -> String {
    requestor.connect().unwrap();
    let snapshot = wait_for("failed", || requestor.progress());
    snapshot["error"].as_str().unwrap().to_owned()
}

#[test]
fn a_target_that_is_not_there_fails_the_connect_phase() {
    let (_socket, address) = refusing();
    let requestor = requestor(true, address, r#","threads":3"#);
    let error = failure(&requestor);
    assert!(error.contains(&format!("ws://{address}/")), "{error}");
    assert!(
        error.contains("0 of 200 connections established"),
        "{error}"
    );
    assert!(error.contains("after 10 attempts"), "{error}");
    assert!(error.to_lowercase().contains("refused"), "{error}");
    let failed = |call| EngineError::State {
        call,
        phase: Phase::Failed,
        error: Some(error.clone()),
    };
    assert_eq!(requestor.start(None), Err(failed("start")));
    assert_eq!(requestor.result(), Err(failed("result")));
}

#[test]
fn a_server_that_takes_no_such_payload_fails_the_connect_phase_at_once() {
    let server = Server::start(
        false,
        Faults {
            max_payload: 255,
            ..Faults::default()
        },
    );
    let requestor = requestor(false, server.address, "");
    let error = failure(&requestor);
    assert!(
        error.contains("payloads of 256 bytes are configured"),
        "{error}"
    );
    assert!(error.contains("the server allows 255"), "{error}");
    assert!(error.contains("after 1 attempt:"), "{error}");
}

#[test]
fn stopping_early_keeps_what_was_measured() {
    let server = Server::start(true, Faults::default());
    let provider = provider(true, server.address, "");
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    let requestor = requestor(true, server.address, r#","duration_s":600,"warmup_s":0.2"#);
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    requestor.start(None).unwrap();
    // Of the last full second, once there is one.
    let snapshot = wait_until(
        || requestor.progress(),
        |now| now["phase"] == "measuring" && now["mean_us"].as_f64() > Some(0.0),
    );
    assert!(
        snapshot["max_us"].as_f64() >= snapshot["mean_us"].as_f64(),
        "{snapshot}"
    );
    requestor.stop().unwrap();
    let result = result(&requestor);
    assert_accounted(&result);
    assert_clean(&result, &[]);
    assert!(count(&result["warmup"], "sent") == 400 && count(&result, "sent") > 0);
    assert!(result["duration_s"].as_f64() < Some(600.0), "{result}");
    requestor.close();
    requestor.close();
    assert!(requestor.result().is_ok());
}

#[test]
fn calls_out_of_order_are_refused() {
    let server = Server::start(false, Faults::default());
    let requestor = requestor(false, server.address, "");
    let refused = |call, phase| EngineError::State {
        call,
        phase,
        error: None,
    };
    assert_eq!(requestor.start(None), Err(refused("start", Phase::Idle)));
    assert_eq!(requestor.stop(), Err(refused("stop", Phase::Idle)));
    assert_eq!(requestor.result(), Err(refused("result", Phase::Idle)));
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    assert_eq!(
        requestor.connect(),
        Err(refused("connect", Phase::Connected))
    );
    assert_eq!(requestor.result(), Err(refused("result", Phase::Connected)));
    let provider = provider(false, server.address, "");
    assert_eq!(provider.stop(), Err(refused("stop", Phase::Idle)));
    assert_eq!(provider.result(), Err(refused("result", Phase::Idle)));
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    assert_eq!(
        provider.connect(),
        Err(refused("connect", Phase::Connected))
    );
}

#[test]
fn too_few_descriptors_are_named() {
    let requestor = requestor(
        false,
        ([127, 0, 0, 1], 1).into(),
        r#","users":15999999,"driver":"epoll""#,
    );
    match requestor.connect() {
        Err(EngineError::Descriptors { needed, allowed }) => {
            assert_eq!(needed, 15_999_999 + 32);
            assert!(allowed < needed);
        }
        other => panic!("{other:?}"),
    }
}
