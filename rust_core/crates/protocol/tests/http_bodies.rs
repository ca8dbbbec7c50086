//! Bodies, and connections that carry several requests: how the bytes were cut changes nothing.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use subjectbus_protocol::http::{
    BodyDecoder, BodyEvent, Framing, HeadLimits, HttpError, encode_chunk, encode_head_chunked,
    encode_last_chunk, encode_request, parse_head, parse_response_head,
};

const SIZE: HttpError = HttpError::Malformed("invalid chunk size");
const EXTENSION: HttpError = HttpError::Malformed("invalid chunk extension");
const DATA: HttpError = HttpError::Malformed("chunk data does not end with CR LF");
const TRAILER: HttpError = HttpError::Malformed("invalid trailer");

/// Content that a decoder found.
#[derive(Debug, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    /// Bytes after the body, if it is complete.
    rest: Option<Vec<u8>>,
}

/// Decode `bytes`, given in pieces of at most `len` bytes.
fn decode_pieces(framing: Framing, bytes: &[u8], len: usize) -> Result<Decoded, HttpError> {
    let mut decoder = BodyDecoder::new(framing);
    let mut data = Vec::new();
    // A body may be complete before anything arrives.
    let pieces = std::iter::once(&[][..]).chain(bytes.chunks(len));
    let mut taken = 0;
    for piece in pieces {
        let mut input = piece;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(BodyEvent::Data(more))) => {
                    assert!(!more.is_empty());
                    data.extend_from_slice(more);
                }
                Ok(Some(BodyEvent::End)) => {
                    let left = input;
                    assert_eq!(decoder.next(&mut input), Ok(None));
                    assert_eq!(input, left);
                    let rest = Some(bytes[taken + piece.len() - left.len()..].to_vec());
                    return Ok(Decoded { data, rest });
                }
                Ok(None) => break,
                Err(error) => {
                    for mut more in [input, b"0\r\n\r\n"] {
                        assert_eq!(decoder.next(&mut more), Ok(None));
                        assert!(more.is_empty());
                    }
                    return Err(error);
                }
            }
        }
        assert!(input.is_empty());
        taken += piece.len();
    }
    Ok(Decoded { data, rest: None })
}

fn decode(framing: Framing, bytes: &[u8]) -> Result<Decoded, HttpError> {
    let whole = decode_pieces(framing, bytes, usize::MAX);
    for len in 1..4 {
        let cut = decode_pieces(framing, bytes, len);
        assert_eq!(cut, whole, "{} {len}", bytes.escape_ascii());
    }
    whole
}

#[test]
fn a_decoder_is_small() {
    assert!(size_of::<BodyDecoder>() <= 32);
}

#[test]
fn bodies_of_known_length() {
    let decoded = |data: &[u8], rest: Option<&[u8]>| {
        let (data, rest) = (data.to_vec(), rest.map(<[u8]>::to_vec));
        Ok(Decoded { data, rest })
    };
    assert_eq!(decode(Framing::None, b"GET"), decoded(b"", Some(b"GET")));
    assert_eq!(decode(Framing::Length(0), b""), decoded(b"", Some(b"")));
    assert_eq!(decode(Framing::Length(3), b""), decoded(b"", None));
    assert_eq!(decode(Framing::Length(3), b"ab"), decoded(b"ab", None));
    assert_eq!(
        decode(Framing::Length(3), b"abc"),
        decoded(b"abc", Some(b""))
    );
    assert_eq!(
        decode(Framing::Length(3), b"abcd"),
        decoded(b"abc", Some(b"d"))
    );
    assert_eq!(
        decode(Framing::Length(u64::MAX), b"abc"),
        decoded(b"abc", None)
    );
}

#[test]
fn chunked_bodies() {
    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(255));
    let trailers = format!("0\r\nA: {}\r\n\r\n", "b".repeat(8192 - 7));
    let cases: [(&str, &str); 12] = [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("1\r\na\r\n2\r\nbc\r\n00\r\n\r\n", "abc"),
        (
            "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
        ),
        ("0000000000000001\r\nx\r\n0000000000000000\r\n\r\n", "x"),
        ("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n"),
        ("1;\r\nx\r\n0;a\r\n\r\n", "x"),
        ("1;a=b;c=\"d \\\"e\t;\"\r\nx\r\n0;\t \r\n\r\n", "x"),
        (&extension, "x"),
        ("0\r\nA: b\r\nC:\r\nD:\té~\r\n\r\n", ""),
        ("1\r\nx\r\n0\r\nContent-Length: 5\r\n\r\n", "x"),
        (&trailers, ""),
    ];
    for (body, want) in cases {
        for tail in ["", "0\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\0"] {
            let decoded = decode(Framing::Chunked, format!("{body}{tail}").as_bytes()).unwrap();
            assert_eq!(decoded.data, want.as_bytes(), "{body:?}");
            assert_eq!(decoded.rest.as_deref(), Some(tail.as_bytes()), "{body:?}");
        }
        for n in 0..body.len() {
            let decoded = decode(Framing::Chunked, &body.as_bytes()[..n]).unwrap();
            assert_eq!(decoded.rest, None, "{body:?} {n}");
        }
    }
}

