#![allow(clippy::unwrap_used)]
//! Usable configurations, and the errors of the others.

use reactor::DriverKind;

use super::*;
use crate::target::Transport;
use serde_json::{Map, Value};

/// Return a usable configuration with some keys replaced; null removes one.
fn with(json: &str) -> String {
    let base = r#"{"transport":"ws","address":"127.0.0.1:8080","users":10,"rate":100,
        "duration_s":2}"#;
    let mut fields: Map<String, Value> = serde_json::from_str(base).unwrap();
    let changes: Map<String, Value> = serde_json::from_str(json).unwrap();
    fields.extend(changes);
    fields.retain(|_, value| !value.is_null());
    serde_json::to_string(&fields).unwrap()
}

#[test]
fn defaults_are_those_of_the_benchmark() {
    let config = RequestorConfig::from_json(&with("{}")).unwrap();
    assert_eq!(
        (config.providers, config.threads, config.connect_in_flight),
        (16, 1, 512)
    );
    assert_eq!((config.request_bytes, config.reply_bytes), (32, 256));
    assert_eq!(
        (config.timeout_s, config.arrivals),
        (10.0, Arrivals::Uniform)
    );
    assert_eq!(config.target.host, "127.0.0.1:8080");
    assert_eq!(config.target.to_string(), "ws://127.0.0.1:8080/");
    let json = r#"{"transport":"tcp","address":"[::1]:4222"}"#;
    let config = ProviderConfig::from_json(json).unwrap();
    assert_eq!(
        (config.providers, config.first_provider, config.reply_bytes),
        (16, 0, 256)
    );
    assert_eq!(config.target.to_string(), "tcp://[::1]:4222");
}

#[test]
fn every_key_is_read() {
    let json = r#"{"transport":"tcp","address":"10.0.0.1:1","host":"h:2","path":"/p?q","sources":["10.0.0.2"],
        "users":7,"first_user":5,"providers":3,"rate":2.5,"sweep":true,"warmup_s":1,
        "duration_s":2,"request_bytes":64,"reply_bytes":128,"timeout_s":0.5,"threads":2,"driver":"uring","seed":9,
        "connect_rate":11.5,"connect_in_flight":4,"churn_rate":0.5,"arrivals":"poisson","phase":0.5,
        "profile":[[0.5,1,1],[1.5,0,2]],
        "clock_offset_ns":-7}"#;
    let expected = RequestorConfig {
        target: Target {
            transport: Transport::Tcp,
            address: "10.0.0.1:1".parse().unwrap(),
            host: "h:2".into(),
            path: "/p?q".into(),
            sources: vec!["10.0.0.2".parse().unwrap()],
        },
        users: 7,
        first_user: 5,
        providers: 3,
        rate: 2.5,
        outstanding: 0,
        calls: 0,
        fetch: false,
        sweep: true,
        warmup_s: 1.0,
        duration_s: 2.0,
        request_bytes: 64,
        reply_bytes: 128,
        timeout_s: 0.5,
        threads: 2,
        driver: DriverChoice::Named(DriverKind::Uring),
        seed: 9,
        connect_rate: 11.5,
        connect_in_flight: 4,
        churn_rate: 0.5,
        arrivals: Arrivals::Poisson,
        profile: vec![Segment::new(0.5, 1.0, 1.0), Segment::new(1.5, 0.0, 2.0)],
        phase: 0.5,
        clock_offset_ns: -7,
    };
    assert_eq!(RequestorConfig::from_json(json), Ok(expected));
}

