//! The action that a request asks for, by its method and path.

use std::borrow::Cow;
use std::time::Duration;

use protocol::http::{HttpError, RequestHead, decode_percent, query_value};

use super::answer::{Date, Envelope};
use super::events::EventFormat;
use super::fields;
use super::timeout;
use crate::config::GatewayLimits;
use crate::monitor::{MISSING, Page};
use crate::origins::{Origins, Source};
use crate::reason::Reason;

/// The action that a request asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Action {
    /// A body of one byte.
    #[default]
    Byte,
    /// The description of this API.
    OpenApi,
    /// Publish and wait for a reply.
    Request,
    /// Publish.
    Publish,
    /// Send events.
    Subscribe(EventFormat),
    /// A page of the monitor.
    Monitor(Page),
    /// The methods of the path; for other origins only if they are allowed.
    Options(&'static str),
    /// The upgrade to WebSocket; without one, an answer that asks for it.
    Upgrade,
    /// An error.
    Fail {
        status: u16,
        detail: Cow<'static, str>,
        allow: Option<&'static str>,
    },
}

/// A request as it is carried out once its body has come.
#[derive(Default)]
pub(crate) struct Call {
    pub(crate) action: Action,
    pub(super) subject: Vec<u8>,
    /// Fields for the message's receivers, as a NATS header block; empty for none.
    pub(super) headers: Vec<u8>,
    /// Time to wait for a reply.
    pub(super) timeout: Duration,
    /// The origin to be allowed in the answer.
    pub(super) origin: Option<Box<str>>,
    pub(crate) keep_alive: bool,
    /// Reason why the connection ends with the answer, if not for the answer itself.
    pub(super) ends_for: Option<Reason>,
    /// HEAD: the answer without its body.
    pub(crate) head_only: bool,
}

/// The fields of a head that the routes look at, found in one pass.
#[derive(Default)]
struct Noted<'a> {
    origin: Option<&'a [u8]>,
    timeout: Option<&'a [u8]>,
    /// Whether a browser says that a page of another origin has asked (`Sec-Fetch-Site`).
    is_of_other_page: bool,
    /// Whether one of these two stands more than once.
    has_duplicate: bool,
    /// Whether there are fields that receivers of a message get.
    has_forwarded: bool,
}

impl<'a> Noted<'a> {
    fn read(head: &RequestHead<'a>) -> Self {
        let mut noted = Self::default();
        for (name, value) in head.headers.iter() {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            match name.len() {
                6 if is("origin") => noted.has_duplicate |= noted.origin.replace(value).is_some(),
                14 if is("sec-fetch-site") => {
                    noted.is_of_other_page |= matches!(value, b"cross-site" | b"same-site");
                }
                17 if is("x-request-timeout") => {
                    noted.has_duplicate |= noted.timeout.replace(value).is_some();
                }
                _ => noted.has_forwarded |= fields::is_forwarded(name),
            }
        }
        noted
    }

    /// Tell where the request comes from. Pages load images and follow links without naming their origin; then
    /// the browser's own word counts.
    fn source(&self, origins: &Origins, authority: &[u8]) -> Source {
        match self.origin {
            Some(origin) => origins.source(origin, authority),
            None if self.is_of_other_page && !origins.takes_all() => Source::Foreign,
            None => Source::Same,
        }
    }
}

/// The refusal of a page of another origin.
const FOREIGN: &str = "pages of this origin may not use the gateway; cors_origins in the configuration lists those that may";

/// The methods of a resource that is read, and of one that is written to.
const READ: &str = "GET, HEAD, OPTIONS";
const WRITE: &str = "POST, OPTIONS";

/// The resource of a path below `/v1/`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resource {
    Request,
    Publish,
    Subscribe,
}

impl Call {
    pub(super) fn fail(&mut self, status: u16, detail: impl Into<Cow<'static, str>>) {
        self.action = Action::Fail {
            status,
            detail: detail.into(),
            allow: None,
        };
    }

    /// Return the bytes of the message that a body of this many bytes makes.
    pub(super) fn message_len(&self, body: u64) -> u64 {
        body.saturating_add(self.headers.len() as u64)
    }

