//! Engines' counts of messages and connections that a server counts, too.
#![allow(clippy::unwrap_used)]

mod common;
mod server;
mod site;

use common::{count, provider, requestor, result, wait_for};
use serde_json::Value;
use server::Server;
use site::{Content, Faults, Site};
use subjectbus_loadgen::{Requestor, RequestorConfig};

/// Run a requestor to its end; return its result and its last progress.
fn drive(requestor: &Requestor) -> (Value, Value) {
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    requestor.start(None).unwrap();
    let result = result(requestor);
    (result, wait_for("done", || requestor.progress()))
}

fn exchanged(progress: &Value) -> [u64; 4] {
    let keys = [
        "published",
        "published_bytes",
        "delivered",
        "delivered_bytes",
    ];
    keys.map(|key| count(progress, key))
}

#[test]
fn requestor_and_provider_publish_and_receive_what_the_other_one_does() {
    for is_ws in [false, true] {
        let server = Server::start(is_ws, server::Faults::default());
        let provider = provider(is_ws, server.address, r#","reply_bytes":100"#);
        provider.connect().unwrap();
        wait_for("connected", || provider.progress());
        let more = r#","request_bytes":40,"reply_bytes":100,"warmup_s":0.2,"churn_rate":50"#;
        let requestor = requestor(is_ws, server.address, more);
        let (result, progress) = drive(&requestor);
        let calls = count(&result, "received") + count(&result["warmup"], "received");
        assert_eq!(
            exchanged(&progress),
            [calls, 40 * calls, calls, 100 * calls]
        );
        let churned = count(&result, "churned");
        assert!(churned > 10, "{result}");
        assert_eq!(count(&progress, "churned"), churned);
        assert_eq!(count(&progress, "opened"), 200 + churned);
        provider.stop().unwrap();
        let progress = wait_for("done", || provider.progress());
        assert_eq!(
            exchanged(&progress),
            [calls, 100 * calls, calls, 40 * calls]
        );
        assert_eq!(count(&progress, "opened"), 4);
        requestor.close();
        provider.close();
    }
}

#[test]
fn a_status_is_no_message() {
    let server = Server::start(false, server::Faults::default());
    let requestor = requestor(false, server.address, r#","rate":200"#);
    let (result, progress) = drive(&requestor);
    let sent = count(&result, "sent");
    assert_eq!(count(&result, "no_responders"), sent);
    assert_eq!(exchanged(&progress), [sent, 32 * sent, 0, 0]);
    requestor.close();
}

/// Run requests over HTTP, of which every tenth is answered by an error.
fn call(transport: &str, more: &str, content: Content) -> (Value, Value) {
    let faults = Faults {
        fail_every: 10,
        ..Faults::default()
    };
    let site = Site::start(content, faults);
    let json = format!(
        r#"{{"transport":"{transport}","address":"{}","users":8,"providers":4,"duration_s":30,
        "timeout_s":5,"outstanding":8,"calls":200{more}}}"#,
        site.address
    );
    let requestor = Requestor::new(RequestorConfig::from_json(&json).unwrap());
    let seen = drive(&requestor);
    requestor.close();
    seen
}

#[test]
fn a_request_over_http_that_is_refused_is_not_published() {
    let server = Server::start(false, server::Faults::default());
    let provider = provider(false, server.address, "");
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    for (transport, opened, answered) in [("rest", 8, 0), ("rest-new", 200, 200)] {
        let (result, progress) = call(transport, "", Content::Gateway(server.address));
        assert_eq!(
            (count(&result, "received"), count(&result, "errors")),
            (180, 20)
        );
        assert_eq!(exchanged(&progress), [180, 180 * 32, 180, 180 * 256]);
        assert_eq!(
            (count(&progress, "opened"), count(&progress, "answered")),
            (opened, answered)
        );
    }
    provider.close();
}

#[test]
fn a_page_is_no_message() {
    let more = r#","fetch":true,"reply_bytes":1"#;
    let (result, progress) = call("rest", more, Content::Page(b"a"));
    assert_eq!(count(&result, "received"), 180);
    assert_eq!(exchanged(&progress), [0; 4]);
}
