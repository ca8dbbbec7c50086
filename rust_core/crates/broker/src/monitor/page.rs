//! The pages of the monitor.

use std::sync::Arc;

use telemetry::exposition::Format;
use telemetry::rings::RESOLUTIONS;

use super::query::Parameters;
use super::{connz, subsz};
use crate::metrics::totals::Totals;

/// One of the monitor's pages, with the values of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// For people.
    Console,
    Varz,
    /// Whether the process works.
    Health,
    /// Whether clients should come.
    Ready,
    History {
        resolution: u32,
        since: Option<u64>,
    },
    Metrics(Format),
    /// A page that the shards have to be asked for.
    Survey(Arc<Question>),
}

/// A question to all shards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Connz(connz::Query),
    Subsz(subsz::Query),
    /// The hottest subjects, at most `limit`.
    Subjects {
        limit: usize,
    },
}

impl Question {
    /// Return how many rows come before the page and how many it has at most, or zeros when it is beyond
    /// the last row.
    pub(super) fn window(&self, totals: &Totals) -> (usize, usize) {
        let (offset, limit, all) = match self {
            Self::Connz(query) => (query.offset, query.limit, totals.connections()),
            Self::Subsz(query) if query.lists => {
                (query.offset, query.limit, totals.subscriptions())
            }
            Self::Subsz(_) | Self::Subjects { .. } => (0, 0, 0),
        };
        if (offset as u64) < all {
            (offset, limit)
        } else {
            (0, 0)
        }
    }

    /// Return whether connections have to be looked through, and not only counted as they are already.
    pub(super) fn is_about_each(&self) -> bool {
        match self {
            Self::Connz(_) => true,
            Self::Subsz(query) => query.lists || query.test.is_some(),
            Self::Subjects { .. } => false,
        }
    }
}

/// The answer to a path that is not a page.
pub(crate) const MISSING: &str = "no such page; there are /, /connz, /healthz, /history, /metrics, \
    /readyz, /subjects, /subsz and /varz";
/// The most subjects of `/subjects`.
const MAX_SUBJECTS: u64 = 64;

impl Page {
    /// Return the page of this path; `None` where there is none. `accept` gives the `Accept` fields' values.
    ///
    /// # Errors
    /// A sentence about the parameter that is wrong.
    pub(crate) fn route(
        path: &str,
        query: Option<&str>,
        accept: impl FnOnce() -> String,
    ) -> Option<Result<Self, String>> {
        let plain = |page| Parameters::new(query, &[]).map(|_| page);
        let survey = |question| Self::Survey(Arc::new(question));
        Some(match path {
            // The parameters of its own address are for the page itself.
            "/" => Ok(Self::Console),
            "/varz" => plain(Self::Varz),
            // Probes ask in many ways; the answer is the same.
            "/healthz" => Ok(Self::Health),
            "/readyz" => Ok(Self::Ready),
            "/metrics" => plain(Self::Metrics(Format::negotiate(&accept()))),
            "/history" => Parameters::new(query, &["resolution", "since"])
                .and_then(|parameters| Self::history(&parameters)),
            "/connz" => Parameters::new(query, connz::Query::NAMES)
                .and_then(|parameters| connz::Query::parse(&parameters))
                .map(|query| survey(Question::Connz(query))),
            "/subsz" => Parameters::new(query, subsz::Query::NAMES)
                .and_then(|parameters| subsz::Query::parse(&parameters))
                .map(|query| survey(Question::Subsz(query))),
            "/subjects" => Parameters::new(query, &["limit"])
                .and_then(|parameters| parameters.limit(MAX_SUBJECTS))
                .map(|limit| survey(Question::Subjects { limit })),
            _ => return None,
        })
    }

    fn history(parameters: &Parameters<'_>) -> Result<Self, String> {
        let names = RESOLUTIONS.map(|resolution| resolution.to_string());
        let words: Vec<_> = names.iter().map(String::as_str).zip(RESOLUTIONS).collect();
        Ok(Self::History {
            resolution: parameters
                .choice("resolution", &words)?
                .unwrap_or(RESOLUTIONS[0]),
            since: parameters.number("since", 0..=u64::MAX)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(target: &str) -> Option<Result<Page, String>> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        Page::route(path, query, || "application/openmetrics-text".into())
    }

    #[test]
    fn pages() {
        for (target, page) in [
            ("/?theme=dark", Page::Console),
            ("/varz", Page::Varz),
            ("/healthz?js-enabled=1", Page::Health),
            ("/readyz", Page::Ready),
            ("/metrics", Page::Metrics(Format::OpenMetrics)),
            (
                "/history",
                Page::History {
                    resolution: 1,
                    since: None,
                },
            ),
            (
                "/history?since=5&resolution=60",
                Page::History {
                    resolution: 60,
                    since: Some(5),
                },
            ),
            (
                "/subjects",
                Page::Survey(Arc::new(Question::Subjects { limit: 64 })),
            ),
            (
                "/subjects?limit=1",
                Page::Survey(Arc::new(Question::Subjects { limit: 1 })),
            ),
        ] {
            assert_eq!(route(target), Some(Ok(page)), "{target}");
        }
        for target in ["/connz?limit=1", "/subsz?subs=1"] {
            assert!(
                matches!(route(target), Some(Ok(Page::Survey(_)))),
                "{target}"
            );
        }
        for target in ["/x", "", "/connz/", "/Varz", "/varz/x"] {
            assert_eq!(route(target), None, "{target}");
        }
    }

    #[test]
    fn wrong_parameters() {
        for target in [
            "/varz?x=1",
            "/metrics?name=x",
            "/history?resolution=2",
            "/history?since=now",
            "/subjects?limit=65",
            "/connz?limit=0",
            "/subsz?test=*",
        ] {
            assert!(matches!(route(target), Some(Err(_))), "{target}");
        }
        assert_eq!(
            route("/history?resolution=5"),
            Some(Err(
                "resolution must be one of 1, 10, 60, and is \"5\"".into()
            ))
        );
    }
}
