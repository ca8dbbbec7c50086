//! Replies as the answers to the requests over HTTP that wait for them.

use protocol::nats::Message;
use reactor::ConnId;

use super::answer::{self, Date, Envelope};
use super::inbox;
use crate::io::Io;
use crate::metrics::table::Dropped;
use crate::reason::Reason;
use crate::sessions::Sessions;
use crate::transport::TransportKind;

/// Give a reply as the answer to the request that waits for it, or count why not.
pub(crate) fn deliver(
    sessions: &mut Sessions,
    date: &mut Date,
    io: &mut Io,
    id: ConnId,
    message: &Message<'_>,
) {
    let now = io.now();
    let second = sessions.second(now);
    let Some(conn) = io.conn_mut(id) else {
        sessions.counts.add_dropped(Dropped::Closed, 1);
        return;
    };
    let http = conn.session.http_mut();
    let waiting = http.and_then(|http| {
        let token = inbox::token(message.subject)?;
        http.take_waiting(token, now)
    });
    let (Some(waiting), Some(conn)) = (waiting, io.writer(id)) else {
        // The second reply, one that came too late, or one to a request that was never made.
        sessions.counts.add_dropped(Dropped::Unsubscribed, 1);
        return;
    };
    if conn.output.len() + message.size() > sessions.shared.limits.max_pending {
        // It sends requests and does not read the answers.
        sessions.counts.add_dropped(Dropped::SlowConsumer, 1);
        sessions.abort(io, id, Reason::SlowConsumer);
        return;
    }
    if conn.output.tail_is_full() {
        conn.output.seal();
    }
    let waited = now.saturating_duration_since(waiting.begun());
    sessions
        .counts
        .record_gateway_wait(waited.as_nanos() as u64);
    let keep_alive = waiting.keep_alive && !sessions.is_draining;
    let envelope = Envelope {
        date: date.at(now),
        keep_alive,
        head_only: false,
        origin: waiting.origin.as_deref(),
    };
    answer::encode_reply(conn.output.tail(), message, envelope);
    conn.output.add_items(1);
    conn.session.traffic.count_sent(message.size(), second);
    io.spend(message.size());
    let len = message.size();
    sessions.counts.add_sent(TransportKind::Http, len);
    end_exchange(sessions, io, id, keep_alive);
}

/// Go on with the next request of a connection whose request was answered later, or end the connection.
pub(crate) fn end_exchange(sessions: &mut Sessions, io: &mut Io, id: ConnId, keep_alive: bool) {
    if !keep_alive {
        sessions.end(io, id, Reason::HttpAnswered, None);
    } else if let Some(conn) = io.conn(id)
        && let Some(http) = conn.session.http()
        && !http.buffer.is_empty()
    {
        sessions.reading.put_off(id);
        io.wake_at(io.now());
    }
}
