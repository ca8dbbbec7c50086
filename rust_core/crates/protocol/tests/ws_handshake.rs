//! The opening handshake, both roles.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use subjectbus_protocol::http::{HeadLimits, HttpError, parse_head};
use subjectbus_protocol::ws::handshake::{
    Accept, HandshakeError, Reject, accept, encode_accept, encode_request, parse_response,
};

/// The example of RFC 6455 section 1.3.
const REQUEST: &str = "GET /chat HTTP/1.1\r\n\
    Host: server.example.com\r\n\
    Upgrade: websocket\r\n\
    Connection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Origin: http://example.com\r\n\
    Sec-WebSocket-Protocol: chat, superchat\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";
const ACCEPT: &[u8; 28] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const KEY: &[u8; 16] = b"the sample nonce";
const RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\n\
    Connection: Upgrade\r\n\
    Upgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

/// Return `REQUEST` with the line that starts with `line` replaced, or removed if `replacement` is
/// empty.
fn with(line: &str, replacement: &str) -> String {
    assert!(REQUEST.lines().any(|l| l.starts_with(line)), "{line}");
    let lines = REQUEST.split_inclusive("\r\n");
    let end = if replacement.is_empty() { "" } else { "\r\n" };
    lines
        .map(|l| match l.starts_with(line) {
            true => format!("{replacement}{end}"),
            false => l.to_owned(),
        })
        .collect()
}

fn verdict(request: &str) -> Result<Accept, Reject> {
    let parsed = parse_head(request.as_bytes(), HeadLimits::default());
    let (head, len) = parsed.unwrap().unwrap();
    assert_eq!(len, request.len());
    accept(&head)
}

#[test]
fn rfc_6455_section_1_3() {
    let accepted = verdict(REQUEST).unwrap();
    assert_eq!(&accepted.key, ACCEPT);
    let mut out = b"kept".to_vec();
    encode_accept(&mut out, &accepted, &[]);
    assert_eq!(out, format!("kept{RESPONSE}\r\n").as_bytes());
    out.clear();
    encode_accept(&mut out, &accepted, &[("Server", "a\r\nb")]);
    assert_eq!(out, format!("{RESPONSE}Server: a  b\r\n\r\n").as_bytes());
}

#[test]
fn requests_that_are_accepted() {
    let requests = [
        with("Connection", "connection: keep-alive, UPGRADE"),
        with(
            "Connection",
            "Connection: keep-alive\r\nConnection: upgrade",
        ),
        with("Upgrade", "UPGRADE: h2c, WebSocket"),
        with("Origin", "Sec-WebSocket-Extensions: permessage-deflate"),
        with("Origin", "Content-Length: 0"),
        with("GET", "GET http://server.example.com/chat HTTP/1.1"),
        // The last character has bits that no byte uses.
        with(
            "Sec-WebSocket-Key",
            "Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEC==",
        ),
        with(
            "Sec-WebSocket-Key",
            "Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEB==",
        ),
    ];
    for request in requests {
        assert!(verdict(&request).is_ok(), "{request}");
    }
}

