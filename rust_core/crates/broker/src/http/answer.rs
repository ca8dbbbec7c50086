//! How answers are encoded.

use std::time::{Duration, Instant, SystemTime};

use protocol::http::{
    encode_head, encode_head_until_close, encode_response, encode_rest, reason_phrase,
};
use protocol::nats::Headers;
use protocol::nats::Message;
use serde_json::json;

use super::fields;

/// The media type of problems (RFC 9457).
pub(super) const PROBLEM: &str = "application/problem+json";
/// The content security policy of answers. What a service sends must not become a page, script or style of
/// the broker's origin: a browser that shows it runs nothing, loads nothing, and gives it an origin of its
/// own.
pub(super) const POLICY: &str = "default-src 'none'; sandbox";
const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// The description of the gateway's API.
pub(super) const OPENAPI: Answer<'static> = Answer {
    status: 200,
    kind: "application/vnd.oai.openapi+json;version=3.1",
    fields: &[("Cache-Control", "max-age=300")],
    policy: POLICY,
    body: include_bytes!("openapi.json"),
};

/// A whole answer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    /// The body's media type; empty for none.
    pub(crate) kind: &'a str,
    /// More fields; those without a value are left out.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// The content security policy; empty for a constant of the broker that no page can use.
    pub(crate) policy: &'a str,
    pub(crate) body: &'a [u8],
}

/// The answer to `GET /byte`. It measures what HTTP alone costs, and so has no field more than it needs.
pub(super) const BYTE: Answer<'static> = Answer {
    status: 200,
    kind: "text/plain",
    fields: &[],
    policy: "",
    body: b"a",
};

impl<'a> Answer<'a> {
    pub(crate) const fn json(body: &'a str) -> Self {
        Self {
            status: 200,
            kind: JSON,
            fields: &[("Cache-Control", "no-store")],
            policy: POLICY,
            body: body.as_bytes(),
        }
    }

    pub(super) const fn empty(status: u16) -> Self {
        Self {
            status,
            kind: "",
            fields: &[],
            policy: POLICY,
            body: b"",
        }
    }

    /// Return its own fields.
    fn own(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let kind = ("Content-Type", self.kind);
        self.fields.iter().copied().chain([kind])
    }

    /// Return the methods that a path has, for pages of other origins too (CORS preflight).
    pub(super) fn options(allow: &'static str) -> Self {
        let fields: &[_] = if allow.contains("POST") {
            &[
                ("Allow", "POST, OPTIONS"),
                ("Access-Control-Allow-Methods", "POST"),
                ("Access-Control-Allow-Headers", "*"),
                ("Access-Control-Max-Age", "600"),
            ]
        } else {
            &[
                ("Allow", "GET, HEAD, OPTIONS"),
                ("Access-Control-Allow-Methods", "GET, HEAD"),
                ("Access-Control-Allow-Headers", "*"),
                ("Access-Control-Max-Age", "600"),
            ]
        };
        Self {
            status: 204,
            kind: "",
            fields,
            policy: POLICY,
            body: b"",
        }
    }
}

/// The part of an answer that every answer on a connection has.
#[derive(Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) date: &'a Date,
    pub(super) keep_alive: bool,
    /// The body's length without the body, as HEAD asks.
    pub(super) head_only: bool,
    /// The origin whose pages may read the answer.
    pub(super) origin: Option<&'a str>,
}

impl Envelope<'_> {
    /// Append a whole answer made of a service's reply.
    fn encode<'f>(
        &'f self,
        out: &mut Vec<u8>,
        status: u16,
        own: impl Iterator<Item = (&'f str, &'f str)>,
        body: &[u8],
    ) {
        let fields = self.fields(own, POLICY);
        encode_response(out, status, fields, body, self.keep_alive, self.head_only);
    }

    /// Return the fields of an answer; those without a value are left out.
    fn fields<'f>(
        &'f self,
        own: impl Iterator<Item = (&'f str, &'f str)>,
        policy: &'f str,
    ) -> impl Iterator<Item = (&'f str, &'f str)> {
        let shared = self.origin.into_iter().flat_map(|origin| {
            [
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Expose-Headers", "*"),
                ("Vary", "Origin"),
            ]
        });
        let date = std::iter::once(("Date", &*self.date.text));
        date.chain(own)
            .chain(guard(policy))
            .chain(shared)
            .filter(|(_, value)| !value.is_empty())
    }
}

/// Append an answer.
pub(super) fn encode_answer(out: &mut Vec<u8>, answer: &Answer<'_>, envelope: Envelope<'_>) {
    encode_response(
        out,
        answer.status,
        envelope.fields(answer.own(), answer.policy),
        answer.body,
        envelope.keep_alive,
        envelope.head_only,
    );
}

