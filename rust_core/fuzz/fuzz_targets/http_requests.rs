//! Bytes as requests with bodies, one after the other: how they were cut must not change what they
//! say, and nothing that two parsers could read differently is taken.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use protocol::http::{
    BodyDecoder, BodyEvent, Framing, HeadLimits, HttpError, RequestHead, Version, decode_percent,
    encode_chunk, encode_last_chunk, parse_head, query_value, split_authority,
};

const LIMITS: HeadLimits = HeadLimits {
    max_bytes: 512,
    max_headers: 12,
};

#[derive(Arbitrary, Debug)]
struct Input {
    /// The lengths of the pieces in turn, in bytes; none means one byte each.
    pieces: Vec<u8>,
    stream: Vec<Part>,
}

/// Random bytes alone hardly ever make a request.
#[derive(Arbitrary, Debug)]
enum Part {
    /// An index into `TOKENS`.
    Token(u8),
    Bytes(Vec<u8>),
}

const TOKENS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST /v1/request/a%2Eb?timeout=1 HTTP/1.1\r\nHost: a:1\r\n",
    "POST http://a/b?c=d&c HTTP/1.1\r\nHost:\r\n",
    "PUT /%zz?%74imeout=%4 HTTP/1.0\r\n",
    "GET /byte HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
    "Host: b\r\n",
    "Connection: close, x, Content-Length\r\n",
    "connection: ,,,,,,,,,,\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 3\r\n\r\nabc",
    "Content-Length: 12\r\n",
    "Content-Length: 9999999999999999999\r\n",
    "content-length:\t1 \r\n",
    "Content-Length",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "Transfer-Encoding",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "Connection: close\r\n",
    "Connection: x, Upgrade\r\n",
    "Upgrade: websocket\r\n",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "A;x=\"y\"\r\n0123456789\r\n",
    "0\r\nA: b\r\n\r\n",
    "FFFFFFFFFFFFFFFF\r\n",
    "chunked",
    "\r\n",
    "\n",
    "\r",
    ": ",
    ":",
    ",",
    ";",
    " ",
    "\t",
    "+",
    "0",
    "1",
    "a",
];

impl Input {
    fn stream(&self) -> Vec<u8> {
        let part = |part: &Part| match part {
            Part::Token(index) => TOKENS[usize::from(*index) % TOKENS.len()].into(),
            Part::Bytes(bytes) => bytes.clone(),
        };
        self.stream.iter().flat_map(part).collect()
    }
}

/// What a stream says, independent of how it was cut.
#[derive(Debug, PartialEq)]
enum Said {
    Head(String),
    Body(Vec<u8>),
    /// Of several errors in one head either may be reported.
    BadHead,
    Refused(HttpError),
    BadBody(HttpError),
}

fn read(stream: &[u8], mut next_len: impl FnMut() -> usize) -> Vec<Said> {
    let (mut said, mut kept) = (Vec::new(), Vec::new());
    let mut body: Option<(BodyDecoder, Vec<u8>)> = None;
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next_len().clamp(1, rest.len()));
        rest = after;
        kept.extend_from_slice(piece);
        let bytes = std::mem::take(&mut kept);
        let mut input = bytes.as_slice();
        loop {
            let Some((decoder, content)) = &mut body else {
                let (head, len) = match parse_head(input, LIMITS) {
                    Ok(Some(parsed)) => parsed,
                    Ok(None) => break,
                    Err(_) => {
                        said.push(Said::BadHead);
                        return said;
                    }
                };
                check_head(&head, &input[..len]);
                input = &input[len..];
                said.push(Said::Head(format!("{head:?}")));
                match head.control() {
                    Ok(control) => body = Some((BodyDecoder::new(control.framing), Vec::new())),
                    Err(error) => {
                        said.push(Said::Refused(error));
                        return said;
                    }
                }
                continue;
            };
            let before = input;
            let event = decoder.next(&mut input);
            assert!(before.ends_with(input));
            match event {
                Ok(Some(BodyEvent::Data(data))) => {
                    assert!(!data.is_empty() && data.len() <= before.len() - input.len());
                    content.extend_from_slice(data);
                }
                Ok(Some(BodyEvent::End)) => {
                    check_chunks(content);
                    said.push(Said::Body(std::mem::take(content)));
                    body = None;
                }
                Ok(None) => {
                    assert!(input.is_empty());
                    break;
                }
                Err(error) => {
                    said.push(Said::BadBody(error));
                    return said;
                }
            }
        }
        kept = input.to_vec();
        assert!(kept.len() < LIMITS.max_bytes);
    }
    said.extend(body.map(|(_, content)| Said::Body(content)));
    said
}

/// Checks a head that was taken, of these bytes.
fn check_head(head: &RequestHead<'_>, bytes: &[u8]) {
    assert!(bytes.len() <= LIMITS.max_bytes && bytes.ends_with(b"\r\n\r\n"));
    assert!(head.headers.iter().count() <= LIMITS.max_headers);
    for pair in bytes.windows(2) {
        assert_eq!(pair[0] == b'\r', pair[1] == b'\n');
    }
    for (name, value) in head.headers.iter() {
        assert!(!name.is_empty() && name.is_ascii());
        assert_eq!(value, value.trim_ascii());
    }
    if let Ok(control) = head.control() {
        let is_new = head.version == Version::Http11;
        let has_close = head.headers.has_token("connection", "close");
        assert_eq!(control.keep_alive, is_new && !has_close);
        assert!(is_new || (control.framing != Framing::Chunked && !control.expects_continue));
        assert_eq!(control.upgrade, head.headers.count("upgrade") > 0);
    }
    if let Some((host, port)) = split_authority(head.authority()) {
        assert!(head.authority().starts_with(host));
        assert!(port.is_none() || host.len() < head.authority().len());
    }
    let mut decoded = Vec::new();
    if decode_percent(head.path(), &mut decoded).is_ok() {
        assert_eq!(
            decoded.len() == head.path().len(),
            !head.path().contains('%')
        );
    }
    if let Ok(Some(value)) = query_value(head.query(), "timeout") {
        assert!(head.target.contains(value));
    }
}

/// Checks that content written as chunks is read back.
fn check_chunks(content: &[u8]) {
    let mut wire = Vec::new();
    content
        .chunks(17)
        .for_each(|data| encode_chunk(&mut wire, data));
    encode_last_chunk(&mut wire);
    let (mut decoder, mut input) = (BodyDecoder::new(Framing::Chunked), wire.as_slice());
    let mut again = Vec::new();
    while let Ok(Some(BodyEvent::Data(data))) = decoder.next(&mut input) {
        again.extend_from_slice(data);
    }
    assert!(input.is_empty());
    assert_eq!(again, content);
}

fuzz_target!(|input: Input| {
    let stream = input.stream();
    let whole = read(&stream, || usize::MAX);
    assert_eq!(whole, read(&stream, || 1));
    let mut lens = input.pieces.iter().copied().cycle();
    assert_eq!(whole, read(&stream, || lens.next().map_or(1, usize::from)));
});
