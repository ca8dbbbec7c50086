//! The result as JSON.

use std::fs;

use serde_json::{Map, Value, json};

use crate::options::Mode;
use crate::run::Measured;

/// One object; times in seconds or, where the name says so, microseconds.
pub(crate) fn json(measured: &Measured) -> Value {
    let mut report = Map::new();
    let mut add = |value: Value| {
        if let Value::Object(fields) = value {
            report.extend(fields);
        }
    };
    let options = &measured.setup.options;
    let seconds = measured.duration.as_secs_f64();
    let arrived = measured.arrived as f64;
    let each = |cpu: std::time::Duration| ratio(cpu.as_secs_f64() * 1e6, arrived);
    let (server_each, load_each) = (each(measured.server_cpu), each(measured.load_cpu));
    add(json!({
        "driver": options.driver.name(),
        "connections": options.connections,
        "greeting": options.greeting,
        "outstanding": options.outstanding,
        "duration_s": seconds,
    }));
    match options.mode {
        Mode::Relay(exchange) => add(json!({
            "mode": "relay",
            "request_bytes": exchange.request_bytes,
            "reply_bytes": exchange.reply_bytes,
            "providers": exchange.providers,
            "requests": measured.arrived,
            "requests_per_s": arrived / seconds,
            "server_cpu_us_per_request": server_each,
            "load_cpu_us_per_request": load_each,
        })),
        Mode::Fanout { message_bytes } => add(json!({
            "mode": "fanout",
            "message_bytes": message_bytes,
            "messages": measured.messages,
            "deliveries": measured.arrived,
            "deliveries_per_s": arrived / seconds,
            "server_cpu_us_per_delivery": server_each,
            "load_cpu_us_per_delivery": load_each,
            "spread_us": measured.spread.map(|(median, max)| json!({
                "median": median as f64 / 1e3,
                "max": max as f64 / 1e3,
            })),
        })),
    }
    let connections = f64::from(options.connections);
    let connect = measured.connect.as_secs_f64();
    add(json!({
        "server_cpu_share": measured.server_cpu.as_secs_f64() / seconds,
        "load_cpu_share": measured.load_cpu.as_secs_f64() / seconds,
        "connect_s": connect,
        "connections_per_s": ratio(connections, connect),
        "server_cpu_us_per_connection": measured.connect_server_cpu.as_secs_f64() * 1e6 / connections,
        "load_cpu_us_per_connection": measured.connect_load_cpu.as_secs_f64() * 1e6 / connections,
        "server_rss_bytes": measured.server_rss_bytes,
        "server_rss_bytes_per_connection": measured.server_growth_bytes as f64 / connections,
        "retried_connects": measured.retried,
        "errors": measured.errors,
        "server_cpu": measured.server_core,
        "load_cpu": measured.load_core,
        "server_tables": measured.setup.server.count,
        "load_tables": measured.setup.load.count,
        "kernel": fact("/proc/sys/kernel/osrelease"),
        "tcp_ehash_entries": fact("/proc/sys/net/ipv4/tcp_ehash_entries"),
    }));
    Value::Object(report)
}

/// `null` where nothing was measured.
fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    (denominator > 0.0).then(|| numerator / denominator)
}

/// What the figures depend on; `null` where the kernel does not say.
fn fact(path: &str) -> Value {
    let Ok(text) = fs::read_to_string(path) else {
        return Value::Null;
    };
    let text = text.trim();
    text.parse::<i64>()
        .map_or_else(|_| json!(text), |n| json!(n))
}
