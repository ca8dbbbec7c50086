//! `/connz`: the clients' connections, page by page.

use std::borrow::Cow;
use std::time::Instant;

use reactor::Conn;
use serde::Serialize;
use serde_json::{Value, json};
use telemetry::time::{Clock, rfc3339, uptime};

use super::query::Parameters;
use super::selection::Candidate;
use crate::session::Session;
use crate::transport::TransportKind;

/// The most connections, or subscriptions, of a page.
pub(crate) const MAX_LIMIT: u64 = 1024;
/// Subjects that one shard lists on a page at most.
const MAX_LISTED: usize = 16_384;

/// What a page is sorted by; the smallest first, or the largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Cid,
    Start,
    Subscriptions,
    Pending,
    MsgsTo,
    MsgsFrom,
    BytesTo,
    BytesFrom,
    Last,
    Idle,
    Uptime,
}

const SORTS: &[(&str, Sort)] = &[
    ("cid", Sort::Cid),
    ("start", Sort::Start),
    ("subs", Sort::Subscriptions),
    ("pending", Sort::Pending),
    ("msgs_to", Sort::MsgsTo),
    ("msgs_from", Sort::MsgsFrom),
    ("bytes_to", Sort::BytesTo),
    ("bytes_from", Sort::BytesFrom),
    ("last", Sort::Last),
    ("idle", Sort::Idle),
    ("uptime", Sort::Uptime),
];

/// Both what the `type` of a connection says, and what `/varz` calls it.
const TRANSPORTS: &[(&str, TransportKind)] = &[
    ("tcp", TransportKind::Tcp),
    ("nats", TransportKind::Tcp),
    ("websocket", TransportKind::WebSocket),
    ("http", TransportKind::Http),
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    sort: Sort,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    lists_subjects: bool,
    cid: Option<u64>,
    transport: Option<TransportKind>,
    name: Option<String>,
}

impl Query {
    pub(crate) const NAMES: &'static [&'static str] = &[
        "sort",
        "limit",
        "offset",
        "subs",
        "cid",
        "transport",
        "name",
    ];

    pub(crate) fn parse(parameters: &Parameters<'_>) -> Result<Self, String> {
        Ok(Self {
            sort: parameters.choice("sort", SORTS)?.unwrap_or_default(),
            offset: parameters.offset()?,
            limit: parameters.limit(MAX_LIMIT)?,
            lists_subjects: parameters.flag("subs")?,
            cid: parameters.number("cid", 0..=u64::MAX)?,
            transport: parameters.choice("transport", TRANSPORTS)?,
            name: parameters.text("name")?,
        })
    }

    /// The connection's place in the order; `None` for one that is not asked for.
    pub(crate) fn rank(&self, conn: &Conn<Session>) -> Option<u64> {
        let session = &conn.session;
        let name = || session.info.as_ref().map_or("", |info| &info.name);
        let is_wanted = self.cid.is_none_or(|cid| session.cid == cid)
            && self
                .transport
                .is_none_or(|kind| session.framing.transport() == kind)
            && self.name.as_deref().is_none_or(|wanted| name() == wanted);
        let traffic = &session.traffic;
        is_wanted.then(|| match self.sort {
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

    /// The page without its connections.
    pub(crate) fn head(&self, server_id: &str, now: &str, total: u64, shown: usize) -> Value {
        json!({
            "server_id": server_id,
            "now": now,
            "num_connections": shown,
            "total": total,
            "offset": self.offset,
            "limit": self.limit,
        })
    }

    /// One connection's row; `listed` counts the subjects that the page has so far.
    pub(crate) fn row(
        &self,
        conn: &Conn<Session>,
        candidate: &Candidate,
        clock: &Clock,
        now: Instant,
        listed: &mut usize,
    ) -> String {
        let session = &conn.session;
        let traffic = &session.traffic;
        let info = session.info.as_deref();
        let row = Row {
            cid: session.cid,
            kind: "Client",
            r#type: type_of(session.framing.transport()),
            ip: session.peer.ip().to_canonical().to_string(),
            port: session.peer.port(),
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
            name: info.map_or("", |info| &info.name),
            lang: info.map_or("", |info| &info.lang),
            version: info.map_or("", |info| &info.version),
            shard: candidate.shard,
            subscriptions_list: self.lists_subjects.then(|| subjects(session, listed)),
        };
        serde_json::to_string(&row).unwrap_or_default()
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
    name: &'a str,
    lang: &'a str,
    version: &'a str,
    shard: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions_list: Option<Vec<Cow<'a, str>>>,
}

const fn type_of(transport: TransportKind) -> &'static str {
    match transport {
        TransportKind::Tcp => "nats",
        TransportKind::WebSocket => "websocket",
        TransportKind::Http => "http",
    }
}

/// What a client has subscribed to, as far as the page has room.
fn subjects<'a>(session: &'a Session, listed: &mut usize) -> Vec<Cow<'a, str>> {
    let active = session.subscriptions.iter().filter(|(_, one)| !one.leaving);
    let subjects = active.map(|(_, one)| String::from_utf8_lossy(one.subject()));
    let subjects: Vec<_> = subjects.take(MAX_LISTED - *listed).collect();
    *listed += subjects.len();
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, String> {
        Query::parse(&Parameters::new(Some(text), Query::NAMES)?)
    }

    #[test]
    fn queries() {
        let wanted = Query {
            sort: Sort::Cid,
            offset: 0,
            limit: 1024,
            lists_subjects: false,
            cid: None,
            transport: None,
            name: None,
        };
        assert_eq!(query(""), Ok(wanted));
        let wanted = Query {
            sort: Sort::BytesTo,
            offset: 2_000_000,
            limit: 7,
            lists_subjects: true,
            cid: Some(3),
            transport: Some(TransportKind::Tcp),
            name: Some("a b".into()),
        };
        let text = "sort=bytes_to&offset=2000000&limit=7&subs=1&cid=3&transport=nats&name=a%20b";
        assert_eq!(query(text), Ok(wanted));
        for wrong in [
            "sort=rtt",
            "limit=0",
            "limit=1025",
            "offset=-1",
            "cid=x",
            "transport=udp",
            "subs=2",
            "acc=x",
        ] {
            let name = wrong.split('=').next().unwrap_or_default();
            let error = query(wrong).expect_err(wrong);
            assert!(error.contains(name), "{error}");
        }
    }
}