#[test]
fn requests_that_are_rejected() {
    let key = |key: &str| with("Sec-WebSocket-Key", &format!("Sec-WebSocket-Key: {key}"));
    let twice = |line: &str| with("Origin", line);
    let cases = [
        (with("Upgrade", ""), Reject::NotUpgrade),
        (with("Upgrade", "Upgrade: h2c"), Reject::NotUpgrade),
        (with("Upgrade", "Upgrade: websockets"), Reject::NotUpgrade),
        ("POST / HTTP/1.0\r\n\r\n".to_owned(), Reject::NotUpgrade),
        (with("GET", "GET /chat HTTP/1.0"), Reject::Http10),
        (with("GET", "POST /chat HTTP/1.1"), Reject::Method),
        (with("GET", "get /chat HTTP/1.1"), Reject::Method),
        (with("Host", ""), Reject::Host),
        (with("Host", "Host:"), Reject::Host),
        (twice("Host: other"), Reject::Host),
        (with("Connection", ""), Reject::Connection),
        (with("Connection", "Connection: close"), Reject::Connection),
        (twice("Content-Length: 5"), Reject::Body),
        (twice("Transfer-Encoding: chunked"), Reject::Body),
        (with("Sec-WebSocket-Version", ""), Reject::Version),
        (
            with("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"),
            Reject::Version,
        ),
        (
            with("Sec-WebSocket-Version", "Sec-WebSocket-Version: 13, 8"),
            Reject::Version,
        ),
        (twice("Sec-WebSocket-Version: 13"), Reject::DuplicateVersion),
        (with("Sec-WebSocket-Key", ""), Reject::Key),
        (
            twice("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            Reject::Key,
        ),
        (key(""), Reject::Key),
        (key("dGhlIHNhbXBsZSBub25jZQ"), Reject::Key),
        (key("dGhlIHNhbXBsZSBub25jZTE="), Reject::Key),
        (key("dGhlIHNhbXBsZSBub25jZTEy"), Reject::Key),
        (key("dGhlIHNhbXBsZSBub25j!Q=="), Reject::Key),
        (key("dGhlIHNhbXBsZSBub25jZQ=A"), Reject::Key),
        (key("dGhlIHNhbXBsZSBub2=="), Reject::Key),
    ];
    for (request, want) in cases {
        assert_eq!(verdict(&request), Err(want), "{request}");
    }
}

#[test]
fn what_a_rejected_client_is_told() {
    let all = [
        (Reject::NotUpgrade, 426),
        (Reject::Http10, 505),
        (Reject::Method, 405),
        (Reject::Host, 400),
        (Reject::Connection, 400),
        (Reject::Body, 400),
        (Reject::Version, 426),
        (Reject::DuplicateVersion, 400),
        (Reject::Key, 400),
    ];
    for (reject, status) in all {
        let mut out = Vec::new();
        reject.encode(&mut out);
        let refused = parse_response(&out, KEY);
        assert_eq!(refused, Err(HandshakeError::Status(status)), "{reject}");
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\r\nSec-WebSocket-Version: 13\r\n"), "{text}");
        assert_eq!(text.matches("Connection: close").count(), 1, "{text}");
        assert!(text.ends_with(&format!("\r\n\r\n{reject}")), "{text}");
        let is_426 = status == 426;
        assert_eq!(
            text.contains("\r\nUpgrade: websocket\r\n"),
            is_426,
            "{text}"
        );
        assert_eq!(text.contains("\r\nAllow: GET\r\n"), status == 405, "{text}");
    }
}

#[test]
fn a_client_takes_the_answer_whole_byte_by_byte_and_with_a_tail() {
    let response = format!("{RESPONSE}X: y\r\n\r\n");
    for n in 0..response.len() {
        assert_eq!(parse_response(&response.as_bytes()[..n], KEY), Ok(None));
    }
    let want = Ok(Some(response.len()));
    assert_eq!(parse_response(response.as_bytes(), KEY), want);
    let with_tail = [response.as_bytes(), b"\x82\x00\n"].concat();
    assert_eq!(parse_response(&with_tail, KEY), want);
}

#[test]
fn answers_that_a_client_refuses() {
    let edited = |from: &str, to: &str| {
        assert!(RESPONSE.contains(from));
        format!("{}\r\n", RESPONSE.replace(from, to))
    };
    let added = |line: &str| format!("{RESPONSE}{line}\r\n\r\n");
    let malformed = |what| HandshakeError::Http(HttpError::Malformed(what));
    let cases = [
        (edited("101", "200"), HandshakeError::Status(200)),
        (edited("HTTP/1.1", "HTTP/1.0"), HandshakeError::Http10),
        (edited("websocket", "h2c"), HandshakeError::Upgrade),
        (added("Upgrade: websocket"), HandshakeError::Upgrade),
        (
            edited("Connection: Upgrade\r\n", ""),
            HandshakeError::Connection,
        ),
        (edited("s3pP", "S3pP"), HandshakeError::Accept),
        (edited("Sec-WebSocket-Accept", "X"), HandshakeError::Accept),
        (
            added("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            HandshakeError::Accept,
        ),
        (
            added("Sec-WebSocket-Extensions: permessage-deflate"),
            HandshakeError::Extension,
        ),
        (
            added("Sec-WebSocket-Protocol: chat"),
            HandshakeError::Subprotocol,
        ),
        (
            edited("Connection:", "Connection :"),
            malformed("invalid header name"),
        ),
        (
            added(&"x".repeat(9000)),
            HandshakeError::Http(HttpError::HeadTooLarge),
        ),
    ];
    for (response, want) in cases {
        assert_eq!(
            parse_response(response.as_bytes(), KEY),
            Err(want),
            "{response}"
        );
    }
}

#[test]
fn targets_that_cannot_stand_in_a_request() {
    let cases = [
        ("", "/"),
        ("a b", "/"),
        ("h\r\nX: y", "/"),
        ("h", ""),
        ("h", "path"),
        ("h", "/a b"),
        ("h", "/a\r\n"),
        ("h", "/é"),
    ];
    for (host, path) in cases {
        let mut out = Vec::new();
        let refused = encode_request(&mut out, host, path, KEY);
        assert_eq!(refused, Err(HandshakeError::Target), "{host} {path}");
        assert!(out.is_empty());
    }
}

proptest! {
    #[test]
    fn our_client_and_our_server_agree(key: [u8; 16], path in "/[!-~]{0,40}", cut: prop::sample::Index) {
        let mut request = Vec::new();
        encode_request(&mut request, "localhost:8080", &path, &key).unwrap();
        let cut = cut.index(request.len());
        prop_assert_eq!(parse_head(&request[..cut], HeadLimits::default()), Ok(None));
        let parsed = parse_head(&request, HeadLimits::default());
        let (head, len) = parsed.unwrap().unwrap();
        prop_assert_eq!((head.target, len), (path.as_str(), request.len()));

        let mut response = Vec::new();
        encode_accept(&mut response, &accept(&head).unwrap(), &[]);
        prop_assert_eq!(parse_response(&response, &key), Ok(Some(response.len())));
        let other = key.map(|byte| !byte);
        prop_assert_eq!(parse_response(&response, &other), Err(HandshakeError::Accept));
    }

    #[test]
    fn arbitrary_heads_are_judged_alike_however_they_arrive(
        bytes in prop_oneof![
            any::<Vec<u8>>(),
            // A valid request with a few bytes changed.
            prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4).prop_map(
                |edits| {
                    let mut bytes = REQUEST.as_bytes().to_vec();
                    for (at, byte) in edits {
                        let at = at.index(bytes.len());
                        bytes[at] = byte;
                    }
                    bytes
                },
            ),
        ],
    ) {
        let limits = HeadLimits { max_bytes: 300, max_headers: 8 };
        let judge = |n: usize| parse_head(&bytes[..n], limits);
        let first = (0..=bytes.len()).map(judge).find(|verdict| *verdict != Ok(None));
        match (first.unwrap_or(Ok(None)), judge(bytes.len())) {
            (Ok(early), Ok(whole)) => prop_assert_eq!(early, whole),
            (early, whole) => prop_assert!(early.is_err() && whole.is_err()),
        }
        if let Ok(Some((head, _))) = judge(bytes.len()) {
            let _ = (head.path(), head.query(), head.control(), accept(&head));
        }
    }
}
