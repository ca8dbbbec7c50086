//! `/varz`: counters and settings, by the names that NATS tools know where they have one.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::Monitor;
use super::time::{rfc3339, uptime};
use super::watch::waits;
use crate::counters::{Counter, Gauge, Published, Totals};
use crate::shared::Shared;

impl Monitor {
    pub(crate) fn varz(&self, shared: &Shared, is_draining: bool) -> Value {
        let totals = shared.totals();
        let mut object = totals.to_json();
        object.extend(settings(shared));
        let memory = self.watch.memory(shared);
        let more = [
            ("draining", json!(is_draining)),
            ("mem", json!(memory.resident)),
            ("memory", by_name(&memory.by_purpose())),
            ("cpu", json!(self.watch.cpu_percent().sum::<f64>())),
            ("subjects", json!(self.watch.extent().subjects)),
            ("pending_bytes", json!(memory.pending)),
            ("gateway", gateway(shared, &totals)),
            ("log", shared.log.to_json()),
            ("shard", self.shards(shared)),
        ];
        object.extend(more.map(|(key, value)| (key.to_owned(), value)));
        Value::Object(object)
    }

    fn shards(&self, shared: &Shared) -> Value {
        let shards = shared.published.iter().zip(self.watch.cpu_percent());
        let rows = shards.enumerate().map(|(index, (shard, cpu_percent))| {
            json!({
                "index": index,
                "connections": Totals::sum([&**shard].into_iter()).connections(),
                "cpu_percent": cpu_percent,
                "cpu_s": shard.gauge(Gauge::Cpu) as f64 / 1e9,
                "turns": shard.turns.count(),
                "calls": by_name(&calls(shard)),
                "descriptors": {
                    "used": shard.gauge(Gauge::Descriptors),
                    "limit": shard.gauge(Gauge::DescriptorLimit),
                },
                "mailbox": shard.gauge(Gauge::Mailbox),
                "pending_bytes": shared.backlogs[index].bytes(),
                "accept_queue": {
                    "tcp": shard.gauge(Gauge::AcceptQueueTcp),
                    "http": shard.gauge(Gauge::AcceptQueueHttp),
                },
            })
        });
        rows.collect()
    }
}

/// System calls of a shard by name.
pub(super) fn calls(shard: &Published) -> [(&'static str, u64); 4] {
    [
        ("enter", shard.gauge(Gauge::EnterCalls)),
        ("wait", shard.gauge(Gauge::WaitCalls)),
        ("receive", shard.gauge(Gauge::ReceiveCalls)),
        ("accept", shard.gauge(Gauge::AcceptCalls)),
    ]
}

/// What does not change, and the time.
fn settings(shared: &Shared) -> Map<String, Value> {
    let elapsed = shared.started.elapsed();
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
        "shards": shared.published.len(),
        "driver": shared.driver.to_string(),
        "max_connections": shared.limits.max_connections,
        "max_payload": shared.limits.max_payload,
        "max_control_line": shared.limits.max_control_line,
        "max_pending": shared.limits.max_pending,
        "max_pending_total": shared.limits.max_pending_total,
        // Of a network of servers: there is none.
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}

fn gateway(shared: &Shared, totals: &Totals) -> Value {
    let waits = waits(shared);
    let micros = |nanos: u64| nanos as f64 / 1e3;
    json!({
        "in_flight": shared.gauge(Gauge::GatewayInFlight),
        "requests": totals.value(Counter::GatewayRequests),
        "timeouts": totals.value(Counter::GatewayTimeouts),
        "duration_us": {
            "count": waits.count(),
            "mean": micros(waits.total()) / waits.count().max(1) as f64,
            "p50": micros(waits.quantile(0.5)),
            "p95": micros(waits.quantile(0.95)),
            "p99": micros(waits.quantile(0.99)),
            "max_bucket": micros(waits.quantile(1.0)),
        },
    })
}

fn by_name(values: &[(&str, u64)]) -> Value {
    values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect()
}
