//! `/subsz`: the clients' subscriptions, page by page.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

use super::connz::MAX_LIMIT;
use super::query::Parameters;
use super::shown::{SUBJECT, shown};
use crate::metrics::table::{Counter, Flow};
use crate::metrics::totals::Totals;
use crate::subscriptions::Subscription;

/// The parameters of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    pub(crate) lists: bool,
    /// Subject that subscriptions must match to be listed.
    pub(crate) test: Option<String>,
}

impl Query {
    pub(crate) const NAMES: &'static [&'static str] = &["subs", "limit", "offset", "test"];

    pub(crate) fn parse(parameters: &Parameters<'_>) -> Result<Self, String> {
        let test = parameters.text("test")?;
        if let Some(subject) = &test
            && !router::is_valid_publish(subject.as_bytes())
        {
            return Err(format!(
                "test must be a subject without wildcards, and is {subject:?}"
            ));
        }
        Ok(Self {
            offset: parameters.offset()?,
            limit: parameters.limit(MAX_LIMIT)?,
            lists: parameters.flag("subs")?,
            test,
        })
    }

    /// Return whether a subscription is asked for.
    pub(crate) fn is_wanted(&self, subscription: &Subscription) -> bool {
        let is_match =
            |test: &String| router::subject::matches(subscription.subject(), test.as_bytes());
        !subscription.leaving && self.test.as_ref().is_none_or(is_match)
    }

    /// Return the work of [`is_wanted`](Self::is_wanted) that depends on the subject.
    pub(crate) fn work(&self, subscription: &Subscription) -> usize {
        let compared = |test: &String| test.len().min(subscription.subject().len());
        self.test.as_ref().map_or(0, compared)
    }

    /// Return the page without its subscriptions; `max_fanout` is the most receivers that a message had.
    pub(crate) fn head(
        &self,
        server_id: &str,
        now: &str,
        totals: &Totals,
        total: u64,
        max_fanout: usize,
    ) -> Value {
        let (matched, published) = (totals.value(Counter::Matched), totals.all(Flow::InMsgs));
        json!({
            "server_id": server_id,
            "now": now,
            "num_subscriptions": totals.subscriptions(),
            "num_cache": 0,
            "num_inserts": totals.value(Counter::Subscribed),
            "num_removes": totals.value(Counter::Unsubscribed),
            "num_matches": published,
            "cache_hit_rate": 0,
            "max_fanout": max_fanout,
            "avg_fanout": matched as f64 / published.max(1) as f64,
            "total": total,
            "offset": self.offset,
            "limit": self.limit,
        })
    }
}

/// Return the row of one subscription.
pub(crate) fn row(cid: u64, subscription: &Subscription) -> String {
    let row = Row {
        subject: shown(subscription.subject(), SUBJECT),
        qgroup: subscription.queue().map(|queue| shown(queue, SUBJECT)),
        cid,
        msgs: subscription.delivered,
        max: (subscription.max > 0).then_some(subscription.max),
    };
    serde_json::to_string(&row).unwrap_or_default()
}

/// A subscription as nats-server shows it.
#[derive(Serialize)]
struct Row<'a> {
    subject: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qgroup: Option<Cow<'a, str>>,
    cid: u64,
    /// Delivered so far.
    msgs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, String> {
        Query::parse(&Parameters::new(Some(text), Query::NAMES)?)
    }

    fn subscription(subject: &str) -> Subscription {
        Subscription::new(subject.as_bytes(), Some(b"q"), b"1")
    }

    #[test]
    fn queries() {
        let all = query("").expect("nothing asked");
        assert_eq!((all.offset, all.limit, all.lists), (0, 1024, false));
        assert!(all.is_wanted(&subscription("a.*")));
        let test = query("subs=1&test=a.b").expect("a subject");
        assert!(test.is_wanted(&subscription("a.*")) && test.is_wanted(&subscription("a.b")));
        assert!(!test.is_wanted(&subscription("a")) && !test.is_wanted(&subscription("*.c")));
        let mut leaving = subscription("a.b");
        leaving.leaving = true;
        assert!(!test.is_wanted(&leaving) && !all.is_wanted(&leaving));
        for wrong in [
            "test=a.*",
            "test=",
            "test=a..b",
            "test=a%20b",
            "limit=2000",
            "sort=cid",
        ] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows() {
        let one = subscription("a.\"b");
        assert_eq!(
            row(7, &one),
            r#"{"subject":"a.\"b","qgroup":"q","cid":7,"msgs":0}"#
        );
        let mut one = Subscription::new(b"a", None, b"1");
        (one.max, one.delivered) = (5, 2);
        assert_eq!(row(7, &one), r#"{"subject":"a","cid":7,"msgs":2,"max":5}"#);
    }

    #[test]
    fn rows_are_bounded() {
        let long = [1; 4000];
        let one = Subscription::new(&long, Some(&long), b"1");
        let row = row(u64::MAX, &one);
        assert!(
            row.contains("\u{2026}\",\"qgroup\"") && row.len() < 640,
            "{row}"
        );
    }
}
