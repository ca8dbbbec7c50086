//! Other shapes of load than the plan of requests: a closed loop, a sweep over all users,
//! connections that come and go.
#![allow(clippy::unwrap_used)]

mod common;
mod server;

use common::{
    assert_accounted, assert_clean, count, provider, requestor, result, run, wait_for, wait_until,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use server::{Done, Faults, Server};
use subjectbus_loadgen::{EngineError, Phase, Requestor};

#[test]
fn a_closed_loop_has_always_so_many_outstanding() {
    for is_ws in [false, true] {
        let server = Server::start(is_ws, Faults::default());
        let provider = provider(is_ws, server.address, "");
        provider.connect().unwrap();
        wait_for("connected", || provider.progress());
        let more = r#","outstanding":30,"threads":2,"warmup_s":0.3"#;
        let requestor = requestor(is_ws, server.address, more);
        requestor.connect().unwrap();
        wait_for("connected", || requestor.progress());
        requestor.start(None).unwrap();
        let snapshot = wait_for("measuring", || requestor.progress());
        assert_eq!(count(&snapshot, "outstanding"), 30, "{snapshot}");
        let result = result(&requestor);
        assert_accounted(&result);
        assert_clean(&result, &[]);
        let (sent, warmup) = (count(&result, "sent"), count(&result["warmup"], "sent"));
        assert!(sent > 30 && warmup > 30, "{result}");
        assert_eq!(Done::count(&server.done().requests), sent + warmup);
        // The server counts a reply before the next request can come.
        let most = Done::count(&server.done().most_outstanding);
        assert!((16..=30).contains(&most), "{most}");
        assert_eq!(result["duration_s"], 1.0);
        assert_eq!(count(&result, "max_send_lag_ns"), 0);
        assert_eq!(result["latency"], result["service"]);
    }
}

#[test]
fn a_lost_reply_holds_a_closed_loop_up_only_where_it_was() {
    let faults = Faults {
        drop_every: 500,
        ..Faults::default()
    };
    let server = Server::start(false, faults);
    let more = r#","outstanding":20,"timeout_s":0.3,"duration_s":2"#;
    let (result, _) = run(&server, false, more, "");
    assert_clean(&result, &["timed_out"]);
    let lost = Done::count(&server.done().dropped);
    assert!(lost > 0, "{result}");
    assert_eq!(count(&result, "timed_out"), lost);
}

#[test]
fn without_a_connection_a_closed_loop_sends_from_others() {
    let faults = Faults {
        close_after: 500,
        closed: vec!["/c/3", "/c/5", "/c/7"],
        ..Faults::default()
    };
    let server = Server::start(true, faults);
    let more = r#","outstanding":20,"timeout_s":1"#;
    let (result, _) = run(&server, true, more, "");
    assert_clean(&result, &["disconnected", "timed_out"]);
    assert_eq!(count(&result, "disconnected"), 3);
    assert!(count(&result, "sent") > 500, "{result}");
}

/// Return CLOCK_MONOTONIC, in nanoseconds.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn a_start_is_by_the_runs_clock() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let server = Server::start(false, Faults::default());
    let provider = provider(false, server.address, "");
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    // The run's clock is an hour ahead of this machine's.
    let more = format!(r#","warmup_s":0.2,"duration_s":0.5,"clock_offset_ns":-{HOUR_NS}"#);
    let connected = || {
        let requestor = requestor(false, server.address, &more);
        requestor.connect().unwrap();
        wait_for("connected", || requestor.progress());
        requestor
    };
    // On this machine's clock nothing would begin for an hour.
    let now = connected();
    now.start(Some(monotonic_ns() + HOUR_NS)).unwrap();
    let result = result(&now);
    assert_clean(&result, &[]);
    assert_eq!(count(&result, "sent"), 1000);
    assert_eq!(count(&result["warmup"], "sent"), 400);
    let to_come = connected();
    to_come.start(Some(monotonic_ns() + 2 * HOUR_NS)).unwrap();
    let snapshot = wait_for("warmup", || to_come.progress());
    assert_eq!(count(&snapshot, "sent"), 0);
}

#[test]
fn an_open_loop_follows_its_profile() {
    let server = Server::start(true, Faults::default());
    for (arrivals, least, most) in [("uniform", 1000, 1000), ("poisson", 840, 1160)] {
        let more = format!(
            r#","threads":2,"warmup_s":0.5,"arrivals":"{arrivals}","duration_s":2,
            "profile":[[1,0,0],[1,0,1]]"#
        );
        let (result, _) = run(&server, true, &more, "");
        assert_clean(&result, &[]);
        assert_eq!(count(&result["warmup"], "sent"), 0);
        assert_eq!(count(&result["intervals"][0], "sent"), 0);
        // Five deviations of the Poisson distribution.
        assert!((least..=most).contains(&count(&result, "sent")), "{result}");
        // Longer if the machine kept the last request from leaving in time.
        assert!(result["duration_s"].as_f64() >= Some(2.0), "{result}");
    }
}

/// Start a requestor with a sweep, and return once the sweep is over.
fn swept(server: &Server, is_ws: bool, more: &str) -> (subjectbus_loadgen::Provider, Requestor) {
    let provider = provider(is_ws, server.address, "");
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    let requestor = requestor(is_ws, server.address, &format!(r#","sweep":true{more}"#));
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    requestor.start(None).unwrap();
    wait_for("swept", || requestor.progress());
    (provider, requestor)
}

#[test]
fn a_sweep_uses_every_connection_once_before_anything_else() {
    for (is_ws, load) in [(true, ""), (false, r#","outstanding":8"#)] {
        let server = Server::start(is_ws, Faults::default());
        let more = format!(r#","threads":3,"warmup_s":0.2{load}"#);
        let (_provider, requestor) = swept(&server, is_ws, &more);
        let requested = server.done().requested.lock().unwrap().clone();
        let users = (0..200).map(|n| (format!("/c/{n}").into_bytes(), 1));
        assert_eq!(requested, users.collect());
        let snapshot: Value = serde_json::from_str(&requestor.progress()).unwrap();
        assert_eq!(
            (count(&snapshot, "sent"), count(&snapshot, "received")),
            (200, 200)
        );
        requestor.start(None).unwrap();
        let result = result(&requestor);
        assert_accounted(&result);
        assert_clean(&result, &[]);
        let sweep = &result["sweep"];
        assert_eq!((count(sweep, "sent"), count(sweep, "received")), (200, 200));
        assert!(sweep["duration_s"].as_f64().unwrap() > 0.0);
        assert!(count(&result["warmup"], "sent") > 0);
        let later = count(&result, "sent") + count(&result["warmup"], "sent");
        assert_eq!(Done::count(&server.done().requests), 200 + later);
    }
}

#[test]
fn a_sweep_awaits_every_reply_or_its_timeout() {
    let faults = Faults {
        drop_every: 50,
        ..Faults::default()
    };
    let server = Server::start(false, faults);
    let (_provider, requestor) = swept(&server, false, r#","timeout_s":0.5"#);
    requestor.start(None).unwrap();
    let result = result(&requestor);
    assert_accounted(&result);
    let outcome =
        ["sent", "received", "timed_out", "errors"].map(|key| count(&result["sweep"], key));
    assert_eq!(outcome, [200, 196, 4, 0]);
    assert!(result["sweep"]["duration_s"].as_f64().unwrap() >= 0.5);
}

#[test]
fn a_sweep_can_be_stopped_while_it_goes_and_when_it_is_over() {
    let server = Server::start(true, Faults::default());
    let (_provider, requestor_swept) = swept(&server, true, "");
    let going = requestor(true, server.address, r#","sweep":true,"rate":10"#);
    going.connect().unwrap();
    wait_for("connected", || going.progress());
    going.start(None).unwrap();
    wait_for("sweep", || going.progress());
    let refused = EngineError::State {
        call: "start",
        phase: Phase::Sweep,
        error: None,
    };
    assert_eq!(going.start(None), Err(refused));
    for requestor in [requestor_swept, going] {
        requestor.stop().unwrap();
        let result = result(&requestor);
        assert_accounted(&result);
        assert_eq!(
            (count(&result, "sent"), count(&result["warmup"], "sent")),
            (0, 0)
        );
        assert_eq!(result["duration_s"], 0.0);
    }
}

#[test]
fn churn_closes_connections_and_brings_them_back_without_a_loss() {
    for (is_ws, load) in [
        (true, r#","threads":2"#),
        (false, r#","outstanding":20"#),
        // No user is ever without a request, except those that churn disconnects.
        (true, r#","users":6,"outstanding":60"#),
    ] {
        let server = Server::start(is_ws, Faults::default());
        let more = format!(r#","churn_rate":50,"warmup_s":0.2{load}"#);
        let (result, _) = run(&server, is_ws, &more, "");
        assert_clean(&result, &[]);
        let (churned, users) = (count(&result, "churned"), count(&result, "connections"));
        assert_eq!((churned, count(&result, "reconnected")), (60, 60), "{load}");
        assert_eq!(users, if load.contains("users") { 6 } else { 200 });
        assert_eq!(Done::count(&server.done().accepted), 4 + users + 60);
        assert!(count(&result, "sent") > 60, "{result}");
    }
}

#[test]
fn attempts_to_come_back_that_fail_are_counted_and_tried_again() {
    let faults = Faults {
        refused: 210..225,
        ..Faults::default()
    };
    let server = Server::start(true, faults);
    let (result, _) = run(&server, true, r#","churn_rate":30"#, "");
    assert_clean(&result, &["connect_failures", "reconnect_failures"]);
    assert_eq!(
        (count(&result, "churned"), count(&result, "reconnected")),
        (30, 30)
    );
    assert_eq!(count(&result, "reconnect_failures"), 15);
    assert_eq!(count(&result, "connections"), 200);
}

#[test]
fn a_real_loss_is_none_of_churn() {
    let faults = Faults {
        close_after: 500,
        closed: vec!["/c/190", "/c/195"],
        ..Faults::default()
    };
    let server = Server::start(true, faults);
    let (result, _) = run(&server, true, r#","churn_rate":30,"timeout_s":1"#, "");
    assert_clean(&result, &["disconnected", "errors", "timed_out"]);
    assert_eq!(
        (count(&result, "churned"), count(&result, "reconnected")),
        (30, 30)
    );
    assert_eq!(
        (
            count(&result, "disconnected"),
            count(&result, "connections")
        ),
        (2, 198)
    );
}

#[test]
fn a_drain_that_is_given_up_leaves_what_was_outstanding_timed_out() {
    for more in ["", r#","outstanding":20"#] {
        let faults = Faults {
            drop_every: 2,
            ..Faults::default()
        };
        let server = Server::start(true, faults);
        let provider = provider(true, server.address, "");
        provider.connect().unwrap();
        wait_for("connected", || provider.progress());
        let more = format!(r#"{more},"timeout_s":3600,"duration_s":3600"#);
        let requestor = requestor(true, server.address, &more);
        requestor.connect().unwrap();
        wait_for("connected", || requestor.progress());
        requestor.start(None).unwrap();
        wait_until(
            || requestor.progress(),
            |now| count(now, "outstanding") >= 10 && count(now, "received") >= 10,
        );
        requestor.stop().unwrap();
        wait_for("draining", || requestor.progress());
        requestor.stop().unwrap();
        let result = result(&requestor);
        assert_accounted(&result);
        assert!(count(&result, "timed_out") >= 10, "{result}");
    }
}
