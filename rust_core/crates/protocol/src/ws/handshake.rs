//! The opening handshake (RFC 6455 section 4), both roles.
//!
//! A server parses the request head with [`crate::http::parse_head`], passes it to [`accept`] and
//! sends the output of [`encode_accept`] or [`Reject::encode`]. A client sends the output of
//! [`encode_request`] and passes all received bytes to [`parse_response`] until that returns a
//! length; the bytes after it are the first frames.
//!
//! A client may not send frames before it has seen the 101 (section 4.1). Bytes after the request
//! head are not part of it: the server's caller may refuse them, or keep and decode them later. A
//! check of `Origin` (section 10.2) is up to the caller, too, between [`crate::http::parse_head`]
//! and [`accept`]. Offers of extensions and of subprotocols are ignored, which declines them
//! (section 4.2.2).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use sha1::{Digest as _, Sha1};

use crate::http::{
    self, HeadLimits, HttpError, RequestHead, ResponseHead, Version, parse_response_head,
};

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The length of 16 bytes in base64.
const KEY_LEN: usize = 24;

/// Accepts keys whose last character has unused bits, as most servers do (RFC 4648 section 3.5
/// leaves it open).
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A request that may be answered with 101.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The value of `Sec-WebSocket-Accept`: ASCII.
    pub key: [u8; 28],
}

/// Why a request is not answered with 101. The text ([`fmt::Display`]) is the answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// The request does not ask for WebSocket: a plain HTTP request.
    NotUpgrade,
    /// HTTP/1.0 has no upgrade (RFC 9110 section 7.8).
    Http10,
    /// The method is not GET.
    Method,
    /// `Host` is missing, empty or given twice.
    Host,
    /// `Connection` does not list `Upgrade`.
    Connection,
    /// The request announces a body, which would be taken for frames.
    Body,
    /// `Sec-WebSocket-Version` is missing or is not 13.
    Version,
    /// `Sec-WebSocket-Version` is given twice.
    DuplicateVersion,
    /// `Sec-WebSocket-Key` is missing, given twice or not 16 bytes in base64.
    Key,
}

/// Check a client's request (section 4.2.1).
///
/// # Errors
/// [`Reject`]: [`Reject::NotUpgrade`] for any request that does not ask for WebSocket, however
/// wrong it would be otherwise; a server may treat that as plain HTTP. For all others send
/// [`Reject::encode`] and close.
pub fn accept(head: &RequestHead<'_>) -> Result<Accept, Reject> {
    let headers = head.headers;
    if !headers.has_token("upgrade", "websocket") {
        return Err(Reject::NotUpgrade);
    }
    if head.version == Version::Http10 {
        return Err(Reject::Http10);
    }
    if head.method != "GET" {
        return Err(Reject::Method);
    }
    if !matches!(headers.value("host"), Ok(Some(host)) if !host.is_empty()) {
        return Err(Reject::Host);
    }
    if !headers.has_token("connection", "upgrade") {
        return Err(Reject::Connection);
    }
    if headers.count("transfer-encoding") > 0
        || headers.values("content-length").any(|len| len != b"0")
    {
        return Err(Reject::Body);
    }
    match headers.value("sec-websocket-version") {
        Ok(Some(b"13")) => {}
        Ok(_) => return Err(Reject::Version),
        Err(_) => return Err(Reject::DuplicateVersion),
    }
    match headers.value("sec-websocket-key") {
        Ok(Some(key)) if is_key(key) => Ok(Accept {
            key: accept_key(key),
        }),
        _ => Err(Reject::Key),
    }
}

/// Append the 101 response; `extra_headers` follow the three that the handshake needs.
pub fn encode_accept(out: &mut Vec<u8>, accept: &Accept, extra_headers: &[(&str, &str)]) {
    // Some clients compare the whole value of `Connection`, so it is exactly this.
    http::encode_head(
        out,
        101,
        [("Connection", "Upgrade"), ("Upgrade", "websocket")],
    );
    out.extend_from_slice(b"Sec-WebSocket-Accept: ");
    out.extend_from_slice(&accept.key);
    out.extend_from_slice(b"\r\n");
    http::encode_fields(out, extra_headers.iter().copied());
    out.extend_from_slice(b"\r\n");
}

