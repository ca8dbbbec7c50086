//! Which fields pass the gateway: those of requests to a message's receivers, those of replies to callers.

use std::borrow::Cow;

use protocol::http as wire;
use protocol::nats::{Headers, encode_headers as encode_block};

/// The status with which a server of the NATS network says that nobody has subscribed.
const NO_RESPONDERS: u16 = 503;
/// What services reply with instead of a result (NATS ADR-32): the code, if it is one of HTTP's errors,
/// becomes the answer's status.
const SERVICE_ERROR: &[u8] = b"Nats-Service-Error";
const SERVICE_ERROR_CODE: &[u8] = b"Nats-Service-Error-Code";

/// Request fields that end here: those of the connection and of the body's framing, credentials, what the
/// client accepts, and what the gateway itself reads; besides those that `Connection` names (RFC 9110
/// section 7.6.1), and a browser's own, `Sec-*`.
const NOT_FORWARDED: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "connection",
    "content-length",
    "cookie",
    "date",
    "dnt",
    "expect",
    "host",
    "keep-alive",
    "origin",
    "pragma",
    "priority",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "x-request-timeout",
];
/// Reply fields that a receiver would take for the connection's, or that the gateway writes itself, as it
/// does `Access-Control-*`: who may read an answer is for the broker's settings to say.
const NOT_RETURNED: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether receivers of a message may get the field of a request with this name.
pub(super) fn is_forwarded(name: &[u8]) -> bool {
    !starts_with(name, b"sec-") && !is_among(name, NOT_FORWARDED)
}

fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn is_among(name: &[u8], names: &[&str]) -> bool {
    names
        .iter()
        .any(|one| one.as_bytes().eq_ignore_ascii_case(name))
}

/// Appends the request's fields that receivers of its message get, as a NATS header block; nothing when
/// there are none.
pub(super) fn encode_headers(fields: &wire::Headers<'_>, out: &mut Vec<u8>) {
    // A request with too many of them has been refused.
    let of_connection = fields.connection_options().unwrap_or_default();
    let mut forwarded = fields
        .iter()
        .filter(|(name, _)| is_forwarded(name) && !of_connection.contains(name))
        .peekable();
    if forwarded.peek().is_some() && encode_block(out, None, forwarded).is_err() {
        // A parsed field has nothing that a block cannot hold.
        out.clear();
    }
}

/// The status and the text of a reply that is an error rather than a result.
pub(super) fn error_of<'a>(headers: &Headers<'a>) -> Option<(u16, Cow<'a, str>)> {
    let is_error = |code: &u16| (400..600).contains(code);
    if let Some(status) = headers.status()
        && is_error(&status.code)
    {
        let text = match (status.code, status.description) {
            (NO_RESPONDERS, b"") => "nobody has subscribed to it".into(),
            (_, text) => String::from_utf8_lossy(text),
        };
        return Some((status.code, text));
    }
    let text = headers.value(SERVICE_ERROR);
    let code = headers.value(SERVICE_ERROR_CODE);
    if text.is_none() && code.is_none() {
        return None;
    }
    let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    let text = String::from_utf8_lossy(text.unwrap_or_default());
    Some((code.filter(is_error).unwrap_or(500), text))
}

/// The fields of a reply that its caller gets.
pub(super) fn returned<'a>(headers: &Headers<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    headers.iter().filter_map(|(name, value)| {
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let is_plain = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
        let is_sound = name.iter().all(is_token) && value.iter().all(is_plain);
        let is_returned = !starts_with(name, b"access-control-") && !is_among(name, NOT_RETURNED);
        (is_sound && is_returned)
            .then(|| {
                Some((
                    std::str::from_utf8(name).ok()?,
                    std::str::from_utf8(value).ok()?,
                ))
            })
            .flatten()
    })
}
