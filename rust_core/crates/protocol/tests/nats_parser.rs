//! The NATS parser on wire vectors in both directions, whole, byte by byte, in other pieces and
//! with data behind them: the cuts must never change the operations.

#![allow(clippy::unwrap_used)]

use subjectbus_protocol::nats::{
    ClientOp, DEFAULT_MAX_PAYLOAD, FromClient, FromServer, Limits, Message, ParseError, Parser,
    ServerOp, Side,
};

const LIMITS: Limits = Limits {
    max_control_line: 64,
    max_payload: 100,
    headers: true,
};

/// An operation as text, independent of the bytes that it borrows from.
trait Say {
    fn say(&self) -> String;
}

impl Say for ClientOp<'_> {
    fn say(&self) -> String {
        match self {
            Self::Connect(json) => format!("Connect {}", json.escape_ascii()),
            op => format!("{op:?}"),
        }
    }
}

impl Say for ServerOp<'_> {
    fn say(&self) -> String {
        format!("{self:?}")
    }
}

/// Operations of a stream, and its end.
#[derive(Debug, PartialEq)]
struct Parsed {
    ops: Vec<String>,
    error: Option<ParseError>,
}

/// Feed `stream` in pieces of `size` bytes.
fn read<S: Side>(stream: &[u8], limits: &Limits, size: usize) -> Parsed
where
    for<'a> S::Op<'a>: Say,
{
    let mut parser = Parser::<S>::new();
    let mut said = Parsed {
        ops: Vec::new(),
        error: None,
    };
    for mut input in stream.chunks(size) {
        loop {
            match parser.next(limits, &mut input) {
                Ok(Some(op)) => said.ops.push(op.say()),
                Ok(None) => break,
                Err(error) => assert_eq!(said.error.replace(error), None, "a second error"),
            }
        }
        assert!(input.is_empty(), "input left over");
        if said.error.is_some() {
            assert_eq!(parser.kept_bytes(), 0, "bytes kept after an error");
        }
    }
    said
}

fn check<S: Side>(stream: &[u8], limits: &Limits, expected: &Parsed)
where
    for<'a> S::Op<'a>: Say,
{
    for size in [stream.len().max(1), 1, 2, 3, 5, 7] {
        let said = read::<S>(stream, limits, size);
        assert_eq!(
            &said,
            expected,
            "{} in pieces of {size}",
            stream.escape_ascii()
        );
    }
}

/// Check that `stream` is exactly `ops`, alone and with more behind it.
fn check_ops<S: Side>(stream: &[u8], ops: &[impl Say])
where
    for<'a> S::Op<'a>: Say,
{
    let mut expected = Parsed {
        ops: ops.iter().map(Say::say).collect(),
        error: None,
    };
    check::<S>(stream, &LIMITS, &expected);
    let tail = [stream, b"PI"].concat();
    check::<S>(&tail, &LIMITS, &expected);
    let tail = [stream, b"PING\r\npong\nPI"].concat();
    expected.ops.extend(["Ping".to_owned(), "Pong".to_owned()]);
    check::<S>(&tail, &LIMITS, &expected);
}

/// Check that `stream` fails as `error` after `ops`, alone and with more behind it.
fn check_error<S: Side>(stream: &[u8], limits: &Limits, ops: &[impl Say], error: ParseError)
where
    for<'a> S::Op<'a>: Say,
{
    let expected = Parsed {
        ops: ops.iter().map(Say::say).collect(),
        error: Some(error),
    };
    check::<S>(stream, limits, &expected);
    let tail = [stream, b"\r\nPING\r\nMSG a 1 0\r\n\r\nPUB a 0\r\n\r\n"].concat();
    check::<S>(&tail, limits, &expected);
}

fn publish<'a>(subject: &'a [u8], reply: Option<&'a [u8]>, payload: &'a [u8]) -> ClientOp<'a> {
    ClientOp::Pub(Message {
        subject,
        reply,
        headers: None,
        payload,
    })
}

fn subscribe<'a>(subject: &'a [u8], queue: Option<&'a [u8]>, sid: &'a [u8]) -> ClientOp<'a> {
    ClientOp::Sub {
        subject,
        queue,
        sid,
    }
}

