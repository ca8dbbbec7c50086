//! The rows of `/connz`: the order of connections, and the description of each.

use std::borrow::Cow;
use std::time::Instant;

use reactor::Conn;
use serde::Serialize;
use telemetry::time::{Clock, rfc3339, uptime};

use super::connz::{Query, Sort};
use super::selection::Candidate;
use super::shown::{NAME, SUBJECT, shown};
use crate::clients::ClientInfo;
use crate::session::Session;
use crate::transport::TransportKind;

/// Work of describing a connection, besides its bytes.
const ROW: usize = 2_000;
/// Work of listing a subject, besides its bytes.
const LISTED: usize = 50;
/// Work of passing a slot of a subscription.
const PLACE: usize = 4;
/// Slots that are looked at before the slice is looked at again.
const PLACES: u32 = 16;

/// Return the connection's place in the order; `None` for one that is not asked for.
pub(super) fn rank(query: &Query, conn: &Conn<Session>) -> Option<u64> {
    let session = &conn.session;
    let name = || session.info.as_ref().map_or("", |info| &info.name);
    let is_wanted = query.cid.is_none_or(|cid| session.cid == cid)
        && query.transport.is_none_or(|kind| session.kind() == kind)
        && query.name.as_deref().is_none_or(|wanted| name() == wanted);
    let traffic = &session.traffic;
    is_wanted.then(|| match query.sort {
        Sort::Cid => 0,
        Sort::Start | Sort::Uptime => traffic.started.into(),
        Sort::Subscriptions => !(session.subscriptions.len() as u64),
        Sort::Pending => !(conn.output.len() as u64),
        Sort::MsgsTo => !traffic.out_msgs,
        Sort::MsgsFrom => !traffic.in_msgs,
        Sort::BytesTo => !traffic.out_bytes,
        Sort::BytesFrom => !traffic.in_bytes,
        Sort::Last => !u64::from(traffic.active),
        Sort::Idle => traffic.active.into(),
    })
}

/// Return the row of one connection without its subjects, as JSON.
fn row(conn: &Conn<Session>, candidate: &Candidate, clock: &Clock, now: Instant) -> String {
    let session = &conn.session;
    let traffic = &session.traffic;
    let info = session.info.as_deref();
    let text = |text: fn(&ClientInfo) -> &str| {
        info.map_or(Cow::Borrowed(""), |info| shown(text(info).as_bytes(), NAME))
    };
    let row = Row {
        cid: session.cid,
        kind: "Client",
        r#type: type_of(session.kind()),
        ip: session.ip.to_canonical().to_string(),
        port: session.peer().port(),
        start: rfc3339(clock.at(traffic.started)),
        last_activity: rfc3339(clock.at(traffic.active)),
        rtt: "",
        uptime: uptime(clock.since(traffic.started, now)),
        idle: uptime(clock.since(traffic.active, now)),
        pending_bytes: conn.output.len(),
        in_msgs: traffic.in_msgs,
        out_msgs: traffic.out_msgs,
        in_bytes: traffic.in_bytes,
        out_bytes: traffic.out_bytes,
        subscriptions: session.subscriptions.len(),
        name: text(|info| &info.name),
        lang: text(|info| &info.lang),
        version: text(|info| &info.version),
        shard: candidate.shard,
    };
    serde_json::to_string(&row).unwrap_or_default()
}

/// A row that is being written, as far as it has come.
pub(super) struct Unfinished {
    text: String,
    list: Option<List>,
}

/// The list of a connection's subjects.
struct List {
    /// Bytes that it may have, and those that it has.
    room: usize,
    used: usize,
    /// Slot of the next subscription to be listed.
    next: u32,
    /// Subscriptions that were there when the list was begun, less those that are listed.
    left_out: usize,
}

impl Unfinished {
    /// Begin the row of a connection. `room` is the number of bytes that its list of subjects may have;
    /// without it there is no list.
    pub(super) fn new(
        conn: &Conn<Session>,
        candidate: &Candidate,
        room: Option<usize>,
        clock: &Clock,
        now: Instant,
    ) -> Self {
        let mut text = row(conn, candidate, clock, now);
        let list = room.map(|room| {
            text.pop();
            text.push_str(",\"subscriptions_list\":[");
            List {
                room,
                used: 0,
                next: 0,
                left_out: conn.session.subscriptions.len(),
            }
        });
        Self { text, list }
    }

    /// Work of having begun it.
    pub(super) fn begun(&self) -> usize {
        ROW + self.text.len()
    }

    /// List some more subjects; return the work of it, or `None` when the list is complete or has no room
    /// for the next one.
    pub(super) fn list_more(&mut self, session: &Session) -> Option<usize> {
        let list = self.list.as_mut()?;
        if list.left_out == 0 || list.next >= session.subscriptions.slots() {
            return None;
        }
        let places = list.next..list.next.saturating_add(PLACES);
        list.next = places.end;
        let mut work = PLACES as usize * PLACE;
        let found = session.subscriptions.iter_in(places);
        for (_, one) in found.filter(|(_, one)| !one.leaving) {
            let subject = shown(one.subject(), SUBJECT);
            let subject = serde_json::to_string(&subject).unwrap_or_default();
            // With a comma.
            let used = list.used + subject.len() + 1;
            if used > list.room {
                return None;
            }
            list.used = used;
            list.left_out = list.left_out.saturating_sub(1);
            if !self.text.ends_with('[') {
                self.text.push(',');
            }
            self.text.push_str(&subject);
            work += LISTED + subject.len();
        }
        Some(work)
    }

    /// Return the whole row, and the bytes of its list.
    pub(super) fn finish(mut self) -> (String, usize) {
        let Some(list) = self.list else {
            return (self.text, 0);
        };
        let left_out = list.left_out;
        self.text
            .push_str(&format!("],\"subscriptions_left_out\":{left_out}}}"));
        (self.text, list.used)
    }
}

/// A connection as nats-server shows it.
#[derive(Serialize)]
struct Row<'a> {
    cid: u64,
    kind: &'static str,
    r#type: &'static str,
    ip: String,
    port: u16,
    start: String,
    last_activity: String,
    /// Not measured.
    rtt: &'static str,
    uptime: String,
    idle: String,
    pending_bytes: usize,
    in_msgs: u64,
    out_msgs: u64,
    in_bytes: u64,
    out_bytes: u64,
    subscriptions: usize,
    name: Cow<'a, str>,
    lang: Cow<'a, str>,
    version: Cow<'a, str>,
    shard: u16,
}

const fn type_of(transport: TransportKind) -> &'static str {
    match transport {
        TransportKind::Tcp => "nats",
        TransportKind::WebSocket => "websocket",
        TransportKind::Http => "http",
    }
}
