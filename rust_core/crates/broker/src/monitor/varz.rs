//! `/varz`: the metrics, and the settings that do not change, by the names that NATS tools know if they
//! have one.

use std::time::{Instant, SystemTime};

use serde_json::{Map, Value, json};
use telemetry::document::Document;
use telemetry::time::{rfc3339, uptime};

use super::snapshot::Snapshot;
use crate::shared::Shared;

/// Return the metrics of a snapshot as an object.
pub(super) fn counters(snapshot: &Snapshot<'_>) -> Map<String, Value> {
    let mut document = Document::new();
    snapshot.visit(|metric, samples| document.write(metric, samples));
    document.finish()
}

/// Return the whole page.
pub(super) fn page(shared: &Shared, snapshot: &Snapshot<'_>, is_draining: bool) -> Value {
    let mut object = settings(shared);
    object.insert("draining".into(), json!(is_draining));
    object.extend(counters(snapshot));
    Value::Object(object)
}

fn settings(shared: &Shared) -> Map<String, Value> {
    let elapsed = Instant::now().saturating_duration_since(shared.started);
    let (host, port) = shared.info.address();
    let settings = json!({
        "server_id": shared.info.server_id(),
        "server_name": shared.info.server_name(),
        "version": env!("CARGO_PKG_VERSION"),
        "proto": 1,
        "go": "",
        "host": host,
        "port": port,
        "start": rfc3339(shared.start),
        "now": rfc3339(SystemTime::now()),
        "uptime": uptime(elapsed),
        "uptime_s": elapsed.as_secs_f64(),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "shards": shared.metrics.len(),
        "driver": shared.driver.to_string(),
        "max_payload": shared.limits.max_payload,
        "max_control_line": shared.limits.max_control_line,
        "max_pending": shared.limits.max_pending,
        // A network of servers would have them.
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}
