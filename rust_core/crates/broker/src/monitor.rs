//! The monitor's listener: `/healthz` and `/varz`, by GET and HEAD.

use protocol::http::{HeadLimits, RequestHead, encode_response, parse_head};
use reactor::ConnId;
use serde_json::{Value, json};

use crate::http::{join, plain, refusal};
use crate::session::Transport;
use crate::shard::{Io, Shard};

const JSON: &[(&str, &str)] = &[
    ("Content-Type", "application/json"),
    ("Cache-Control", "no-store"),
];

impl Shard {
    /// Reads requests and answers them; what has arrived of the next one, or `None` when the
    /// connection has ended.
    pub(crate) fn receive_monitor(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut head: Vec<u8>,
        input: &[u8],
    ) -> Option<Transport> {
        let whole = join(&mut head, input);
        match parse_head(whole, HeadLimits::default()) {
            Ok(None) => Some(Transport::Monitor(whole.to_vec())),
            Ok(Some((request, used))) => {
                // Bodies are not read and requests not queued: nothing may follow unasked.
                let is_last = used < whole.len();
                if self.answer_monitor(io, id, &request, is_last)? {
                    return Some(Transport::Monitor(Vec::new()));
                }
                self.end_http(io, id, &[]);
                None
            }
            Err(error) => {
                self.end_http(io, id, &refusal(error));
                None
            }
        }
    }

    /// Answers one request; whether another may follow.
    fn answer_monitor(
        &mut self,
        io: &mut Io,
        id: ConnId,
        request: &RequestHead<'_>,
        is_last: bool,
    ) -> Option<bool> {
        let head_only = match request.method {
            "GET" => false,
            "HEAD" => true,
            _ => {
                let allow = [("Allow", "GET, HEAD")];
                self.end_http(io, id, &plain(405, "only GET and HEAD here", &allow));
                return None;
            }
        };
        let (status, body) = match request.path() {
            "/healthz" => (200, json!({"status": "ok"})),
            "/varz" => (200, self.varz(io)),
            _ => (
                404,
                json!({"error": "no such page", "pages": ["/healthz", "/varz"]}),
            ),
        };
        let keep_alive = !is_last
            && request.keep_alive()
            && request.headers.count("Content-Length") == 0
            && request.headers.count("Transfer-Encoding") == 0;
        if io.conn(id)?.output.len() > self.shared.limits.max_pending {
            self.end_slow_consumer(io, id);
            return None;
        }
        let conn = io.writer(id)?;
        let body = body.to_string();
        let out = conn.output.tail();
        encode_response(out, status, JSON, body.as_bytes(), keep_alive, head_only);
        Some(keep_alive)
    }

    fn varz(&mut self, io: &mut Io) -> Value {
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