#[test]
fn the_largest_chunk_is_a_stream() {
    let decoded = decode(Framing::Chunked, b"FFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n").unwrap();
    assert_eq!(decoded.data, b"abc\r\n0\r\n\r\n");
    assert_eq!(decoded.rest, None);
}

#[test]
fn chunks_that_could_be_read_differently() {
    let cases: [(&[u8], HttpError); 47] = [
        (b"\r\n", SIZE),
        (b"\n", SIZE),
        (b";a\r\n", SIZE),
        (b" 5\r\n", SIZE),
        (b"\t5\r\n", SIZE),
        (b"5 \r\n", SIZE),
        (b"5\t\r\n", SIZE),
        (b"5 ;a\r\n", SIZE),
        (b"5\n", SIZE),
        (b"5\r\r\n", SIZE),
        (b"5\rhello", SIZE),
        (b"5\r;a\r\n", SIZE),
        (b"+5\r\n", SIZE),
        (b"-5\r\n", SIZE),
        (b"0x5\r\n", SIZE),
        (b"5h\r\n", SIZE),
        (b"5_0\r\n", SIZE),
        (b"5.0\r\n", SIZE),
        (b"5,5\r\n", SIZE),
        (b"g\r\n", SIZE),
        (b"\xef\xbc\x95\r\n", SIZE),
        (b"00000000000000005\r\n", SIZE),
        (b"10000000000000000\r\n", SIZE),
        (b"5;a\nhello", EXTENSION),
        (b"5;a\0\r\n", EXTENSION),
        (b"5;\x7f\r\n", EXTENSION),
        (b"5;\xe9\r\n", EXTENSION),
        (b"5;a\rb\r\n", SIZE),
        (b"5;a\r\r\n", SIZE),
        (b"5\r\nhello0\r\n\r\n", DATA),
        (b"5\r\nhello\n0\r\n\r\n", DATA),
        (b"5\r\nhello\n\n0\r\n\r\n", DATA),
        (b"5\r\nhello\r0\r\n\r\n", DATA),
        (b"5\r\nhello\r\r\n", DATA),
        (b"5\r\nhello \r\n", DATA),
        (b"5\r\nhello\r\n\r\n0\r\n\r\n", SIZE),
        (b"0\r\n\n", TRAILER),
        (b"0\r\n\r\r\n", TRAILER),
        (b"0\r\n\rA", TRAILER),
        (b"0\r\nA: b\n\r\n", TRAILER),
        (b"0\r\nA: b\rc", TRAILER),
        (b"0\r\nA: b\r\n folded\r\n", TRAILER),
        (b"0\r\n A: b\r\n", TRAILER),
        (b"0\r\nA : b\r\n", TRAILER),
        (b"0\r\n: b\r\n", TRAILER),
        (b"0\r\nA\r\n", TRAILER),
        (b"0\r\nA: \0\r\n", TRAILER),
    ];
    for (bytes, want) in cases {
        assert_eq!(
            decode(Framing::Chunked, bytes),
            Err(want),
            "{}",
            bytes.escape_ascii()
        );
        assert_eq!(want.status(), 400);
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let chunk = format!("1;{}\r\n", "e".repeat(256));
    assert_eq!(decode(Framing::Chunked, chunk.as_bytes()), Err(EXTENSION));
    let lines = [
        "A: b\r\n".repeat(10_000),
        format!("A: {}\r\n\r\n", "b".repeat(8192 - 6)),
    ];
    for lines in lines {
        let body = format!("0\r\n{lines}");
        let error = decode(Framing::Chunked, body.as_bytes()).unwrap_err();
        assert_eq!(error, HttpError::TrailersTooLarge);
        assert_eq!(error.status(), 431);
    }
}

/// Events of a connection, independent of the cuts.
#[derive(Debug, PartialEq)]
enum Parsed {
    Request {
        method: String,
        target: String,
        fields: usize,
    },
    Body(Vec<u8>),
    /// Error, after which nothing is read.
    Error(HttpError),
}

/// A server's side of a connection, which keeps the bytes of an incomplete head and nothing of a
/// body.
#[derive(Default)]
struct Connection {
    kept: Vec<u8>,
    body: Option<(BodyDecoder, Vec<u8>)>,
    said: Vec<Parsed>,
}

impl Connection {
    fn receive(&mut self, piece: &[u8]) -> Result<(), HttpError> {
        let mut bytes = std::mem::take(&mut self.kept);
        bytes.extend_from_slice(piece);
        let mut input = bytes.as_slice();
        loop {
            let Some((decoder, data)) = &mut self.body else {
                let Some((head, len)) = parse_head(input, HeadLimits::default())? else {
                    self.kept = input.to_vec();
                    return Ok(());
                };
                let framing = head.control()?.framing;
                self.said.push(Parsed::Request {
                    method: head.method.to_owned(),
                    target: head.target.to_owned(),
                    fields: head.headers.iter().count(),
                });
                self.body = Some((BodyDecoder::new(framing), Vec::new()));
                input = &input[len..];
                continue;
            };
            match decoder.next(&mut input)? {
                Some(BodyEvent::Data(more)) => data.extend_from_slice(more),
                Some(BodyEvent::End) => {
                    self.said.push(Parsed::Body(std::mem::take(data)));
                    self.body = None;
                }
                None => return Ok(()),
            }
        }
    }
}

/// Return the events of `bytes` that arrive in pieces of these lengths, repeated.
fn parsed(bytes: &[u8], lens: &[usize]) -> Vec<Parsed> {
    let mut connection = Connection::default();
    let mut rest = bytes;
    for len in lens.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*len).clamp(1, rest.len()));
        rest = after;
        if let Err(error) = connection.receive(piece) {
            connection.said.push(Parsed::Error(error));
            break;
        }
    }
    connection.said
}

