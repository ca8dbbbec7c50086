//! Common parts of the engines' tests: runs against the test server, and laws that hold in every
//! run.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use rustix::net::{self, AddressFamily, SocketType};
use serde_json::Value;
use subjectbus_loadgen::{Provider, ProviderConfig, Requestor, RequestorConfig};

use crate::server::Server;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Return a socket that refuses connections, and its address, which no other program takes meanwhile.
pub(crate) fn refusing() -> (OwnedFd, SocketAddr) {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap();
    (socket, address)
}

pub(crate) fn transport(is_ws: bool) -> &'static str {
    if is_ws { "ws" } else { "tcp" }
}

pub(crate) fn requestor(is_ws: bool, address: SocketAddr, more: &str) -> Requestor {
    let rate = if more.contains("outstanding") {
        0
    } else {
        2000
    };
    let json = format!(
        r#"{{"transport":"{}","address":"{address}","users":200,"providers":4,"rate":{rate},
        "duration_s":1,"timeout_s":5{more}}}"#,
        transport(is_ws)
    );
    Requestor::new(RequestorConfig::from_json(&json).unwrap())
}

pub(crate) fn provider(is_ws: bool, address: SocketAddr, more: &str) -> Provider {
    let json = format!(
        r#"{{"transport":"{}","address":"{address}","providers":4{more}}}"#,
        transport(is_ws)
    );
    Provider::new(ProviderConfig::from_json(&json).unwrap())
}

/// Poll `progress` until the phase is `wanted`; return the last snapshot.
pub(crate) fn wait_for(wanted: &str, progress: impl Fn() -> String) -> Value {
    wait_until(progress, |snapshot| snapshot["phase"] == wanted)
}

/// Poll `progress` until `condition` holds; return the last snapshot.
pub(crate) fn wait_until(
    progress: impl Fn() -> String,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let snapshot: Value = serde_json::from_str(&progress()).unwrap();
        if condition(&snapshot) {
            return snapshot;
        }
        assert_ne!(snapshot["phase"], "failed", "{snapshot}");
        assert!(Instant::now() < deadline, "{snapshot}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn result(requestor: &Requestor) -> Value {
    wait_for("done", || requestor.progress());
    serde_json::from_str(&requestor.result().unwrap()).unwrap()
}

/// Run both engines against `server` to the end.
pub(crate) fn run(
    server: &Server,
    is_ws: bool,
    requestor_more: &str,
    provider_more: &str,
) -> (Value, Value) {
    let provider = provider(is_ws, server.address, provider_more);
    provider.connect().unwrap();
    wait_for("connected", || provider.progress());
    let requestor = requestor(is_ws, server.address, requestor_more);
    requestor.connect().unwrap();
    wait_for("connected", || requestor.progress());
    requestor.start(None).unwrap();
    let requested = result(&requestor);
    provider.stop().unwrap();
    wait_for("done", || provider.progress());
    let provided = serde_json::from_str(&provider.result().unwrap()).unwrap();
    requestor.close();
    provider.close();
    assert_accounted(&requested);
    (requested, provided)
}

pub(crate) fn count(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

pub(crate) fn decode(text: &Value) -> Histogram<u64> {
    use base64::Engine as _;
    let text = text.as_str().unwrap();
    assert!(text.starts_with("HISTF"));
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap();
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .unwrap()
}

/// Assert the identities that hold in every run.
pub(crate) fn assert_accounted(result: &Value) {
    let sweep = Some(&result["sweep"]).filter(|sweep| !sweep.is_null());
    for counts in [result, &result["warmup"]].into_iter().chain(sweep) {
        let ended = ["received", "timed_out", "errors"].map(|key| count(counts, key));
        assert_eq!(count(counts, "sent"), ended.iter().sum::<u64>(), "{counts}");
    }
    let received = count(result, "received");
    for moments in ["latency", "service"].map(|key| &result[key]) {
        let (count, sum, squares) = (
            count(moments, "count"),
            u128::from(count(moments, "sum_ns")),
            moments["sum_sq_ns2"].to_string().parse::<f64>().unwrap(),
        );
        let histogram = decode(&moments["hdr"]);
        assert_eq!((count, histogram.len()), (received, received));
        if count > 0 {
            let mean = sum as f64 / count as f64;
            assert!((histogram.mean() / mean - 1.0).abs() < 0.001);
            assert!(squares >= mean * mean * count as f64 * 0.999_999);
            let (min, max) = (moments["min_ns"].as_u64(), moments["max_ns"].as_u64());
            assert!(histogram.equivalent(histogram.max(), max.unwrap()));
            assert!(histogram.equivalent(histogram.min(), min.unwrap()));
        }
    }
    let intervals = result["intervals"].as_array().unwrap();
    let total = |key| intervals.iter().map(|row| count(row, key)).sum::<u64>();
    assert_eq!(
        (total("sent"), total("received")),
        (count(result, "sent"), received)
    );
    let lags = intervals.iter().map(|row| count(row, "max_send_lag_ns"));
    assert_eq!(
        lags.max().unwrap_or(0),
        count(result, "max_send_lag_ns"),
        "{result}"
    );
    let mut merged = decode(&result["latency"]["hdr"]);
    merged.reset();
    for (n, row) in intervals.iter().enumerate() {
        assert_eq!(row["start_s"].as_f64(), Some(n as f64));
        assert!(row["end_s"].as_f64().unwrap() <= n as f64 + 1.0);
        merged.add(decode(&row["hdr"])).unwrap();
    }
    assert_eq!(merged, decode(&result["latency"]["hdr"]));
}

/// Assert that all counts that a run without faults has at zero are zero, except those in `except`.
pub(crate) fn assert_clean(result: &Value, except: &[&str]) {
    for key in [
        "connect_failures",
        "timed_out",
        "errors",
        "duplicates",
        "late",
        "corrupt",
        "no_responders",
        "unmatched",
        "disconnected",
        "reconnect_failures",
        "server_errors",
    ] {
        assert!(
            except.contains(&key) || count(result, key) == 0,
            "{key}: {result}"
        );
    }
}