impl Reject {
    /// Return the status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::NotUpgrade | Self::Version => 426,
            Self::Http10 => 505,
            Self::Method => 405,
            Self::Host | Self::Connection | Self::Body | Self::DuplicateVersion | Self::Key => 400,
        }
    }

    /// Return the error's text.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotUpgrade => "this resource needs Upgrade: websocket",
            Self::Http10 => "WebSocket needs HTTP/1.1",
            Self::Method => "WebSocket needs GET",
            Self::Host => "missing, empty or duplicate Host",
            Self::Connection => "missing Connection: Upgrade",
            Self::Body => "a WebSocket request has no body",
            Self::Version => "WebSocket version is not 13",
            Self::DuplicateVersion => "duplicate Sec-WebSocket-Version",
            Self::Key => "missing, duplicate or invalid Sec-WebSocket-Key",
        }
    }

    /// Append the answer, after which the connection is to be closed. Every answer names the
    /// version that is spoken (section 4.4); a 426 names the protocol too, and lists `Upgrade` in
    /// `Connection`, as that field demands (RFC 9110 sections 7.8 and 15.5.22).
    pub fn encode(self, out: &mut Vec<u8>) {
        const VERSION: (&str, &str) = ("Sec-WebSocket-Version", "13");
        const TYPE: (&str, &str) = ("Content-Type", "text/plain");
        const CLOSE: (&str, &str) = ("Connection", "close");
        let headers: &[_] = match self.status() {
            405 => &[VERSION, TYPE, CLOSE, ("Allow", "GET")],
            426 => &[
                VERSION,
                TYPE,
                ("Connection", "close, Upgrade"),
                ("Upgrade", "websocket"),
            ],
            _ => &[VERSION, TYPE, CLOSE],
        };
        // `keep_alive` only leaves out a second `Connection` field.
        let body = self.reason().as_bytes();
        let headers = headers.iter().copied();
        http::encode_response(out, self.status(), headers, body, true, false);
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Reject {}

/// Why a client cannot shake hands with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The host or the path cannot stand in a request.
    Target,
    /// The response is not well-formed, or its head is too large.
    Http(HttpError),
    /// A status other than 101.
    Status(u16),
    /// A 101 over HTTP/1.0.
    Http10,
    /// `Upgrade` is not `websocket`.
    Upgrade,
    /// `Connection` does not list `Upgrade`.
    Connection,
    /// `Sec-WebSocket-Accept` is missing, given twice or does not belong to the key.
    Accept,
    /// The server chose an extension without an offer.
    Extension,
    /// The server chose a subprotocol without an offer.
    Subprotocol,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Target => "invalid host or path",
            Self::Http(error) => return write!(f, "invalid response: {error}"),
            Self::Status(status) => {
                return write!(f, "status {status} {}", http::reason_phrase(*status));
            }
            Self::Http10 => "101 over HTTP/1.0",
            Self::Upgrade => "response without Upgrade: websocket",
            Self::Connection => "response without Connection: Upgrade",
            Self::Accept => "wrong Sec-WebSocket-Accept",
            Self::Extension => "unasked extension",
            Self::Subprotocol => "unasked subprotocol",
        };
        f.write_str(text)
    }
}

impl std::error::Error for HandshakeError {}

impl From<HttpError> for HandshakeError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

/// Append a client's request. `host` is the authority (`name` or `name:port`), `path` the path with
/// its query, and `key` 16 bytes that are random for each connection.
///
/// # Errors
/// [`HandshakeError::Target`] when `host` is empty, `path` does not start with `/`, or either has
/// bytes other than visible ASCII.
pub fn encode_request(
    out: &mut Vec<u8>,
    host: &str,
    path: &str,
    key: &[u8; 16],
) -> Result<(), HandshakeError> {
    let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if host.is_empty() || !path.starts_with('/') || !is_visible(host) || !is_visible(path) {
        return Err(HandshakeError::Target);
    }
    for part in [
        b"GET ",
        path.as_bytes(),
        b" HTTP/1.1\r\nHost: ",
        host.as_bytes(),
        b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
          Sec-WebSocket-Key: ",
        &encoded_key(key),
        b"\r\n\r\n",
    ] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Check the server's answer to [`encode_request`] with the same `key` (section 4.1). Returns the
/// head's length in bytes, after which frames follow, or `None` when more bytes are needed.
///
/// # Errors
/// [`HandshakeError`]; close the connection.
pub fn parse_response(buf: &[u8], key: &[u8; 16]) -> Result<Option<usize>, HandshakeError> {
    let Some((head, len)) = parse_response_head(buf, HeadLimits::default())? else {
        return Ok(None);
    };
    check_response(&head, key)?;
    Ok(Some(len))
}

fn check_response(head: &ResponseHead<'_>, key: &[u8; 16]) -> Result<(), HandshakeError> {
    let headers = head.headers;
    if head.status != 101 {
        return Err(HandshakeError::Status(head.status));
    }
    if head.version == Version::Http10 {
        return Err(HandshakeError::Http10);
    }
    if !matches!(headers.value("upgrade"), Ok(Some(v)) if v.eq_ignore_ascii_case(b"websocket")) {
        return Err(HandshakeError::Upgrade);
    }
    if !headers.has_token("connection", "upgrade") {
        return Err(HandshakeError::Connection);
    }
    let want = accept_key(&encoded_key(key));
    if !matches!(headers.value("sec-websocket-accept"), Ok(Some(v)) if v == want) {
        return Err(HandshakeError::Accept);
    }
    if headers.count("sec-websocket-extensions") > 0 {
        return Err(HandshakeError::Extension);
    }
    if headers.count("sec-websocket-protocol") > 0 {
        return Err(HandshakeError::Subprotocol);
    }
    Ok(())
}

/// Return whether `key` is 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    let mut bytes = [0; KEY_LEN / 4 * 3];
    key.len() == KEY_LEN && matches!(LENIENT.decode_slice(key, &mut bytes), Ok(16))
}

fn encoded_key(key: &[u8; 16]) -> [u8; KEY_LEN] {
    base64_array(key)
}

/// Return the answer to a key (section 4.2.2, item 5).
fn accept_key(key: &[u8]) -> [u8; 28] {
    let digest: [u8; 20] = Sha1::new()
        .chain_update(key)
        .chain_update(GUID)
        .finalize()
        .into();
    base64_array(&digest)
}

/// Return `bytes` in base64; `N` is the length of the encoding.
fn base64_array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let written = STANDARD.encode_slice(bytes, &mut out);
    debug_assert_eq!(written, Ok(N));
    out
}
