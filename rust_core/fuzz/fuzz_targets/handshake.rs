//! Bytes as heads of requests and responses: judged alike whole and byte by byte.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use protocol::http::{HeadLimits, encode_response, parse_head};
use protocol::ws::handshake::{accept, encode_accept, parse_response};

const LIMITS: HeadLimits = HeadLimits {
    max_bytes: 512,
    max_headers: 12,
};

/// The example of RFC 6455 section 1.3.
const KEY: &[u8; 16] = b"the sample nonce";
const REQUEST: &[u8] = b"GET /chat?x HTTP/1.1\r\nHost: server.example.com\r\n\
    Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[derive(Arbitrary, Debug)]
enum Start {
    Nothing,
    Request,
    Response,
}

/// A valid head with changes, so that random bytes get past the first checks.
#[derive(Arbitrary, Debug)]
struct Input {
    start: Start,
    /// Bytes to overwrite: where, and with what.
    edits: Vec<(u8, u8)>,
    tail: Vec<u8>,
}

impl Input {
    fn bytes(&self) -> Vec<u8> {
        let start = match self.start {
            Start::Nothing => &[],
            Start::Request => REQUEST,
            Start::Response => RESPONSE,
        };
        let tail = &self.tail[..self.tail.len().min(1024)];
        let mut bytes = [start, tail].concat();
        for (at, byte) in &self.edits {
            if let Some(edited) = bytes.get_mut(usize::from(*at)) {
                *edited = *byte;
            }
        }
        bytes
    }
}

/// Checks that the first verdict on a growing prefix of `bytes` is the verdict on all of them; of
/// several errors in one head either may be reported.
fn check<T: PartialEq + std::fmt::Debug, E>(
    bytes: &[u8],
    judge: impl Fn(&[u8]) -> Result<Option<T>, E>,
) {
    let prefixes = (0..=bytes.len()).filter_map(|n| bytes.get(..n));
    let early = prefixes
        .map(&judge)
        .find(|verdict| !matches!(verdict, Ok(None)));
    match (early.unwrap_or(Ok(None)), judge(bytes)) {
        (Ok(early), Ok(whole)) => assert_eq!(early, whole),
        (early, whole) => assert!(early.is_err() && whole.is_err()),
    }
}

fuzz_target!(|input: Input| {
    let bytes = &input.bytes();
    check(bytes, |prefix| {
        let parsed = parse_head(prefix, LIMITS)?;
        Ok::<_, protocol::http::HttpError>(parsed.map(|(head, len)| {
            (
                head.method.to_owned(),
                head.target.to_owned(),
                head.headers.iter().count(),
                len,
            )
        }))
    });
    check(bytes, |prefix| parse_response(prefix, KEY));
    if input.edits.is_empty() && input.tail.is_empty() {
        match input.start {
            Start::Nothing => assert_eq!(parse_head(bytes, LIMITS), Ok(None)),
            Start::Request => assert!(
                parse_head(bytes, LIMITS)
                    .is_ok_and(|parsed| { parsed.is_some_and(|(head, _)| accept(&head).is_ok()) })
            ),
            Start::Response => assert_eq!(parse_response(bytes, KEY), Ok(Some(RESPONSE.len()))),
        }
    }

    let Ok(Some((head, len))) = parse_head(bytes, LIMITS) else {
        return;
    };
    assert!(len <= LIMITS.max_bytes && head.headers.iter().count() <= LIMITS.max_headers);
    assert!(head.target.contains(head.path()) || head.path() == "/");
    let mut out = Vec::new();
    match accept(&head) {
        Ok(accepted) => encode_accept(&mut out, &accepted, &[]),
        Err(reject) => {
            reject.encode(&mut out);
            encode_response(&mut out, reject.status(), [], b"", false, true);
        }
    }
    assert!(out.starts_with(b"HTTP/1.1 "));
});
