//! `/connz`: the parameters of the page of the clients' connections.

use serde_json::{Value, json};

use super::query::Parameters;
use crate::transport::TransportKind;

/// The most connections, or subscriptions, of a page.
pub(crate) const MAX_LIMIT: u64 = 1024;
/// Bytes that the lists of subjects of a page have at most, all its connections together.
pub(super) const LISTS: usize = 1 << 20;

/// The value by which a page is sorted; the smallest first, or the largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
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

/// The kinds of connections by the `type` of a row, and by their names in `/varz`.
const TRANSPORTS: &[(&str, TransportKind)] = &[
    ("tcp", TransportKind::Tcp),
    ("nats", TransportKind::Tcp),
    ("websocket", TransportKind::WebSocket),
    ("http", TransportKind::Http),
];

/// The parameters of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(super) sort: Sort,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    /// Whether rows have lists of subjects.
    pub(crate) lists_subjects: bool,
    pub(super) cid: Option<u64>,
    pub(super) transport: Option<TransportKind>,
    pub(super) name: Option<String>,
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

    /// Return the page without its connections.
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