    /// Refuse a message longer than `limit` bytes, without waiting for the end of the body.
    pub(super) fn fail_length(&mut self, limit: usize) {
        let detail = format!("body and forwarded fields are longer than {limit} bytes");
        self.fail(413, detail);
        self.keep_alive = false;
    }

    pub(super) fn is_upgrade(&self) -> bool {
        self.action == Action::Upgrade
    }

    /// Return whether the answer is an error, whatever the body.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.action, Action::Fail { .. })
    }

    /// Route a request to the clients' listener.
    pub(super) fn route(&mut self, head: &RequestHead<'_>, limits: &GatewayLimits) {
        self.begin(head);
        let path = head.path();
        let (allow, call) = match path {
            "/byte" | "/openapi.json" => (READ, None),
            _ => match path.strip_prefix("/v1/").map(|rest| rest.split_once('/')) {
                Some(Some(("request", subject))) => (WRITE, Some((Resource::Request, subject))),
                Some(Some(("publish", subject))) => (WRITE, Some((Resource::Publish, subject))),
                Some(Some(("subscribe", subject))) => (READ, Some((Resource::Subscribe, subject))),
                Some(_) => {
                    self.fail(404, "no such resource; GET /openapi.json lists them");
                    return;
                }
                None => {
                    self.action = Action::Upgrade;
                    return;
                }
            },
        };
        let noted = Noted::read(head);
        if noted.has_duplicate {
            self.fail(400, HttpError::DuplicateHeader.reason());
            return;
        }
        match noted.source(&limits.origins, head.authority()) {
            Source::Same => {}
            Source::Allowed => {
                let origin = noted
                    .origin
                    .and_then(|origin| std::str::from_utf8(origin).ok());
                self.origin = origin.map(Box::from);
            }
            Source::Foreign if call.is_some() => {
                self.fail(403, FOREIGN);
                return;
            }
            Source::Foreign => {}
        }
        if head.method == "OPTIONS" {
            self.action = Action::Options(allow);
            return;
        }
        let is_known = match head.method {
            "GET" | "HEAD" => allow == READ,
            "POST" => allow == WRITE,
            _ => false,
        };
        if !is_known {
            self.action = Action::Fail {
                status: 405,
                detail: format!("{} is not possible here, but {allow}", head.method).into(),
                allow: Some(allow),
            };
            return;
        }
        let Some((resource, subject)) = call else {
            self.action = if path == "/byte" {
                Action::Byte
            } else {
                Action::OpenApi
            };
            return;
        };
        if let Err(detail) = self.address(head, &noted, resource, subject, limits) {
            self.fail(400, detail);
        }
    }

    /// Route a request to the monitor's listener.
    pub(super) fn route_monitor(&mut self, head: &RequestHead<'_>) {
        self.begin(head);
        if !matches!(head.method, "GET" | "HEAD") {
            self.action = Action::Fail {
                status: 405,
                detail: "only GET and HEAD here".into(),
                allow: Some("GET, HEAD"),
            };
            return;
        }
        let accept = || {
            let values = head.headers.values("Accept").map(String::from_utf8_lossy);
            values.collect::<Vec<_>>().join(",")
        };
        match Page::route(head.path(), head.query(), accept) {
            Some(Ok(page)) => self.action = Action::Monitor(page),
            Some(Err(detail)) => self.fail(400, detail),
            None => self.fail(404, MISSING),
        }
    }

    /// Return the part of its answer that all answers have.
    pub(super) fn envelope<'a>(&'a self, date: &'a Date) -> Envelope<'a> {
        Envelope {
            date,
            keep_alive: self.keep_alive,
            head_only: self.head_only,
            origin: self.origin.as_deref(),
        }
    }

    /// Forget the call before, and keep its memory.
    fn begin(&mut self, head: &RequestHead<'_>) {
        self.subject.clear();
        self.headers.clear();
        self.origin = None;
        self.ends_for = None;
        self.head_only = head.method == "HEAD";
    }

    /// Read subject and options of a call to the gateway.
    fn address(
        &mut self,
        head: &RequestHead<'_>,
        noted: &Noted<'_>,
        resource: Resource,
        subject: &str,
        limits: &GatewayLimits,
    ) -> Result<(), Cow<'static, str>> {
        if subject.contains('/') {
            return Err("a slash inside the subject must be written as %2F".into());
        }
        decode_percent(subject, &mut self.subject).map_err(HttpError::reason)?;
        if self.subject.len() > limits.max_subject {
            return Err(format!("the subject is longer than {} bytes", limits.max_subject).into());
        }
        if resource == Resource::Subscribe {
            router::subject::validate_subscription(&self.subject)
                .map_err(|error| error.to_string())?;
            let excess = limits.pattern.check(&self.subject);
            excess.map_err(|excess| excess.to_string())?;
            let format = query_value(head.query(), "format").map_err(HttpError::reason)?;
            self.action = Action::Subscribe(match format {
                None | Some("raw") => EventFormat::Raw,
                Some("json") => EventFormat::Json,
                Some(_) => return Err("format must be raw or json".into()),
            });
            return Ok(());
        }
        match router::subject::validate_subscription(&self.subject) {
            Ok(router::subject::Kind::Literal) => {}
            Ok(router::subject::Kind::Wildcard) => {
                return Err("the subject must not contain wildcards".into());
            }
            Err(error) => return Err(error.to_string().into()),
        }
        if noted.has_forwarded {
            fields::encode_headers(&head.headers, &mut self.headers);
        }
        self.action = if resource == Resource::Publish {
            Action::Publish
        } else {
            self.timeout = timeout::read(noted.timeout, head.query(), limits)?;
            Action::Request
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pattern::PatternLimits;
    use protocol::http::{HeadLimits, parse_head};

    fn limits() -> GatewayLimits {
        GatewayLimits {
            origins: Origins::new(&["https://allowed.example".into()]).unwrap(),
            request_timeout: Duration::from_secs(5),
            max_request_timeout: Duration::from_secs(300),
            max_subject: 64,
            pattern: PatternLimits {
                tokens: 4,
                wildcards: 2,
                length: 32,
            },
        }
    }

    fn routed(request: &str) -> Call {
        let bytes = format!("{request}\r\n\r\n")
            .replace('\n', "\r\n")
            .replace("\r\r", "\r");
        let (head, _) = parse_head(bytes.as_bytes(), HeadLimits::default())
            .unwrap()
            .unwrap();
        let mut call = Call::default();
        call.route(&head, &limits());
        call
    }

    fn status(request: &str) -> u16 {
        match routed(request).action {
            Action::Fail { status, .. } => status,
            Action::Options(_) => 204,
            Action::Publish => 202,
            Action::Upgrade => 426,
            _ => 200,
        }
    }

    #[test]
    fn routes() {
        let cases = [
            ("GET /byte HTTP/1.1", 200),
            ("HEAD /byte HTTP/1.1", 200),
            ("POST /byte HTTP/1.1", 405),
            ("OPTIONS /byte HTTP/1.1", 204),
            ("GET /openapi.json?x HTTP/1.1", 200),
            ("GET / HTTP/1.1", 426),
            ("GET /v2/x HTTP/1.1", 426),
            ("GET /v1/other HTTP/1.1", 404),
            ("GET /v1/other/a HTTP/1.1", 404),
            ("POST /v1/publish/a.b HTTP/1.1", 202),
            ("POST /v1/publish/a%2Eb HTTP/1.1", 202),
            ("GET /v1/publish/a HTTP/1.1", 405),
            ("POST /v1/publish/ HTTP/1.1", 400),
            ("POST /v1/publish/a..b HTTP/1.1", 400),
            ("POST /v1/publish/a.* HTTP/1.1", 400),
            ("POST /v1/publish/%3E HTTP/1.1", 400),
            ("POST /v1/publish/a%20b HTTP/1.1", 400),
            ("POST /v1/publish/a%0d%0aPUB HTTP/1.1", 400),
            ("POST /v1/publish/a%00 HTTP/1.1", 400),
            ("POST /v1/publish/a%2 HTTP/1.1", 400),
            ("POST /v1/publish/a/b HTTP/1.1", 400),
            ("POST /v1/publish/a%2Fb HTTP/1.1", 202),
            ("POST /v1/request/a HTTP/1.1", 200),
            ("POST /v1/request/a?timeout=1 HTTP/1.1", 200),
            ("POST /v1/request/a?timeout=1&timeout=2 HTTP/1.1", 400),
            ("POST /v1/request/a?timeout=0 HTTP/1.1", 400),
            ("POST /v1/request/a?timeout=301 HTTP/1.1", 400),
            (
                "POST /v1/request/a?timeout=1 HTTP/1.1\nX-Request-Timeout: 2",
                200,
            ),
            (
                "POST /v1/request/a?timeout=1 HTTP/1.1\nX-Request-Timeout: x",
                400,
            ),
            ("GET /v1/subscribe/a.* HTTP/1.1", 200),
            ("GET /v1/subscribe/%3E?format=json HTTP/1.1", 200),
            ("GET /v1/subscribe/a?format=xml HTTP/1.1", 400),
            ("GET /v1/subscribe/a.>.b HTTP/1.1", 400),
            ("GET /v1/subscribe/a.b.*.> HTTP/1.1", 200),
            ("GET /v1/subscribe/*.*.* HTTP/1.1", 400),
            ("GET /v1/subscribe/a.b.c.d.> HTTP/1.1", 400),
            ("GET /v1/subscribe/a.b.c.d.e HTTP/1.1", 200),
            ("POST /v1/subscribe/a HTTP/1.1", 405),
        ];
        for (request, want) in cases {
            assert_eq!(status(request), want, "{request}");
        }
        for (request, longest) in [("POST /v1/publish", 64), ("GET /v1/subscribe", 32)] {
            let status = |len| status(&format!("{request}/{} HTTP/1.1", "a".repeat(len)));
            assert!(status(longest) < 300);
            assert_eq!(status(longest + 1), 400);
        }
        assert_eq!(
            routed("POST /v1/publish/a%2Eb%C3%A9 HTTP/1.1").subject,
            "a.bé".as_bytes()
        );
    }

    #[test]
    fn origins() {
        let request = |origin: &str| {
            routed(&format!(
                "POST /v1/publish/a HTTP/1.1\nHost: h:1\nOrigin: {origin}"
            ))
        };
        assert_eq!(request("http://h:1").action, Action::Publish);
        assert_eq!(request("http://h:1").origin, None);
        let allowed = request("https://allowed.example");
        assert_eq!(allowed.origin.as_deref(), Some("https://allowed.example"));
        for foreign in [
            "https://evil.example",
            "null",
            "http://h:2",
            "https://h:1",
            "https://allowed.example.evil",
        ] {
            assert!(request(foreign).is_refused(), "{foreign}");
        }
        let absolute = "POST http://other:1/v1/publish/a HTTP/1.1\nHost: h:1\nOrigin: http://h:1";
        assert!(
            routed(absolute).is_refused(),
            "the target's authority counts"
        );
    }

    #[test]
    fn pages_that_do_not_name_their_origin() {
        let request = |fields: &str| {
            status(&format!(
                "GET /v1/subscribe/a HTTP/1.1\nHost: h:1\n{fields}"
            ))
        };
        for site in ["cross-site", "same-site"] {
            let field = format!("Sec-Fetch-Site: {site}");
            assert_eq!(request(&field), 403, "{site}");
            let named = format!("{field}\nOrigin: https://allowed.example");
            assert_eq!(request(&named), 200, "{site}");
        }
        for site in ["same-origin", "none", "something-new"] {
            assert_eq!(request(&format!("Sec-Fetch-Site: {site}")), 200, "{site}");
        }
        assert_eq!(
            status("GET /byte HTTP/1.1\nSec-Fetch-Site: cross-site"),
            200
        );
    }

    #[test]
    fn the_shorter_timeout_counts() {
        let both = |field| {
            routed(&format!(
                "POST /v1/request/a?timeout=2 HTTP/1.1\nX-Request-Timeout: {field}"
            ))
        };
        assert_eq!(both("1.5").timeout, Duration::from_millis(1500));
        assert_eq!(both("3").timeout, Duration::from_secs(2));
    }
}