#[test]
fn a_closed_loop_needs_no_rate() {
    for rate in ["null", "0"] {
        let json = with(&format!(r#"{{"rate":{rate},"outstanding":1024}}"#));
        let config = RequestorConfig::from_json(&json).unwrap();
        assert_eq!((config.rate, config.outstanding), (0.0, 1024));
    }
}

#[test]
fn errors_name_the_key() {
    for (json, key) in [
        (r#"{"userz":1}"#, "userz"),
        (r#"{"users":null}"#, "users"),
        (r#"{"users":"many"}"#, "users"),
        (r#"{"users":0}"#, "users"),
        (r#"{"users":-1}"#, "users"),
        (r#"{"first_user":4294967295}"#, "first_user"),
        (r#"{"transport":"udp"}"#, "transport"),
        (r#"{"address":"localhost:1"}"#, "address"),
        (r#"{"host":"a b"}"#, "host"),
        (r#"{"host":""}"#, "host"),
        (r#"{"path":"x"}"#, "path"),
        (r#"{"providers":65537}"#, "providers"),
        (r#"{"rate":0}"#, "rate"),
        (r#"{"rate":50000000}"#, "rate"),
        (r#"{"rate":null}"#, "rate"),
        (r#"{"outstanding":4}"#, "outstanding"),
        (r#"{"rate":0,"outstanding":-4}"#, "outstanding"),
        (r#"{"rate":0,"outstanding":2,"threads":3}"#, "outstanding"),
        (r#"{"rate":0,"outstanding":4194305}"#, "outstanding"),
        (
            r#"{"rate":0,"outstanding":4,"arrivals":"poisson"}"#,
            "arrivals",
        ),
        (r#"{"sweep":1}"#, "sweep"),
        (r#"{"warmup_s":-1}"#, "warmup_s"),
        (r#"{"duration_s":0}"#, "duration_s"),
        (r#"{"request_bytes":15}"#, "request_bytes"),
        (r#"{"reply_bytes":15}"#, "reply_bytes"),
        (r#"{"timeout_s":0}"#, "timeout_s"),
        (r#"{"threads":11}"#, "threads"),
        (r#"{"seed":-3}"#, "seed"),
        (r#"{"connect_rate":-3}"#, "connect_rate"),
        (
            r#"{"threads":5,"connect_in_flight":4}"#,
            "connect_in_flight",
        ),
        (r#"{"churn_rate":-1}"#, "churn_rate"),
        (r#"{"churn_rate":1,"threads":6}"#, "churn_rate"),
        (r#"{"arrivals":"bursts"}"#, "arrivals"),
        (r#"{"phase":1.5}"#, "phase"),
        (r#"{"profile":[[2,1]]}"#, "profile"),
        (r#"{"profile":[[1,1,1]]}"#, "profile"),
        (r#"{"profile":[[2,0,0]]}"#, "profile"),
        (r#"{"profile":[[2,-1,3]]}"#, "profile"),
        (r#"{"profile":[[-1,1,1],[3,1,1]]}"#, "profile"),
        (r#"{"profile":[[2,1,1e9]]}"#, "profile"),
        (r#"{"profile":[[2,1,300000]]}"#, "rate"),
        (
            r#"{"rate":0,"outstanding":4,"profile":[[2,1,1]]}"#,
            "profile",
        ),
        (r#"{"clock_offset_ns":0.5}"#, "clock_offset_ns"),
        (r#"{"driver":"kqueue"}"#, "driver"),
        (r#"{"sources":["::1"]}"#, "sources"),
        (r#"{"sources":["nonsense"]}"#, "sources"),
    ] {
        let error = RequestorConfig::from_json(&with(json)).unwrap_err();
        assert_eq!(error.key, key, "{json}: {error}");
        assert!(error.to_string().contains(key), "{error}");
    }
    for (more, key) in [
        (r#""first_provider":65530"#, "first_provider"),
        (r#""rate":-1"#, "rate"),
        (r#""delay_s":-1"#, "delay_s"),
        (r#""delay_s":1,"delay_for_s":1"#, "delay_every_s"),
        (
            r#""delay_s":1,"delay_for_s":3,"delay_every_s":2"#,
            "delay_for_s",
        ),
    ] {
        let json = format!(r#"{{"transport":"tcp","address":"[::1]:4222",{more}}}"#);
        let error = ProviderConfig::from_json(&json).unwrap_err();
        assert_eq!(error.key, key, "{json}: {error}");
    }
    for json in ["", "[]", "{", "7"] {
        assert_eq!(
            RequestorConfig::from_json(json).unwrap_err().key,
            "",
            "{json}"
        );
    }
}

#[test]
fn http_carries_requests_of_one_each() {
    let base = r#"{"transport":"rest-new","rate":0,"outstanding":10,"calls":5,"path":"/x"}"#;
    let config = RequestorConfig::from_json(&with(base)).unwrap();
    assert_eq!(config.target.to_string(), "http://127.0.0.1:8080/x");
    assert_eq!((config.calls, config.fetch), (5, false));
    let page = r#"{"transport":"rest","fetch":true,"reply_bytes":0}"#;
    assert!(RequestorConfig::from_json(&with(page)).is_ok());
    let refused = [
        (r#"{"fetch":true}"#, "fetch", "ws cannot fetch a page"),
        (r#"{"calls":5}"#, "calls", "only a closed loop"),
        (
            r#"{"rate":0,"outstanding":9,"threads":2,"calls":1}"#,
            "calls",
            "1 is not between 2 and",
        ),
        (
            r#"{"transport":"rest","rate":0,"outstanding":11}"#,
            "outstanding",
            "11 with 10 users",
        ),
        (
            r#"{"transport":"rest","churn_rate":1}"#,
            "churn_rate",
            "churn is not possible over HTTP",
        ),
        (r#"{"transport":"http"}"#, "transport", "unknown variant"),
    ];
    for (json, key, what) in refused {
        let error = RequestorConfig::from_json(&with(json)).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert!(error.what.contains(what), "{error}");
    }
    let json = r#"{"transport":"rest","address":"127.0.0.1:1"}"#;
    let error = ProviderConfig::from_json(json).unwrap_err();
    assert!(error.what.contains("carries requests only"), "{error}");
}
