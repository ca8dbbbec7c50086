//! What the monitor shows.

use serde_json::{Value, json};

use crate::shard::{Io, Shard};

impl Shard {
    /// The counters and settings that `/varz` shows.
    pub(crate) fn varz(&mut self, io: &mut Io) -> Value {
        self.publish_counts(io);
        let shared = &self.shared;
        let mut object = shared.totals().to_json();
        let more = [
            ("server_id", json!(shared.info.server_id())),
            ("server_name", json!(shared.info.server_name())),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("uptime_s", json!(shared.started.elapsed().as_secs_f64())),
            ("mem", json!(resident_bytes())),
            (
                "cores",
                json!(std::thread::available_parallelism().map_or(1, usize::from)),
            ),
            ("shards", json!(io.shards())),
            ("driver", json!(shared.driver.to_string())),
            ("max_connections", json!(shared.limits.max_connections)),
            ("max_payload", json!(shared.limits.max_payload)),
            ("max_control_line", json!(shared.limits.max_control_line)),
            ("pending_bytes", json!(shared.backlog())),
            ("max_pending", json!(shared.limits.max_pending)),
            ("max_pending_total", json!(shared.limits.max_pending_total)),
        ];
        object.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::Object(object)
    }
}

/// Resident memory of this process, from proc_pid_statm(5); 0 where that cannot be read.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * reactor::page_size()
}