const NONE: [ClientOp<'static>; 0] = [];

#[test]
fn publishing() {
    let headers = b"NATS/1.0\r\nA: b\r\n\r\n";
    let vectors: &[(&[u8], ClientOp<'_>)] = &[
        (b"PUB a.b 5\r\nhello\r\n", publish(b"a.b", None, b"hello")),
        (b"pub a r 2\nhi\r\n", publish(b"a", Some(b"r"), b"hi")),
        (b"PuB a 0\r\n\r\n", publish(b"a", None, b"")),
        (
            b"PUB \t a\t\tr  2 \t\r\nhi\r\n",
            publish(b"a", Some(b"r"), b"hi"),
        ),
        (b"PUB a 000000002\r\nhi\r\n", publish(b"a", None, b"hi")),
        (b"PUB a 4\r\n\r\n\r\n\r\n", publish(b"a", None, b"\r\n\r\n")),
        (b"PUB a 6\r\nPING\r\n\r\n", publish(b"a", None, b"PING\r\n")),
        (
            b"PUB \xc3\xa9.\xff 1\r\n\x00\r\n",
            publish(b"\xc3\xa9.\xff", None, b"\x00"),
        ),
        (b"PUB a\rr 1\r\nx\r\n", publish(b"a", Some(b"r"), b"x")),
        (
            b"HPUB a r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n",
            ClientOp::Pub(Message {
                subject: b"a",
                reply: Some(b"r"),
                headers: Some(headers),
                payload: b"xy",
            }),
        ),
        (
            b"hpub a 18 18\nNATS/1.0\r\nA: b\r\n\r\n\r\n",
            ClientOp::Pub(Message {
                subject: b"a",
                reply: None,
                headers: Some(headers),
                payload: b"",
            }),
        ),
        (b"HPUB a 0 2\r\nxy\r\n", publish(b"a", None, b"xy")),
    ];
    for (stream, op) in vectors {
        check_ops::<FromClient>(stream, &[*op]);
    }
}

#[test]
fn subscribing() {
    let unsub = |sid, max| ClientOp::Unsub { sid, max };
    let vectors: &[(&[u8], ClientOp<'_>)] = &[
        (b"SUB foo.* 1\r\n", subscribe(b"foo.*", None, b"1")),
        (b"sub > q x9\n", subscribe(b">", Some(b"q"), b"x9")),
        (
            b"SUB\t foo \t q  1 \r\n",
            subscribe(b"foo", Some(b"q"), b"1"),
        ),
        (b"UNSUB 1\r\n", unsub(b"1", None)),
        (b"UNSUB 1 \r\n", unsub(b"1", None)),
        (b"UNSUB 1 0\r\n", unsub(b"1", None)),
        (b"unsub 1 5\n", unsub(b"1", Some(5))),
        (b"UNSUB 1 999999999\r\n", unsub(b"1", Some(999_999_999))),
        (b"UNSUB 1 1000000000\r\n", unsub(b"1", None)),
        (b"UNSUB 1 0000000001\r\n", unsub(b"1", None)),
        (b"UNSUB 1 99999999999999999999\r\n", unsub(b"1", None)),
        (b"UNSUB 1 -1\r\n", unsub(b"1", None)),
        (b"UNSUB 1 +1\r\n", unsub(b"1", None)),
        (b"UNSUB 1 3x\r\n", unsub(b"1", None)),
    ];
    for (stream, op) in vectors {
        check_ops::<FromClient>(stream, &[*op]);
    }
}

#[test]
fn the_rest_of_what_a_client_sends() {
    let vectors: &[(&[u8], ClientOp<'_>)] = &[
        (b"CONNECT {\"a\": 1}\r\n", ClientOp::Connect(b"{\"a\": 1}")),
        (b"connect{}\n", ClientOp::Connect(b"{}")),
        (b"CONNECT \t {} \r\n", ClientOp::Connect(b"{}")),
        (b"CONNECT\r\n", ClientOp::Connect(b"")),
        (b"PING\r\n", ClientOp::Ping),
        (b"ping\n", ClientOp::Ping),
        (b"PING \t\r\n", ClientOp::Ping),
        (b"PINGxyz\r\n", ClientOp::Ping),
        (b"PONG\r\n", ClientOp::Pong),
        (b"+OK\r\n", ClientOp::Ok),
        (b"+ok\n", ClientOp::Ok),
        (b"INFO {}\r\n", ClientOp::Info),
        (b"-ERR 'text'\r\n", ClientOp::Err),
    ];
    for (stream, op) in vectors {
        check_ops::<FromClient>(stream, &[*op]);
    }
    let stream = b"CONNECT {}\r\nPING\r\nSUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1\r\n";
    let ops = [
        ClientOp::Connect(b"{}"),
        ClientOp::Ping,
        subscribe(b"a", None, b"1"),
        publish(b"a", None, b"x"),
        ClientOp::Unsub {
            sid: b"1",
            max: None,
        },
    ];
    check_ops::<FromClient>(stream, &ops);
    check_ops::<FromClient>(b"", &NONE);
}

#[test]
fn what_a_server_sends() {
    let message = |reply, headers, payload| ServerOp::Msg {
        sid: b"9",
        message: Message {
            subject: b"a.b",
            reply,
            headers,
            payload,
        },
    };
    let vectors: &[(&[u8], ServerOp<'_>)] = &[
        (b"INFO {\"a\":1} \r\n", ServerOp::Info(b"{\"a\":1}")),
        (b"MSG a.b 9 5\r\nhello\r\n", message(None, None, b"hello")),
        (b"msg a.b\t9  r 0\n\r\n", message(Some(b"r"), None, b"")),
        (
            b"HMSG a.b 9 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            message(Some(b"r"), Some(b"NATS/1.0 503\r\n\r\n"), b""),
        ),
        (
            b"HMSG a.b 9 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
            message(None, Some(b"NATS/1.0\r\n\r\n"), b"x"),
        ),
        (b"PING\r\n", ServerOp::Ping),
        (b"PONG\r\n", ServerOp::Pong),
        (b"+OK\r\n", ServerOp::Ok),
        (
            b"-ERR 'Stale Connection'\r\n",
            ServerOp::Err(b"Stale Connection"),
        ),
        (b"-ERR  bare text \r\n", ServerOp::Err(b"bare text")),
        (b"-ERR '\r\n", ServerOp::Err(b"'")),
    ];
    for (stream, op) in vectors {
        check_ops::<FromServer>(stream, &[*op]);
    }
}

#[test]
fn unknown_operations() {
    let text = Some("Unknown Protocol Operation");
    assert_eq!(ParseError::UnknownOperation.err_text(), text);
    assert_eq!(ParseError::PayloadNotTerminated.err_text(), text);
    // Each is refused at its last byte, without a line end.
    for stream in [
        &b"X"[..],
        b"\n",
        b" ",
        b"\0",
        b"MSG a 1 0\r\n",
        b"HM",
        b"RMSG",
        b"A+",
        b"GET / HTTP/1.1\r\n",
        b"PX",
        b"PINX",
        b"PUBX",
        b"PUB\r\n",
        b"PUB\n",
        b"SUB\r\n",
        b"SUB\rx 1\n",
        b"UNSUB\r\n",
        b"+OX",
        b"-ERR\r\n",
        b"CONNECX",
    ] {
        check_error::<FromClient>(stream, &LIMITS, &NONE, ParseError::UnknownOperation);
    }
    check_error::<FromClient>(b"\r\n", &LIMITS, &NONE, ParseError::UnknownOperation);
    let ping = [ClientOp::Ping];
    let stream = b"PING\r\n\r\nPING\r\n";
    check_error::<FromClient>(stream, &LIMITS, &ping, ParseError::UnknownOperation);
    for stream in [&b"PUB"[..], b"HP", b"SUB", b"UNSUB", b"CONNECT", b"\r\n"] {
        check_error::<FromServer>(stream, &LIMITS, &NONE, ParseError::UnknownOperation);
    }
}

#[test]
fn wrong_payload_ends() {
    for stream in [
        &b"PUB a 2\r\nabX"[..],
        b"PUB a 2\r\nab\n",
        b"PUB a 2\r\nab\rX",
        b"PUB a 2\r\nab\r\r",
        b"PUB a 0\r\nX",
        b"HPUB a 2 2\r\nab\n",
    ] {
        check_error::<FromClient>(stream, &LIMITS, &NONE, ParseError::PayloadNotTerminated);
    }
    let stream = b"MSG a 1 2\r\nabc";
    check_error::<FromServer>(stream, &LIMITS, &NONE, ParseError::PayloadNotTerminated);
}

#[test]
fn malformed_arguments_close_without_err() {
    let vectors: &[(&[u8], &str)] = &[
        (b"PUB \r\n", "PUB: wrong number of arguments"),
        (b"PUB a\n", "PUB: wrong number of arguments"),
        (b"PUB a b c 1\r\n", "PUB: wrong number of arguments"),
        (b"PUB a b c d e f\r\n", "PUB: wrong number of arguments"),
        (b"PUB a b\r\n", "PUB: bad size"),
        (b"PUB a -1\r\n", "PUB: bad size"),
        (b"PUB a +1\r\n", "PUB: bad size"),
        (b"PUB a 1x\r\n", "PUB: bad size"),
        (b"PUB a 1000000000\r\n", "PUB: bad size"),
        (b"PUB a 99999999999999999999\r\n", "PUB: bad size"),
        (b"HPUB a 1\r\n", "HPUB: wrong number of arguments"),
        (b"HPUB a b c 1 1\r\n", "HPUB: wrong number of arguments"),
        (b"HPUB a 3 2\r\n", "HPUB: bad sizes"),
        (b"HPUB a x 2\r\n", "HPUB: bad sizes"),
        (b"HPUB a 1 -2\r\n", "HPUB: bad sizes"),
        (b"SUB \r\n", "SUB: wrong number of arguments"),
        (b"SUB a\r\n", "SUB: wrong number of arguments"),
        (b"SUB a b c d\r\n", "SUB: wrong number of arguments"),
        (b"UNSUB \r\n", "UNSUB: wrong number of arguments"),
        (b"UNSUB 1 2 3\r\n", "UNSUB: wrong number of arguments"),
    ];
    for (stream, what) in vectors {
        let error = ParseError::Malformed(what);
        assert_eq!(error.err_text(), None);
        check_error::<FromClient>(stream, &LIMITS, &NONE, error);
    }
    for (stream, what) in [
        (&b"MSG a 1\r\n"[..], "MSG: wrong number of arguments"),
        (b"MSG a 1 b c 2\r\n", "MSG: wrong number of arguments"),
        (b"MSG a 1 x\r\n", "MSG: bad size"),
        (b"HMSG a 1 2\r\n", "HMSG: wrong number of arguments"),
        (b"HMSG a 1 3 2\r\n", "HMSG: bad sizes"),
    ] {
        check_error::<FromServer>(stream, &LIMITS, &NONE, ParseError::Malformed(what));
    }
}

#[test]
fn headers_need_negotiation() {
    let without = Limits {
        headers: false,
        ..LIMITS
    };
    let error = ParseError::Malformed("headers were not negotiated");
    check_error::<FromClient>(b"HPUB a 12 12\r\n", &without, &NONE, error);

    // The limits of the moment decide, also within one read.
    let mut input = &b"CONNECT {}\r\nHPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n"[..];
    let mut parser = Parser::<FromClient>::new();
    let op = parser.next(&without, &mut input).unwrap().unwrap();
    assert_eq!(op, ClientOp::Connect(b"{}"));
    let op = parser.next(&LIMITS, &mut input).unwrap().unwrap();
    assert!(matches!(
        op,
        ClientOp::Pub(Message {
            headers: Some(_),
            ..
        })
    ));

    // They apply when the control line is read, not later.
    let mut parser = Parser::<FromClient>::new();
    let (mut line, mut rest) = (&b"HPUB a 12 13\r\n"[..], &b"NATS/1.0\r\n\r\nx\r\n"[..]);
    assert_eq!(parser.next(&LIMITS, &mut line), Ok(None));
    let op = parser.next(&without, &mut rest).unwrap().unwrap();
    assert!(matches!(op, ClientOp::Pub(Message { payload: b"x", .. })));
}

#[test]
fn payloads_over_the_limit_fail_at_their_control_line() {
    let too_large = |size| ParseError::PayloadTooLarge { size, limit: 100 };
    assert_eq!(too_large(101).err_text(), Some("Maximum Payload Violation"));
    for (stream, size) in [
        (&b"PUB a 101\r\n"[..], 101),
        (b"PUB a r 999999999\n", 999_999_999),
        (b"HPUB a 12 101\r\n", 101),
    ] {
        check_error::<FromClient>(stream, &LIMITS, &NONE, too_large(size));
    }
    let mut exact = b"PUB a 100\r\n".to_vec();
    exact.extend_from_slice(&[b'x'; 100]);
    exact.extend_from_slice(b"\r\n");
    check_ops::<FromClient>(&exact, &[publish(b"a", None, &[b'x'; 100])]);
}

#[test]
fn control_lines_over_the_limit_fail_before_their_end() {
    let error = ParseError::ControlLineTooLong { limit: 64 };
    assert_eq!(error.err_text(), Some("maximum control line exceeded"));
    let subject = |len| vec![b's'; len];
    // "SUB " and 64 bytes of arguments, of which the last two are the SID's.
    let fits = [b"SUB ", &subject(62)[..], b" 1"].concat();
    for end in [&b"\r\n"[..], b"\n"] {
        let stream = [&fits[..], end].concat();
        check_ops::<FromClient>(&stream, &[subscribe(&subject(62), None, b"1")]);
    }
    for start in [
        "SUB ", "PUB ", "PUB a ", "CONNECT ", "CONNECT", "PING", "INFO ", "-ERR ",
    ] {
        let stream = [start.as_bytes(), &[b'x'; 65]].concat();
        check_error::<FromClient>(&stream, &LIMITS, &NONE, error);
    }
    let stream = [&b"INFO "[..], &[b'x'; 65]].concat();
    check_error::<FromServer>(&stream, &LIMITS, &NONE, error);
    // Blanks count, too: they are kept like anything else.
    let stream = [&b"SUB "[..], &[b' '; 65]].concat();
    check_error::<FromClient>(&stream, &LIMITS, &NONE, error);
    // A name that cannot be is reported as that, however long the line.
    let stream = [b'x'; 500];
    check_error::<FromClient>(&stream, &LIMITS, &NONE, ParseError::UnknownOperation);
}

#[test]
fn idle_parsers_keep_nothing() {
    assert!(size_of::<Parser<FromClient>>() <= 8);
    let mut parser = Parser::<FromClient>::new();
    let mut input = &b"PUB a 3\r\nabc\r\nPING\r\nSU"[..];
    assert!(parser.next(&LIMITS, &mut input).unwrap().is_some());
    assert_eq!(
        parser.kept_bytes(),
        0,
        "the operation lay whole in the input"
    );
    assert_eq!(parser.next(&LIMITS, &mut input), Ok(Some(ClientOp::Ping)));
    assert_eq!(parser.next(&LIMITS, &mut input), Ok(None));
    assert!(parser.kept_bytes() >= 2);
    let mut input = &b"B a 1\r\n"[..];
    let op = parser.next(&LIMITS, &mut input).unwrap();
    assert_eq!(op, Some(subscribe(b"a", None, b"1")));
    assert_eq!(parser.next(&LIMITS, &mut input), Ok(None));
    assert_eq!(parser.kept_bytes(), 0);
}

#[test]
fn memory_follows_what_arrived() {
    let limits = Limits::default();
    let mut parser = Parser::<FromClient>::new();
    let mut input = &b"PUB a 1048576\r\nonly this"[..];
    assert_eq!(parser.next(&limits, &mut input), Ok(None));
    assert!(parser.kept_bytes() < 64, "{}", parser.kept_bytes());
    let piece = [b'p'; 4000];
    for count in 1..=200 {
        assert_eq!(parser.next(&limits, &mut &piece[..]), Ok(None));
        let arrived = 24 + count * piece.len();
        assert!(parser.kept_bytes() <= 2 * arrived);
        assert!(parser.kept_bytes() <= DEFAULT_MAX_PAYLOAD + 32);
    }
    assert!(!format!("{parser:?}").contains("pppp"));
}

#[test]
fn debug_output_shows_no_credentials() {
    let json = br#"{"pass":"s3cret"}"#;
    assert!(!format!("{:?}", ClientOp::Connect(json)).contains("s3cret"));
    let mut parser = Parser::<FromClient>::new();
    let mut input = &br#"CONNECT {"pass":"s3cret""#[..];
    assert_eq!(parser.next(&LIMITS, &mut input), Ok(None));
    assert!(!format!("{parser:?}").contains("s3cret"));
}