#[derive(Clone, Debug)]
struct Request {
    target: String,
    length: bool,
    chunks: Vec<Vec<u8>>,
}

impl Request {
    fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let host = ("Host", "a");
        if self.length {
            encode_request(out, "POST", &self.target, &[host], Some(&self.body()));
            return;
        }
        let chunked = ("Transfer-Encoding", "chunked");
        encode_request(out, "POST", &self.target, &[host, chunked], None);
        self.chunks
            .iter()
            .for_each(|chunk| encode_chunk(out, chunk));
        encode_last_chunk(out);
    }
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let chunks = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4);
    let request = ("/[a-z/%?=]{0,12}", any::<bool>(), chunks);
    let request = request.prop_map(|(target, length, chunks)| Request {
        target,
        length,
        chunks,
    });
    prop::collection::vec(request, 0..5)
}

fn encoded(requests: &[Request]) -> Vec<u8> {
    let mut wire = Vec::new();
    requests
        .iter()
        .for_each(|request| request.encode(&mut wire));
    wire
}

proptest! {
    #[test]
    fn requests_that_were_encoded_are_read_back_however_they_are_cut(
        requests in requests(),
        lens in prop::collection::vec(1..60_usize, 1..8),
    ) {
        let wire = encoded(&requests);
        let want = requests.iter().flat_map(|request| [
            Parsed::Request { method: "POST".into(), target: request.target.clone(), fields: 2 },
            Parsed::Body(request.body()),
        ]);
        let want: Vec<_> = want.collect();
        prop_assert_eq!(&parsed(&wire, &[usize::MAX]), &want);
        prop_assert_eq!(&parsed(&wire, &[1]), &want);
        prop_assert_eq!(&parsed(&wire, &lens), &want);
    }

    #[test]
    fn cutting_damaged_requests_changes_nothing(
        requests in requests(),
        damage in prop::collection::vec((any::<Index>(), select(b"\r\n\0 ;:09aF,".to_vec())), 0..4),
        lens in prop::collection::vec(1..60_usize, 1..8),
    ) {
        let mut wire = encoded(&requests);
        for (at, byte) in damage {
            if !wire.is_empty() {
                let at = at.index(wire.len());
                wire[at] = byte;
            }
        }
        let whole = parsed(&wire, &[usize::MAX]);
        for lens in [&[1], lens.as_slice()] {
            let cut = parsed(&wire, lens);
            // If a head has several errors, either may be reported.
            match (whole.last(), cut.last()) {
                (Some(Parsed::Error(_)), Some(Parsed::Error(_))) => {
                    prop_assert_eq!(&cut[..cut.len() - 1], &whole[..whole.len() - 1]);
                }
                _ => prop_assert_eq!(&cut, &whole),
            }
        }
    }

    #[test]
    fn a_chunked_response_is_read_back(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..8),
        len in 1..1000_usize,
    ) {
        let mut wire = Vec::new();
        encode_head_chunked(&mut wire, 200, [("Content-Type", "text/event-stream")]);
        chunks.iter().for_each(|chunk| encode_chunk(&mut wire, chunk));
        encode_last_chunk(&mut wire);
        wire.extend_from_slice(b"HTTP/1.1");
        let parsed = parse_response_head(&wire, HeadLimits::default()).unwrap();
        let (head, head_len) = parsed.unwrap();
        prop_assert_eq!(head.status, 200);
        prop_assert_eq!(head.headers.value("transfer-encoding"), Ok(Some(&b"chunked"[..])));
        let decoded = decode_pieces(Framing::Chunked, &wire[head_len..], len).unwrap();
        prop_assert_eq!(decoded.data, chunks.concat());
        prop_assert_eq!(decoded.rest.as_deref(), Some(&b"HTTP/1.1"[..]));
    }
}