/// Append the beginning of an answer whose body goes on until the connection ends.
pub(super) fn encode_endless(out: &mut Vec<u8>, answer: &Answer<'_>, envelope: Envelope<'_>) {
    let fields = envelope.fields(answer.own(), answer.policy);
    encode_head_until_close(out, answer.status, fields);
    if !envelope.head_only {
        out.extend_from_slice(answer.body);
    }
}

/// Append a reply as the answer to the request that waited for it.
pub(super) fn encode_reply(out: &mut Vec<u8>, message: &Message<'_>, envelope: Envelope<'_>) {
    let headers = message.headers.and_then(|block| Headers::parse(block).ok());
    let Some(headers) = headers else {
        if envelope.origin.is_none() {
            out.extend_from_slice(&envelope.date.reply_head);
            encode_rest(out, 200, message.payload, envelope.keep_alive, false);
        } else {
            let own = std::iter::once(("Content-Type", BINARY));
            envelope.encode(out, 200, own, message.payload);
        }
        return;
    };
    let returned = fields::returned(&headers);
    let has_kind =
        fields::returned(&headers).any(|(name, _)| name.eq_ignore_ascii_case("Content-Type"));
    match fields::error_of(&headers) {
        // A service that describes its error in a body has the last word.
        Some((status, text)) if message.payload.is_empty() => {
            let body = problem_body(status, &text);
            let is_kind = |name: &str| name.eq_ignore_ascii_case("Content-Type");
            let fields = returned.filter(|(name, _)| !is_kind(name));
            envelope.encode(
                out,
                status,
                fields.chain([("Content-Type", PROBLEM)]),
                body.as_bytes(),
            );
        }
        error => {
            let status = error.map_or(200, |(status, _)| status);
            let kind = if has_kind { "" } else { BINARY };
            envelope.encode(
                out,
                status,
                returned.chain([("Content-Type", kind)]),
                message.payload,
            );
        }
    }
}

/// Return the body of a problem (RFC 9457).
pub(super) fn problem_body(status: u16, detail: &str) -> String {
    let problem = json!({
        "type": "about:blank",
        "title": reason_phrase(status),
        "status": status,
        "detail": detail,
    });
    problem.to_string()
}

/// Return a problem after which the connection is closed.
pub(crate) fn problem(status: u16, detail: &str) -> Vec<u8> {
    last_answer(status, PROBLEM, &problem_body(status, detail))
}

/// Return a refusal of WebSocket with a line of text, after which the connection is closed.
pub(super) fn plain(status: u16, text: &str) -> Vec<u8> {
    last_answer(status, "text/plain; charset=utf-8", &format!("{text}\n"))
}

fn last_answer(status: u16, kind: &str, body: &str) -> Vec<u8> {
    let mut response = Vec::new();
    let fields = [("Content-Type", kind)].into_iter().chain(guard(POLICY));
    encode_response(&mut response, status, fields, body.as_bytes(), false, false);
    response
}

/// Return the fields that keep browsers from taking an answer for anything but what its type says; without a
/// value where there is no policy.
fn guard(policy: &str) -> [(&str, &str); 2] {
    let sniffing = if policy.is_empty() { "" } else { "nosniff" };
    [
        ("X-Content-Type-Options", sniffing),
        ("Content-Security-Policy", policy),
    ]
}

/// The current date as answers give it (RFC 9110 section 6.6.1), and what is encoded with it ahead, once a
/// second.
pub(crate) struct Date {
    text: String,
    /// The whole answer to `GET /byte`.
    pub(super) byte: Vec<u8>,
    /// The beginning of an answer whose reply has no headers of its own.
    reply_head: Vec<u8>,
    formatted: Option<Instant>,
}

impl Date {
    const KEPT: Duration = Duration::from_secs(1);

    pub(crate) const fn new() -> Self {
        Self {
            text: String::new(),
            byte: Vec::new(),
            reply_head: Vec::new(),
            formatted: None,
        }
    }

    /// Return the date; at most a second old at `now`.
    pub(crate) fn at(&mut self, now: Instant) -> &Self {
        if self
            .formatted
            .is_none_or(|then| now.saturating_duration_since(then) >= Self::KEPT)
        {
            self.formatted = Some(now);
            self.format(httpdate::fmt_http_date(SystemTime::now()));
        }
        self
    }

    fn format(&mut self, text: String) {
        self.text = text;
        let mut byte = std::mem::take(&mut self.byte);
        byte.clear();
        let envelope = Envelope {
            date: self,
            keep_alive: true,
            head_only: false,
            origin: None,
        };
        encode_answer(&mut byte, &BYTE, envelope);
        self.byte = byte;
        self.reply_head.clear();
        let fields = [("Date", &*self.text), ("Content-Type", BINARY)];
        let fields = fields.into_iter().chain(guard(POLICY));
        encode_head(&mut self.reply_head, 200, fields);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn reply(headers: Option<&str>, payload: &str) -> String {
        let message = Message {
            subject: b"_INBOX.x",
            reply: None,
            headers: headers.map(str::as_bytes),
            payload: payload.as_bytes(),
        };
        let mut date = Date::new();
        date.format("Sun, 06 Nov 1994 08:49:37 GMT".into());
        let envelope = Envelope {
            date: &date,
            keep_alive: true,
            head_only: false,
            origin: None,
        };
        let mut out = Vec::new();
        encode_reply(&mut out, &message, envelope);
        let mut by_fields = Vec::new();
        let foreign = Envelope {
            origin: Some("https://x"),
            ..envelope
        };
        encode_reply(&mut by_fields, &message, foreign);
        let by_fields = String::from_utf8(by_fields).unwrap();
        let shared = "Access-Control-Allow-Origin: https://x\r\n\
            Access-Control-Expose-Headers: *\r\nVary: Origin\r\n";
        assert!(by_fields.contains(shared));
        assert_eq!(by_fields.replace(shared, "").as_bytes(), out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies() {
        assert_eq!(
            reply(None, "x"),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Content-Type: application/octet-stream\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: default-src 'none'; sandbox\r\nContent-Length: 1\r\n\r\nx"
        );
        let given = "NATS/1.0\r\nContent-Type: text/csv\r\nX-A: 1\r\nX-A: 2\r\n\
            Content-Length: 7\r\nConnection: close\r\nSet-Cookie: a=b\r\n\
            Content-Security-Policy: x\r\nX Bad: y\r\n\r\n";
        let without_bad = given.replace("X Bad: y\r\n", "");
        let answer = reply(Some(&without_bad), "x");
        assert!(answer.contains(
            "\r\nContent-Type: text/csv\r\nX-A: 1\r\nX-A: 2\r\nX-Content-Type-Options: nosniff\r\n\
                 Content-Security-Policy: default-src 'none'; sandbox\r\nContent-Length: 1\r\n"
        ));
        for withheld in ["Connection", "Set-Cookie", "Policy: x", "octet-stream"] {
            assert!(!answer.contains(withheld), "{withheld}");
        }
        // Not a header block at all.
        assert!(reply(Some(given), "x").starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn replies_that_are_errors() {
        let none = reply(Some("NATS/1.0 503\r\n\r\n"), "");
        assert!(
            none.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
            "{none}"
        );
        assert!(
            none.contains(PROBLEM) && none.contains("no subscriber"),
            "{none}"
        );
        let service = |code: &str, payload| {
            let block = format!(
                "NATS/1.0\r\nNats-Service-Error: no such user\r\nNats-Service-Error-Code: {code}\r\n\r\n"
            );
            reply(Some(&block), payload)
        };
        let missing = service("404", "");
        assert!(
            missing.starts_with("HTTP/1.1 404 Not Found\r\n"),
            "{missing}"
        );
        assert!(missing.contains("\"detail\":\"no such user\""), "{missing}");
        assert!(
            missing.contains("\r\nNats-Service-Error-Code: 404\r\n"),
            "{missing}"
        );
        assert!(service("409", "{}").ends_with("\r\n\r\n{}"));
        for code in ["200", "99", "x", "70000"] {
            assert!(service(code, "").starts_with("HTTP/1.1 500 "), "{code}");
        }
    }

    #[test]
    fn every_answer_but_the_byte_is_guarded() {
        let mut date = Date::new();
        let envelope = Envelope {
            date: date.at(Instant::now()),
            keep_alive: true,
            head_only: false,
            origin: None,
        };
        let encoded = |answer: &Answer<'_>| {
            let mut out = Vec::new();
            encode_answer(&mut out, answer, envelope);
            out
        };
        let mut stream = Vec::new();
        encode_endless(&mut stream, &super::super::events::ANSWER, envelope);
        let page = Answer {
            policy: "default-src data:",
            ..Answer::json("{}")
        };
        for (answer, policy) in [
            (encoded(&OPENAPI), POLICY),
            (encoded(&Answer::json("{}")), POLICY),
            (encoded(&Answer::empty(202)), POLICY),
            (encoded(&Answer::options("POST")), POLICY),
            (encoded(&page), "default-src data:"),
            (problem(400, "x"), POLICY),
            (plain(403, "x"), POLICY),
            (stream, POLICY),
        ] {
            let answer = String::from_utf8(answer).unwrap();
            let guard = format!(
                "\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: {policy}\r\n"
            );
            assert_eq!(answer.matches(&guard).count(), 1, "{answer}");
        }
        let byte = String::from_utf8(encoded(&BYTE)).unwrap();
        assert!(
            !byte.contains("nosniff") && !byte.contains("Policy"),
            "{byte}"
        );
    }
}
